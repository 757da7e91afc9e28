"""Runs that last: deadlines that pass before nodes are there, upgrades, and work that is lost."""

from collections.abc import Iterator, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, section
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.words import names, number
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass, comes_on_request
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.volumes import writes
from ml_foundations.planning.model.workloads import PodSet, Workload

_HOUR = 3600
"""Work of an hour is done again without regret."""
_DAY = 86400
"""GKE promises no scarce node within a day."""


def longest_run(workload: Workload) -> int | None:
    """Return the most seconds that a run may last; None if nothing limits it."""
    annotated = annotations_of(workload.manifest).get(labels.RUN_SECONDS)
    return whole_number(annotated) or _deadline(workload)


def _deadline(workload: Workload) -> int | None:
    """Return the deadline of a Job, or of the Jobs of a JobSet, in seconds."""
    jobs = items(section(workload.manifest, "spec"), "replicatedJobs")
    deadlines = [section(job, "template", "spec").get("activeDeadlineSeconds") for job in jobs]
    known = [seconds for seconds in deadlines or [workload.deadline] if isinstance(seconds, int)]
    return max(known) if known and len(known) == len(deadlines or [0]) else None


def long_runs(
    workload: Workload, pods: Sequence[tuple[PodSet, PodClass, Sequence[NodeClass]]]
) -> Iterator[Refusal]:
    """Yield what ends or delays the run of pods on the nodes that accept them: each rule once."""
    for _, _, nodes in pods:
        if nodes and (late := _too_late(workload, nodes)):
            yield late
            break
    with_gpus = [(pod_set, nodes) for pod_set, pod, nodes in pods if gpus(pod.requests) and nodes]
    for pod_set, nodes in with_gpus:
        if drained := _drained(workload, pod_set, nodes):
            yield drained
            break
    if with_gpus and not _keeps_work(workload, [pod_set for pod_set, _ in with_gpus]):
        yield from _lost_work(workload, *with_gpus[0])


def _too_late(workload: Workload, nodes: Sequence[NodeClass]) -> Refusal | None:
    """Return that the deadline of a Job counts the time in which its nodes do not exist yet."""
    for node in nodes:
        is_scarce = labels.GKE_FLEX_START in node.labels or labels.GKE_SPOT in node.labels
        if not is_scarce or not node.is_template or node.fewest:
            return None  # it is there at the start, or soon
    seconds = _deadline(workload)
    # Kueue starts a Job, and with it the deadline, when all nodes of a request exist. A run of a
    # CronJob has to end before the next.
    is_asked_for = workload.queue is not None and all(map(comes_on_request, nodes))
    if seconds is None or seconds >= _DAY or is_asked_for or workload.kind == "CronJob":
        return None
    what = "Spot" if labels.GKE_SPOT in nodes[0].labels else "flex-start"
    pools = names(dict.fromkeys(node.name for node in nodes))
    message = f"its {number(seconds, 'second')} also count while it waits for {what} nodes of"
    limit = "limit the program itself, or its pod: its activeDeadlineSeconds counts from its start"
    remedy = f"Raise it to a day or more, or {limit}."
    path = "activeDeadlineSeconds"
    return Refusal("deadline-waits", path, f"{message} {pools}, which may have none", remedy)


def _drained(workload: Workload, pod_set: PodSet, nodes: Sequence[NodeClass]) -> Refusal | None:
    """Return that GKE may drain the nodes of a run for an upgrade."""
    seconds = longest_run(workload)
    for node in nodes:
        upgrade = node.upgrade
        if seconds is not None and upgrade and seconds > max(_DAY, upgrade.excluded_seconds):
            message = f"it may run {_days(seconds)}, and GKE may drain {node.name} for an upgrade"
            exclusion = "a maintenance exclusion of the scope NO_MINOR_OR_NODE_UPGRADES"
            remedy = f"Add {exclusion}, and upgrade between runs."
            return Refusal("upgrade", pod_set.path, f"{message} {upgrade.when}", remedy)
    return None


def _keeps_work(workload: Workload, pod_sets: Sequence[PodSet]) -> bool:
    """Return whether pods write to a volume that outlives them, or declare checkpoints."""
    is_declared = labels.CHECKPOINT_SECONDS in annotations_of(workload.manifest)
    return is_declared or any(writes(section(pods.template, "spec")) for pods in pod_sets)


def _lost_work(
    workload: Workload, pod_set: PodSet, nodes: Sequence[NodeClass]
) -> Iterator[Refusal]:
    """Yield that a run which may be interrupted starts again at its first step."""
    seconds = longest_run(workload)
    if seconds is not None and seconds <= _HOUR:
        return
    if any(labels.GKE_SPOT in node.labels for node in nodes):
        why = "Google may take its Spot nodes back"
    elif any(labels.GKE_FLEX_START in node.labels for node in nodes):
        why = "nodes of flex-start end"
    # What is no gang and has no deadline may be as short as a test.
    elif workload.all_at_once and pod_set.count > 1 if seconds is None else seconds > _DAY:
        why = f"it may run {_days(seconds)}, in which nodes fail or are upgraded"
    else:
        return
    message = f"{why}, and its pods write to no volume that stays: it then starts at its first step"
    volume = "Mount a volume or a bucket for checkpoints"
    annotate = f"annotate it with {labels.CHECKPOINT_SECONDS} (checkpointSeconds of our trainings)"
    remedy = f"{volume}, or {annotate} if the program keeps them elsewhere."
    yield Refusal("lost-work", f"{pod_set.path}.volumes", message, remedy)


def _days(seconds: int | None) -> str:
    return "for any time" if seconds is None else f"for {number(-(-seconds // _DAY), 'day')}"
