"""The kinds of volume snapshots, which every GKE cluster serves."""

from __future__ import annotations

from pathlib import Path

import yaml

from rehearsal.gke.api import Api, ApiError

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANIFESTS = Path(__file__).with_name("snapshot_crds.yaml")


class Snapshots:
    """Defines the kinds once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._defined = False

    def reconcile(self) -> None:
        """Define what is not defined yet."""
        if self._defined:
            return
        for manifest in yaml.safe_load_all(MANIFESTS.read_text()):
            try:
                self._api.create(CRDS, manifest)
            except ApiError as error:
                if error.status != 409:
                    raise
        self._defined = True
