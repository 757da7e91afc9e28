"""Warnings about workloads that run, but not as expected: slow networks, metrics nobody serves."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from ml_foundations.catalog.fabric_pods import FABRIC_DAEMON
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
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass, comes_on_request, machine_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.workloads import PodSet, Workload, is_indexed
from ml_foundations.planning.verdict.network_policies import Network, Pods
from ml_foundations.planning.verdict.starved import gpus_with_defaults, shared_memory_above_limit

_BY_ADAPTER = {"Object": "custom", "Pods": "custom", "External": "external"}
"""Types of metrics that an adapter serves, with its API.

See Kubernetes, "Horizontal Pod Autoscaling".
"""
_NODE_DNS = ("ClusterFirst", "Default")
"""The policies with which a pod on the host network uses the node's DNS."""
_OF_RESOURCES = ("Resource", "ContainerResource")
_NO_ADAPTER = (
    "which nothing serves that is declared: without an adapter it never scales",
    "Declare the adapter (an APIService of custom.metrics.k8s.io or external.metrics.k8s.io), have"
    " GKE serve the metric (autoscaling.gke.io AutoscalingMetric; an InferenceService: served_by"
    " gke), or scale by CPU.",
)
"""What is wrong with a metric that nothing serves, and the remedy."""


def advice(cluster: Cluster, admitted: AdmittedWorkload) -> Iterator[Refusal]:
    """Yield warnings for the owner of a workload, whether it fits or not."""
    workload = admitted.workload
    if workload.is_finite and (workload.all_at_once or _has_ranks(workload)):
        yield from _slow_networks(cluster, admitted)
        yield from _fleeting_nodes(cluster, admitted)
        yield from _unresolved_names(admitted)
    for pod_set, _ in admitted.pod_sets if workload.is_finite else ():
        yield from _endless_daemons(pod_set)
    for pod_set, pod in admitted.pod_sets:
        yield from shared_memory_above_limit(pod_set, pod.spec)
        yield from gpus_with_defaults(pod_set, pod.spec)
    for pod_set, pod in admitted.pod_sets if cluster.is_gke else ():
        yield from _beyond_spot_grace(cluster, pod_set, pod)
        if pod.spec.get("hostNetwork"):
            yield from cluster.volumes.by_the_nodes_account(pod_set.template, workload.namespace)
        if _lacks_ipc(cluster, pod_set, pod):
            reached = "which pods reach by the node's IPC: without it CUDA does not start"
            allowed = "(host_ipc of our workloads; the namespace must allow privileged pods)"
            remedy = f"Set hostIPC {allowed}, or share by TIME_SHARING."
            yield Refusal("mps-ipc", "hostIPC", f"GKE shares its GPU by MPS, {reached}", remedy)
        if _is_cut_off(cluster, workload, pod_set.template):
            server = "the metadata server, where the sidecar of a bucket gets its token"
            message = f"network policies keep its pods from {server}"
            addresses = "169.254.169.252/32, port 988, and to 169.254.169.254/32, port 80"
            remedy = f"Allow egress to {addresses}."
            yield Refusal("bucket-identity", "metadata.labels", message, remedy)
    for scaler in cluster.scalers.get((workload.kind, workload.namespace, workload.name), ()):
        yield from _unmeasured(admitted, scaler)


def _lacks_ipc(cluster: Cluster, pod_set: PodSet, pod: PodClass) -> bool:
    """Return whether pods may share a GPU by MPS and do not use the node's IPC."""
    # See GKE, "Share GPUs with multiple workloads using NVIDIA MPS", and NVIDIA/k8s-device-plugin
    # issue 843.
    if not pod.most_gpus or section(pod_set.template, "spec").get("hostIPC"):
        return False
    nodes = _nodes_for(cluster, pod)
    return any(node.labels.get(labels.GKE_SHARING_STRATEGY) == "mps" for node in nodes)


def _nodes_for(cluster: Cluster, pod: PodClass) -> list[NodeClass]:
    """Return the nodes that accept a pod."""
    return [group.node for group in cluster.accepting(pod)]


def _is_cut_off(cluster: Cluster, workload: Workload, template: Manifest) -> bool:
    """Return whether network policies keep pods with a bucket from the metadata server."""
    # They get no token then. The server's address depends on the cluster's dataplane (GKE,
    # "Workload Identity Federation for GKE").
    on_host_network = section(template, "spec").get("hostNetwork")
    if labels.GCS_FUSE_VOLUMES not in annotations_of(template) or on_host_network:
        return False
    network = Network(cluster.by_kind["NetworkPolicy"])
    return not network.reaches_metadata(Pods(workload.namespace, labels_of(template)))


def _has_ranks(workload: Workload) -> bool:
    """Return whether the pods of a Job find each other: by index and name, all at the same time."""
    spec = section(workload.manifest, "spec")
    at_once = spec.get("parallelism") == spec.get("completions")
    subdomain = section(spec, "template", "spec").get("subdomain")
    return at_once and is_indexed(workload) and bool(subdomain)


