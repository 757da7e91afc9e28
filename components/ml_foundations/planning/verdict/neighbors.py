"""The pods that decide where other pods may go: by affinity, or because spreading counts them."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile

from ml_foundations.kubernetes.objects import section
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.scheduler.competition import label_keys, required_label
from ml_foundations.planning.scheduler.exhaustive_search import MOST_PODS


class Neighbors:
    """The workloads of a cluster, by the labels of their pods."""

    def __init__(self, workloads: Sequence[AdmittedWorkload]) -> None:
        self._workloads = workloads

    def affecting(self, pod: PodClass) -> Iterator[AdmittedWorkload]:
        """Yield the workloads whose pods decide where a pod may go."""
        rules = [*pod.affinity, *(rule for rule in pod.spread if not rule.is_empty)]
        candidates: dict[AdmittedWorkload, None] = {}
        for rule in rules:
            candidates |= dict.fromkeys(self._by_label.get(required_label(rule.selector), ()))
        for admitted in candidates:
            if any(_affects(neighbor, pod) for neighbor in _other_pods(admitted, pod)):
                yield admitted

    @cached_property
    def _by_label(self) -> Mapping[Hashable, list[AdmittedWorkload]]:
        """The workloads by the labels of their pods: most selectors require a label of few."""
        by_label = defaultdict[Hashable, list[AdmittedWorkload]](list)
        for admitted in self._workloads:
            keys: dict[Hashable, None] = {}
            for _, pod in admitted.pod_sets:
                keys |= dict.fromkeys(label_keys(pod.labels))
            for key in keys:
                by_label[key].append(admitted)
        return by_label

    def company(self, admitted: AdmittedWorkload) -> list[AdmittedWorkload]:
        """Return a workload, those that affect it, those that affect these, and so on.

        It ends once they have more pods than a search tries.
        """
        company = {admitted: None}
        pending = [admitted]
        pods = _number_of_pods(admitted)
        while pending:
            for _, pod in pending.pop().pod_sets:
                for neighbor in self.affecting(pod):
                    if neighbor in company:
                        continue
                    company[neighbor] = None
                    pending.append(neighbor)
                    pods += _number_of_pods(neighbor)
                    if pods > MOST_PODS:
                        return list(company)
        return list(company)


def spread_counts(pod: PodClass, neighbor: PodClass) -> bool:
    """Return whether a spread constraint of a pod counts another pod."""
    return any(constraint.counts(pod, neighbor) for constraint in pod.spread)


def _affects(neighbor: PodClass, pod: PodClass) -> bool:
    return any(term.matches(neighbor) for term in pod.affinity) or spread_counts(pod, neighbor)


def _other_pods(admitted: AdmittedWorkload, pod: PodClass) -> list[PodClass]:
    """Return the pods of a workload except some; of an ordered StatefulSet, those before them."""
    pods = [member for _, member in admitted.pod_sets]
    before = list(takewhile(lambda member: member is not pod, pods))
    policy = section(admitted.workload.manifest, "spec").get("podManagementPolicy")
    if admitted.workload.kind == "StatefulSet" and policy != "Parallel":
        return before
    return [*before, *pods[len(before) + 1 :]]


def _number_of_pods(admitted: AdmittedWorkload) -> int:
    """Return how many pods of a workload are searched; a search adds those of DaemonSets."""
    if admitted.workload.kind == "DaemonSet":
        return 0
    return sum(pod_set.count for pod_set, _ in admitted.pod_sets)
