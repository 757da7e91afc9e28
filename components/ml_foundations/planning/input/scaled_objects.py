"""KEDA's ScaledObjects as the HorizontalPodAutoscalers that it makes of them.

See kedacore/keda, apis/keda/v1alpha1/scaledobject_types.go and controllers/keda/hpa.go.
"""

from collections.abc import Iterable
from typing import Any

from ml_foundations.kubernetes.labels import MADE_FROM
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    api_object,
    name_of,
    namespace_of,
    section,
)

_KEDA = "keda.sh/v1alpha1"
_PAUSED = "autoscaling.keda.sh/paused"
_PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
_MOST = 100
"""The most replicas without a maxReplicaCount."""


def with_autoscalers(documents: Iterable[Manifest]) -> list[Manifest]:
    """Return documents with the autoscaler of each ScaledObject in its place; none if paused."""
    made: list[Manifest] = []
    for document in documents:
        if (document.get("apiVersion"), document["kind"]) != (_KEDA, "ScaledObject"):
            made.append(document)
        elif annotations_of(document).get(_PAUSED, "false") == "false":
            made.append(_autoscaler(document))
    return made


def _autoscaler(scaled: Manifest) -> Manifest:
    spec = section(scaled, "spec")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", **section(spec, "scaleTargetRef")}
    target = {key: target.get(key) for key in ("apiVersion", "kind", "name")}
    # Between none and one replica, KEDA scales by itself.
    least: Any = spec.get("minReplicaCount") or 1
    most: Any = spec.get("maxReplicaCount", _MOST)
    paused: Any = annotations_of(scaled).get(_PAUSED_REPLICAS)
    if isinstance(paused, str) and paused.isdecimal():
        least = most = max(1, int(paused))
    # It has the name that the user wrote: findings are about the ScaledObject.
    metadata: Manifest = {"name": name_of(scaled), "namespace": namespace_of(scaled)}
    metadata = {**metadata, "annotations": {MADE_FROM: "ScaledObject"}}
    bounds = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}
    return api_object("autoscaling/v2", "HorizontalPodAutoscaler", metadata, spec=bounds)
