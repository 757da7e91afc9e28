"""The workloads of a replica: their states, their nodes, and why one does not run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from ml_foundations.catalog.kueue import API_VERSION
from ml_foundations.kubernetes.labels import GPU_RESOURCE, KUEUE_QUEUE
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.planning.model.resources import pod_requests
from ml_foundations.rehearsal.api import Api, Object, condition, owners

_JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
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

    @property
    def is_well(self) -> bool:
        """Return whether it runs, has completed, or is suspended on purpose.

        The user suspends a CronJob. A queue suspends a Job.
        """
        return self.state in _GOOD or (self.kind, self.state) == ("CronJob", "Suspended")


def collect(
    api: Api,
    all_pods: list[Object],
    job_nodes: Mapping[str, Mapping[str, str]],
    unplaced: Mapping[str, str],
    without_operator: list[str],
) -> list[Workload]:
    """Return the user's workloads in a replica, except those that a controller created."""

    def list_all(path: str) -> list[Object]:
        objects = api.find(path) or {"items": []}  # kinds of add-ons may be missing
        return [item for item in objects["items"] if not is_system(namespace_of(item))]

    def list_declared(path: str) -> list[Object]:
        return [item for item in list_all(path) if not owners(item)]

    @cache
    def warnings(namespace: str) -> list[Object]:
        selector = "type=Warning,reason!=FailedScheduling"
        return api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)["items"]

    pods = [pod for pod in all_pods if not is_system(namespace_of(pod))]
    jobs = list_all("/apis/batch/v1/jobs")
    queued: dict[str, Object] = {}
    for item in list_all(_QUEUED):
        queued |= dict.fromkeys(owners(item), item)
    fewest: dict[tuple[str, str, str], int] = {}
    for autoscaler in list_all(_AUTOSCALERS):
        target = autoscaler["spec"]["scaleTargetRef"]
        key = (namespace_of(autoscaler), target["kind"], target["name"])
        fewest[key] = autoscaler["spec"].get("minReplicas", 1)
    seen = _Observations(pods, warnings, job_nodes, unplaced, without_operator, queued, fewest)
    rows = [_job(job, seen) for job in jobs if not owners(job)]
    for make, path in ((_cron_job, "/apis/batch/v1/cronjobs"), (_job_set, _JOB_SETS)):
        rows += [make(item, _owned_by(item, jobs), seen) for item in list_declared(path)]
    for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
        declared = list_declared(f"/apis/apps/v1/{kind.lower()}s")
        rows += [_replicated(kind, item, seen) for item in declared]
    rows += [_daemon_set(item, seen) for item in list_declared("/apis/apps/v1/daemonsets")]
    rows += [_pod(pod, seen) for pod in pods if not owners(pod)]
    return sorted(rows, key=lambda row: (row.namespace, row.kind, row.name))


def _owned_by(owner: Object, objects: list[Object]) -> list[Object]:
    return [item for item in objects if owner["metadata"]["uid"] in owners(item)]


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

    def pods(self, workload: Object) -> list[Object]:
        selector = section(workload, "spec", "selector", "matchLabels").items()
        namespace = namespace_of(workload)
        pods = [pod for pod in self.all_pods if namespace_of(pod) == namespace]
        return [pod for pod in pods if selector <= labels_of(pod).items()]

    def nodes(self, workload: Object) -> list[str]:
        names = {pod["spec"].get("nodeName") for pod in self.pods(workload)} - {None, ""}
        return sorted(names.union(self.job_nodes.get(workload["metadata"]["uid"], ())))

    def reason(self, workload: Object) -> str:
        reasons = filter(None, map(self.why_not_running, self.pods(workload)))
        return next(reasons, "") or self._last_warning(workload, "FailedCreate")

    def _last_warning(self, item: Object, *reasons: str) -> str:
        """Return the last warning about an object. A later one of ``reasons`` has precedence."""
        message, precedence = "", -1
        for event in self.warnings(namespace_of(item)):
            if event["reason"] in reasons and _is_about(event["involvedObject"], item):
                index = reasons.index(event["reason"])
                if index >= precedence:
                    message, precedence = event["message"], index
        return message

    def suspended(self, workload: Object) -> tuple[str, str]:
        """Return state and reason of a suspended workload.

        It is pending if it waits for nodes, or if Kueue has not yet seen it in its queue.
        """
        queued = self.queued.get(workload["metadata"]["uid"], {})
        reserved = condition(queued, "QuotaReserved")
        is_new = KUEUE_QUEUE in labels_of(workload) and not reserved
        if not is_new and reserved.get("status") != "True":
            return "Suspended", reserved.get("message", "")
        for check in items(section(queued, "status"), "admissionChecks"):
            if check["state"] == "Pending":
                return "Pending", check.get("message", "")
        return "Pending", ""

    def why_not_running(self, pod: Object) -> str:
        """Return why a pod has no node or does not start there.

        The autoscaler's reason has precedence over the scheduler's.
        """
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


