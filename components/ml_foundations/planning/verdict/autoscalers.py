"""Autoscalers that never scale: what they go by is not measured, or nothing serves it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from ml_foundations.catalog.gke_kinds import METRICS_ADAPTER, METRICS_NEED, missing_for_metrics
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.declared import full_name, written_kind
from ml_foundations.planning.model.refusals import Refusal

_BY_ADAPTER = {"Object": "custom", "Pods": "custom", "External": "external"}
"""Types of metrics that an adapter serves, with its API.

See Kubernetes, "Horizontal Pod Autoscaling".
"""
_OF_RESOURCES = ("Resource", "ContainerResource")
_NO_ADAPTER = (
    "which nothing serves that is declared: without an adapter it never scales",
    "Declare a MetricsAdapter, or another adapter (an APIService of custom.metrics.k8s.io or"
    " external.metrics.k8s.io), have GKE serve the metric (autoscaling.gke.io AutoscalingMetric; an"
    " InferenceService: served_by gke), or scale by CPU.",
)
"""What is wrong with a metric that nothing serves, and the remedy."""


def competing(scalers: Sequence[Manifest]) -> Iterator[Refusal]:
    """Yield the autoscalers of one workload, if there are several: then none of them scales it."""
    # See Kubernetes, pkg/controller/podautoscaler: AmbiguousSelector.
    if len(scalers) > 1:
        several = sorted(str(name_of(scaler)) for scaler in scalers)
        message = f"{names(several)} all scale it, so that none does"
        remedy = "Keep one HorizontalPodAutoscaler, with all metrics."
        yield Refusal("autoscaling-metric", "spec.scaleTargetRef", message, remedy)


def unmeasured(admitted: AdmittedWorkload, scaler: Manifest) -> Iterator[Refusal]:
    """Yield resources whose use an autoscaler cannot measure, so that it never scales."""
    # See Kubernetes, pkg/controller/podautoscaler.
    containers: list[Manifest] = []
    of_pod: set[str] = set()
    for _, pod in admitted.pod_sets:
        containers += items(pod.spec, "containers")
        of_pod.update(section(pod.spec, "resources", "requests"))
    for type_, source in _metrics(scaler, _OF_RESOURCES):
        resource = source.get("name")
        container = source.get("container")
        if not isinstance(resource, str):
            continue
        measured = [c for c in containers if container in (None, c.get("name"), UNKNOWN)]
        requests = [section(c, "resources", "requests").keys() | of_pod for c in measured]
        is_relative = section(source, "target").get("type") == "Utilization"
        if resource not in ("cpu", "memory"):
            why = f"of resources, only the use of cpu and memory is measured, not of {resource}"
        elif not measured:
            why = f"the pods have no container {container}"
        elif is_relative and not all(resource in requested for requested in requests):
            part = f"the part of the requested {resource} that is used"
            why = f"it goes by {part}, and not all containers request {resource}"
        else:
            continue
        message = f"{written_kind(scaler)} {name_of(scaler)} never scales it: {why}"
        remedy = f"Request {resource} in each container, or scale by what is measured."
        yield Refusal("autoscaling-metric", f"spec.metrics.{type_}", message, remedy)


def unserved_metrics(cluster: Cluster, gke: Manifest | None) -> Iterator[Refusal]:
    """Yield metrics that nothing declared serves."""
    adapters: dict[str, Any] = {}
    for service in cluster.by_kind["APIService"]:
        group, _, _ = str(section(service, "spec").get("group")).partition(".")
        adapters[group] = section(service, "spec", "service").get("name")
    for scaler in cluster.by_kind["HorizontalPodAutoscaler"]:
        for type_, source in _metrics(scaler, _BY_ADAPTER):
            name = section(source, "metric").get("name")
            if not isinstance(name, str):
                continue
            has_adapter = _BY_ADAPTER[type_] in adapters
            if name.startswith(labels.GKE_METRIC):
                problem = _not_by_gke(cluster, scaler, name, gke)
                has_adapter = False
            elif not has_adapter:
                problem = _NO_ADAPTER
            elif adapters[_BY_ADAPTER[type_]] == METRICS_ADAPTER and "|" not in name:
                # See GoogleCloudPlatform/k8s-stackdriver, custom-metrics-stackdriver-adapter,
                # provider.go.
                problem = (
                    f"which Google's adapter looks up as custom.googleapis.com/{name}",
                    f"Write prometheus.googleapis.com|{name}|gauge, if Managed Service for "
                    "Prometheus collects it.",
                )
            else:
                problem = None
            if problem:
                path = f"spec.metrics.{type_.lower()}.metric.name"
                why, remedy = problem
                message = f"it scales by {name}, {why}"
                # Their autoscaler does nothing, and only its status reports it. It is certain if
                # the cluster's properties are given: then everything in it is declared. Nobody
                # knows what an adapter finds.
                about = full_name(scaler)
                is_certain = gke is not None and not has_adapter
                yield Refusal("autoscaling-metric", path, message, remedy, is_certain, about)


def _metrics(scaler: Manifest, types: Iterable[str]) -> Iterator[tuple[str, Manifest]]:
    """Yield an autoscaler's metrics of some types, each with its type."""
    metrics = section(scaler, "spec").get("metrics")
    listed = cast("list[Any]", metrics) if isinstance(metrics, list) else []
    for metric in filter(is_mapping, listed):
        if (type_ := str(metric.get("type"))) in types:
            yield type_, section(metric, f"{type_[0].lower()}{type_[1:]}")


def _not_by_gke(
    cluster: Cluster, scaler: Manifest, name: str, gke: Manifest | None
) -> tuple[str, str] | None:
    """Return why GKE does not serve a metric, or may not, and the remedy; None if it does."""
    if gke is None:
        message = "which GKE may serve: whether the cluster does is not known"
        return message, f"See that it has {METRICS_NEED}."
    if missing := missing_for_metrics(gke):
        message = "which GKE does not serve in this cluster"
        return message, f"Set {missing}, or scale by CPU."
    owner, _, metric = name.removeprefix(labels.GKE_METRIC).partition("|")
    for served in cluster.by_kind["AutoscalingMetric"]:
        is_here = _may_be(namespace_of(served), namespace_of(scaler))
        is_its = is_here and _may_be(name_of(served), owner)
        if is_its and any(_may_be(gauge, metric) for gauge in _gauges(served)):
            return None
    metric_object = f"{namespace_of(scaler)}/{owner}"
    message = "which GKE does not know: no AutoscalingMetric reads it"
    remedy = f"Declare an AutoscalingMetric {metric_object} with a gauge {metric}, or scale by CPU."
    return message, remedy


def _may_be(value: Any, expected: Any) -> bool:
    return value == expected or UNKNOWN in (value, expected)


def _gauges(tree: Any) -> Iterator[Any]:
    """Yield the names by which autoscalers may ask for what an AutoscalingMetric reads."""
    if tree is UNKNOWN:
        yield tree
    elif is_mapping(tree):
        gauge = section(tree, "gauge")
        yield gauge.get("name") or gauge.get("prometheusMetricName")
        for value in tree.values():
            yield from _gauges(value)
    elif isinstance(tree, list):
        for value in cast("list[Any]", tree):
            yield from _gauges(value)
