"""What a disruption of nodes did to the workloads: pods that ended, restarts, and idle GPUs."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ml_foundations.kinds.kind_files import kinds
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
from ml_foundations.kubernetes.words import names, number
from ml_foundations.planning.model.resources import gpus, pod_requests
from ml_foundations.rehearsal.api import Api, Object, condition, existing
from ml_foundations.rehearsal.cloud.autoscaler import is_busy, is_of_daemon_set, price
from ml_foundations.rehearsal.cloud.nodes import gpus_of
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.files import read_json, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.workloads import of_users, without_values

_REPORTING = ("JobSet", "Workload")
"""The kinds whose controllers report how a gang ends and starts again."""
# Trainer gives its JobSet the name of the TrainJob.
_TRAININGS = {"Job": "Job", "JobSet": "JobSet", "TrainJob": "JobSet"}
"""The kinds that may have checkpoints, each with the kind that owns its pods."""


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
    losses: list[str] = field(default_factory=list[str])
    """The work that trainings lose at most, as they write a checkpoint only so often."""

    @property
    def lines(self) -> Iterator[str]:
        """The sentences about what happened."""
        yield f"{self.how} of {names(self.nodes)}: {number(self.pods_ended, 'pod')} ended"
        for name, count in self.restarts.items():
            yield f"{name} restarted {number(count, 'time')}"
        yield from self.reports
        yield from self.losses
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


class Observation:
    """The nodes and pods of a replica, compared with those before a disruption."""

    def __init__(self, api: Api, pools: Mapping[str, Pool]) -> None:
        self._api = api
        self._pools = pools
        self._read()
        self.began = self.time
        self._restarts = _restarts(api)
        # A workload that has completed may be removed meanwhile.
        live = {workload_of(pod) for pod in self.pods if pod["status"]["phase"] == "Running"}
        self._before = Counter({name: self._running[name] for name in live})
        self._nodes_before = self._held
        """The GPUs of each workload on each node, now and before."""
        self._workloads = {pod["metadata"]["uid"]: workload_of(pod) for pod in self.pods}
        self._prices = {name_of(node): self._price_of(node) for node in self.nodes.values()}
        self._ended: set[str] = set()
        self.idle_gpus = 0
        self.gpu_seconds = 0.0
        self.usd: float | None = 0.0

    def _read(self) -> None:
        """Read the nodes, and the users' pods except those that every node gets."""
        self.time = time.monotonic()
        nodes = self._api.get("/api/v1/nodes")["items"]
        self.nodes = {node["metadata"]["uid"]: node for node in nodes}
        pods = of_users(self._api.get("/api/v1/pods")["items"])
        self.pods = [pod for pod in pods if not is_of_daemon_set(pod)]
        running = list(filter(_runs, self.pods))
        self._running = Counter(map(workload_of, running))
        self._phases = {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in running}
        self._held: Counter[tuple[str, str]] = Counter()
        for pod in filter(is_busy, self.pods):
            held = gpus(pod_requests(pod["spec"]))
            self._held[workload_of(pod), pod["spec"]["nodeName"]] += held

    def update(self) -> bool:
        """Read them again. Return whether a node, or the pods of a workload, have changed."""
        last_time = self.time
        last_state = (self._running, set(self.nodes))
        live = {uid for uid, phase in self._phases.items() if phase == "Running"}
        self._read()
        self._ended |= live - self._phases.keys()
        self._count_idle(self.time - last_time)
        return last_state != (self._running, set(self.nodes))

    def missing(self) -> list[str]:
        """Return the workloads with fewer running pods than before, each with the reason."""
        rows: list[str] = []
        for workload in self._incomplete():
            ratio = f"{self._running[workload]} of {number(self._before[workload], 'pod')} run"
            reason = ""
            for pod in self.pods:
                scheduled = condition(pod, "PodScheduled")
                if workload_of(pod) == workload and scheduled.get("status") == "False":
                    reason = reason or scheduled.get("message", "")
            rows.append(": ".join(filter(None, [workload, ratio, reason])))
        return rows

    def result(self, how: str, nodes: list[str], at: str, missing: list[str]) -> Disruption:
        """Return what has happened since the beginning, at a time."""
        events = self._api.get("/api/v1/events")["items"]
        restarts = _restarts(self._api) - self._restarts
        return Disruption(
            how=how,
            nodes=nodes,
            at=at,
            seconds=self.time - self.began,
            pods_ended=len(self._ended),
            restarts=dict(restarts),
            reports=[*_reports(events, at), *self._moves()],
            not_as_before=missing,
            idle_gpus=self.idle_gpus,
            idle_gpu_seconds=self.gpu_seconds,
            idle_usd=self.usd,
            losses=[*self._losses(restarts)],
        )

    def _incomplete(self) -> list[str]:
        return [name for name, count in self._before.items() if self._running[name] < count]

    def _count_idle(self, seconds: float) -> None:
        """Count the GPUs that incomplete workloads had or have, on nodes that exist."""
        by_name = {name_of(node): node for node in self.nodes.values()}
        incomplete = set(self._incomplete())
        idle = 0
        for (workload, name), held in (self._nodes_before | self._held).items():
            if workload in incomplete and held and name in by_name:
                idle += held
                cost = self._price_of(by_name[name]) * held * seconds / 3600
                self.usd = None if self.usd is None or cost == float("inf") else self.usd + cost
        self.idle_gpus = max(self.idle_gpus, idle)
        self.gpu_seconds += idle * seconds

    def _price_of(self, node: Object) -> float:
        """Return the price of one GPU of a node for an hour, in US dollars; infinite if unknown."""
        pool = self._pools.get(labels_of(node).get(labels.GKE_NODE_POOL, ""))
        per_node = float(price(pool)) if pool else float("inf")
        return per_node / max(1, gpus_of(node))

    def _losses(self, restarts: Counter[str]) -> Iterator[str]:
        """Yield the most work that each disrupted training loses since its last checkpoint."""
        disrupted = set(map(self._workloads.get, self._ended))
        for workload, seconds in _checkpoint_seconds(self._api).items():
            held = 0
            usd = 0.0
            for (name, node), count in self._nodes_before.items():
                if name == workload:
                    held += count
                    usd += self._prices[node] * count * seconds / 3600
            if workload in disrupted and held:
                times = max(1, restarts[workload])
                lost = f"at most {seconds * times} s of {number(held, 'GPU')}"
                cost = f": USD {usd * times:.2f}" if usd < float("inf") else ""
                often = f" {times} times" if times > 1 else ""
                yield f"{workload} loses its work since the last checkpoint{often}, {lost}{cost}"

    def _moves(self) -> Iterator[str]:
        """Yield the nodes that workloads have left, and those that they have now."""
        for workload in self._before:
            old = {node for name, node in self._nodes_before if name == workload}
            new = {node for name, node in self._held if name == workload}
            left = sorted(old - new)
            joined = sorted(new - old)
            kept = len(old & new)
            if left and joined:
                stayed = f", and stayed on {number(kept, 'other node')}" if kept else ""
                yield f"{workload} moved from {names(left)} to {names(joined)}{stayed}"


