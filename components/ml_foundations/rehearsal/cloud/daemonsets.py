"""GKE's own DaemonSets, which take part of every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_foundations.catalog.node_resources import SystemDaemonSet, cluster_features, system_daemonsets
from ml_foundations.kubernetes import labels

NAMESPACE = "kube-system"


def manifests(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The DaemonSets that GKE runs in a cluster.

    Args:
        cluster: The cluster's properties, as the gcp provider names them.
    """
    present = cluster_features(cluster) | {"managed-gpu"}
    return [_manifest(entry) for entry in system_daemonsets() if entry.runs_where in present]


def _manifest(entry: SystemDaemonSet) -> dict[str, Any]:
    selector = {"k8s-app": entry.name}
    requests = {"cpu": entry.cpu, "memory": entry.memory}
    spec: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": entry.name,
                "image": entry.image,
                "resources": {"requests": {name: value for name, value in requests.items() if value}},
            }
        ],
    }
    if entry.runs_where == "workload-identity":
        spec["nodeSelector"] = {"iam.gke.io/gke-metadata-server-enabled": "true"}
    if entry.runs_where == "managed-gpu":
        expressions = [
            {"key": labels.GKE_ACCELERATOR, "operator": "Exists"},
            {"key": labels.GKE_NO_DEVICE_PLUGIN, "operator": "DoesNotExist"},
        ]
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": entry.name,
            "namespace": NAMESPACE,
            "labels": selector | {"addonmanager.kubernetes.io/mode": "Reconcile"},
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": spec},
        },
    }
