"""How many pods a server has: a HorizontalPodAutoscaler on CPU, on a metric of the pods, or on both."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Quantity


class Autoscaling(Spec):
    """When an InferenceService gets more pods, and at most how many."""

    max_replicas: int = Field(ge=1)
    """The most pods; the fewest are the service's replicas."""
    cpu_percent: int | None = Field(None, ge=1)
    """The target CPU use, in percent of what pods request."""
    metric: str | None = None
    """A metric of the pods, as the custom metrics API names it, such as vllm_num_requests_waiting."""
    target: Quantity | None = None
    """The metric's target value per pod, on average, such as 5."""
    scale_down_seconds: int = Field(300, ge=0, le=3600)
    """Seconds that demand must have been lower before pods are removed; default 300."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.cpu_percent is None and self.metric is None:
            yield "metric", "is missing: say cpu_percent, or metric and target"
        if (self.metric is None) != (self.target is None):
            yield "target", "metric and target go together: give both, or neither"

    def manifest(self, metadata: Mapping[str, Any], deployment: str, least: int) -> dict[str, Any]:
        """The HorizontalPodAutoscaler.

        Args:
            metadata: Its metadata.
            deployment: The name of the Deployment that it scales.
            least: The fewest pods.
        """
        metrics: list[dict[str, Any]] = []
        if self.cpu_percent is not None:
            target = {"type": "Utilization", "averageUtilization": self.cpu_percent}
            metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        if self.metric is not None:
            target = {"type": "AverageValue", "averageValue": self.target}
            metrics.append({"type": "Pods", "pods": {"metric": {"name": self.metric}, "target": target}})
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
                "minReplicas": least,
                "maxReplicas": self.max_replicas,
                "metrics": metrics,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": self.scale_down_seconds}},
            },
        }
