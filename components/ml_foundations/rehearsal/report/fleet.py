"""What the page draws beside the report: nodes and who holds their GPUs, times of pods, cost, and the proof."""

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
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.contents import Report, pool_of
from ml_foundations.rehearsal.report.deployed import Found, deployed
from ml_foundations.rehearsal.report.workloads import is_system

ACCEPTED = "accepted.json"
"""The file of a rehearsal in which the program's Proof notes the rules that it accepts."""


@dataclass(frozen=True)
class Node:
    """A node: its GPUs, the namespace of the pod that holds each, and what is wrong with it."""

    name: str
    pool: str
    gpus: int = 0
    holders: tuple[str, ...] = ()
    pods: int = 0
    fault: str = ""
    missing: int = 0
    """GPUs that the machine has and does not offer."""


@dataclass(frozen=True)
class Life:
    """When a pod was made, got its node, became ready and ended; None is not yet, or not known."""

    name: str
    node: str
    made: datetime
    scheduled: datetime | None = None
    ready: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True)
class Fleet:
    """All that the page draws beside the report."""

    nodes: list[Node]
    came: dict[str, list[datetime]]
    """When the nodes of each pool came."""
    lives: list[Life]
    cost: Cost
    """What the nodes cost that are there."""
    verdicts: Verdicts
    """What the proof says of the stack as it is deployed."""


def collect(rehearsal: Rehearsal) -> Fleet:
    """Read the replicas, and judge what the stack's state says is deployed."""
    nodes, lives, machines = list[Node](), list[Life](), list[Object]()
    came: defaultdict[str, list[datetime]] = defaultdict(list)
    for each in rehearsal.replicas:
        api = Api(Access(each.kubeconfig))
        listed = api.get("/api/v1/pods", labelSelector=addons.OTHERS)["items"]
        pods = [pod for pod in listed if not is_system(namespace_of(pod))]
        busy = busy_by_node(pods)
        for node in (there := api.get("/api/v1/nodes")["items"]):
            nodes.append(
                replace(_node(node, busy.get(name_of(node), [])), pool=within(each, pool_of(node)))
            )
            came[nodes[-1].pool].append(
                datetime.fromisoformat(node["metadata"]["creationTimestamp"])
            )
        lives += (replace(life, name=within(each, life.name)) for life in map(_life, pods))
        machines += there
    return Fleet(nodes, came, lives, cost_of(map(node_class, machines)), judged(rehearsal))


def with_proof(report: Report, rehearsal: Rehearsal) -> Report:
    """Return the report with what the proof finds of the deployed stack: its errors, and what would stay."""
    verdicts = judged(rehearsal)
    return replace(report, retained=verdicts.retained, errors=errors(verdicts, rehearsal))


def errors(verdicts: Verdicts, rehearsal: Rehearsal) -> tuple[Finding, ...]:
    """Return the errors among verdicts that the program's Proof does not accept."""
    accepted = read_json(rehearsal.root / ACCEPTED, [])
    found = (finding for finding in verdicts.findings if finding.severity is Severity.ERROR)
    return tuple(finding for finding in found if finding.rule not in accepted)


def judged(rehearsal: Rehearsal, read: Callable[[Rehearsal], Found] = deployed) -> Verdicts:
    """Return what the proof finds in the deployed stack, or in what ``read`` returns.

    If the proof fails, that is the finding: the stack is shown all the same.
    """
    try:
        resources, kept = read(rehearsal)
        return judge_program(
            resources, kept=kept, rehearsed=True, accepted=read_json(rehearsal.root / ACCEPTED, [])
        )
    except Exception as error:
        message = f"the proof could not judge what is deployed: {type(error).__name__}: {error}"
        return replace(
            judge(()),
            reasons=(Finding("proof", Severity.WARNING, "stack", "", message, "Report this."),),
        )


def _node(node: Object, pods: Iterable[Manifest]) -> Node:
    held = [(namespace_of(pod), gpus(pod_requests(pod["spec"]))) for pod in pods]
    status = section(node, "status")
    has, offers = (
        int(section(status, key).get(labels.GPU_RESOURCE, 0)) for key in ("capacity", "allocatable")
    )
    holders = tuple(namespace for namespace, count in sorted(held) for _ in range(count))
    return Node(
        name_of(node), pool_of(node), has, holders, len(held), _fault(node), max(0, has - offers)
    )


def _fault(node: Object) -> str:
    conditions = {each["type"]: each for each in items(section(node, "status"), "conditions")}
    if conditions.get("Ready", {}).get("status") != "True":
        return "not ready"
    pressed = [
        name for name, each in conditions.items() if name != "Ready" and each["status"] == "True"
    ]
    return ", ".join(pressed) or ("cordoned" if node["spec"].get("unschedulable") else "")


def _life(pod: Object) -> Life:
    status = section(pod, "status")
    true = [
        each
        for each in items(status, "conditions")
        if each["status"] == "True" and each.get("lastTransitionTime")
    ]
    met = {each["type"]: datetime.fromisoformat(each["lastTransitionTime"]) for each in true}
    states = (section(each, "state", "terminated") for each in items(status, "containerStatuses"))
    ends = [
        datetime.fromisoformat(state["finishedAt"]) for state in states if state.get("finishedAt")
    ]
    name, node = f"{namespace_of(pod)}/{name_of(pod)}", pod["spec"].get("nodeName", "")
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return Life(
        name, node, created, met.get("PodScheduled"), met.get("Ready"), max(ends, default=None)
    )
