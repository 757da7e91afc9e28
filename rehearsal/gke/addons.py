"""What every GKE cluster has from its first day: the kinds of its add-ons, and the classes of its disks."""

from __future__ import annotations

from pathlib import Path

import yaml

from rehearsal.gke.api import Api, ApiError

MANIFESTS = Path(__file__).with_suffix(".yaml")
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


class Addons:
    """Makes them once; whoever takes one away has done so for good."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._made = False

    def reconcile(self) -> None:
        """Make what is not there yet."""
        if self._made:
            return
        for manifest in yaml.safe_load_all(MANIFESTS.read_text()):
            try:
                self._api.create(PATHS[manifest["kind"]], manifest)
            except ApiError as error:
                if error.status != 409:
                    raise
        self._made = True
