"""Autoscaling of a server by CPU, by a metric of its pods, or by both."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Quantity
from ml_foundations.kubernetes.labels import GKE_METRIC
from ml_foundations.kubernetes.objects import api_object

POD_LABEL = "ml-foundations-server"
"""The label by which GKE finds the pods of a metric: a label's name has no dots and
slashes there."""


class Autoscaling(Spec):
    """The limits and the metric for the number of pods or groups of an InferenceService."""

    max_replicas: int = Field(ge=1)
    """The most pods or groups. The fewest are replicas of the service."""
    cpu_percent: int | None = Field(None, ge=1)
    """The target CPU use, in percent of the pods' requests."""
    metric: str | None = None
    """A metric of the pods, such as vllm:num_requests_waiting. For an adapter, its name in the
    custom metrics API."""
    target: Quantity | None = None
    """The target value of the metric, averaged over the pods, such as 5."""
    served_by: Literal["adapter", "gke"] = "adapter"
    """Who serves the metric: adapter or gke. The default is adapter.

    adapter: an adapter in the cluster (custom metrics API). gke: GKE reads a gauge from the pods'
    metrics_path. It needs GKE 1.35.1-gke.1396000, the release channel RAPID, and the hpa_profile
    PERFORMANCE of the cluster.
    """
    scale_down_seconds: int = Field(300, ge=0, le=3600)
    """Seconds of lower demand before pods are removed. The default is 300."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.cpu_percent is None and self.metric is None:
            yield "metric", "is required: set cpu_percent, or metric and target"
        if (self.metric is None) != (self.target is None):
            yield "target", "metric and target go together; set both, or neither"
        if self.served_by == "gke" and self.metric is None:
            yield "served_by", "names who serves the metric, but there is no metric; leave it out"

    def manifest(
        self, metadata: Mapping[str, Any], target: Mapping[str, str], least: int
    ) -> dict[str, Any]:
        """Return the HorizontalPodAutoscaler of an object, with the fewest replicas."""
        metrics: list[dict[str, Any]] = []
        if self.cpu_percent is not None:
            use = {"type": "Utilization", "averageUtilization": self.cpu_percent}
            metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": use}})
        if self.metric is not None:
            value = {"type": "AverageValue", "averageValue": self.target}
            of_gke = f"{GKE_METRIC}{metadata['name']}|{_gke_name(self.metric)}"
            name = of_gke if self.served_by == "gke" else self.metric
            metrics.append({"type": "Pods", "pods": {"metric": {"name": name}, "target": value}})
        spec = {
            "scaleTargetRef": {**target},
            "minReplicas": least,
            "maxReplicas": self.max_replicas,
            "metrics": metrics,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": self.scale_down_seconds}},
        }
        return api_object("autoscaling/v2", "HorizontalPodAutoscaler", metadata, spec=spec)

    def served_metric(
        self, metadata: Mapping[str, Any], pods: str, port: int, path: str
    ) -> dict[str, Any]:
        """Return the AutoscalingMetric of the pods (GKE, "Expose custom metrics")."""
        metric = self.metric or ""
        read = {"gauge": {"name": _gke_name(metric), "prometheusMetricName": metric}}
        container = {"endpoint": {"port": port, "path": path}, "metrics": [read]}
        pod = {"selector": {"matchLabels": {POD_LABEL: pods}}, "containers": [container]}
        spec = {"metrics": [{"pod": pod}]}
        return api_object("autoscaling.gke.io/v1beta1", "AutoscalingMetric", metadata, spec=spec)


def _gke_name(metric: str) -> str:
    """Return a metric's name for GKE: at most 63 lower case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", metric.lower()).strip("-")[:63]
