"""How many pods a server has: a HorizontalPodAutoscaler on CPU, on a metric of the pods, or on both."""

from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Quantity
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.workloads.serving import ServerSpec, metadata


class AutoscalingArgs(TypedDict):
    """When an InferenceService gets more pods, and how many at the most."""

    max_replicas: int
    """The most pods; the fewest are the service's replicas."""
    cpu_percent: NotRequired[int]
    """The CPU use, in percent of what pods request, that is aimed at."""
    metric: NotRequired[str]
    """A metric of the pods, as the custom metrics API names it, such as vllm_num_requests_waiting."""
    target: NotRequired[str]
    """The metric's value for each pod, on average, that is aimed at, such as 5."""
    scale_down_seconds: NotRequired[int]
    """How long demand must have been lower before pods are taken away; default 300."""


class Autoscaling(Spec):
    """A checked AutoscalingArgs."""

    max_replicas: int = Field(ge=1)
    cpu_percent: int | None = Field(None, ge=1)
    metric: str | None = None
    target: Quantity | None = None
    scale_down_seconds: int = Field(300, ge=0, le=3600)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.cpu_percent is None and self.metric is None:
            yield "metric", "is missing: say cpu_percent, or metric and target"
        if (self.metric is None) != (self.target is None):
            yield "target", "metric and target go together: give both, or neither"


def autoscaler_manifest(spec: ServerSpec, autoscaling: Autoscaling, deployment: str, least: int) -> dict[str, Any]:
    """The HorizontalPodAutoscaler.

    Args:
        spec: The server.
        autoscaling: When it gets more pods, and how many.
        deployment: The name of its Deployment.
        least: The fewest pods.
    """
    metrics: list[dict[str, Any]] = []
    if autoscaling.cpu_percent is not None:
        target = {"type": "Utilization", "averageUtilization": autoscaling.cpu_percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    if autoscaling.metric is not None:
        target = {"type": "AverageValue", "averageValue": autoscaling.target}
        metrics.append({"type": "Pods", "pods": {"metric": {"name": autoscaling.metric}, "target": target}})
    return overridden(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata(spec),
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
                "minReplicas": least,
                "maxReplicas": autoscaling.max_replicas,
                "metrics": metrics,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": autoscaling.scale_down_seconds}},
            },
        },
        spec.overrides,
    )
