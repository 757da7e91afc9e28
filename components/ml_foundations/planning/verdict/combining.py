"""All workloads together: their quotas, queues and claims, and the nodes that they compete for."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod
from operator import methodcaller

from ml_foundations.kubernetes.quantities import Amounts, total
from ml_foundations.planning.api_server.admission import Admission
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    OTHER_FLAVOR,
    AdmittedWorkload,
    Competition,
    Outcome,
    PodSets,
    QueueUsage,
    QuotaExceeded,
    Verdict,
    needed_claims,
)
from ml_foundations.planning.model.node_groups import NodeGroup, PodGroup
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
    cluster, ignored = fitting.cluster, fitting.cluster.ignored
    outcome = without_accepted(_each_alone(workloads), ignored)
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
        outcome += without_accepted(shared, ignored)
    return outcome


def _other_flavors(nodes: "_Nodes") -> Outcome:
    """Return the doubt about pods that do not fit together in each flavor that they may get.

    For example, two Deployments may wait in a queue with two flavors of one node each. Kueue admits
    both to the first flavor if its quota is enough, and then half of the pods find no node. So the
    nodes must have room for each assignment of flavors that the quotas allow.
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
    """Yield the workloads with the flavors that they may get together."""
    # If there are too many assignments, yield one for each flavor, with all workloads that may get
    # it. A flavor with room for all of them has room for some of them.
    if prod(map(len, variants)) > _MOST_ASSIGNMENTS:
        for labels in cluster.queues.flavor_labels:
            number_selecting = methodcaller("sets_selecting", labels)
            yield [max(choices, key=number_selecting) for choices in variants]
        return
    for assigned in product(*variants):
        staying, _ = _split(assigned)
        if not any(cluster.queues.refusals(_queue_usage(staying))):
            yield assigned


def _queue_usage(workloads: Iterable[AdmittedWorkload]) -> list[QueueUsage]:
    return list(chain.from_iterable(admitted.queue_usage for admitted in workloads))


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


def _split(
    workloads: Sequence[AdmittedWorkload],
) -> tuple[list[AdmittedWorkload], list[AdmittedWorkload]]:
    """Return the workloads that stay, and the Jobs whose pods may take turns."""
    staying: list[AdmittedWorkload] = []
    jobs: list[AdmittedWorkload] = []
    for admitted in workloads:
        (jobs if admitted.workload.takes_turns else staying).append(admitted)
    return staying, jobs


def _without_turns(
    workloads: Iterable[AdmittedWorkload],
) -> tuple[list[AdmittedWorkload], list[AdmittedWorkload]]:
    """Return the workloads that last, and the gangs that end: these wait for each other only."""
    lasting: list[AdmittedWorkload] = []
    gangs: list[AdmittedWorkload] = []
    for admitted in workloads:
        if not admitted.workload.may_make_room:
            (gangs if admitted.workload.is_finite else lasting).append(admitted)
    return lasting, gangs


def _names(workloads: Iterable[AdmittedWorkload]) -> list[Workload]:
    """Return the workloads as messages name them."""
    return [admitted.workload for admitted in workloads]