def _is_about(involved: Object, workload: Object) -> bool:
    """Return whether an event is about a workload, or about the ReplicaSet of a Deployment."""
    if involved.get("uid") == workload["metadata"]["uid"]:
        return True
    deployment = (involved.get("namespace"), involved["name"].rpartition("-")[0])
    is_of_workload = deployment == (namespace_of(workload), name_of(workload))
    return involved["kind"] == "ReplicaSet" and is_of_workload


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


def _cron_job(cron_job: Object, jobs: list[Object], seen: _Observations) -> Workload:
    state = "Suspended" if cron_job["spec"].get("suspend") else "Scheduled"
    schedule = f"runs at {cron_job['spec']['schedule']}"
    return _row("CronJob", cron_job, state, _nodes_of(jobs, seen), schedule)


def _job_set(job_set: Object, jobs: list[Object], seen: _Observations) -> Workload:
    """Return a JobSet. It runs if all of its Jobs do, unless its conditions say otherwise."""
    rows = [_job(job, seen) for job in jobs]
    if rows and all(row.state in _GOOD for row in rows):
        under_way = ("Running", "")
    else:
        under_way = ("Pending", next((row.reason for row in rows if row.reason), ""))
    state, reason = _ended_or_suspended(job_set, seen) or under_way
    return _row("JobSet", job_set, state, _nodes_of(jobs, seen), reason)


def _nodes_of(jobs: list[Object], seen: _Observations) -> list[str]:
    return sorted(set().union(*map(seen.nodes, jobs)))


def _replicated(kind: str, item: Object, seen: _Observations) -> Workload:
    status, replicas = item["status"], item["spec"]["replicas"]
    if replicas:  # at 0, an autoscaler is switched off
        replicas = max(replicas, seen.fewest.get((namespace_of(item), kind, name_of(item)), 0))
    ready = status.get("readyReplicas", 0)
    updated = ready if kind == "ReplicaSet" else status.get("updatedReplicas", 0)
    if ready == updated == replicas and _is_observed(item):
        return _row(kind, item, "Ready", seen.nodes(item), f"{ready}/{replicas}")
    reason = f"{ready}/{replicas} ready. {seen.reason(item)}".strip()
    return _row(kind, item, "Pending", seen.nodes(item), reason)


def _daemon_set(item: Object, seen: _Observations) -> Workload:
    scheduled = item["status"].get("desiredNumberScheduled", 0)
    ready = item["status"].get("numberReady", 0)
    state = "Ready" if ready == scheduled and _is_observed(item) else "Pending"
    return _row("DaemonSet", item, state, seen.nodes(item), f"{ready}/{scheduled}")


def _is_observed(item: Object) -> bool:
    """Return whether the status of an object is that of its present spec."""
    return item["status"].get("observedGeneration") == item["metadata"]["generation"]


def _pod(pod: Object, seen: _Observations) -> Workload:
    node, phase = pod["spec"].get("nodeName"), pod["status"]["phase"]
    state = "Completed" if phase == "Succeeded" else phase
    return _row("Pod", pod, state, [node] if node else [], seen.why_not_running(pod))


def _row(kind: str, item: Object, state: str, nodes: list[str], reason: str) -> Workload:
    return Workload(namespace_of(item), kind, name_of(item), state, nodes, reason)


def is_system(namespace: str) -> bool:
    """Return whether a namespace belongs to Kubernetes or GKE."""
    return namespace.startswith(_SYSTEM_NAMESPACES)
