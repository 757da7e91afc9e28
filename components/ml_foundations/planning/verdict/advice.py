"""What runs, and not as its owner expects: training that bypasses the networks between GPUs, metrics of nobody's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import Manifest, annotations_of, name_of, namespace_of, section
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import Candidate
from ml_foundations.planning.model.nodes import machine_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import gpus

_METRICS_API = "custom.metrics.k8s.io"
_BY_ADAPTER = {"Object": "object", "Pods": "pods", "External": "external"}
"""Kinds of metrics that an adapter serves, and their fields (Kubernetes, "Horizontal Pod Autoscaling")."""


def advise(cluster: Cluster, candidates: Iterable[Candidate]) -> None:
    """Warn the owners of workloads, whether they fit or not."""
    scalers: dict[tuple[Any, ...], Manifest] = {}
    for scaler in cluster.by_kind["HorizontalPodAutoscaler"]:
        target = section(scaler, "spec", "scaleTargetRef")
        scalers[target.get("kind"), namespace_of(scaler), target.get("name")] = scaler
    served = any(section(each, "spec").get("group") == _METRICS_API for each in cluster.by_kind["APIService"])
    for candidate in candidates:
        workload = candidate.workload
        if workload.all_at_once and workload.is_finite:
            candidate.warnings += _slow_networks(cluster, candidate)
        scaler = scalers.get((workload.kind, workload.namespace, workload.name))
        if scaler is not None and not served:
            candidate.warnings += _unserved_metrics(scaler)


def _slow_networks(cluster: Cluster, candidate: Candidate) -> Iterator[Refusal]:
    """Pods of one training that take whole nodes with networks between GPUs, and have no interface in them."""
    for pod_set, pod in candidate.sets:
        annotations, claims = annotations_of(pod_set.template), section(pod_set.template, "spec").get("resourceClaims")
        if pod_set.count < 2 or labels.GKE_INTERFACES in annotations or claims:
            continue
        machines = {machine.name: machine for place in cluster.accepting(pod) if (machine := machine_of(place.node))}
        for name, machine in sorted(machines.items()):
            wanted = gpus(pod.requests)
            if wanted < machine.gpu_count or machine.interface_gbps is None or machine.nic_gbps is None:
                continue
            message = (
                f"its {pod_set.count} pods of {wanted} GPUs talk to each other over one network interface of {name}: "
                f"at most {machine.interface_gbps} of {machine.nic_gbps} Gbps"
            )
            yield Refusal(
                "gpu-network",
                f"{pod_set.path.removesuffix('.spec')}.metadata.annotations.{labels.GKE_INTERFACES}",
                message,
                "Give the pool its networks between GPUs, and the pods an interface in each, or expect exchanges "
                f"between nodes to take up to {machine.nic_gbps // machine.interface_gbps} times as long.",
            )


def _unserved_metrics(scaler: Manifest) -> Iterator[Refusal]:
    """Metrics that nothing declared serves: the autoscaler then does nothing, and says so in its status only."""
    given = section(scaler, "spec").get("metrics")
    metrics = cast("list[Any]", given) if isinstance(given, list) else []
    for metric in [cast("Manifest", each) for each in metrics if isinstance(each, dict)]:
        field = _BY_ADAPTER.get(str(metric.get("type")), "")
        name = section(metric, field, "metric").get("name") if field else None
        if isinstance(name, str) and not name.startswith(labels.GKE_METRIC):
            yield Refusal(
                "autoscaling-metric",
                f"spec.metrics.{field}.metric.name",
                f"it scales by {name}, which nothing serves that is declared: without an adapter it never scales",
                "Declare the adapter (an APIService of custom.metrics.k8s.io), have GKE serve the metric "
                "(autoscaling.gke.io AutoscalingMetric), or scale by CPU.",
                object=f"HorizontalPodAutoscaler {namespace_of(scaler)}/{name_of(scaler)}",
            )
