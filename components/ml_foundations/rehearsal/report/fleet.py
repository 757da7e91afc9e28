"""The data that the page shows in addition to the report: nodes, times, cost and verdicts."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from ml_foundations.kinds import kind_files
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.planning.input.clusters import Declared
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.resources import gpus, pod_requests
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.planning.verdict.cost import Cost, cost_of
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud.autoscaler import busy_by_node
from ml_foundations.rehearsal.cloud.nodes import gpus_of
from ml_foundations.rehearsal.cloud.replica import within
from ml_foundations.rehearsal.engine.dry_run import ACCEPTED, KINDS
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.contents import Report, pool_of
from ml_foundations.rehearsal.report.deployed import deployed
from ml_foundations.rehearsal.report.workloads import of_users

_NOT_REHEARSED = {"impossible-value", "queue-kind"}
"""Rules about what simulated pods complete with: their images and memory, and a queue left out."""


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


def collect(report: Report, rehearsal: Rehearsal) -> Fleet:
    """Return the nodes and pods of a report, and judge the deployed stack."""
    nodes = list[Node]()
    pod_times = list[PodTimes]()
    manifests = list[Object]()
    node_times: defaultdict[str, list[datetime]] = defaultdict(list)
    for seen in report.seen:
        pods = of_users(seen.pods)
        busy = busy_by_node(pods)
        manifests += seen.nodes
        for node in seen.nodes:
            pool = within(seen.replica, pool_of(node))
            nodes.append(_node(node, pool, busy.get(name_of(node), [])))
            node_times[pool].append(_created(node))
        for pod in pods:
            name = within(seen.replica, f"{namespace_of(pod)}/{name_of(pod)}")
            pod_times.append(_pod_times(pod, name))
    cost = cost_of(map(node_class, manifests))
    return Fleet(nodes, node_times, pod_times, cost, judge_stack(rehearsal))


def with_proof(report: Report, rehearsal: Rehearsal) -> Report:
    """Return the report with the proof's errors and what ``pulumi destroy`` would keep."""
    verdicts = judge_stack(rehearsal)
    findings = errors(verdicts, rehearsal)
    refuted = tuple(filter(partial(_is_refuted, report), findings))
    remaining = tuple(finding for finding in findings if finding not in refuted)
    information = tuple(item for item in verdicts.findings if item.severity is Severity.INFO)
    report = replace(report, retained=verdicts.retained, information=information)
    return replace(report, errors=remaining, refuted=refuted)


def _is_refuted(report: Report, finding: Finding) -> bool:
    """Return whether an error is about a workload that has completed in the replica."""
    for row in report.workloads:
        cluster, _, namespace = row.namespace.rpartition("/")
        if cluster and finding.cluster != f"cluster {cluster}":
            continue
        name = f"{row.kind} {namespace}/{row.name}"
        is_about_it = name in (finding.object, *finding.workloads)
        if is_about_it and row.state == "Completed" and finding.rule not in _NOT_REHEARSED:
            return True
    return False


def errors(verdicts: Verdicts, rehearsal: Rehearsal) -> tuple[Finding, ...]:
    """Return the errors among verdicts that the program's Proof does not accept."""
    accepted = read_json(rehearsal.root / ACCEPTED, [])
    unaccepted = filter(lambda finding: finding.rule not in accepted, verdicts.findings)
    return tuple(filter(lambda finding: finding.severity is Severity.ERROR, unaccepted))


def judge_stack(
    rehearsal: Rehearsal, read: Callable[[Rehearsal], list[Declared]] = deployed
) -> Verdicts:
    """Return the verdicts on the deployed stack, or on the resources that ``read`` returns."""
    try:
        if kinds := read_json(rehearsal.root / KINDS, ""):
            kind_files.use(kinds)
        accepted = read_json(rehearsal.root / ACCEPTED, [])
        return judge_clusters(read(rehearsal), rehearsed=True, accepted=accepted)
    except (Exception, kind_files.KindError) as error:
        # The stack is shown in any case, without kinds that cannot be read.
        kind_files.use("")
        message = f"the proof could not judge what is deployed: {type(error).__name__}: {error}"
        warning = Finding("proof", Severity.WARNING, "stack", "", message, "Report this.")
        return replace(judge(()), reasons=(warning,))


def _node(node: Object, pool: str, pods: Sequence[Manifest]) -> Node:
    holders: list[str] = []
    for pod in pods:
        holders += [namespace_of(pod)] * gpus(pod_requests(pod["spec"]))
    statuses = items(section(node, "status"), "conditions")
    conditions = {status["type"]: status["status"] for status in statuses}
    is_ready = conditions.pop("Ready", "") == "True"
    pressures = [name for name, status in conditions.items() if status == "True"]
    fault = ", ".join(pressures) if is_ready else "not ready"
    if not fault and node["spec"].get("unschedulable"):
        fault = "cordoned"
    capacity = gpus_of(node)
    missing = max(0, capacity - gpus_of(node, "allocatable"))
    owners = tuple(sorted(holders))
    return Node(name_of(node), pool, capacity, owners, len(pods), fault, missing)


def _pod_times(pod: Object, name: str) -> PodTimes:
    status = section(pod, "status")
    since: dict[str, datetime] = {}
    for item in items(status, "conditions"):
        if item["status"] == "True" and item.get("lastTransitionTime"):
            since[item["type"]] = datetime.fromisoformat(item["lastTransitionTime"])
    ends: list[datetime] = []
    for container in items(status, "containerStatuses"):
        if end := section(container, "state", "terminated").get("finishedAt"):
            ends.append(datetime.fromisoformat(end))
    times = (_created(pod), since.get("PodScheduled"), since.get("Ready"), max(ends, default=None))
    return PodTimes(name, pod["spec"].get("nodeName", ""), *times)


def _created(item: Object) -> datetime:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"])