def _unmeasured(admitted: AdmittedWorkload, scaler: Manifest) -> Iterator[Refusal]:
    """Yield resources whose use an autoscaler cannot measure, so that it never scales."""
    # See Kubernetes, pkg/controller/podautoscaler.
    containers: list[Manifest] = []
    of_pod: set[str] = set()
    for _, pod in admitted.pod_sets:
        containers += items(pod.spec, "containers")
        of_pod.update(section(pod.spec, "resources", "requests"))
    for type_, source in _metrics(scaler, _OF_RESOURCES):
        resource, wanted = source.get("name"), source.get("container")
        if not isinstance(resource, str):
            continue
        measured = [c for c in containers if wanted in (None, c.get("name"), UNKNOWN)]
        requests = [section(c, "resources", "requests").keys() | of_pod for c in measured]
        is_relative = section(source, "target").get("type") == "Utilization"
        if resource not in ("cpu", "memory"):
            why = f"of resources, only the use of cpu and memory is measured, not of {resource}"
        elif not measured:
            why = f"the pods have no container {wanted}"
        elif is_relative and not all(resource in requested for requested in requests):
            part = f"the part of the requested {resource} that is used"
            why = f"it goes by {part}, and not all containers request {resource}"
        else:
            continue
        message = f"HorizontalPodAutoscaler {name_of(scaler)} never scales it: {why}"
        remedy = f"Request {resource} in each container, or scale by what is measured."
        yield Refusal("autoscaling-metric", f"spec.metrics.{type_}", message, remedy)


def _endless_daemons(pods: PodSet) -> Iterator[Refusal]:
    """Yield daemons for the network between GPUs that keep the pods of a Job from completing."""
    # See container-engine-accelerators, gpudirect-tcpxo/best-practice.md.
    containers = items(section(pods.template, "spec"), "containers")
    for index, container in enumerate(containers if len(containers) > 1 else ()):
        if f"/{FABRIC_DAEMON}:" in f"/{container.get('image')}":
            message = f"its container {container.get('name')} never ends, so no pod completes"
            remedy = "Make it an init container with restartPolicy Always: Kubernetes then ends it."
            yield Refusal("endless-daemon", f"{pods.path}.containers[{index}]", message, remedy)


def _slow_networks(cluster: Cluster, admitted: AdmittedWorkload) -> Iterator[Refusal]:
    """Yield pods of one training without interfaces in the networks between GPUs."""
    for pod_set, pod in admitted.pod_sets:
        annotations = annotations_of(pod_set.template)
        spec = section(pod_set.template, "spec")
        # On the network of the node, pods have all its interfaces.
        has_interfaces = labels.GKE_INTERFACES in annotations or spec.get("hostNetwork")
        if pod_set.count < 2 or has_interfaces or spec.get("resourceClaims"):
            continue
        known = filter(None, map(machine_of, _nodes_for(cluster, pod)))
        machines = {machine.name: machine for machine in known}
        requested = gpus(pod.requests)
        for _, machine in sorted(machines.items()):
            one, all_ = machine.interface_gbps, machine.nic_gbps
            # These are pods that use whole nodes with such networks.
            if requested < machine.gpu_count or one is None or all_ is None:
                continue
            template_path = pod_set.path.removesuffix(".spec")
            path = f"{template_path}.metadata.annotations.{labels.GKE_INTERFACES}"
            pods = f"its {pod_set.count} pods of {requested} GPUs talk to each other"
            limit = f"at most {one} of {all_} Gbps"
            message = f"{pods} over one network interface of {machine.name}: {limit}"
            networks = "Set gpu_network: auto of the pool, and pool or gpu_fabric of the training"
            slow = f"expect exchanges between nodes to take up to {all_ // one} times as long"
            yield Refusal("gpu-network", path, message, f"{networks}, or {slow}.")


def _unresolved_names(admitted: AdmittedWorkload) -> Iterator[Refusal]:
    """Yield pods of one training that do not resolve the names of their peers."""
    if sum(pod_set.count for pod_set, _ in admitted.pod_sets) < 2:
        return
    fix = "or let the pods find each other without names"
    network = section(admitted.workload.manifest, "spec", "network")
    if admitted.workload.kind == "JobSet" and network.get("enableDNSHostnames") is False:
        message = "its pods have no names by which they find the first one"
        remedy = f"Leave enableDNSHostnames out, {fix}."
        yield Refusal("peer-names", "spec.network.enableDNSHostnames", message, remedy)
    for pod_set, _ in admitted.pod_sets:
        spec = section(pod_set.template, "spec")
        # On the host network, ClusterFirst means the node's DNS (Kubernetes, "DNS for Services and
        # Pods").
        if spec.get("hostNetwork") is True and spec.get("dnsPolicy") in (None, *_NODE_DNS):
            message = "on the host network its pods use the node's DNS, without the names of pods"
            remedy = f"Set dnsPolicy to ClusterFirstWithHostNet, {fix}."
            yield Refusal("peer-names", f"{pod_set.path}.dnsPolicy", message, remedy)


