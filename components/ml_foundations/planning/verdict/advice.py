"""What runs, and not as its owner expects: training that bypasses the networks between GPUs, metrics of nobody's."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from ml_foundations.catalog.gke_kinds import METRICS_NEED, missing_for_metrics
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import comes_on_request, machine_of
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.workloads import PodSet, Workload, is_indexed
from ml_foundations.planning.verdict.starved import gpus_with_defaults, shared_memory_above_limit

_BY_ADAPTER = {"Object": "custom", "Pods": "custom", "External": "external"}
"""Kinds of metrics that an adapter serves, and its API's name (Kubernetes, "Horizontal Pod Autoscaling")."""
_OF_RESOURCES = ("Resource", "ContainerResource")


def advise(cluster: Cluster, candidates: Iterable[AdmittedWorkload]) -> None:
    """Warn the owners of workloads, whether they fit or not."""
    for candidate in candidates:
        workload = candidate.workload
        if workload.is_finite and (workload.all_at_once or _has_ranks(workload)):
            candidate.warnings += _slow_networks(cluster, candidate)
            candidate.warnings += _on_fleeting_nodes(cluster, candidate)
        for pod_set, pod in candidate.pod_sets:
            candidate.warnings += shared_memory_above_limit(pod_set, pod.spec)
            candidate.warnings += gpus_with_defaults(pod_set, pod.spec)
        for pod_set, pod in candidate.pod_sets if cluster.is_gke else ():
            candidate.warnings += _beyond_spot_grace(cluster, pod_set, pod)
            if pod.spec.get("hostNetwork"):
                candidate.warnings += cluster.volumes.by_the_nodes_account(
                    pod_set.template, workload.namespace
                )
            shared = (
                place.node.labels.get(labels.GKE_SHARING_STRATEGY) == "mps"
                for place in cluster.accepting(pod)
            )
            if (
                pod.most_gpus
                and not section(pod_set.template, "spec").get("hostIPC")
                and any(shared)
            ):
                # GKE, "Share GPUs with multiple workloads using NVIDIA MPS"; NVIDIA/k8s-device-plugin issue 843.
                candidate.warnings.append(told("mps-ipc", "hostIPC"))
            candidate.warnings += _cut_off(cluster, workload, pod_set.template)
        for scaler in cluster.scalers.get((workload.kind, workload.namespace, workload.name), ()):
            candidate.warnings += _unmeasured(candidate, scaler)


def _cut_off(cluster: Cluster, workload: Workload, template: Manifest) -> Iterator[Refusal]:
    """Pods with a bucket whose network policies close the way to the metadata server, and so to any token.

    It is at one address or the other, by the cluster's dataplane (GKE, "Workload Identity Federation for GKE").
    """
    near = (
        section(each, "spec")
        for each in cluster.by_kind["NetworkPolicy"]
        if namespace_of(each) == workload.namespace
    )
    mine = [each for each in near if selects(section(each, "podSelector"), labels_of(template))]
    mine = [
        each
        for each in mine
        if "Egress" in (each.get("policyTypes") or ["Egress"] * ("egress" in each))
    ]
    mounts = labels.GCS_FUSE_VOLUMES in annotations_of(template) and not section(
        template, "spec"
    ).get("hostNetwork")
    if (
        mounts
        and mine
        and not any(_reaches_metadata(rule) for each in mine for rule in items(each, "egress"))
    ):
        yield told("cut-off-from-metadata", "metadata.labels")


def _reaches_metadata(rule: Manifest) -> bool:
    """Whether a rule for egress may let through what goes to the metadata server."""
    blocks = [section(each, "ipBlock") for each in items(rule, "to")]
    near = [str(each.get("cidr")) for each in blocks if "169.254." not in str(each.get("except"))]
    ports = [
        (each.get("port"), each.get("endPort") or each.get("port")) for each in items(rule, "ports")
    ]
    numbers = [(low, high) for low, high in ports if isinstance(low, int) and isinstance(high, int)]
    is_open = len(numbers) == 0 or any(
        low <= port <= high for low, high in numbers for port in (80, 988)
    )
    return is_open and (
        not blocks or any(each.startswith("169.254.") or each.endswith("/0") for each in near)
    )


