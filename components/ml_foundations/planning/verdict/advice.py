"""Warnings about workloads that run, but not as expected, such as over slow networks."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from ml_foundations.catalog.fabric_pods import FABRIC_DAEMON
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, section
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass, comes_on_request, machine_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import gpus, is_extended
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.rules.network import Network, Pods
from ml_foundations.planning.verdict.autoscalers import competing, unmeasured
from ml_foundations.planning.verdict.cost import price_of
from ml_foundations.planning.verdict.driver_path import driver_not_found
from ml_foundations.planning.verdict.injected import injected_advice
from ml_foundations.planning.verdict.long_runs import long_runs
from ml_foundations.planning.verdict.starved import gpus_with_defaults, shared_memory_above_limit
from ml_foundations.planning.verdict.system_pods import in_place_of_system_pods

_NODE_DNS = ("ClusterFirst", "Default")
"""The policies with which a pod on the host network uses the node's DNS."""


class _Candidates(NamedTuple):
    """A pod set, and the nodes that accept its pods and have their devices."""

    pod_set: PodSet
    pod: PodClass
    nodes: Sequence[NodeClass]


def advice(cluster: Cluster, admitted: AdmittedWorkload) -> Iterator[Refusal]:
    """Yield warnings for the owner of a workload, whether it fits or not."""
    workload = admitted.workload
    candidates: list[_Candidates] = []
    for pod_set, pod in admitted.pod_sets:
        able = [group.node for group in cluster.large_enough(pod)]
        candidates.append(_Candidates(pod_set, pod, able))
    if workload.is_finite and workload.all_at_once:
        yield from _slow_networks(candidates)
        yield from _fleeting_nodes(workload, candidates)
        yield from _unresolved_names(admitted)
    if workload.is_finite:
        for pod_set, _ in admitted.pod_sets:
            yield from _endless_daemons(pod_set)
        yield from long_runs(workload, candidates)
    for pod_set, pod in admitted.pod_sets:
        yield from shared_memory_above_limit(pod_set, pod.spec)
        yield from gpus_with_defaults(pod_set, pod.spec)
    for pod_set, pod, nodes in candidates if cluster.is_gke else ():
        yield from _beyond_spot_grace(pod_set, nodes)
        yield from injected_advice(cluster, workload.namespace, pod_set, pod, nodes)
        yield from driver_not_found(pod_set, nodes)
        needed = pod_set.count if workload.all_at_once else min(pod_set.count, 1)
        yield from in_place_of_system_pods(cluster, pod_set, pod, needed)
        if pod.spec.get("hostNetwork"):
            yield from cluster.volumes.by_the_nodes_account(pod_set.template, workload.namespace)
        spec = section(pod_set.template, "spec")
        shares_by_mps = any(node.labels.get(labels.GKE_SHARING_STRATEGY) == "mps" for node in nodes)
        if pod.most_gpus and shares_by_mps and not spec.get("hostIPC"):
            # See GKE, "Share GPUs with multiple workloads using NVIDIA MPS", and
            # NVIDIA/k8s-device-plugin issue 843.
            reached = "which pods reach by the node's IPC: without it CUDA does not start"
            allowed = "(host_ipc of our workloads; the namespace must allow privileged pods)"
            remedy = f"Set hostIPC {allowed}, or share by TIME_SHARING."
            yield Refusal("mps-ipc", "hostIPC", f"GKE shares its GPU by MPS, {reached}", remedy)
        if _is_cut_off(cluster, workload, pod_set):
            server = "the metadata server, where the sidecar of a bucket gets its token"
            message = f"network policies keep its pods from {server}"
            addresses = "169.254.169.252/32, port 988, and to 169.254.169.254/32, port 80"
            remedy = f"Allow egress to {addresses}."
            yield Refusal("bucket-identity", "metadata.labels", message, remedy)
    scalers = cluster.scalers.get((workload.kind, workload.namespace, workload.name), ())
    yield from competing(scalers)
    for scaler in scalers:
        yield from unmeasured(admitted, scaler)


def _is_cut_off(cluster: Cluster, workload: Workload, pods: PodSet) -> bool:
    """Return whether network policies keep pods with a bucket from the metadata server."""
    # They get no token then. The server's address depends on the cluster's dataplane (GKE,
    # "Workload Identity Federation for GKE").
    on_host_network = section(pods.template, "spec").get("hostNetwork")
    if labels.GCS_FUSE_VOLUMES not in annotations_of(pods.template) or on_host_network:
        return False
    network = Network(cluster.by_kind["NetworkPolicy"])
    return not network.reaches_metadata(Pods(workload.namespace, pods.labels))


def _endless_daemons(pods: PodSet) -> Iterator[Refusal]:
    """Yield daemons for the network between GPUs that keep the pods of a Job from completing."""
    # See container-engine-accelerators, gpudirect-tcpxo/best-practice.md.
    containers = items(section(pods.template, "spec"), "containers")
    for index, container in enumerate(containers if len(containers) > 1 else ()):
        if f"/{FABRIC_DAEMON}:" in f"/{container.get('image')}":
            message = f"its container {container.get('name')} never ends, so no pod completes"
            remedy = "Make it an init container with restartPolicy Always: Kubernetes then ends it."
            yield Refusal("endless-daemon", f"{pods.path}.containers[{index}]", message, remedy)


