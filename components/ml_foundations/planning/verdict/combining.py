"""All workloads together: their quotas, queues and claims, and the nodes that they compete for.

What stays, such as a Deployment, needs its resources always. Pods that end make room for others.

Example: a Deployment of 2 pods and a gang of 2 pods need a node each, and there are 3 nodes. Each
fits alone. Together they need 4 nodes, so the stack cannot fit, because of a ``Competition``. If
the gang may end before the Deployment comes, that is not certain: the stack is undetermined.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod
from operator import methodcaller
from typing import NamedTuple

from ml_foundations.kubernetes.quantities import total
from ml_foundations.planning.api_server.admission import Admission
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    OTHER_FLAVOR,
    AdmittedPodSet,
    AdmittedWorkload,
    Competition,
    Outcome,
    QueueUsage,
    QuotaExceeded,
    Verdict,
    needed_claims,
)
from ml_foundations.planning.model.node_groups import Demand, NodeGroup
from ml_foundations.planning.model.performance import unique
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.scheduler.competition import independent_sets
from ml_foundations.planning.verdict.deadlines import failing, may_wait_too_long
from ml_foundations.planning.verdict.explain import without_accepted
from ml_foundations.planning.verdict.fitting import Fitting
from ml_foundations.planning.verdict.report import SHOWN

_MOST_ASSIGNMENTS = 64
"""Assignments of flavors to workloads that are all tried."""
_MOST_GANGS = 64
"""Gangs that may end next to pods that last, and are all tried."""


def judge_all_together(
    admission: Admission,
    fitting: Fitting,
    workloads: Sequence[AdmittedWorkload],
    unplaced: Collection[AdmittedWorkload],
) -> Outcome:
    """Return the outcome for the whole stack, without the accepted rules.

    Args:
        admission: The API server, with the quotas.
        fitting: The nodes of the cluster before the workloads.
        workloads: The workloads with the verdict on each alone.
        unplaced: Workloads without nodes that the user accepts. They do not compete.
    """
    cluster = fitting.cluster
    outcome = without_accepted(_each_alone(workloads), cluster.ignored)
    if outcome.verdict is Verdict.CANNOT_FIT:
        return outcome  # if one alone cannot fit, the rest cannot change that
    nodes = _Nodes(fitting, workloads, unplaced)
    for shared in (
        _quotas(cluster, admission, workloads),
        _queues(cluster, workloads),
        _claims(cluster, workloads),
        nodes.outcome(),
        _other_flavors(nodes),
    ):
        outcome += without_accepted(shared, cluster.ignored)
    return outcome


class _ByTurns(NamedTuple):
    """Workloads by whether they keep what they use."""

    staying: list[AdmittedWorkload]
    jobs: list[AdmittedWorkload]
    """Jobs whose pods may take turns."""


def _by_turns(workloads: Iterable[AdmittedWorkload]) -> _ByTurns:
    by_turns = _ByTurns([], [])
    for admitted in workloads:
        (by_turns.jobs if admitted.workload.takes_turns else by_turns.staying).append(admitted)
    return by_turns


class _ByEnd(NamedTuple):
    """Workloads that do not make room for others on the way, by whether they end."""

    lasting: list[AdmittedWorkload]
    gangs: list[AdmittedWorkload]
    """Gangs that end: at worst, one gang waits until another gang has ended."""


def _by_end(workloads: Iterable[AdmittedWorkload]) -> _ByEnd:
    by_end = _ByEnd([], [])
    for admitted in workloads:
        if not admitted.workload.may_make_room:
            (by_end.gangs if admitted.workload.is_finite else by_end.lasting).append(admitted)
    return by_end


def _each_alone(workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return the workloads that do not fit alone as reasons."""
    outcome = NOTHING_DECIDED
    for admitted in workloads:
        verdict = admitted.verdict or Verdict.UNDETERMINED
        if verdict is not Verdict.FITS:
            name = str(admitted.workload)
            message = f"{name} {SHOWN[verdict]}"
            reason = Refusal("workload", "", message, "See its own reasons.", object=name)
            outcome += Outcome.of(verdict, reason)
    return outcome