def _has_ranks(workload: Workload) -> bool:
    """Whether the pods of a Job find each other: each has its index and its name, and all run at the same time."""
    spec = section(workload.manifest, "spec")
    together = spec.get("parallelism") == spec.get("completions")
    return (
        together
        and is_indexed(workload)
        and bool(section(spec, "template", "spec").get("subdomain"))
    )


def _unmeasured(candidate: AdmittedWorkload, scaler: Manifest) -> Iterator[Refusal]:
    """The use of resources that an autoscaler cannot tell: then it never scales (pkg/controller/podautoscaler)."""
    containers = [each for _, pod in candidate.pod_sets for each in items(pod.spec, "containers")]
    of_pod = {
        key for _, pod in candidate.pod_sets for key in section(pod.spec, "resources", "requests")
    }
    for type_, source in _metrics(scaler, _OF_RESOURCES):
        name = source.get("name")
        measured = [
            each
            for each in containers
            if source.get("container") in (None, each.get("name"), UNKNOWN)
        ]
        asked = [section(each, "resources", "requests").keys() | of_pod for each in measured]
        if not isinstance(name, str):
            continue
        if name not in ("cpu", "memory"):
            why = f"of resources, only the use of cpu and memory is measured, not of {name}"
        elif not measured:
            why = f"the pods have no container {source.get('container')}"
        elif section(source, "target").get("type") == "Utilization" and not all(
            name in each for each in asked
        ):
            why = f"it goes by the part of the requested {name} that is used, and not all containers request {name}"
        else:
            continue
        yield told(
            "unmeasured", f"spec.metrics.{type_}", scaler=name_of(scaler), why=why, name=name
        )


