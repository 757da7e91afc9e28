"""The workloads of a replica: the state of each, where its pods run or ran, and why it does not run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from ml_foundations.catalog.kueue import API_VERSION
from ml_foundations.kubernetes.labels import GPU_RESOURCE, KUEUE_QUEUE
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.planning.model.resources import pod_requests
from ml_foundations.rehearsal.api import Api, Object, condition, owners

_JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
_QUEUED = f"/apis/{API_VERSION}/workloads"
"""Kueue's own objects, one for each workload in a queue."""

STEADY = {"Completed", "Failed", "Ready", "Scheduled", "Suspended"}
"""Workload states that do not change by waiting."""

_GOOD = {"Completed", "Ready", "Running", "Scheduled"}
"""Workload states with which a rehearsal has succeeded."""

_KEPT_FROM_STARTING = (
    "FailedAttachVolume",
    "FailedMount",
    "FailedToRetrieveImagePullSecret",
    "Failed",
)
"""Reasons of events that say why a pod with a node does not start."""

_SYSTEM_NAMESPACES = ("kube-", "gke-", "gmp-")


@dataclass(frozen=True)
class Workload:
    """A workload, its state, the nodes that its pods run or ran on, and why it does not run."""

    namespace: str
    kind: str
    name: str
    state: str
    nodes: list[str] = field(default_factory=list)
    reason: str = ""
    pools: dict[str, int] = field(default_factory=dict)
    """How many of these nodes each pool has."""

    @property
    def is_well(self) -> bool:
        """Whether it runs, has run to completion, or rests as declared: a queue suspends Jobs, but no CronJob."""
        return self.state in _GOOD or (self.kind, self.state) == ("CronJob", "Suspended")


def collect(
    api: Api,
    all_pods: list[Object],
    history: Mapping[str, Manifest],
    unplaced: Mapping[str, str],
    without_operator: list[str],
) -> list[Workload]:
    """Return every workload that somebody declared, without those of the system.

    Args:
        api: The replica.
        all_pods: Its pods.
        history: The nodes where pods ended, by uid of their Job.
        unplaced: Why the autoscaler makes no node for a pod, by its uid.
        without_operator: The pools that leave their GPUs to an operator that is missing.
    """

    def ours(path: str) -> list[Object]:
        found = api.find(path) or {"items": []}  # not every cluster has every kind
        return [item for item in found["items"] if not is_system(namespace_of(item))]

    @cache
    def warnings(namespace: str) -> list[Object]:
        of_others = "type=Warning,reason!=FailedScheduling"
        return api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=of_others)["items"]

    pods = [pod for pod in all_pods if not is_system(namespace_of(pod))]
    jobs = ours("/apis/batch/v1/jobs")
    queued = {uid: item for item in ours(_QUEUED) for uid in owners(item)}
    seen = _Evidence(pods, warnings, history, unplaced, without_operator, queued)
    kinds = ("Deployment", "ReplicaSet", "StatefulSet")
    replicated = (
        (kind, item) for kind in kinds for item in _declared(ours(f"/apis/apps/v1/{kind.lower()}s"))
    )
    rows = [
        *(_job(job, seen) for job in _declared(jobs)),
        *(
            _cron_job(cron, _owned_by(cron, jobs), seen)
            for cron in _declared(ours("/apis/batch/v1/cronjobs"))
        ),
        *(_job_set(item, _owned_by(item, jobs), seen) for item in _declared(ours(_JOB_SETS))),
        *(_replicas(kind, item, seen) for kind, item in replicated),
        *(_daemon_set(item, seen) for item in _declared(ours("/apis/apps/v1/daemonsets"))),
        *(_pod(pod, seen) for pod in _declared(pods)),
    ]
    return sorted(rows, key=lambda row: (row.namespace, row.kind, row.name))


def _declared(found: list[Object]) -> list[Object]:
    """Those that somebody declared: no other object made them."""
    return [item for item in found if not owners(item)]


def _owned_by(owner: Object, found: list[Object]) -> list[Object]:
    return [item for item in found if owner["metadata"]["uid"] in owners(item)]


@dataclass(frozen=True)
class _Evidence:
    """What tells where a workload's pods are, were, or why they are not."""

    all_pods: list[Object]
    warnings: Callable[[str], list[Object]]
    """Those of a namespace but the scheduler's: asked for where needed, as the server reads all events to find them."""
    history: Mapping[str, Mapping[str, str]]
    unplaced: Mapping[str, str]
    without_operator: list[str]
    queued: dict[str, Object]
    """Kueue's object of a workload, by the workload's uid."""

    def pods(self, workload: Object) -> list[Object]:
        wanted = section(workload, "spec", "selector", "matchLabels").items()
        beside = [pod for pod in self.all_pods if namespace_of(pod) == namespace_of(workload)]
        return [pod for pod in beside if wanted <= labels_of(pod).items()]

    def nodes(self, workload: Object) -> list[str]:
        current = {node for pod in self.pods(workload) if (node := pod["spec"].get("nodeName"))}
        return sorted(current.union(self.history.get(workload["metadata"]["uid"], ())))

    def reason(self, workload: Object) -> str:
        unscheduled = filter(None, map(self.unscheduled, self.pods(workload)))
        return next(unscheduled, "") or self._warned(workload, "FailedCreate")

    def _warned(self, item: Object, *reasons: str) -> str:
        """The last warning about an object, of the last of these reasons that there are any of."""
        about = [
            each
            for each in self.warnings(namespace_of(item))
            if _is_about(each["involvedObject"], item)
        ]
        return next(
            (
                each["message"]
                for why in reversed(reasons)
                for each in about[::-1]
                if each["reason"] == why
            ),
            "",
        )

    def suspended(self, workload: Object) -> tuple[str, str]:
        """State and reason of a workload that is not let go: its queue has it, and it waits for nodes, or rests."""
        found = self.queued.get(workload["metadata"]["uid"], {})
        checks = items(section(found, "status"), "admissionChecks")
        pending = [check.get("message", "") for check in checks if check["state"] == "Pending"]
        reserved = condition(found, "QuotaReserved")
        # Until Kueue has looked at what is in a queue, it says nothing of it.
        is_new = KUEUE_QUEUE in labels_of(workload) and not reserved
        if is_new or reserved.get("status") == "True":
            return "Pending", next(iter(pending), "")
        return "Suspended", reserved.get("message", "")

    def unscheduled(self, pod: Object) -> str:
        """Return why a pod has no node, or does not start there: the autoscaler's words, or else the scheduler's."""
        scheduled = condition(pod, "PodScheduled")
        is_unscheduled = scheduled.get("status") == "False"
        said = (
            self.unplaced.get(pod["metadata"]["uid"]) or scheduled.get("message", "")
            if is_unscheduled
            else ""
        )
        if pod["status"]["phase"] == "Pending":
            said = said or self._warned(pod, *_KEPT_FROM_STARTING)
        if said and self.without_operator and GPU_RESOURCE in pod_requests(pod["spec"]):
            pools = ", ".join(self.without_operator)
            return f"The GPU Operator is not installed, and these pools leave their GPUs to it: {pools}. {said}"
        return said


