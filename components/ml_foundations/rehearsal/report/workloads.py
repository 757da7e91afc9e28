"""The workloads of a replica: their states, their nodes, and why one does not run."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

from ml_foundations.catalog.kueue import API_VERSION
from ml_foundations.kinds.kind import at
from ml_foundations.kinds.kind_files import kinds
from ml_foundations.kubernetes.labels import GPU_RESOURCE, KUEUE_QUEUE
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.planning.model.resources import pod_requests
from ml_foundations.rehearsal.api import Api, Object, condition, existing, is_about, owners

_QUEUED = f"/apis/{API_VERSION}/workloads"
"""Kueue's Workload objects, one for each workload in a queue."""

STEADY = {"Completed", "Failed", "Ready", "Scheduled", "Suspended"}
"""States that do not change on their own."""

_GOOD = {"Completed", "Ready", "Running", "Scheduled"}
"""States with which a rehearsal has succeeded."""

_KEPT_FROM_STARTING = (
    *("FailedAttachVolume", "FailedMount", "FailedToRetrieveImagePullSecret", "Failed"),
)
"""Reasons of events that say why a pod with a node does not start."""

_VALUE = re.compile(r'(value|found): (?:"(?:[^"\\]|\\.)*"|[^\s"]*[{\[].*[}\]])', re.DOTALL)
"""An invalid value in a message, in quotes or as an object (apimachinery, field/errors.go)."""


@dataclass(frozen=True)
class Workload:
    """A workload: its state, the nodes that its pods run or ran on, and why it does not run."""

    namespace: str
    kind: str
    name: str
    state: str
    nodes: list[str] = field(default_factory=list)
    reason: str = ""
    pools: dict[str, int] = field(default_factory=dict)
    """The number of these nodes by pool."""
    queue: str = ""
    """The queue of Kueue that it waits in."""
    pod_spec: Object = field(default_factory=dict[str, Any], compare=False, repr=False)
    """What selects the nodes of its pods, before Kueue chose a flavor."""

    def to_dict(self) -> dict[str, Any]:
        """Return the workload as data that may be passed on."""
        data = asdict(replace(self, pod_spec={}))
        del data["pod_spec"]
        return data

    @property
    def is_well(self) -> bool:
        """Return whether it runs, has completed, or is suspended on purpose."""
        # The user suspends a CronJob. A queue suspends a Job.
        return self.state in _GOOD or (self.kind, self.state) == ("CronJob", "Suspended")


def collect(
    api: Api,
    all_pods: list[Object],
    job_nodes: Mapping[str, Mapping[str, str]],
    unplaced: Mapping[str, str],
    without_operator: list[str],
) -> list[Workload]:
    """Return the user's workloads in a replica, except those that a controller created."""

    @cache
    def warnings(namespace: str) -> list[Object]:
        selector = "type=Warning,reason!=FailedScheduling"
        return api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)["items"]

    pods = of_users(all_pods)
    # Kueue's object is owned by the workload that it admits.
    queued: dict[str, Object] = {}
    for item in of_users(existing(api, _QUEUED)):
        queued |= dict.fromkeys(owners(item), item)
    fewest: dict[tuple[str, str, str], int] = {}
    for autoscaler in of_users(existing(api, "/apis/autoscaling/v2/horizontalpodautoscalers")):
        target = autoscaler["spec"]["scaleTargetRef"]
        key = (namespace_of(autoscaler), target["kind"], target["name"])
        fewest[key] = autoscaler["spec"].get("minReplicas", 1)
    workloads: list[tuple[str, Object]] = []
    made: defaultdict[str, list[tuple[str, Object]]] = defaultdict(list)
    for name, kind in kinds().items():
        # Add-ons may be missing.
        for item in pods if name == "Pod" else of_users(existing(api, kind.collection)):
            if not owners(item):
                workloads.append((name, item))
            # Kinds with replicas select their pods, whatever is between.
            elif name != "Pod" and not kind.replicas:
                for uid in owners(item):
                    made[uid].append((name, item))
    shown = (pods, warnings, job_nodes, unplaced, without_operator, queued, fewest)
    seen = _Observations(*shown, made)
    rows = [_asking(_row_of(name, item, seen), item, queued) for name, item in workloads]
    return sorted(rows, key=lambda row: (row.namespace, row.kind, row.name))