def _slow_networks(cluster: Cluster, candidate: AdmittedWorkload) -> Iterator[Refusal]:
    """Pods of one training that take whole nodes with networks between GPUs, and have no interface in them."""
    for pod_set, pod in candidate.pod_sets:
        annotations, claims = (
            annotations_of(pod_set.template),
            section(pod_set.template, "spec").get("resourceClaims"),
        )
        if pod_set.count < 2 or labels.GKE_INTERFACES in annotations or claims:
            continue
        machines = {
            machine.name: machine
            for place in cluster.accepting(pod)
            if (machine := machine_of(place.node))
        }
        for name, machine in sorted(machines.items()):
            wanted = gpus(pod.requests)
            if (
                wanted < machine.gpu_count
                or machine.interface_gbps is None
                or machine.nic_gbps is None
            ):
                continue
            path = (
                f"{pod_set.path.removesuffix('.spec')}.metadata.annotations.{labels.GKE_INTERFACES}"
            )
            one, all_ = machine.interface_gbps, machine.nic_gbps
            said: dict[str, Any] = {
                "count": pod_set.count,
                "gpus": wanted,
                "machine": name,
                "one": one,
                "all": all_,
            }
            yield told("one-interface", path, times=all_ // one, **said)


def _on_fleeting_nodes(cluster: Cluster, candidate: AdmittedWorkload) -> Iterator[Refusal]:
    """Pods that run at once on nodes that come as Google has them (flex-start), or go as it wants them back (Spot).

    For the first, GKE has queued provisioning (GKE, "Run a large-scale workload with flex-start with queued
    provisioning").
    """
    for pod_set, pod in candidate.pod_sets:
        nodes = [place.node for place in cluster.accepting(pod) if pod_set.count > 1]
        for label, name in (
            (labels.GKE_FLEX_START, "one-by-one"),
            (labels.GKE_SPOT, "gang-on-spot"),
        ):
            if nodes and all(label in node.labels and not comes_on_request(node) for node in nodes):
                yield told(name, pod_set.path, count=pod_set.count)


def _beyond_spot_grace(cluster: Cluster, pod_set: PodSet, pod: PodClass) -> Iterator[Refusal]:
    """Yield the times that pods declare to end in, if they may land on Spot nodes that leave them less.

    A hook that sleeps has to end before the pod's containers get SIGTERM.
    """
    nodes = [
        place.node
        for place in cluster.accepting(pod)
        if place.node.labels.get(labels.GKE_SPOT) == "true"
    ]
    if not nodes:
        return
    left = min(node.shutdown_grace for node in nodes)
    spec, field = section(pod_set.template, "spec"), "terminationGracePeriodSeconds"
    grace = spec.get(field)
    if isinstance(grace, int) and grace > left:
        yield told("spot-grace", f"{pod_set.path}.{field}", left=left, wanted=grace, field=field)
    field = "lifecycle.preStop.sleep.seconds"
    for index, container in enumerate(items(spec, "containers")):
        sleep = section(container, "lifecycle", "preStop", "sleep").get("seconds")
        if isinstance(sleep, int) and sleep >= left:
            path = f"{pod_set.path}.containers[{index}].{field}"
            yield told("spot-grace", path, left=left, wanted=sleep, field=field)


def unserved_metrics(cluster: Cluster, gke: Manifest | None) -> Iterator[Refusal]:
    """Metrics that nothing declared serves: the autoscaler then does nothing, and says so in its status only.

    It is certain where the cluster's properties are given: then all that is in it is declared.
    """
    served = {
        str(section(each, "spec").get("group")).partition(".")[0]
        for each in cluster.by_kind["APIService"]
    }
    for scaler in cluster.by_kind["HorizontalPodAutoscaler"]:
        for type_, source in _metrics(scaler, _BY_ADAPTER):
            name = section(source, "metric").get("name")
            if not isinstance(name, str):
                continue
            if name.startswith(labels.GKE_METRIC):
                found = _not_by_gke(cluster, scaler, name, gke)
            else:
                found = None if _BY_ADAPTER[type_] in served else ("no-adapter", dict[str, str]())
            if found:
                about = f"HorizontalPodAutoscaler {namespace_of(scaler)}/{name_of(scaler)}"
                (row, said), path = found, f"spec.metrics.{type_.lower()}.metric.name"
                yield told(row, path, certain=gke is not None, object=about, name=name, **said)


def _metrics(scaler: Manifest, types: Iterable[str]) -> Iterator[tuple[str, Manifest]]:
    """The metrics of some types that an autoscaler goes by, each with its type."""
    given = section(scaler, "spec").get("metrics")
    for metric in filter(is_mapping, cast("list[Any]", given) if isinstance(given, list) else []):
        if (type_ := str(metric.get("type"))) in types:
            yield type_, section(metric, f"{type_[0].lower()}{type_[1:]}")


def _not_by_gke(
    cluster: Cluster, scaler: Manifest, name: str, gke: Manifest | None
) -> tuple[str, dict[str, str]] | None:
    """Why GKE does not serve a metric, or may not: the refusal's name, and what its words give."""
    if gke is None:
        return "gke-may-serve", {"need": METRICS_NEED}
    if missing := missing_for_metrics(gke):
        return "gke-does-not-serve", {"missing": missing}
    owner, _, metric = name.removeprefix(labels.GKE_METRIC).partition("|")
    for each in cluster.by_kind["AutoscalingMetric"]:
        is_its = _may_be(namespace_of(each), namespace_of(scaler)) and _may_be(name_of(each), owner)
        if is_its and any(_may_be(gauge, metric) for gauge in _gauges(each)):
            return None
    return "no-autoscaling-metric", {"wanted": f"{namespace_of(scaler)}/{owner}", "metric": metric}


def _may_be(value: Any, wanted: Any) -> bool:
    return value == wanted or UNKNOWN in (value, wanted)


def _gauges(part: Any) -> Iterator[Any]:
    """The names by which autoscalers may ask for what an AutoscalingMetric reads."""
    if part is UNKNOWN:
        yield part
    elif is_mapping(part):
        gauge = section(part, "gauge")
        yield gauge.get("name") or gauge.get("prometheusMetricName")
    for each in (
        part.values()
        if is_mapping(part)
        else cast("list[Any]", part)
        if isinstance(part, list)
        else ()
    ):
        yield from _gauges(each)
