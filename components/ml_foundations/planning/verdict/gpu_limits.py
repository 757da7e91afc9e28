"""The GPUs that pods can use at once: quotas and queues make Jobs wait for each other."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.quantities import WHOLE
from ml_foundations.planning.api_server.queues import Queues
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.resources import gpus

_CHARGED = f"requests.{GPU_RESOURCE}"


@dataclass
class GpuUse:
    """The GPUs of the pods of one class.

    Attributes:
        gpus: The most that they use at once.
        ends: Whether they wait if there are too few, and end. Other pods need their GPUs all the time.
        limits: The GPUs that each quota and queue allows them and others together.
    """

    pod: PodClass
    gpus: int
    ends: bool
    limits: Mapping[Hashable, int]


class GpuLimits:
    """The quotas and queues that limit how many GPUs workloads can use at once."""

    def __init__(self, quotas: Mapping[str, Sequence[Quota]], queues: Queues) -> None:
        self._quotas, self._queues = quotas, queues

    def uses(self, candidates: Iterable[AdmittedWorkload]) -> list[GpuUse]:
        """Return the GPUs that pods can use at once: those that stay keep what they need, the others wait."""
        found = [use for candidate in candidates for use in self._wanted(candidate) if use.gpus]
        left = {key: most for use in found for key, most in use.limits.items()}
        for use in sorted(found, key=lambda use: (use.ends, len(use.limits))):
            if use.ends:
                use.gpus = max(0, min([use.gpus, *(left[key] for key in use.limits)]))
            left.update({key: left[key] - use.gpus for key in use.limits})
        return found

    def _wanted(self, candidate: AdmittedWorkload) -> Iterable[GpuUse]:
        """Yield the GPUs that a workload uses if no other workload does."""
        workload, draws = candidate.workload, () if candidate.unknowns else candidate.queue_usage
        for index, (pod_set, pod) in enumerate(candidate.pod_sets):
            count, limits = pod_set.count, dict[Hashable, int]()
            for quota in (
                each for each in self._quotas.get(workload.namespace, ()) if each.covers(pod)
            ):
                count = quota.most_pods(pod, count) if workload.ends else count
                if _CHARGED in quota.hard:
                    limits[id(quota)] = (
                        quota.hard[_CHARGED] - quota.taken.get(_CHARGED, 0)
                    ) // WHOLE
            if draws and (offer := self._queues.offer(draws[index], GPU_RESOURCE)):
                limits[offer[:-1]] = offer[-1] // WHOLE
            yield GpuUse(pod, count * gpus(pod.requests), workload.ends, limits)
