"""The quota for critical pods, without which GKE admits none outside of kube-system."""

from typing import Any

from ml_foundations.kubernetes.quantities import canonical_quantity

CRITICAL = ("system-node-critical", "system-cluster-critical")


def critical_pods_quota(name: str, namespace: str, pods: int) -> dict[str, Any]:
    """A quota for critical pods alone: other pods do not count (NVIDIA/gpu-operator issue 660)."""
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": list(CRITICAL)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {"pods": canonical_quantity(pods)}, "scopeSelector": {"matchExpressions": [scope]}},
    }
