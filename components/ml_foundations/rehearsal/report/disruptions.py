"""What a disruption of nodes did to the workloads: pods that ended, restarts, and idle GPUs."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.words import names, number
from ml_foundations.planning.model.resources import gpus, pod_requests
from ml_foundations.rehearsal.api import Api, Object, condition
from ml_foundations.rehearsal.cloud.autoscaler import is_of_daemon_set, price
from ml_foundations.rehearsal.cloud.nodes import gpus_of
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.files import read_json, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.workloads import QUEUED, of_users

_JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
_REPORTING = ("JobSet", "Workload")
"""The kinds whose controllers report how a gang ends and starts again."""


@dataclass(frozen=True)
class Disruption:
    """A disruption of nodes, and what it did to the workloads."""

    how: str
    nodes: list[str]
    at: str
    seconds: float
    """How long it was until the workloads ran as before, or until nothing changed any more."""
    pods_ended: int
    restarts: dict[str, int]
    """By JobSet, how often it restarted all of its pods."""
    reports: list[str]
    """What the controllers of JobSet and Kueue reported and did."""
    not_as_before: list[str]
    idle_gpus: int
    """The most GPUs that were idle at once."""
    idle_gpu_seconds: float
    idle_usd: float | None
    """None if a price is not known."""

    @property
    def lines(self) -> Iterator[str]:
        """What happened, in sentences."""
        yield f"{self.how} of {names(self.nodes)}: {number(self.pods_ended, 'pod')} ended"
        for name, count in self.restarts.items():
            yield f"{name} restarted {number(count, 'time')}"
        yield from self.reports
        if self.idle_gpu_seconds:
            idle = f"{self.idle_gpu_seconds:.0f} GPU-seconds"
            yield f"{number(self.idle_gpus, 'GPU')} were idle, {idle}{self._cost}"
        if self.not_as_before:
            yield f"After {self.seconds:.0f} s, not as before: {'; '.join(self.not_as_before)}"
        else:
            yield f"After {self.seconds:.0f} s, all workloads run as before"

    @property
    def _cost(self) -> str:
        if self.idle_usd is None:
            return ""
        per_minute = self.idle_usd / self.idle_gpu_seconds * self.idle_gpus * 60
        amount = f"USD {self.idle_usd:.2f}" if self.idle_usd >= 0.01 else "less than USD 0.01"
        return f": {amount}. Each minute in which GKE has no new node costs USD {per_minute:.2f}"


def last(rehearsal: Rehearsal) -> Disruption | None:
    """Return the last disruption of a rehearsal, if any."""
    data = read_json(_file(rehearsal), None)
    return Disruption(**data) if data else None


def record(disruption: Disruption, rehearsal: Rehearsal) -> None:
    """Keep a disruption for the report."""
    write_json(_file(rehearsal), asdict(disruption))


def _file(rehearsal: Rehearsal) -> Path:
    return rehearsal.root / "disruption.json"


@dataclass(frozen=True, eq=False)
class Sample:
    """The nodes and pods of a replica at one time."""

    nodes: Mapping[str, Object]
    """By uid: a new node may have an old name."""
    pods: list[Object]
    time: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, api: Api) -> "Sample":
        """Read the nodes, and the users' pods that a node does not get by itself."""
        nodes = {node["metadata"]["uid"]: node for node in api.get("/api/v1/nodes")["items"]}
        pods = of_users(api.get("/api/v1/pods")["items"])
        return cls(nodes, [pod for pod in pods if not is_of_daemon_set(pod)])

    @property
    def state(self) -> tuple[set[str], set[tuple[str, str, str, bool]]]:
        """The nodes, and where each pod is in its life."""
        pods: set[tuple[str, str, str, bool]] = set()
        for pod in self.pods:
            node, phase = pod["spec"].get("nodeName", ""), pod["status"]["phase"]
            pods.add((pod["metadata"]["uid"], node, phase, _runs(pod)))
        return set(self.nodes), pods

    @property
    def running(self) -> Counter[str]:
        """The number of pods of each workload that run or have completed."""
        return Counter(workload_of(pod) for pod in self.pods if _runs(pod))

    @property
    def held(self) -> Counter[tuple[str, str]]:
        """The GPUs that each workload has on each node."""
        held: Counter[tuple[str, str]] = Counter()
        for pod in self.pods:
            if node := pod["spec"].get("nodeName"):
                held[workload_of(pod), node] += gpus(pod_requests(pod["spec"]))
        return held

    def why_pending(self, workload: str) -> str:
        """Return why a pod of a workload has no node, if the scheduler has reported that."""
        for pod in self.pods:
            scheduled = condition(pod, "PodScheduled")
            if workload_of(pod) == workload and scheduled.get("status") == "False":
                return scheduled.get("message", "")
        return ""