def _is_about(involved: Object, workload: Object) -> bool:
    """Whether an event is about a workload, or about the ReplicaSet of a Deployment."""
    is_of_deployment = involved["kind"] == "ReplicaSet" and involved["name"].rpartition("-")[
        0
    ] == name_of(workload)
    same_namespace = involved.get("namespace") == namespace_of(workload)
    return involved.get("uid") == workload["metadata"]["uid"] or (
        is_of_deployment and same_namespace
    )


def _met(item: Object) -> dict[str, Manifest]:
    """The conditions of an object that are true, by type."""
    conditions = items(section(item, "status"), "conditions")
    return {
        condition["type"]: condition for condition in conditions if condition["status"] == "True"
    }


def _ended(item: Object, seen: _Evidence) -> tuple[str, str] | None:
    """State and reason of a Job or a JobSet that has ended, or is not let go; None of one that is under way."""
    met = _met(item)
    if met.keys() & {"Complete", "Completed"}:
        return "Completed", ""
    if failed := met.get("Failed"):
        return "Failed", failed.get("message") or failed.get("reason", "")
    return seen.suspended(item) if item["spec"].get("suspend") else None


def _job(job: Object, seen: _Evidence) -> Workload:
    is_running = any(pod["status"]["phase"] == "Running" for pod in seen.pods(job))
    under_way = ("Running", "") if is_running else ("Pending", seen.reason(job))
    state, reason = _ended(job, seen) or under_way
    return _row("Job", job, state, seen.nodes(job), reason)


def _cron_job(cron: Object, jobs: list[Object], seen: _Evidence) -> Workload:
    state = "Suspended" if cron["spec"].get("suspend") else "Scheduled"
    return _row(
        "CronJob", cron, state, _nodes_of(jobs, seen), f"runs at {cron['spec']['schedule']}"
    )


def _job_set(job_set: Object, jobs: list[Object], seen: _Evidence) -> Workload:
    """A JobSet, by its own conditions, or else by its Jobs: it runs when all of them do."""
    rows = [_job(job, seen) for job in jobs]
    is_running = rows and all(row.state in _GOOD for row in rows)
    under_way = (
        ("Running", "")
        if is_running
        else ("Pending", next((row.reason for row in rows if row.reason), ""))
    )
    state, reason = _ended(job_set, seen) or under_way
    return _row("JobSet", job_set, state, _nodes_of(jobs, seen), reason)


def _nodes_of(jobs: list[Object], seen: _Evidence) -> list[str]:
    return sorted({node for job in jobs for node in seen.nodes(job)})


def _replicas(kind: str, item: Object, seen: _Evidence) -> Workload:
    status, wanted = item["status"], item["spec"]["replicas"]
    ready = status.get("readyReplicas", 0)
    updated = status.get("updatedReplicas", 0) if kind in ("Deployment", "StatefulSet") else ready
    nodes = seen.nodes(item)
    if (
        ready == updated == wanted
        and status.get("observedGeneration") == item["metadata"]["generation"]
    ):
        return _row(kind, item, "Ready", nodes, f"{ready}/{wanted}")
    return _row(
        kind, item, "Pending", nodes, f"{ready}/{wanted} ready. {seen.reason(item)}".strip()
    )


def _daemon_set(item: Object, seen: _Evidence) -> Workload:
    wanted, ready = (
        item["status"].get("desiredNumberScheduled", 0),
        item["status"].get("numberReady", 0),
    )
    state = "Ready" if ready == wanted else "Pending"
    return _row("DaemonSet", item, state, seen.nodes(item), f"{ready}/{wanted}")


def _pod(pod: Object, seen: _Evidence) -> Workload:
    node, phase = pod["spec"].get("nodeName"), pod["status"]["phase"]
    state = "Completed" if phase == "Succeeded" else phase
    return _row("Pod", pod, state, [node] if node else [], seen.unscheduled(pod))


def _row(kind: str, item: Object, state: str, nodes: list[str], reason: str) -> Workload:
    return Workload(namespace_of(item), kind, name_of(item), state, nodes, reason)


def is_system(namespace: str) -> bool:
    """Whether a namespace is not the user's."""
    return namespace.startswith(_SYSTEM_NAMESPACES)
