"""The GPUs that pods can use at once: quotas and queues make Jobs wait for each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.quantities import WHOLE
from ml_foundations.planning.model.decisions import InTurns
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.resources import gpus

if TYPE_CHECKING:
    from ml_foundations.planning.api_server.queues import Queues
    from ml_foundations.planning.api_server.quotas import Quota
    from ml_foundations.planning.model.decisions import AdmittedWorkload

_CHARGED = f"requests.{GPU_RESOURCE}"


@dataclass
class GpuUse:
    """The GPUs of the pods of one class."""

    pod: PodClass
    gpus: int
    """The most that they use at once."""
    ends: bool
    """Whether they wait if there are too few, and end. Other pods need their GPUs always."""
    limits: Mapping[Hashable, int]
    """The GPUs that each quota and queue allows them and others together."""


def gpu_uses(
    workloads: Iterable[AdmittedWorkload], quotas: Mapping[str, Sequence[Quota]], queues: Queues
) -> list[GpuUse]:
    """Return the GPUs that pods can use at once, by queues and the quotas of each namespace."""
    uses: list[GpuUse] = []
    left: dict[Hashable, int] = {}
    for workload in workloads:
        for use in _alone(workload, quotas, queues):
            if use.gpus:
                uses.append(use)
                left.update(use.limits)
    # The pods that stay keep what they need, and pods that end wait for the rest.
    for use in sorted(uses, key=lambda use: (use.ends, len(use.limits))):
        if use.ends:
            use.gpus = max(0, min([use.gpus, *map(left.__getitem__, use.limits)]))
        for limit in use.limits:
            left[limit] -= use.gpus
    return uses


def _alone(
    admitted: AdmittedWorkload, quotas: Mapping[str, Sequence[Quota]], queues: Queues
) -> Iterable[GpuUse]:
    """Yield the GPUs that a workload uses if no other workload does."""
    workload = admitted.workload
    queue_usage = () if admitted.unknowns else admitted.queue_usage
    for index, (pod_set, pod) in enumerate(admitted.pod_sets):
        count = pod_set.count
        for warning in admitted.outcome.warnings:
            if isinstance(warning, InTurns) and warning.pod_set.path == pod_set.path:
                count = min(count, warning.most)
        limits = dict[Hashable, int]()
        for quota in quotas.get(workload.namespace, ()):
            if not quota.covers(pod):
                continue
            count = quota.most_pods(pod, count) if workload.ends else count
            if _CHARGED in quota.hard:
                free = quota.hard[_CHARGED] - quota.taken.get(_CHARGED, 0)
                limits[quota] = free // WHOLE
        if queue_usage and (offer := queues.offer(queue_usage[index], GPU_RESOURCE)):
            limits[offer[:-1]] = offer[-1] // WHOLE
        yield GpuUse(pod, count * gpus(pod.requests), workload.ends, limits)
