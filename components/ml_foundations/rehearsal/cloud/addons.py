"""What a GKE cluster has: kinds of add-ons, classes of disks, a quota of critical pods, DaemonSets on its nodes."""

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
from ml_foundations.rehearsal.api import Api, condition

NAMESPACE = "kube-system"
_OWN = "ml-foundations/gke"
OTHERS = f"!{_OWN}"
"""Selects all pods but those of GKE's own DaemonSets, which are most of a large cluster's and keep no node."""
_LOOKS, _LOOK_SECONDS = 50, 0.02
_LONG_AGO = "2020-01-01T00:00:00Z"
_MANIFESTS = Path(__file__).with_suffix(".yaml")
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ResourceQuota": f"/api/v1/namespaces/{NAMESPACE}/resourcequotas",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


class Addons:
    """Makes kinds, classes and the quota once; one that is deleted stays deleted."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._missing = [*yaml.safe_load_all(_MANIFESTS.read_text()), *own_classes({})]

    def reconcile(self, cluster: Mapping[str, Any] | None = None) -> None:
        """Make what is not there yet, by the properties of the cluster; one that exists already has all."""
        without = missing_kinds(cluster) | missing_drivers(cluster) if cluster else {}
        off = [
            each
            for each in self._missing
            if section(each, "spec").get("group", each.get("provisioner")) in without
        ]
        present = [each for each in self._missing if each not in off]
        for manifest in present:
            self._api.ensure(_PATHS[manifest["kind"]], manifest)
        for manifest in present:
            if manifest["kind"] == "CustomResourceDefinition":
                self._age(f"{_PATHS[manifest['kind']]}/{name_of(manifest)}")
        self._missing = off

    def _age(self, path: str) -> None:
        """Say of a kind that it was always served: GKE's are as old as the cluster.

        Of a kind that is younger than two seconds, the API server holds up the first objects for as long
        (apiextensions-apiserver, pkg/apiserver/customresource_handler.go).
        """
        for _ in range(_LOOKS):
            found = self._api.get(path)
            if condition(found, "Established").get("status") == "True":
                aged = [
                    each | {"lastTransitionTime": _LONG_AGO}
                    for each in found["status"]["conditions"]
                ]
                self._api.patch(f"{path}/status", {"status": {"conditions": aged}})
                break
            time.sleep(_LOOK_SECONDS)


def daemon_sets(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The DaemonSets that GKE runs in a cluster, by its properties, and which take part of every node."""
    present = cluster_features(cluster) | {"managed-gpu"}
    return [_daemon_set(entry) for entry in system_daemonsets() if entry.runs_where in present]


def _daemon_set(entry: SystemDaemonSet) -> dict[str, Any]:
    selector = {"k8s-app": entry.name}
    requests = {
        name: value for name, value in (("cpu", entry.cpu), ("memory", entry.memory)) if value
    }
    spec: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {"name": entry.name, "image": entry.image, "resources": {"requests": requests}}
        ],
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
