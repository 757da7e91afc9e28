"""Jobs that may fail because their pods wait for room, or are evicted."""

from collections.abc import Iterable, Sequence
from itertools import chain

from ml_foundations.planning.model.decisions import AdmittedWorkload, Verdict
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.scheduler.competition import independent_sets
from ml_foundations.planning.verdict.fitting import MAY_WAIT_TOO_LONG, Fitting


def may_wait_too_long(job: AdmittedWorkload) -> Refusal:
    """Return that a Job's deadline may pass while its pods wait."""
    return MAY_WAIT_TOO_LONG._replace(object=str(job.workload))


def failing(fitting: Fitting, judged: Sequence[AdmittedWorkload]) -> Iterable[Refusal]:
    """Yield why Jobs may fail if not all pods have room at once.

    Their deadline passes, or pods with a higher priority evict theirs, which count as failed.
    """
    pod_sets = chain.from_iterable(admitted.pod_sets for admitted in judged)
    highest = max((pod.priority for _, pod in pod_sets if pod.preempts), default=0)
    fragile: list[tuple[set[PodClass], Refusal]] = []
    for job in judged:
        starts_alone = job.workload.is_finite and job.workload.queue is None
        if not starts_alone or job.verdict is not Verdict.FITS:
            continue
        pods = {pod for _, pod in job.pod_sets}
        if any(pod.priority < highest and not pod.recreated for pod in pods):
            message = "pods of a higher priority may evict its pods, which count as failed"
            remedy = (
                "Make room for all pods at once, or let its podFailurePolicy ignore the condition "
                "DisruptionTarget."
            )
            evicted = doubt("preemption", "", message, remedy)
            fragile.append((pods, evicted._replace(object=str(job.workload))))
        elif job.workload.deadline is not None:
            fragile.append((pods, may_wait_too_long(job)))
    if not fragile:
        return
    groups = fitting.cluster.node_groups
    for demands in independent_sets(fitting.demands(judged, groups)):
        competing = {demand.pod for demand in demands}
        reasons = [refusal for pods, refusal in fragile if not pods.isdisjoint(competing)]
        if reasons and fitting.judge_joint(demands, groups).verdict is not Verdict.FITS:
            yield from reasons
