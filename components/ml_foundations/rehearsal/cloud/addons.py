"""What every GKE cluster has from its first day: the kinds of its add-ons, and the classes of its disks."""

from __future__ import annotations

from pathlib import Path

import yaml

from ml_foundations.rehearsal.api import Api

_MANIFESTS = Path(__file__).with_suffix(".yaml")
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


class Addons:
    """Makes them once; one that is deleted stays deleted."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._made = False

    def reconcile(self) -> None:
        """Make what is not there yet."""
        if self._made:
            return
        for manifest in yaml.safe_load_all(_MANIFESTS.read_text()):
            self._api.ensure(_PATHS[manifest["kind"]], manifest)
        self._made = True