def workload_of(pod: Manifest) -> str:
    """Return kind, namespace and name of the workload, or the group, that a pod belongs to."""
    namespace = namespace_of(pod)
    pod_labels = labels_of(pod)
    for kind, described in kinds().items():
        if name := pod_labels.get(described.name_label):
            # A group restarts as a whole, and the other groups go on.
            group = pod_labels.get(labels.LWS_GROUP_INDEX)
            return f"{kind} {namespace}/{name}" + (f" (group {group})" if group else "")
    owner = next(iter(items(pod["metadata"], "ownerReferences")), {})
    kind = owner.get("kind", "Pod")
    name = owner.get("name", name_of(pod))
    if kind == "ReplicaSet" and labels.TEMPLATE_HASH in pod_labels:
        return f"Deployment {namespace}/{name.rpartition('-')[0]}"
    return f"{kind} {namespace}/{name}"


def _restarts(api: Api) -> Counter[str]:
    """Return how often each JobSet has restarted."""
    counts: Counter[str] = Counter()
    for item in existing(api, kinds()["JobSet"].collection):
        name = f"JobSet {namespace_of(item)}/{name_of(item)}"
        counts[name] = section(item, "status").get("restarts", 0)
    return counts


def _checkpoint_seconds(api: Api) -> dict[str, int]:
    """Return the seconds between the checkpoints of each training that declares them."""
    seconds_by_training: dict[str, int] = {}
    for training, kind in _TRAININGS.items():
        for item in existing(api, kinds()[training].collection):
            if seconds := annotations_of(item).get(labels.CHECKPOINT_SECONDS):
                seconds_by_training[f"{kind} {namespace_of(item)}/{name_of(item)}"] = int(seconds)
    return seconds_by_training


def _reports(events: Iterable[Object], since: str) -> list[str]:
    """Return what controllers reported about gangs since a time, each once."""
    texts: list[str] = []
    for event in events:
        about = event["involvedObject"]
        at = event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
        is_of_gang = about["kind"] in _REPORTING and at >= since
        # JobSet tries to create a Job whose predecessor is not gone yet.
        if is_of_gang and not event["message"].endswith("already exists"):
            message = without_values(event["message"])
            texts.append(f"{about['kind']} {about['name']}: {event['reason']}: {message}")
    return list(dict.fromkeys(texts))


def _runs(pod: Object) -> bool:
    """Return whether a pod runs, is ready and stays, or has completed."""
    phase = pod["status"]["phase"]
    is_ready = condition(pod, "Ready").get("status") == "True"
    is_leaving = bool(pod["metadata"].get("deletionTimestamp"))
    return phase == "Succeeded" or (phase == "Running" and is_ready and not is_leaving)