def _claims(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether free volumes are left for all claims."""
    counted = [admitted for admitted in workloads if admitted.workload.kind != "DaemonSet"]
    staying, _ = _split(counted)
    if scarce := [*cluster.volumes.shortage(needed_claims(staying))]:
        return Outcome.of(Verdict.CANNOT_FIT, *scarce)
    in_all = [*cluster.volumes.shortage(needed_claims(counted, in_all=True))]
    return Outcome.of(Verdict.UNDETERMINED, *in_all) if in_all else NOTHING_DECIDED


def _queues(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether queues admit all workloads."""
    # What stays keeps its share of a queue. A Job that needs more than the rest may wait forever.
    queued: list[AdmittedWorkload] = []
    for admitted in workloads:
        if admitted.verdict is Verdict.FITS and admitted.queue_usage:
            queued.append(admitted)
    staying, jobs = _split(queued)
    used = _queue_usage(staying)
    refused = list(cluster.queues.refusals(used))
    if used:
        # Equivalent Jobs share one sequence: it is checked once.
        for of_job in unique(job.queue_usage for job in jobs):
            refused += cluster.queues.refusals([*used, *of_job])
    distinct = dict.fromkeys(refused)
    return Outcome.of(Verdict.UNDETERMINED, *distinct) if distinct else NOTHING_DECIDED


def _quotas(
    cluster: Cluster, admission: Admission, workloads: Sequence[AdmittedWorkload]
) -> Outcome:
    """Return whether the quotas of each namespace admit all of its workloads and objects."""
    outcome = NOTHING_DECIDED
    for namespace, quotas in admission.quotas.items():
        charged: list[AdmittedWorkload] = []
        for admitted in workloads:
            if not admitted.is_charged_in(namespace):
                continue
            # If the rule is accepted, a workload that exceeds a quota alone does not count.
            exceeding = quotas if "quota" in cluster.ignored else ()
            if not any(quota.exceeded(quota.charge([admitted])) for quota in exceeding):
                charged.append(admitted)
        for quota in quotas:
            outcome += _Sum(quota, charged).outcome()
    return outcome


@dataclass(frozen=True)
class _Sum:
    """A quota, and the workloads that it counts."""

    quota: Quota
    workloads: Sequence[AdmittedWorkload]

    def outcome(self) -> Outcome:
        """Return what the quota decides about all workloads together."""
        quota, all_names = self.quota, _names(self.workloads)
        staying, jobs = _split(self.workloads)
        names = _names(staying)
        objects, with_other_claims, _ = quota.objects_charges(staying)
        *_, in_all = quota.objects_charges(self.workloads)
        outcome = _exceeded(*quota.crowded(objects))

        # Jobs exist from the start, even if their pods take turns.
        charge = total((*map(quota.pods_charge, staying), objects))
        from_the_start = dict(quota.own_charge(jobs))
        for resource in from_the_start:
            from_the_start[resource] += charge.pop(resource, 0)
        refused = quota.exceeded(from_the_start, all_names)
        outcome += _exceeded(Verdict.CANNOT_FIT, refused)

        exceeded = quota.exceeded(charge, names)
        lasting, gangs = _without_turns(staying)
        charges = [quota.charge(lasting)]
        charges += [total((charges[0], quota.charge([gang]))) for gang in gangs if exceeded]
        is_certain = any(map(quota.exceeded, charges))
        outcome += _exceeded(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, exceeded)
        if exceeded:
            return outcome
        if not refused:
            contested = quota.exceeded(with_other_claims, names)
            contested = contested or quota.exceeded(in_all, all_names, in_all=True)
            outcome += _exceeded(Verdict.UNDETERMINED, contested)
        return outcome + self._waiting(charge, staying, jobs)

    def _waiting(
        self,
        charge: Amounts,
        staying: Sequence[AdmittedWorkload],
        jobs: Sequence[AdmittedWorkload],
    ) -> Outcome:
        """Return which Jobs may wait for the quota, given the charge of what stays."""
        quota, outcome = self.quota, NOTHING_DECIDED
        names = _names(staying)
        at_once = quota.exceeded(total((charge, *map(quota.pods_charge, jobs))))
        for job in jobs:
            pods = quota.pods_charge(job, None if job.workload.all_at_once else 1)
            waits = quota.exceeded(total((charge, pods)), [*names, job.workload])
            outcome += _exceeded(Verdict.UNDETERMINED, waits)
            if job.workload.deadline is not None and at_once:
                outcome += Outcome.of(Verdict.UNDETERMINED, may_wait_too_long(job))
        return outcome


def _exceeded(verdict: Verdict, reasons: Sequence[QuotaExceeded]) -> Outcome:
    return Outcome.of(verdict, *reasons) if reasons else NOTHING_DECIDED


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a cluster, and all workloads that compete for them."""

    fitting: Fitting
    workloads: Sequence[AdmittedWorkload]
    unplaced: Collection[AdmittedWorkload]

    def outcome(self) -> Outcome:
        """Return whether the nodes have room for all pods."""
        competing = list(filter(self._competes, self.workloads))
        always, jobs = _split(competing)
        demands = self.fitting.demands(always, self._groups)
        staying = [demand for demand in demands if demand.node_groups]
        outcome = NOTHING_DECIDED
        for group in independent_sets(staying):
            if len(group) > 1 or group[0].everywhere:
                outcome += self._staying_together(group)
        for job in jobs if staying else ():
            for phase in job.phases():
                outcome += self._waiting(job, phase, staying, always)
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
        names_node = admitted.pod_sets[0][1].spec.get("nodeName")
        return admitted not in self.unplaced and not names_node

    def _staying_together(self, group: Sequence[PodGroup]) -> Outcome:
        """Return whether competing pods fit together; pods that may end make room for others."""
        verdict, shortfall = self.fitting.judge_together(group, self._groups)
        if verdict is Verdict.CANNOT_FIT:
            verdict = self._while_all_last(group)
        if verdict is Verdict.FITS:
            return NOTHING_DECIDED
        return Outcome.of(verdict, Competition(group, shortfall))

    def _while_all_last(self, group: Sequence[PodGroup]) -> Verdict:
        """Return the verdict on pods that cannot fit together, if some of them may end."""
        near_others = any(demand.pod.spread or demand.pod.affinity for demand in group)
        # The pods that they must be near may be among those that are not known.
        if near_others and any(admitted.unknowns for admitted in self.workloads):
            return Verdict.UNDETERMINED
        names = {demand.pod.name for demand in group}
        lasting, gangs = _without_turns(self.workloads)
        stay = {str(admitted.workload) for admitted in lasting}
        ending = [str(gang.workload) for gang in gangs if str(gang.workload) in names]
        for gang in ending[:_MOST_ASSIGNMENTS] or [""]:
            rest = [demand for demand in group if demand.pod.name in {*stay, gang}]
            verdict = Verdict.CANNOT_FIT
            if len(rest) < len(group):
                verdict, _ = self.fitting.judge_together(rest, self._groups)
            if verdict is Verdict.CANNOT_FIT:
                return verdict
        return Verdict.UNDETERMINED

    def _waiting(
        self,
        job: AdmittedWorkload,
        phase: PodSets,
        staying: Sequence[PodGroup],
        always: Sequence[AdmittedWorkload],
    ) -> Outcome:
        """Return whether a Job may wait for pods that stay; Jobs make room for each other."""
        demands = self.fitting.demands([AdmittedWorkload(job.workload, phase)], self._groups)
        if not demands:
            return NOTHING_DECIDED
        # A Job whose pods need not run at once waits only if one of its pods finds no node.
        if not job.workload.all_at_once:
            demands = [PodGroup(demand.pod, 1, demand.node_groups) for demand in demands]
        groups = independent_sets([*staying, *demands])
        group = next(group for group in groups if demands[0] in group)
        if len(group) == 1:
            return NOTHING_DECIDED
        verdict, shortfall = self.fitting.judge_together(group, self._groups)
        if verdict is Verdict.FITS:
            return NOTHING_DECIDED
        # Whichever comes first runs: a Job that ends makes room.
        names = {demand.pod.name for demand in group}
        others = [workload for workload in _names(always) if str(workload) in names]
        waits = Competition(group, shortfall, job.workload, others)
        return Outcome.of(Verdict.UNDETERMINED, waits)
