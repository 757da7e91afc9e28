"""The DaemonSets of a stack, and the nodes with their pods."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    AdmittedPodSet,
    AdmittedWorkload,
    Outcome,
    Verdict,
)
from ml_foundations.planning.model.node_groups import (
    Demand,
    NodeGroup,
    PodClass,
    carrying,
    node_count,
)
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict import explain


class Daemons:
    """The DaemonSets among admitted workloads, each with the nodes on which its pods may run.

    Attributes:
        demands: One for each DaemonSet, by its pods.
    """

    def __init__(self, cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> None:
        self._cluster = cluster
        self.demands: dict[PodClass, Demand] = {}
        for admitted in workloads:
            is_daemon = admitted.workload.kind == "DaemonSet"
            if not is_daemon or not admitted.pod_sets or not _may_run(admitted):
                continue
            pod = admitted.pod_sets[0].pod
            groups: list[NodeGroup] = []
            accepting = (*cluster.accepting(pod), *cluster.possibly_accepting(pod))
            for group in dict.fromkeys(accepting):
                is_out_of_reach = pod.volume_refusals and pod.volume_refusals(group.node)
                if group.room(pod) and not is_out_of_reach:
                    groups.append(group)
            self.demands[pod] = Demand(pod, node_count(groups), groups, everywhere=True)

    @cached_property
    def occupied(self) -> list[NodeGroup]:
        """All node groups with the pods of all DaemonSets."""
        return self.occupied_without(())

    def occupied_without(
        self, excluded: Collection[Demand], least_priority: int | None = None
    ) -> list[NodeGroup]:
        """Return all node groups with the pods of all DaemonSets except some.

        If a least priority is given, running pods with a lower one are evicted.
        """
        daemons_on: dict[NodeGroup, list[PodClass]] = {}
        for daemon in self.demands.values():
            if daemon in excluded:
                continue
            for group in daemon.node_groups:
                daemons_on.setdefault(group, []).append(daemon.pod)
        groups: list[NodeGroup] = []
        for group in self._cluster.node_groups:
            staying = group.running
            if least_priority is not None:
                staying = [pod for pod in group.running if pod.priority >= least_priority]
            added = daemons_on.get(group, ())
            is_same = not added and len(staying) == len(group.running)
            groups.append(group if is_same else carrying(group.node, (*staying, *added)))
        return groups

    def rivals(self, pods: Iterable[PodClass]) -> list[Demand]:
        """Return the DaemonSets that may come after some pods: they do not evict them all."""
        highest = max(pod.priority for pod in pods)
        rivals: list[Demand] = []
        for daemon in self.demands.values():
            if not daemon.pod.preempts or daemon.pod.priority <= highest:
                rivals.append(daemon)
        return rivals


def judge_on_node(group: NodeGroup, pods: AdmittedPodSet) -> Outcome:
    """Return whether a DaemonSet's pod runs on each node of a group on which it must run."""
    pod_set, pod = pods
    if reasons := refusals(pod, group.node):
        is_certain = any(refusal.certain for refusal in reasons)
        refused = explain.node_refuses(pod_set, group.node, reasons[0], must_run=True)
        return Outcome.of(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, refused)
    if group.room(pod):
        return NOTHING_DECIDED
    staying = group.running
    if pod.preempts:
        staying = [running for running in staying if running.priority >= pod.priority]
    if carrying(group.node, staying).room(pod):
        return Outcome.of(Verdict.UNDETERMINED, explain.eviction(pod_set, pod))
    return Outcome.of(Verdict.CANNOT_FIT, explain.node_is_full(pod_set, pod, group))


def _may_run(admitted: AdmittedWorkload) -> bool:
    """Return whether the API server accepts some pods of a workload, even if not all."""
    return not any(
        verdict is Verdict.CANNOT_FIT and isinstance(reason, Refusal)
        for verdict, reason in admitted.outcome.reasons
    )
