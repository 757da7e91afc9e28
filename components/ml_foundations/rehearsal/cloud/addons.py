"""GKE's add-ons: kinds, storage classes, the quota of critical pods, and DaemonSets."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_foundations.catalog import node_resources
from ml_foundations.catalog.gke_kinds import missing_drivers, missing_kinds, own_classes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import api_object, name_of, namespace_of, section
from ml_foundations.kubernetes.packaged_yaml import packaged_documents
from ml_foundations.kubernetes.selectors import node_affinity
from ml_foundations.rehearsal.api import Api, Object, condition
from ml_foundations.rehearsal.cloud.cluster import GKE_LABEL, Cluster, Controller
from ml_foundations.rehearsal.cloud.informer import attempt

NAMESPACE = "kube-system"
_CHECKS = 50
_CHECK_SECONDS = 0.02
_LONG_AGO = "2020-01-01T00:00:00Z"
_MANIFESTS = [Path(__file__).with_name(name) for name in ("addons.yaml", "gateways.yaml")]
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "DaemonSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
    "ResourceQuota": f"/api/v1/namespaces/{NAMESPACE}/resourcequotas",
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "MutatingAdmissionPolicy": f"{_ADMISSION}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{_ADMISSION}/mutatingadmissionpolicybindings",
}
"""The collections of the kinds that GKE's add-ons and its metrics have."""


class Addons:
    """Creates kinds, classes and the quota once. One that is deleted stays deleted."""

    def __init__(self, api: Api) -> None:
        self._api = api
        manifests = "\n---\n".join(path.read_text() for path in _MANIFESTS)
        self._missing = [*packaged_documents(manifests), *own_classes({})]

    def reconcile(self, cluster: Mapping[str, Any] | None = None) -> None:
        """Create the objects that a cluster with these properties has; None means all of them."""
        disabled = missing_kinds(cluster) | missing_drivers(cluster) if cluster else {}
        missing: list[Object] = []
        created: list[Object] = []
        for manifest in self._missing:
            owner = section(manifest, "spec").get("group", manifest.get("provisioner"))
            is_disabled = owner in disabled or name_of(manifest) in disabled
            (missing if is_disabled else created).append(manifest)
        for manifest in created:
            self._api.ensure(PATHS[manifest["kind"]], manifest)
        for manifest in created:
            if manifest["kind"] == "CustomResourceDefinition":
                self._age(f"{PATHS[manifest['kind']]}/{name_of(manifest)}")
        self._missing = missing

    def _age(self, path: str) -> None:
        """Report that a kind was established long ago, as in an existing cluster."""
        # The API server delays the first objects of a kind that is younger than two seconds
        # (apiextensions-apiserver, pkg/apiserver/customresource_handler.go).
        for _ in range(_CHECKS):
            kind = self._api.get(path)
            if condition(kind, "Established").get("status") == "True":
                for item in kind["status"]["conditions"]:
                    item["lastTransitionTime"] = _LONG_AGO
                conditions = {"conditions": kind["status"]["conditions"]}
                self._api.patch(f"{path}/status", {"status": conditions})
                return
            time.sleep(_CHECK_SECONDS)


class AddonController(Controller):
    """Creates what GKE adds to a declared cluster, and its DaemonSets again if they are deleted."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._addons = Addons(cluster.api)

    def reconcile(self) -> None:
        """Create what is missing."""
        if not (self.cluster.declared or self.cluster.pools):
            return
        with attempt("kinds and classes of GKE"):
            self._addons.reconcile(self.cluster.properties)
        live = self.cluster.daemon_sets.items()
        existing = {name_of(item) for item in live if namespace_of(item) == NAMESPACE}
        for manifest in daemon_sets(self.cluster.properties):
            if name_of(manifest) not in existing:
                with attempt(f"GKE's own DaemonSet {name_of(manifest)}"):
                    self.api.ensure(PATHS["DaemonSet"], manifest)


def daemon_sets(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the DaemonSets that GKE runs in a cluster with these properties."""
    features = node_resources.cluster_features(cluster) | {"managed-gpu"}
    entries = node_resources.system_daemonsets()
    return [_daemon_set(entry) for entry in entries if entry.runs_where in features]


def _daemon_set(entry: node_resources.SystemDaemonSet) -> dict[str, Any]:
    selector = {"k8s-app": entry.name}
    amounts = {"cpu": entry.cpu, "memory": entry.memory}
    requests = {resource: amount for resource, amount in amounts.items() if amount}
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
    template = {"metadata": {"labels": selector | {GKE_LABEL: "true"}}, "spec": spec}
    daemon_set = {"selector": {"matchLabels": selector}, "template": template}
    return api_object("apps/v1", "DaemonSet", metadata, spec=daemon_set)