def _slow_networks(candidates: Iterable[_Candidates]) -> Iterator[Refusal]:
    """Yield pods of one training without interfaces in the networks between GPUs."""
    for pod_set, pod, nodes in candidates:
        annotations = annotations_of(pod_set.template)
        spec = section(pod_set.template, "spec")
        # On the network of the node, pods have all its interfaces.
        has_interfaces = labels.GKE_INTERFACES in annotations or spec.get("hostNetwork")
        if pod_set.count < 2 or has_interfaces or spec.get("resourceClaims"):
            continue
        known = filter(None, map(machine_of, nodes))
        machines = {machine.name: machine for machine in known}
        requested = gpus(pod.requests)
        for _, machine in sorted(machines.items()):
            one = machine.interface_gbps
            all_ = machine.nic_gbps
            # These are pods that use whole nodes with such networks.
            if requested < machine.gpu_count or one is None or all_ is None:
                continue
            template_path = pod_set.path.removesuffix(".spec")
            path = f"{template_path}.metadata.annotations.{labels.GKE_INTERFACES}"
            pods = f"its {pod_set.count} pods of {requested} GPUs talk to each other"
            limit = f"at most {one} of {all_} Gbps"
            message = f"{pods} over one network interface of {machine.name}: {limit}"
            ours = "gpu_network: auto of our pools, and pool or gpu_fabric of our trainings, do"
            networks = f"Name the networks of the pool in {labels.GKE_INTERFACES} ({ours})"
            slow = f"expect exchanges between nodes to take up to {all_ // one} times as long"
            yield Refusal("gpu-network", path, message, f"{networks}, or {slow}.")


def _unresolved_names(admitted: AdmittedWorkload) -> Iterator[Refusal]:
    """Yield pods of one training that do not resolve the names of their peers."""
    if sum(pod_set.count for pod_set, _ in admitted.pod_sets) < 2:
        return
    fix = "or let the pods find each other without names"
    network = section(admitted.workload.manifest, "spec", "network")
    is_nameless = admitted.workload.kind == "JobSet" and network.get("enableDNSHostnames") is False
    # Who turns names off for pods without devices has no training: samples of queues only sleep.
    devices = [pod for _, pod in admitted.pod_sets if any(map(is_extended, pod.requests))]
    if is_nameless and devices:
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


def _fleeting_nodes(workload: Workload, candidates: Iterable[_Candidates]) -> Iterator[Refusal]:
    """Yield pods that run at once on nodes that come one by one (flex-start) or go (Spot)."""
    # For flex-start, GKE has queued provisioning (GKE, "Run a large-scale workload with flex-start
    # with queued provisioning").
    for pod_set, pod, nodes in candidates:
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
            stop += _lost_work(workload, pod_set.count, pod, nodes[0])
            remedy = "Keep checkpoints and have all pods restarted, or take nodes that stay."
            yield Refusal("gang-on-spot", pod_set.path, f"{at_once}, {stop}", remedy)


def _lost_work(workload: Workload, count: int, pod: PodClass, node: NodeClass) -> str:
    """Return what pods lose when they stop, in words; empty without checkpoint_seconds."""
    seconds = annotations_of(workload.manifest).get(labels.CHECKPOINT_SECONDS)
    held = count * gpus(pod.requests)
    price = price_of(node)
    if not (isinstance(seconds, str) and seconds.isdecimal() and held):
        return ""
    # The pods of one training hold whole nodes, or an equal part of each.
    part = Decimal(held * int(seconds)) / max(1, gpus(node.allocatable)) / 3600
    cost = "" if price is None else f", USD {part * price:.2f}"
    return f". Each time they lose at most {seconds} s of {number(held, 'GPU')}{cost}"


def _beyond_spot_grace(pod_set: PodSet, nodes: Iterable[NodeClass]) -> Iterator[Refusal]:
    """Yield the times that pods need to end, if they may run on Spot nodes that leave less."""
    on_spot = [node for node in nodes if node.labels.get(labels.GKE_SPOT) == "true"]
    if not on_spot:
        return
    left = min(node.shutdown_grace for node in on_spot)
    spec = section(pod_set.template, "spec")
    field = "terminationGracePeriodSeconds"
    grace = spec.get(field)
    if isinstance(grace, int) and grace > left:
        yield _spot_grace(f"{pod_set.path}.{field}", left, grace, field, most=left)
    field = "lifecycle.preStop.sleep.seconds"
    for index, container in enumerate(items(spec, "containers")):
        sleep = section(container, "lifecycle", "preStop", "sleep").get("seconds")
        # A hook that sleeps has to end before the pod's containers get SIGTERM.
        if isinstance(sleep, int) and sleep >= left:
            path = f"{pod_set.path}.containers[{index}].{field}"
            yield _spot_grace(path, left, sleep, field, most=left - 1)


def _spot_grace(path: str, left: int, needed: int, field: str, *, most: int) -> Refusal:
    leaves = f"a Spot node that Google takes back leaves its pods {left} s"
    lower = f"Set {field} to {most} or less (graceSeconds; deregisterSeconds of a server)"
    remedy = f"{lower}, or give the pool kubelet.shutdownGracePeriodSeconds."
    return Refusal("spot-grace", path, f"{leaves}, and these count on {needed} s ({field})", remedy)