class Observation:
    """Compares the workloads of a replica with what they were before a disruption."""

    def __init__(self, before: Sample, pools: Mapping[str, Pool]) -> None:
        self._before, self._last = before, before
        self._held = before.held
        self._pools = pools
        self._seen = {pod["metadata"]["uid"] for pod in before.pods if _runs(pod)}
        self._ended: set[str] = set()
        self.idle_gpus = 0
        self.gpu_seconds = 0.0
        self.usd: float | None = 0.0

    @property
    def pods_ended(self) -> int:
        """The number of pods that ran and do not run any more."""
        return len(self._ended)

    def add(self, sample: Sample) -> bool:
        """Add what is seen now. Return whether anything has changed."""
        has_changed = sample.state != self._last.state
        running = {pod["metadata"]["uid"] for pod in sample.pods if _runs(pod)}
        self._ended |= self._seen - running
        self._seen |= running
        # The GPUs that a workload had wait for it, and those that it has wait for its other pods.
        self._held |= sample.held
        self._count_idle(sample, sample.time - self._last.time)
        self._last = sample
        return has_changed

    def missing(self) -> list[str]:
        """Return the workloads of which fewer pods run than before, each with the reason."""
        running, rows = self._last.running, list[str]()
        for workload, count in self._before.running.items():
            if running[workload] < count:
                reason = self._last.why_pending(workload)
                row = f"{workload}: {running[workload]} of {number(count, 'pod')} run"
                rows.append(f"{row}: {reason}" if reason else row)
        return rows

    def _count_idle(self, sample: Sample, seconds: float) -> None:
        by_name = {name_of(node): node for node in sample.nodes.values()}
        idle = 0
        for workload, count in self._before.running.items():
            if sample.running[workload] >= count:
                continue
            for (holder, name), held in self._held.items():
                if holder == workload and held and name in by_name:
                    idle += held
                    self._add_cost(by_name[name], held * seconds / 3600)
        self.idle_gpus = max(self.idle_gpus, idle)
        self.gpu_seconds += idle * seconds

    def _add_cost(self, node: Object, gpu_hours: float) -> None:
        pool = self._pools.get(labels_of(node).get(labels.GKE_NODE_POOL, ""))
        per_node = float(price(pool)) if pool else float("inf")
        cost = per_node * gpu_hours / max(1, gpus_of(node))
        self.usd = None if self.usd is None or cost == float("inf") else self.usd + cost


def workload_of(pod: Manifest) -> str:
    """Return kind, namespace and name of the workload that a pod belongs to."""
    namespace, pod_labels = namespace_of(pod), labels_of(pod)
    if job_set := pod_labels.get(labels.JOB_SET_NAME):
        return f"JobSet {namespace}/{job_set}"
    owner = next(iter(items(pod["metadata"], "ownerReferences")), {})
    kind, name = owner.get("kind", "Pod"), owner.get("name", name_of(pod))
    if kind == "ReplicaSet" and labels.TEMPLATE_HASH in pod_labels:
        return f"Deployment {namespace}/{name.rpartition('-')[0]}"
    return f"{kind} {namespace}/{name}"


def restarts(api: Api) -> Counter[str]:
    """Return how often each JobSet has restarted."""
    counts: Counter[str] = Counter()
    for item in (api.find(_JOB_SETS) or {"items": []})["items"]:
        name = f"JobSet {namespace_of(item)}/{name_of(item)}"
        counts[name] = section(item, "status").get("restarts", 0)
    return counts


def placements(api: Api) -> dict[str, set[str]]:
    """Return the nodes that Kueue's topology assignment has for each of its Workloads."""
    placed: dict[str, set[str]] = {}
    for item in (api.find(QUEUED) or {"items": []})["items"]:
        hosts: set[str] = set()
        for pod_set in items(section(item, "status", "admission"), "podSetAssignments"):
            for part in items(section(pod_set, "topologyAssignment"), "slices"):
                hosts.update(_hosts(part["valuesPerLevel"][-1]))
        placed[f"Workload {namespace_of(item)}/{name_of(item)}"] = hosts
    return placed


def _hosts(values: Manifest) -> Iterator[str]:
    """Yield the values of a level in Kueue's compressed form: all alike, or by their middles."""
    if universal := values.get("universal"):
        yield universal
    individual = section(values, "individual")
    for root in individual.get("roots") or ():
        yield f"{individual.get('prefix') or ''}{root}{individual.get('suffix') or ''}"


def moves(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the nodes that Kueue has replaced by others."""
    for workload, nodes in before.items():
        present = after.get(workload, set[str]())
        if (lost := nodes - present) and present:
            others = names(sorted(present - nodes))
            yield f"{workload}: Kueue replaced {names(sorted(lost))} by {others}"


def reports(events: Iterable[Object], since: str) -> list[str]:
    """Return what controllers reported about gangs since a time, each once."""
    texts: list[str] = []
    for event in events:
        about = event["involvedObject"]
        at = event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
        is_of_gang = about["kind"] in _REPORTING and at >= since
        # JobSet tries to create a Job whose predecessor is not gone yet.
        if is_of_gang and not event["message"].endswith("already exists"):
            texts.append(f"{about['kind']} {about['name']}: {event['reason']}: {event['message']}")
    return list(dict.fromkeys(texts))


def _runs(pod: Object) -> bool:
    """Return whether a pod runs, is ready and stays, or has completed."""
    phase = pod["status"]["phase"]
    is_ready = condition(pod, "Ready").get("status") == "True"
    is_leaving = bool(pod["metadata"].get("deletionTimestamp"))
    return phase == "Succeeded" or (phase == "Running" and is_ready and not is_leaving)