def _fleeting_nodes(cluster: Cluster, admitted: AdmittedWorkload) -> Iterator[Refusal]:
    """Yield pods that run at once on nodes that come one by one (flex-start) or go (Spot)."""
    # For flex-start, GKE has queued provisioning (GKE, "Run a large-scale workload with flex-start
    # with queued provisioning").
    for pod_set, pod in admitted.pod_sets:
        nodes = _nodes_for(cluster, pod)
        if pod_set.count < 2 or not nodes or any(map(comes_on_request, nodes)):
            continue
        # With one node that stays or comes at once, the scheduler may put the pods there.
        shared = frozenset(nodes[0].labels).intersection(*(node.labels for node in nodes))
        at_once = f"its {pod_set.count} pods run at once"
        if labels.GKE_FLEX_START in shared:
            waste = "nodes of flex-start come one by one: the first are paid while they wait"
            together = "set queuedProvisioning of the pool, and use a queue with a flavor for it"
            remedy = f"Have them come together: {together}."
            yield Refusal("one-by-one", pod_set.path, f"{at_once}, and {waste}", remedy)
        if labels.GKE_SPOT in shared:
            stop = "on Spot VMs alone: one that Google takes back stops all of them"
            remedy = "Keep checkpoints and have all pods restarted, or take nodes that stay."
            yield Refusal("gang-on-spot", pod_set.path, f"{at_once}, {stop}", remedy)


def _beyond_spot_grace(cluster: Cluster, pod_set: PodSet, pod: PodClass) -> Iterator[Refusal]:
    """Yield the times that pods need to end, if they may run on Spot nodes that leave less."""
    graces: list[int] = []
    for node in _nodes_for(cluster, pod):
        if node.labels.get(labels.GKE_SPOT) == "true":
            graces.append(node.shutdown_grace)
    if not graces:
        return
    left = min(graces)
    spec, field = section(pod_set.template, "spec"), "terminationGracePeriodSeconds"
    grace = spec.get(field)
    if isinstance(grace, int) and grace > left:
        yield _spot_grace(f"{pod_set.path}.{field}", left, grace, field)
    field = "lifecycle.preStop.sleep.seconds"
    for index, container in enumerate(items(spec, "containers")):
        sleep = section(container, "lifecycle", "preStop", "sleep").get("seconds")
        # A hook that sleeps has to end before the pod's containers get SIGTERM.
        if isinstance(sleep, int) and sleep >= left:
            path = f"{pod_set.path}.containers[{index}].{field}"
            yield _spot_grace(path, left, sleep, field)


def _spot_grace(path: str, left: int, wanted: int, field: str) -> Refusal:
    leaves = f"a Spot node that Google takes back leaves its pods {left} s"
    lower = f"Set {field} to {left} or less (graceSeconds; deregisterSeconds of a server)"
    remedy = f"{lower}, or give the pool kubelet.shutdownGracePeriodSeconds."
    return Refusal("spot-grace", path, f"{leaves}, and these count on {wanted} s ({field})", remedy)


def unserved_metrics(cluster: Cluster, gke: Manifest | None) -> Iterator[Refusal]:
    """Yield metrics that nothing declared serves."""
    served: set[str] = set()
    for service in cluster.by_kind["APIService"]:
        group, _, _ = str(section(service, "spec").get("group")).partition(".")
        served.add(group)
    for scaler in cluster.by_kind["HorizontalPodAutoscaler"]:
        for type_, source in _metrics(scaler, _BY_ADAPTER):
            name = section(source, "metric").get("name")
            if not isinstance(name, str):
                continue
            if name.startswith(labels.GKE_METRIC):
                problem = _not_by_gke(cluster, scaler, name, gke)
            else:
                problem = None if _BY_ADAPTER[type_] in served else _NO_ADAPTER
            if problem:
                path = f"spec.metrics.{type_.lower()}.metric.name"
                message, remedy = f"it scales by {name}, {problem[0]}", problem[1]
                # Their autoscaler does nothing, and only its status reports it. It is certain if
                # the cluster's properties are given: then everything in it is declared.
                about, is_certain = full_name(scaler), gke is not None
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
    wanted = f"{namespace_of(scaler)}/{owner}"
    message = "which GKE does not know: no AutoscalingMetric reads it"
    remedy = f"Declare an AutoscalingMetric {wanted} with a gauge {metric}, or scale by CPU."
    return message, remedy


def _may_be(value: Any, wanted: Any) -> bool:
    return value == wanted or UNKNOWN in (value, wanted)


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