@dataclass(frozen=True)
class _Observations:
    """The objects of the replica that show where pods are or were, and why they do not run."""

    all_pods: list[Object]
    warnings: Callable[[str], list[Object]]
    """The warnings of a namespace, except the scheduler's. Read on demand: it is expensive."""
    job_nodes: Mapping[str, Mapping[str, str]]
    """By uid of a Job, the nodes where its pods ended."""
    unplaced: Mapping[str, str]
    """By uid of a pod, why the autoscaler adds no node for it."""
    without_operator: list[str]
    """The pools whose GPUs are missing without the GPU Operator."""
    queued: dict[str, Object]
    """Kueue's Workload object by the uid of the workload."""
    fewest: Mapping[tuple[str, str, str], int]
    """By namespace, kind and name of its target, the fewest replicas of an autoscaler."""
    made: Mapping[str, Sequence[tuple[str, Object]]]
    """By uid of a workload, the Jobs, RayClusters and the like made for it, with their kinds."""

    def pods(self, workload: Object) -> list[Object]:
        """Return the pods that a workload selects; without a selector, those that it owns."""
        selector = section(workload, "spec", "selector", "matchLabels").items()
        if not selector:
            return [pod for pod in self.all_pods if workload["metadata"]["uid"] in owners(pod)]
        namespace = namespace_of(workload)
        pods = filter(lambda pod: namespace_of(pod) == namespace, self.all_pods)
        return [pod for pod in pods if selector <= labels_of(pod).items()]

    def nodes(self, workload: Object) -> list[str]:
        """Return the nodes of the pods of a workload, and of what is made for it."""
        uid = workload["metadata"]["uid"]
        names = {pod["spec"].get("nodeName") for pod in self.pods(workload)} - {None, ""}
        names.update(self.job_nodes.get(uid, ()))
        return sorted(names.union(*(self.nodes(item) for _, item in self.made.get(uid, ()))))

    def reason(self, workload: Object) -> str:
        reasons = filter(None, map(self.why_not_running, self.pods(workload)))
        return next(reasons, "") or self._last_warning(workload, "FailedCreate")

    def _last_warning(self, item: Object, *codes: str) -> str:
        """Return the last warning about an object. A later one of ``codes`` has precedence."""
        events = [event for event in self.warnings(namespace_of(item)) if event["reason"] in codes]
        events = [event for event in events if is_about(event["involvedObject"], item)]
        events.sort(key=lambda event: codes.index(event["reason"]))
        return events[-1]["message"] if events else ""

    def suspended(self, workload: Object) -> tuple[str, str]:
        """Return state and reason of a suspended workload."""
        # It is pending if it waits for nodes, or if Kueue has not yet seen it in its queue.
        queued = self.queued.get(workload["metadata"]["uid"], {})
        reserved = condition(queued, "QuotaReserved")
        is_new = KUEUE_QUEUE in labels_of(workload) and not reserved
        if not is_new and reserved.get("status") != "True":
            return "Suspended", reserved.get("message", "")
        for check in items(section(queued, "status"), "admissionChecks"):
            if check["state"] == "Pending":
                return "Pending", check.get("message", "")
        # Nodes that came for it may lack a domain of its topology.
        return "Pending", self._last_warning(queued, "SecondPassFailed") if queued else ""

    def why_not_running(self, pod: Object) -> str:
        """Return why a pod has no node, does not start there, or has ended with an error."""
        # The autoscaler knows the nodes that could come. The scheduler does not.
        scheduled = condition(pod, "PodScheduled")
        reason = ""
        if scheduled.get("status") == "False":
            reason = self.unplaced.get(pod["metadata"]["uid"]) or scheduled.get("message", "")
        if pod["status"]["phase"] == "Pending":
            reason = reason or self._last_warning(pod, *_KEPT_FROM_STARTING)
        reason = reason or _failure(pod)
        if reason and self.without_operator and GPU_RESOURCE in pod_requests(pod["spec"]):
            cause = "The GPU Operator is not installed, and these pools leave their GPUs to it"
            return f"{cause}: {', '.join(self.without_operator)}. {reason}"
        return reason


def _row_of(kind: str, item: Object, seen: _Observations) -> Workload:
    """Return the row of an object: by its status, or by what is made for it and its pods."""
    if row_of := _ROWS.get(kind):
        return row_of(item, seen)
    state, reason = kinds()[kind].state_of(item)
    if not state and item["spec"].get("suspend"):
        state, reason = seen.suspended(item)
    if not state:
        rows = [_row_of(*made, seen) for made in seen.made.get(item["metadata"]["uid"], ())]
        is_running = any(_phase(pod) == "Running" for pod in seen.pods(item))
        if rows:
            is_running = all(row.state in _GOOD for row in rows)
        state = "Running" if is_running else "Pending"
        if not is_running:
            reason = next((row.reason for row in rows if row.reason), "") or seen.reason(item)
    if state == "Failed" and (failure := next(filter(None, map(_failure, seen.pods(item))), "")):
        reason = f"{reason}. {failure}"
    return _row(kind, item, state, seen.nodes(item), reason)


def _cron_job(cron_job: Object, seen: _Observations) -> Workload:
    state = "Suspended" if cron_job["spec"].get("suspend") else "Scheduled"
    schedule = f"runs at {cron_job['spec']['schedule']}"
    return _row("CronJob", cron_job, state, seen.nodes(cron_job), schedule)


