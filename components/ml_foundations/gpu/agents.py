"""The namespace and the tolerations of agents on GPU nodes."""

from collections.abc import Iterable, Iterator
from typing import Any

from ml_foundations.catalog.operator_nodes import CRITICAL_CLASSES
from ml_foundations.component.children import ChildResource
from ml_foundations.component.tolerations import Toleration, toleration_manifest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.quantities import canonical_quantity


def agent_namespace(name: str, quota: str, critical_pods: int | None) -> Iterator[ChildResource]:
    """Yield a namespace for privileged pods, and a quota for its critical pods if it has any."""
    privileges = {"pod-security.kubernetes.io/enforce": "privileged"}
    metadata = {"name": name, "labels": privileges}
    yield ChildResource("namespace", api_object("v1", "Namespace", metadata))
    if critical_pods is None:
        return
    # Without a quota for them, GKE admits no critical pods outside of kube-system. The scope keeps
    # the namespace's other pods out of it (NVIDIA/gpu-operator issue 660).
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": list(CRITICAL_CLASSES)}
    hard = {"pods": canonical_quantity(critical_pods)}
    selector = {"matchExpressions": [scope]}
    spec = {"hard": hard, "scopeSelector": selector}
    metadata = {"name": quota, "namespace": name}
    manifest = api_object("v1", "ResourceQuota", metadata, spec=spec)
    yield ChildResource("critical-pods", manifest, depends_on=["namespace"])


def agent_tolerations(more: Iterable[Toleration]) -> list[dict[str, Any]]:
    """Return the toleration of the GPU taint, and more."""
    gpu = {"key": labels.GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
    return [gpu, *map(toleration_manifest, more)]
