"""GKE's add-ons: kinds, storage classes, the quota of critical pods, and DaemonSets."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.catalog.gke_kinds import missing_drivers, missing_kinds, own_classes
from ml_foundations.catalog.node_resources import (
    SystemDaemonSet,
    cluster_features,
    system_daemonsets,
)
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import api_object, name_of, section
from ml_foundations.kubernetes.selectors import node_affinity
from ml_foundations.rehearsal.api import Api, Object, condition

NAMESPACE = "kube-system"
_OWN = "ml-foundations/gke"
OTHERS = f"!{_OWN}"
"""Selects all pods except those of GKE's DaemonSets: most pods of a large cluster are theirs."""
_CHECKS, _CHECK_SECONDS = 50, 0.02
_LONG_AGO = "2020-01-01T00:00:00Z"
_MANIFESTS = Path(__file__).with_suffix(".yaml")
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ResourceQuota": f"/api/v1/namespaces/{NAMESPACE}/resourcequotas",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


class Addons:
    """Creates kinds, classes and the quota once. One that is deleted stays deleted."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._missing = [*yaml.safe_load_all(_MANIFESTS.read_text()), *own_classes({})]

    def reconcile(self, cluster: Mapping[str, Any] | None = None) -> None:
        """Create the objects that a cluster with these properties has; None means all of them."""
        disabled = missing_kinds(cluster) | missing_drivers(cluster) if cluster else {}
        missing: list[Object] = []
        created_kinds: list[str] = []
        for manifest in self._missing:
            if section(manifest, "spec").get("group", manifest.get("provisioner")) in disabled:
                missing.append(manifest)
                continue
            collection = _PATHS[manifest["kind"]]
            self._api.ensure(collection, manifest)
            if manifest["kind"] == "CustomResourceDefinition":
                created_kinds.append(f"{collection}/{name_of(manifest)}")
        for path in created_kinds:
            self._age(path)
        self._missing = missing

    def _age(self, path: str) -> None:
        """Report that a kind was established long ago, as in an existing cluster.

        The API server delays the first objects of a kind that is younger than two seconds
        (apiextensions-apiserver, pkg/apiserver/customresource_handler.go).
        """
        for _ in range(_CHECKS):
            kind = self._api.get(path)
            if condition(kind, "Established").get("status") == "True":
                conditions = [
                    item | {"lastTransitionTime": _LONG_AGO}
                    for item in kind["status"]["conditions"]
                ]
                self._api.patch(f"{path}/status", {"status": {"conditions": conditions}})
                return
            time.sleep(_CHECK_SECONDS)


def daemon_sets(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the DaemonSets that GKE runs in a cluster with these properties."""
    features = cluster_features(cluster) | {"managed-gpu"}
    return [_daemon_set(entry) for entry in system_daemonsets() if entry.runs_where in features]


def _daemon_set(entry: SystemDaemonSet) -> dict[str, Any]:
    selector = {"k8s-app": entry.name}
    requests: dict[str, str] = {}
    if entry.cpu:
        requests["cpu"] = entry.cpu
    if entry.memory:
        requests["memory"] = entry.memory
    container = {"name": entry.name, "image": entry.image, "resources": {"requests": requests}}
    spec: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    if entry.runs_where == "workload-identity":
        spec["nodeSelector"] = {"iam.gke.io/gke-metadata-server-enabled": "true"}
    if entry.runs_where == "managed-gpu":
        spec["affinity"] = node_affinity(
            {"key": labels.GKE_ACCELERATOR, "operator": "Exists"},
            {"key": labels.GKE_NO_DEVICE_PLUGIN, "operator": "DoesNotExist"},
        )
    mode = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    metadata = {"name": entry.name, "namespace": NAMESPACE, "labels": selector | mode}
    template = {"metadata": {"labels": selector | {_OWN: "true"}}, "spec": spec}
    daemon_set = {"selector": {"matchLabels": selector}, "template": template}
    return api_object("apps/v1", "DaemonSet", metadata, spec=daemon_set)