def _replicated(kind: str, item: Object, seen: _Observations) -> Workload:
    status = item["status"]
    replicas = item["spec"]["replicas"]
    if replicas:  # at 0, an autoscaler is switched off
        replicas = max(replicas, seen.fewest.get((namespace_of(item), kind, name_of(item)), 0))
    ready = status.get("readyReplicas", 0)
    # ReplicaSets and ReplicationControllers replace no pods by updated ones.
    updated = ready if kind.startswith("Replica") else status.get("updatedReplicas", 0)
    if ready == updated == replicas and _is_observed(item):
        return _row(kind, item, "Ready", seen.nodes(item), f"{ready}/{replicas}")
    reason = f"{ready}/{replicas} ready. {seen.reason(item)}".strip()
    return _row(kind, item, "Pending", seen.nodes(item), reason)


def _leader_worker_set(item: Object, seen: _Observations) -> Workload:
    """Return a LeaderWorkerSet, whose replicas are groups."""
    selector = {"matchLabels": {kinds()["LeaderWorkerSet"].name_label: name_of(item)}}
    spec = {**item["spec"], "selector": selector}
    selecting = {**item, "spec": spec, "status": section(item, "status")}
    return _replicated("LeaderWorkerSet", selecting, seen)


def _ray_cluster(item: Object, seen: _Observations) -> Workload:
    status = section(item, "status")
    desired = status.get("desiredWorkerReplicas", 0)
    available = status.get("availableWorkerReplicas", 0)
    is_ready = status.get("state") == "ready" and available == desired
    ready = ("Ready", f"{available}/{desired} workers")
    pending = ("Pending", seen.reason(item))
    suspended = seen.suspended(item) if item["spec"].get("suspend") else None
    state, reason = suspended or (ready if is_ready else pending)
    return _row("RayCluster", item, state, seen.nodes(item), reason)


def _daemon_set(item: Object, seen: _Observations) -> Workload:
    scheduled = item["status"].get("desiredNumberScheduled", 0)
    ready = item["status"].get("numberReady", 0)
    state = "Ready" if ready == scheduled and _is_observed(item) else "Pending"
    return _row("DaemonSet", item, state, seen.nodes(item), f"{ready}/{scheduled}")


def _is_observed(item: Object) -> bool:
    """Return whether the status of an object is that of its present spec."""
    return item["status"].get("observedGeneration") == item["metadata"]["generation"]


def _pod(pod: Object, seen: _Observations) -> Workload:
    node = pod["spec"].get("nodeName")
    phase = _phase(pod)
    state = "Completed" if phase == "Succeeded" else phase
    return _row("Pod", pod, state, [node] if node else [], seen.why_not_running(pod))


def _phase(pod: Object) -> str:
    """Return the phase of a pod. One whose containers fail at each start does not run."""
    phase = pod["status"]["phase"]
    return "CrashLoopBackOff" if phase == "Running" and _failure(pod) else phase


def _failure(pod: Object) -> str:
    """Return the last words of a container that has ended with an error."""
    for status in items(section(pod, "status"), "containerStatuses"):
        for state in ("state", "lastState"):
            if message := section(status, state, "terminated").get("message"):
                return f"container {status['name']} ended with an error: {message}"
    return ""


def _asking(row: Workload, item: Object, queued: Mapping[str, Object]) -> Workload:
    """Return a row with its queue and the spec of its pods."""
    pods = at(item, kinds()[row.kind].main_template) or {}
    for pod_set in items(section(queued.get(item["metadata"]["uid"], {}), "spec"), "podSets")[:1]:
        pods = section(pod_set, "template")
    spec = section(pods, "spec")
    # The rest of the spec may hold secrets, such as values of env.
    selecting = {key: spec[key] for key in ("nodeSelector", "affinity") if key in spec}
    return replace(row, queue=labels_of(item).get(KUEUE_QUEUE, ""), pod_spec=selecting)


def _row(kind: str, item: Object, state: str, nodes: list[str], reason: str) -> Workload:
    return Workload(namespace_of(item), kind, name_of(item), state, nodes, without_values(reason))


def without_values(message: str) -> str:
    """Return a message of Kubernetes without the values of fields: they may be secret."""
    return _VALUE.sub(r"\1: …", message)


_REPLICATED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
_ROWS: Mapping[str, Callable[[Object, _Observations], Workload]] = {
    "Pod": _pod,
    "CronJob": _cron_job,
    "LeaderWorkerSet": _leader_worker_set,
    "RayCluster": _ray_cluster,
    **{kind: partial(_replicated, kind) for kind in _REPLICATED},
    "DaemonSet": _daemon_set,
}
"""How to read the objects of kinds whose state is in numbers of pods."""


def of_users(objects: Iterable[Object]) -> list[Object]:
    """Return the objects outside the namespaces of Kubernetes and GKE."""
    return [item for item in objects if not is_system(namespace_of(item))]


def is_system(namespace: str) -> bool:
    """Return whether a namespace belongs to Kubernetes or GKE."""
    return namespace.startswith(("kube-", "gke-", "gmp-"))