def _claims(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether free volumes are left for all claims."""
    counted = [admitted for admitted in workloads if admitted.workload.kind != "DaemonSet"]
    at_once = needed_claims(_by_turns(counted).staying)
    if certain := [*cluster.volumes.shortage(at_once)]:
        return Outcome.of(Verdict.CANNOT_FIT, *certain)
    in_all = [*cluster.volumes.shortage(needed_claims(counted, in_all=True))]
    return Outcome.of(Verdict.UNDETERMINED, *in_all) if in_all else NOTHING_DECIDED


def _queues(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether queues admit all workloads.

    What stays keeps its share of a queue. A Job that needs more than the rest may wait forever.
    """
    queued: list[AdmittedWorkload] = []
    for admitted in workloads:
        if admitted.verdict is Verdict.FITS and admitted.queue_usage:
            queued.append(admitted)
    staying, jobs = _by_turns(queued)
    used = _queue_usage(staying)
    refused = list(cluster.queues.refusals(used))
    if used:
        # Equivalent Jobs share one sequence: it is checked once.
        for usage in unique(job.queue_usage for job in jobs):
            refused += cluster.queues.refusals([*used, *usage])
    distinct = dict.fromkeys(refused)
    return Outcome.of(Verdict.UNDETERMINED, *distinct) if distinct else NOTHING_DECIDED


def _queue_usage(workloads: Iterable[AdmittedWorkload]) -> list[QueueUsage]:
    return list(chain.from_iterable(admitted.queue_usage for admitted in workloads))


def _other_flavors(nodes: "_Nodes") -> Outcome:
    """Return the doubt about pods that do not fit together in each flavor that they may get.

    For example, two Deployments may wait in a queue with two flavors of one node each. Kueue admits
    both to the first flavor if its quota is enough, and then half of the pods find no node.
    """
    variants: list[list[AdmittedWorkload]] = []
    for admitted in nodes.workloads:
        is_unplaced = admitted in nodes.unplaced
        variants.append([admitted] if is_unplaced else admitted.in_each_flavor())
    if max(map(len, variants), default=1) == 1:
        return NOTHING_DECIDED
    for assigned in _assignments(nodes.fitting.cluster, variants):
        if replace(nodes, workloads=assigned).outcome().may_not_fit:
            return Outcome.of(Verdict.UNDETERMINED, OTHER_FLAVOR)
    return NOTHING_DECIDED


def _assignments(
    cluster: Cluster, variants: Sequence[Sequence[AdmittedWorkload]]
) -> Iterator[Sequence[AdmittedWorkload]]:
    """Yield the workloads with the flavors that the quotas let them get together.

    If there are too many, yield one for each flavor, with all workloads that may get it. A flavor
    with room for all of them has room for some of them.
    """
    if prod(map(len, variants)) > _MOST_ASSIGNMENTS:
        for labels in cluster.queues.flavor_labels:
            number_selecting = methodcaller("sets_selecting", labels)
            yield [max(choices, key=number_selecting) for choices in variants]
        return
    for assigned in product(*variants):
        usage = _queue_usage(_by_turns(assigned).staying)
        if not any(cluster.queues.refusals(usage)):
            yield assigned


def _quotas(
    cluster: Cluster, admission: Admission, workloads: Sequence[AdmittedWorkload]
) -> Outcome:
    """Return whether the quotas of each namespace admit all of its workloads and objects."""
    outcome = NOTHING_DECIDED
    for namespace, quotas in admission.quotas.items():
        charged = [admitted for admitted in workloads if admitted.is_charged_in(namespace)]
        if "quota" in cluster.ignored:
            # The rule is accepted: a workload that exceeds a quota alone does not count.
            charged = [admitted for admitted in charged if not _exceeds_any(quotas, admitted)]
        for quota in quotas:
            outcome += _quota(quota, charged)
    return outcome


def _exceeds_any(quotas: Iterable[Quota], admitted: AdmittedWorkload) -> bool:
    return any(quota.exceeded(quota.charge([admitted])) for quota in quotas)


def _quota(quota: Quota, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return what a quota decides about all workloads that it counts."""
    staying, jobs = _by_turns(workloads)
    names = _names(staying)
    objects = quota.objects_charges(staying)
    outcome = _exceeded(*quota.crowded(objects.at_first))

    # Jobs exist from the start, even if their pods take turns. What workloads that stay charge of
    # the same resources moves into that sum: each resource is compared once.
    charge = total((*map(quota.pods_charge, staying), objects.at_first))
    from_the_start = dict(quota.own_charge(jobs))
    for resource in from_the_start:
        from_the_start[resource] += charge.pop(resource, 0)
    refused = quota.exceeded(from_the_start, _names(workloads))
    outcome += _exceeded(Verdict.CANNOT_FIT, refused)

    if exceeded := quota.exceeded(charge, names):
        return outcome + _exceeded(_verdict_on_sum(quota, staying), exceeded)
    if not refused:
        in_all = quota.objects_charges(workloads).in_all
        contested = quota.exceeded(objects.with_other_claims, names)
        contested = contested or quota.exceeded(in_all, _names(workloads), in_all=True)
        outcome += _exceeded(Verdict.UNDETERMINED, contested)

    at_once = quota.exceeded(total((charge, *map(quota.pods_charge, jobs))))
    for job in jobs:
        pods = quota.pods_charge(job, None if job.workload.all_at_once else 1)
        waits = quota.exceeded(total((charge, pods)), [*names, job.workload])
        outcome += _exceeded(Verdict.UNDETERMINED, waits)
        if job.workload.deadline is not None and at_once:
            outcome += Outcome.of(Verdict.UNDETERMINED, may_wait_too_long(job))
    return outcome


def _verdict_on_sum(quota: Quota, staying: Iterable[AdmittedWorkload]) -> Verdict:
    """Return whether workloads exceed a quota for certain: even next to one of their gangs only."""
    lasting, gangs = _by_end(staying)
    charge = quota.charge(lasting)
    charges = [charge, *(total((charge, quota.charge([gang]))) for gang in gangs)]
    return Verdict.CANNOT_FIT if any(map(quota.exceeded, charges)) else Verdict.UNDETERMINED


def _exceeded(verdict: Verdict, reasons: Sequence[QuotaExceeded]) -> Outcome:
    return Outcome.of(verdict, *reasons) if reasons else NOTHING_DECIDED


def _names(workloads: Iterable[AdmittedWorkload]) -> list[Workload]:
    """Return the workloads as messages name them."""
    return [admitted.workload for admitted in workloads]


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a cluster, and all workloads that compete for them."""

    fitting: Fitting
    workloads: Sequence[AdmittedWorkload]
    unplaced: Collection[AdmittedWorkload]

    def outcome(self) -> Outcome:
        """Return whether the nodes have room for all pods."""
        competing = list(filter(self._competes, self.workloads))
        staying, jobs = _by_turns(competing)
        demands = self.fitting.demands(staying, self._groups)
        demands = [demand for demand in demands if demand.node_groups]
        outcome = NOTHING_DECIDED
        for together in independent_sets(demands):
            if len(together) > 1 or together[0].everywhere:
                outcome += self._judge_staying(together)
        if demands:
            for job in jobs:
                for phase in job.phases():
                    outcome += self._judge_waiting(job, phase, demands, _names(staying))
        if may_fail := [*failing(self.fitting, competing)]:
            outcome += Outcome.of(Verdict.UNDETERMINED, *may_fail)
        return outcome

    @property
    def _groups(self) -> list[NodeGroup]:
        return self.fitting.cluster.node_groups

    def _competes(self, admitted: AdmittedWorkload) -> bool:
        """Return whether a workload competes for nodes, as far as it is known."""
        if not admitted.pod_sets or admitted.verdict is None or admitted.unknowns:
            return False
        # Pods that name their node do not: its kubelet accepts them, or not.
        name_nodes = all(pod.spec.get("nodeName") for _, pod in admitted.pod_sets)
        return admitted not in self.unplaced and not name_nodes

    def _judge_staying(self, demands: Sequence[Demand]) -> Outcome:
        """Return whether competing pods fit together; pods that may end make room for others."""
        verdict, shortfall = self.fitting.judge_together(demands, self._groups)
        if verdict is Verdict.CANNOT_FIT:
            verdict = self._verdict_if_some_end(demands)
        if verdict is Verdict.FITS:
            return NOTHING_DECIDED
        return Outcome.of(verdict, Competition(demands, shortfall))

    def _verdict_if_some_end(self, demands: Sequence[Demand]) -> Verdict:
        """Return the verdict on pods that cannot fit together, if some of them may end.

        It is certain only if what lasts cannot fit either, alone or next to one gang that ends.
        """
        near_others = any(demand.pod.spread or demand.pod.affinity for demand in demands)
        # The pods that they must be near may be among those that are not known.
        if near_others and any(admitted.unknowns for admitted in self.workloads):
            return Verdict.UNDETERMINED
        lasting, gangs = _by_end(self.workloads)
        names_lasting = {str(admitted.workload) for admitted in lasting}
        names = {demand.pod.name for demand in demands}
        names_ending = [str(gang.workload) for gang in gangs if str(gang.workload) in names]
        # Without gangs, what lasts is judged alone: no workload has an empty name.
        for ending in names_ending[:_MOST_GANGS] or [""]:
            remaining_names = {*names_lasting, ending}
            remaining = [demand for demand in demands if demand.pod.name in remaining_names]
            # All of them together were judged by the caller.
            if len(remaining) == len(demands):
                return Verdict.CANNOT_FIT
            joint = self.fitting.judge_together(remaining, self._groups)
            if joint.verdict is Verdict.CANNOT_FIT:
                return Verdict.CANNOT_FIT
        return Verdict.UNDETERMINED

    def _judge_waiting(
        self,
        job: AdmittedWorkload,
        phase: Sequence[AdmittedPodSet],
        staying_demands: Sequence[Demand],
        staying: Sequence[Workload],
    ) -> Outcome:
        """Return whether a Job may wait for pods that stay; Jobs make room for each other."""
        demands = self.fitting.demands([AdmittedWorkload(job.workload, phase)], self._groups)
        # A Job whose pods need not run at once waits only if one of its pods finds no node.
        if not job.workload.all_at_once:
            demands = [replace(demand, count=1, everywhere=False) for demand in demands]
        outcome = NOTHING_DECIDED
        # Its pods may compete in several sets, such as a leader and workers in different pools.
        for together in independent_sets([*staying_demands, *demands]):
            if len(together) == 1 or not any(demand in demands for demand in together):
                continue
            verdict, shortfall = self.fitting.judge_together(together, self._groups)
            if verdict is not Verdict.FITS:
                # Whichever comes first runs: a Job that ends makes room.
                names = {demand.pod.name for demand in together}
                rivals = [workload for workload in staying if str(workload) in names]
                waits = Competition(together, shortfall, job=job.workload, staying=rivals)
                outcome += Outcome.of(Verdict.UNDETERMINED, waits)
        return outcome
