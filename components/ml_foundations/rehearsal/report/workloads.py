"""The workloads of a replica: their states, their nodes, and why one does not run."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

from ml_foundations.catalog.kueue import API_VERSION
from ml_foundations.kubernetes.labels import (
    GPU_RESOURCE,
    JOB_SET_NAME,
    KUEUE_QUEUE,
    LWS_NAME,
    RAY_CLUSTER,
)
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.planning.model.described_kinds import at
from ml_foundations.planning.model.resources import pod_requests
from ml_foundations.planning.model.workloads import template_path
from ml_foundations.rehearsal.api import Api, Object, condition, existing, is_about, owners

_JOBS = "/apis/batch/v1/jobs"
_AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
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

_SYSTEM_NAMESPACES = ("kube-", "gke-", "gmp-")


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
    def list_all(path: str) -> list[Object]:
        return of_users(existing(api, path))  # add-ons may be missing

    @cache
    def warnings(namespace: str) -> list[Object]:
        selector = "type=Warning,reason!=FailedScheduling"
        return api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)["items"]

    pods = of_users(all_pods)
    # Kueue's object is owned by the workload that it admits.
    queued: dict[str, Object] = {}
    for item in list_all(_QUEUED):
        queued |= dict.fromkeys(owners(item), item)
    fewest: dict[tuple[str, str, str], int] = {}
    for autoscaler in list_all(_AUTOSCALERS):
        target = autoscaler["spec"]["scaleTargetRef"]
        key = (namespace_of(autoscaler), target["kind"], target["name"])
        fewest[key] = autoscaler["spec"].get("minReplicas", 1)
    shown = (pods, warnings, job_nodes, unplaced, without_operator, queued, fewest)
    seen = _Observations(*shown, list_all(_JOBS))
    rows = [_asking(_pod(pod, seen), pod, queued) for pod in pods if not owners(pod)]
    for path, row_of in _ROWS.items():
        for item in list_all(path):
            if not owners(item):
                rows.append(_asking(row_of(item, seen), item, queued))
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
    all_jobs: Sequence[Object] = ()

    def jobs(self, owner: Object) -> list[Object]:
        return [job for job in self.all_jobs if owner["metadata"]["uid"] in owners(job)]

    def pods(self, workload: Object) -> list[Object]:
        selector = section(workload, "spec", "selector", "matchLabels").items()
        namespace = namespace_of(workload)
        pods = filter(lambda pod: namespace_of(pod) == namespace, self.all_pods)
        return [pod for pod in pods if selector <= labels_of(pod).items()]

    @staticmethod
    def labelled(workload: Object, pod_labels: Mapping[str, str]) -> Object:
        """Return a workload with the labels of its pods as its selector."""
        selector = {"matchLabels": pod_labels}
        return {**workload, "spec": {**workload["spec"], "selector": selector}}

    def nodes(self, workload: Object) -> list[str]:
        names = {pod["spec"].get("nodeName") for pod in self.pods(workload)} - {None, ""}
        return sorted(names.union(self.job_nodes.get(workload["metadata"]["uid"], ())))

    def reason(self, workload: Object) -> str:
        reasons = filter(None, map(self.why_not_running, self.pods(workload)))
        return next(reasons, "") or self._last_warning(workload, "FailedCreate")

    def _last_warning(self, item: Object, *codes: str) -> str:
        """Return the last warning about an object. A later one of ``codes`` has precedence."""
        message = ""
        precedence = -1
        for event in self.warnings(namespace_of(item)):
            if event["reason"] in codes and is_about(event["involvedObject"], item):
                index = codes.index(event["reason"])
                if index >= precedence:
                    message = event["message"]
                    precedence = index
        return message

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
        """Return why a pod has no node or does not start there."""
        # The autoscaler knows the nodes that could come. The scheduler does not.
        scheduled = condition(pod, "PodScheduled")
        reason = ""
        if scheduled.get("status") == "False":
            reason = self.unplaced.get(pod["metadata"]["uid"]) or scheduled.get("message", "")
        if pod["status"]["phase"] == "Pending":
            reason = reason or self._last_warning(pod, *_KEPT_FROM_STARTING)
        if reason and self.without_operator and GPU_RESOURCE in pod_requests(pod["spec"]):
            cause = "The GPU Operator is not installed, and these pools leave their GPUs to it"
            return f"{cause}: {', '.join(self.without_operator)}. {reason}"
        return reason


def _ended_or_suspended(item: Object, seen: _Observations) -> tuple[str, str] | None:
    """Return state and reason of a Job or JobSet that has ended or is suspended, else None."""
    entries = items(section(item, "status"), "conditions")
    met = {entry["type"]: entry for entry in entries if entry["status"] == "True"}
    if met.keys() & {"Complete", "Completed"}:
        return "Completed", ""
    if failed := met.get("Failed"):
        return "Failed", failed.get("message") or failed.get("reason", "")
    return seen.suspended(item) if item["spec"].get("suspend") else None


def _job(job: Object, seen: _Observations) -> Workload:
    is_running = any(pod["status"]["phase"] == "Running" for pod in seen.pods(job))
    under_way = ("Running", "") if is_running else ("Pending", seen.reason(job))
    state, reason = _ended_or_suspended(job, seen) or under_way
    return _row("Job", job, state, seen.nodes(job), reason)


def _cron_job(cron_job: Object, seen: _Observations) -> Workload:
    state = "Suspended" if cron_job["spec"].get("suspend") else "Scheduled"
    schedule = f"runs at {cron_job['spec']['schedule']}"
    return _row("CronJob", cron_job, state, _nodes_of_jobs(cron_job, seen), schedule)


def _job_set(job_set: Object, seen: _Observations) -> Workload:
    """Return a JobSet. It runs if all of its Jobs do, unless its conditions say otherwise."""
    rows = [_job(job, seen) for job in seen.jobs(job_set)]
    if rows and all(row.state in _GOOD for row in rows):
        under_way = ("Running", "")
    else:
        under_way = ("Pending", next((row.reason for row in rows if row.reason), ""))
    state, reason = _ended_or_suspended(job_set, seen) or under_way
    return _row("JobSet", job_set, state, _nodes_of_jobs(job_set, seen), reason)


def _nodes_of_jobs(owner: Object, seen: _Observations) -> list[str]:
    return sorted(set().union(*map(seen.nodes, seen.jobs(owner))))


def _replicated(kind: str, item: Object, seen: _Observations) -> Workload:
    status = item["status"]
    replicas = item["spec"]["replicas"]
    if replicas:  # at 0, an autoscaler is switched off
        replicas = max(replicas, seen.fewest.get((namespace_of(item), kind, name_of(item)), 0))
    ready = status.get("readyReplicas", 0)
    updated = ready if kind == "ReplicaSet" else status.get("updatedReplicas", 0)
    if ready == updated == replicas and _is_observed(item):
        return _row(kind, item, "Ready", seen.nodes(item), f"{ready}/{replicas}")
    reason = f"{ready}/{replicas} ready. {seen.reason(item)}".strip()
    return _row(kind, item, "Pending", seen.nodes(item), reason)


def _leader_worker_set(item: Object, seen: _Observations) -> Workload:
    """Return a LeaderWorkerSet, whose replicas are groups."""
    pods = seen.labelled(item, {LWS_NAME: name_of(item)})
    return _replicated("LeaderWorkerSet", pods | {"status": section(item, "status")}, seen)


def _ray_cluster(item: Object, seen: _Observations) -> Workload:
    status = section(item, "status")
    pods = seen.labelled(item, {RAY_CLUSTER: name_of(item)})
    desired, available = (
        status.get(f"{word}WorkerReplicas", 0) for word in ("desired", "available")
    )
    is_ready = status.get("state") == "ready" and available == desired
    ready = ("Ready", f"{available}/{desired} workers")
    pending = ("Pending", seen.reason(pods))
    suspended = seen.suspended(item) if item["spec"].get("suspend") else None
    state, reason = suspended or (ready if is_ready else pending)
    return _row("RayCluster", item, state, seen.nodes(pods), reason)


_RAY_JOB_STATES = {"Complete": "Completed", "Failed": "Failed", "Running": "Running"}
"""How states of a RayJob are shown (kuberay v1.6.2, rayjob_types.go). All others are pending."""


def _ray_job(item: Object, seen: _Observations) -> Workload:
    """Return a RayJob. Its own cluster ends with it, and its submitter stays."""
    status = section(item, "status")
    pods = seen.labelled(item, {RAY_CLUSTER: status.get("rayClusterName", "")})
    state = _RAY_JOB_STATES.get(status.get("jobDeploymentStatus", ""), "Pending")
    reason = status.get("message", "") if state == "Failed" else ""
    if state == "Pending":
        reason = seen.reason(pods)
        if item["spec"].get("suspend"):
            state, reason = seen.suspended(item)
    nodes = {*seen.nodes(pods), *_nodes_of_jobs(item, seen)}
    return _row("RayJob", item, state, sorted(nodes), reason)


def _train_job(item: Object, seen: _Observations) -> Workload:
    """Return a TrainJob, whose pods are those of the JobSet of its name."""
    name = {JOB_SET_NAME: name_of(item)}
    pods = seen.labelled(item, name)
    running = any(pod["status"]["phase"] == "Running" for pod in seen.pods(pods))
    nodes = set(seen.nodes(pods))
    for job in seen.all_jobs:
        if namespace_of(job) == namespace_of(item) and name.items() <= labels_of(job).items():
            nodes.update(seen.nodes(job))
    under_way = ("Running", "") if running else ("Pending", seen.reason(pods))
    state, reason = _ended_or_suspended(item, seen) or under_way
    return _row("TrainJob", item, state, sorted(nodes), reason)


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
    phase = pod["status"]["phase"]
    state = "Completed" if phase == "Succeeded" else phase
    return _row("Pod", pod, state, [node] if node else [], seen.why_not_running(pod))


def _asking(row: Workload, item: Object, queued: Mapping[str, Object]) -> Workload:
    """Return a row with its queue and the spec of its pods."""
    jobs = items(section(item, "spec"), "replicatedJobs")
    holder = section(jobs[0], "template") if jobs else item
    pods = at(holder, template_path(row.kind)) or {}
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


_ROWS: Mapping[str, Callable[[Object, _Observations], Workload]] = {
    _JOBS: _job,
    "/apis/batch/v1/cronjobs": _cron_job,
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets": _job_set,
    "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets": _leader_worker_set,
    "/apis/trainer.kubeflow.org/v1alpha1/trainjobs": _train_job,
    "/apis/ray.io/v1/rayclusters": _ray_cluster,
    "/apis/ray.io/v1/rayjobs": _ray_job,
    "/apis/apps/v1/deployments": partial(_replicated, "Deployment"),
    "/apis/apps/v1/replicasets": partial(_replicated, "ReplicaSet"),
    "/apis/apps/v1/statefulsets": partial(_replicated, "StatefulSet"),
    "/apis/apps/v1/daemonsets": _daemon_set,
}
"""How to read the objects of each collection of workloads."""


def of_users(objects: Iterable[Object]) -> list[Object]:
    """Return the objects outside the namespaces of Kubernetes and GKE."""
    return [item for item in objects if not is_system(namespace_of(item))]


def is_system(namespace: str) -> bool:
    """Return whether a namespace belongs to Kubernetes or GKE."""
    return namespace.startswith(_SYSTEM_NAMESPACES)
