"""The data that the page shows in addition to the report: nodes, times, cost and verdicts."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.resources import gpus, pod_requests
from ml_foundations.planning.verdict.cost import Cost, cost_of
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud import addons
from ml_foundations.rehearsal.cloud.autoscaler import busy_by_node
from ml_foundations.rehearsal.cloud.replica import within
from ml_foundations.rehearsal.engine.dry_run import ACCEPTED
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.contents import Report, pool_of
from ml_foundations.rehearsal.report.deployed import Resources, deployed
from ml_foundations.rehearsal.report.workloads import is_system


@dataclass(frozen=True)
class Node:
    """A node: its GPUs, the namespace of the pod that holds each, and its fault."""

    name: str
    pool: str
    gpus: int = 0
    holders: tuple[str, ...] = ()
    pods: int = 0
    fault: str = ""
    missing: int = 0
    """GPUs that the machine has but that are not allocatable."""


@dataclass(frozen=True)
class PodTimes:
    """When a pod was created, scheduled, ready and terminated. None means not yet, or not known."""

    name: str
    node: str
    created: datetime
    scheduled: datetime | None = None
    ready: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True)
class Fleet:
    """The data that the page shows in addition to the report."""

    nodes: list[Node]
    node_times: dict[str, list[datetime]]
    """When the nodes of each pool were created."""
    pod_times: list[PodTimes]
    cost: Cost
    """The cost of the existing nodes."""
    verdicts: Verdicts
    """The verdicts of the proof on the deployed stack."""


def collect(rehearsal: Rehearsal) -> Fleet:
    """Read the replicas, and judge the deployed stack."""
    nodes, pod_times, manifests = list[Node](), list[PodTimes](), list[Object]()
    node_times: defaultdict[str, list[datetime]] = defaultdict(list)
    for cluster in rehearsal.replicas:
        api = Api(Access(cluster.kubeconfig))
        all_pods = api.get("/api/v1/pods", labelSelector=addons.OTHERS)["items"]
        pods = [pod for pod in all_pods if not is_system(namespace_of(pod))]
        busy = busy_by_node(pods)
        cluster_nodes = api.get("/api/v1/nodes")["items"]
        manifests += cluster_nodes
        for node in cluster_nodes:
            pool = within(cluster, pool_of(node))
            nodes.append(replace(_node(node, busy.get(name_of(node), [])), pool=pool))
            node_times[pool].append(_created(node))
        for pod in pods:
            times = _pod_times(pod)
            pod_times.append(replace(times, name=within(cluster, times.name)))
    cost = cost_of(map(node_class, manifests))
    return Fleet(nodes, node_times, pod_times, cost, judge_stack(rehearsal))


def with_proof(report: Report, rehearsal: Rehearsal) -> Report:
    """Return the report with the proof's errors and what ``pulumi destroy`` would keep."""
    verdicts = judge_stack(rehearsal)
    return replace(report, retained=verdicts.retained, errors=errors(verdicts, rehearsal))


def errors(verdicts: Verdicts, rehearsal: Rehearsal) -> tuple[Finding, ...]:
    """Return the errors among verdicts that the program's Proof does not accept."""
    accepted = read_json(rehearsal.root / ACCEPTED, [])
    return tuple(
        finding
        for finding in verdicts.findings
        if finding.severity is Severity.ERROR and finding.rule not in accepted
    )


def judge_stack(
    rehearsal: Rehearsal, read: Callable[[Rehearsal], Resources] = deployed
) -> Verdicts:
    """Return the verdicts on the deployed stack, or on the resources that ``read`` returns.

    If the proof itself fails, the result is a warning: the stack is shown in any case.
    """
    try:
        resources, kept = read(rehearsal)
        return judge_program(
            resources, kept=kept, rehearsed=True, accepted=read_json(rehearsal.root / ACCEPTED, [])
        )
    except Exception as error:
        message = f"the proof could not judge what is deployed: {type(error).__name__}: {error}"
        warning = Finding("proof", Severity.WARNING, "stack", "", message, "Report this.")
        return replace(judge(()), reasons=(warning,))


def _node(node: Object, pods: Iterable[Manifest]) -> Node:
    holders: list[str] = []
    count = 0
    for pod in pods:
        count += 1
        holders += [namespace_of(pod)] * gpus(pod_requests(pod["spec"]))
    gpu_capacity = _gpus(node, "capacity")
    missing = max(0, gpu_capacity - _gpus(node, "allocatable"))
    return Node(
        name_of(node),
        pool_of(node),
        gpu_capacity,
        tuple(sorted(holders)),
        count,
        _fault(node),
        missing,
    )


def _gpus(node: Object, part: str) -> int:
    return int(section(node, "status", part).get(labels.GPU_RESOURCE, 0))


def _fault(node: Object) -> str:
    conditions = {
        item["type"]: item["status"] for item in items(section(node, "status"), "conditions")
    }
    if conditions.pop("Ready", "") != "True":
        return "not ready"
    pressures = [name for name, status in conditions.items() if status == "True"]
    return ", ".join(pressures) or ("cordoned" if node["spec"].get("unschedulable") else "")


def _pod_times(pod: Object) -> PodTimes:
    status = section(pod, "status")
    since: dict[str, datetime] = {}
    for item in items(status, "conditions"):
        if item["status"] == "True" and item.get("lastTransitionTime"):
            since[item["type"]] = datetime.fromisoformat(item["lastTransitionTime"])
    ends: list[datetime] = []
    for container in items(status, "containerStatuses"):
        if end := section(container, "state", "terminated").get("finishedAt"):
            ends.append(datetime.fromisoformat(end))
    return PodTimes(
        f"{namespace_of(pod)}/{name_of(pod)}",
        pod["spec"].get("nodeName", ""),
        _created(pod),
        since.get("PodScheduled"),
        since.get("Ready"),
        max(ends, default=None),
    )


def _created(item: Object) -> datetime:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"])
