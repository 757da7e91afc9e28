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

from ml_foundations.kubernetes.quantities import Amounts, total
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
    Reason,
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

_Workloads = list[AdmittedWorkload]
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
    alone = NOTHING_DECIDED
    for admitted in workloads:
        verdict = admitted.verdict or Verdict.UNDETERMINED
        if verdict is not Verdict.FITS:
            name = str(admitted.workload)
            message = f"{name} {SHOWN[verdict]}"
            reason = Refusal("workload", "", message, "See its own reasons.", object=name)
            alone += Outcome.of(verdict, reason)
    outcome = without_accepted(alone, cluster.ignored)
    if outcome.verdict is Verdict.CANNOT_FIT:
        return outcome  # if one alone cannot fit, the rest cannot change that
    nodes = _Nodes(fitting, workloads, unplaced)
    shared = _quotas(cluster, admission, workloads) + _queues(cluster, workloads)
    shared += _claims(cluster, workloads) + nodes.outcome()
    outcome += without_accepted(shared, cluster.ignored)
    # What does not fit in the first flavors is reported with its own reasons.
    if not outcome.may_not_fit:
        outcome += without_accepted(_other_flavors(nodes), cluster.ignored)
    return outcome


def _by_turns(workloads: Iterable[AdmittedWorkload]) -> tuple[_Workloads, _Workloads]:
    """Return the workloads that keep what they use, and the Jobs whose pods may take turns."""
    staying: _Workloads = []
    jobs: _Workloads = []
    for admitted in workloads:
        (jobs if admitted.workload.takes_turns else staying).append(admitted)
    return staying, jobs


def _by_end(workloads: Sequence[AdmittedWorkload]) -> tuple[_Workloads, _Workloads]:
    """Return the workloads that never end, and the gangs that end: these need all pods at once.

    At worst, one gang waits until another has ended. Workloads whose pods may end one by one are
    in neither list.
    """
    lasting = [admitted for admitted in workloads if not admitted.workload.ends]
    ending = [admitted for admitted in workloads if admitted.workload.is_finite]
    return lasting, [admitted for admitted in ending if not admitted.workload.may_make_room]


def _if_any(verdict: Verdict, reasons: Iterable[Reason]) -> Outcome:
    """Return a verdict with its reasons; without reasons, nothing is decided."""
    reasons = list(reasons)
    return Outcome.of(verdict, *reasons) if reasons else NOTHING_DECIDED


def _claims(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether free volumes are left for all claims."""
    counted = [admitted for admitted in workloads if admitted.workload.kind != "DaemonSet"]
    staying, _ = _by_turns(counted)
    certain = _if_any(Verdict.CANNOT_FIT, cluster.volumes.shortage(needed_claims(staying)))
    if certain.reasons:
        return certain
    in_all = needed_claims(counted, in_all=True)
    return _if_any(Verdict.UNDETERMINED, cluster.volumes.shortage(in_all))


def _queues(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether queues admit all workloads.

    What stays keeps its share of a queue. A Job that needs more than the rest may wait forever;
    next to Jobs only, it gets its share in turn.
    """
    fitting = [admitted for admitted in workloads if admitted.verdict is Verdict.FITS]
    staying, jobs = _by_turns(fitting)
    used = _queue_usage(staying)
    refused = list(cluster.queues.refusals(used))
    if used:
        # Equivalent Jobs share their usage, which is checked once.
        for usage in unique(job.queue_usage for job in jobs if job.queue_usage):
            refused += cluster.queues.refusals([*used, *usage])
    return _if_any(Verdict.UNDETERMINED, dict.fromkeys(refused))


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
    if all(len(choices) == 1 for choices in variants):
        return NOTHING_DECIDED
    for assigned in _assignments(nodes.fitting.cluster, variants):
        if replace(nodes, workloads=assigned).outcome().may_not_fit:
            return Outcome.of(Verdict.UNDETERMINED, OTHER_FLAVOR)
    return NOTHING_DECIDED


def _assignments(
    cluster: Cluster, variants: Sequence[Sequence[AdmittedWorkload]]
) -> Iterator[Sequence[AdmittedWorkload]]:
    """Yield the workloads with the flavors that the quotas let them get together.

    If there are too many, yield one assignment for each flavor, in which every workload that may
    get the flavor does. A flavor with room for all of them has room for some of them.
    """
    if prod(map(len, variants)) > _MOST_ASSIGNMENTS:
        for labels in cluster.queues.flavor_labels:
            # The choice in which most pod sets select these labels. If another flavor has them and
            # more, that with the fewest labels is the choice of this flavor.
            in_flavor = methodcaller("selection_of", labels)
            yield [max(choices, key=in_flavor) for choices in variants]
        return
    for assigned in product(*variants):
        staying, _ = _by_turns(assigned)
        if not any(cluster.queues.refusals(_queue_usage(staying))):
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
            for quota in quotas:
                charged = [item for item in charged if not quota.exceeded(quota.charge([item]))]
        for quota in quotas:
            outcome += _quota(quota, charged)
    return outcome


def _quota(quota: Quota, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return what a quota decides about all workloads that it counts.

    Objects exist from the start, those of Jobs too; of the pods, only those of workloads that stay
    are there at once. Each Job may then wait for what these leave.
    """
    staying, jobs = _by_turns(workloads)
    named = _named(staying)
    objects = quota.objects_charges(staying)
    outcome = _if_any(*quota.crowded(objects.at_first))
    # Jobs themselves use resources that no pod uses, for example count/jobs.batch. For these, all
    # workloads are compared with the quota, and for all other resources only those that stay.
    charge = total((*map(quota.pods_charge, staying), objects.at_first))
    of_jobs = quota.own_charge(jobs)
    with_jobs = {name: amount + charge.get(name, 0) for name, amount in of_jobs.items()}
    without_jobs = {name: amount for name, amount in charge.items() if name not in of_jobs}
    refused = quota.exceeded(with_jobs, _named(workloads))
    outcome += _if_any(Verdict.CANNOT_FIT, refused)
    if exceeded := quota.exceeded(without_jobs, named):
        # It is certain if they exceed the quota even next to one of their gangs only.
        lasting, gangs = _by_end(staying)
        lasting_charge = quota.charge(lasting)
        charges = [total((lasting_charge, quota.charge([gang]))) for gang in gangs]
        is_certain = any(map(quota.exceeded, [lasting_charge, *charges]))
        verdict = Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED
        return outcome + _if_any(verdict, exceeded)
    if not refused:
        # Declared claims that no workload mounts may come first.
        contested = quota.exceeded(objects.with_other_claims, named)
        if not contested:
            # Pods that end leave objects behind, and later pods have claims.
            in_all = quota.objects_charges(workloads).in_all
            contested = quota.exceeded(in_all, _named(workloads), in_all=True)
        outcome += _if_any(Verdict.UNDETERMINED, contested)
    return outcome + _jobs_in_quota(quota, jobs, without_jobs, named)


def _jobs_in_quota(
    quota: Quota,
    jobs: Sequence[AdmittedWorkload],
    staying_charge: Amounts,
    staying: Sequence[Workload],
) -> Outcome:
    """Return which Jobs may wait, or wait too long, for what workloads that stay leave."""
    outcome = NOTHING_DECIDED
    if_none_waits = total((staying_charge, *map(quota.pods_charge, jobs)))
    scarce = {exceeded.resource for exceeded in quota.exceeded(if_none_waits)}
    for job in jobs:
        # A Job whose pods may take turns starts with one of each set.
        first_pods = quota.pods_charge(job, None if job.workload.all_at_once else 1)
        waits = quota.exceeded(total((staying_charge, first_pods)), [*staying, job.workload])
        outcome += _if_any(Verdict.UNDETERMINED, waits)
        if job.workload.deadline is not None and scarce & first_pods.keys():
            outcome += Outcome.of(Verdict.UNDETERMINED, may_wait_too_long(job))
    return outcome


def _named(workloads: Iterable[AdmittedWorkload]) -> list[Workload]:
    """Return the workloads as a reason names them."""
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
            if len(together) == 1 and not together[0].everywhere:
                continue
            verdict, shortfall = self.fitting.judge_joint(together, self._groups)
            if verdict is Verdict.CANNOT_FIT:
                verdict = self._verdict_if_some_end(together)
            if verdict is not Verdict.FITS:
                outcome += Outcome.of(verdict, Competition(together, shortfall))
        if demands:
            for job in jobs:
                for phase in job.phases():
                    outcome += self._judge_waiting(job, phase, demands, staying)
        return outcome + _if_any(Verdict.UNDETERMINED, failing(self.fitting, competing))

    @property
    def _groups(self) -> list[NodeGroup]:
        return self.fitting.cluster.node_groups

    def _competes(self, admitted: AdmittedWorkload) -> bool:
        """Return whether a workload competes for nodes, as far as it is known."""
        if not admitted.pod_sets or admitted.unknowns or admitted in self.unplaced:
            return False
        # Pods that name their node do not: its kubelet accepts them, or not.
        return not all(pod.spec.get("nodeName") for _, pod in admitted.pod_sets)

    def _verdict_if_some_end(self, demands: Sequence[Demand]) -> Verdict:
        """Return the verdict on pods that cannot fit together, if some of them may end.

        It is certain only if what lasts cannot fit either, alone or next to one gang that ends.
        """
        near_others = any(demand.pod.spread or demand.pod.affinity for demand in demands)
        # The pods that they must be near may be among those that are not known.
        if near_others and any(admitted.unknowns for admitted in self.workloads):
            return Verdict.UNDETERMINED
        competing = {demand.pod.name for demand in demands}
        lasting, gangs = _by_end(self.workloads)
        lasting_names = {str(admitted.workload) for admitted in lasting}
        gang_names = [str(gang.workload) for gang in gangs if str(gang.workload) in competing]
        # Pods may be placed near a gang that ends, and stay when the next one comes.
        if len(gang_names) > 1 and any(demand.pod.affinity for demand in demands):
            return Verdict.UNDETERMINED
        # More pods only make it harder: what lasts is tried alone only if there are no gangs.
        trials = [{*lasting_names, gang} for gang in gang_names[:_MOST_GANGS]]
        for names in trials or [lasting_names]:
            remaining = [demand for demand in demands if demand.pod.name in names]
            if len(remaining) == len(demands):
                return Verdict.CANNOT_FIT  # the caller has judged all of them together
            if self.fitting.judge_joint(remaining, self._groups).verdict is Verdict.CANNOT_FIT:
                return Verdict.CANNOT_FIT
        return Verdict.UNDETERMINED

    def _judge_waiting(
        self,
        job: AdmittedWorkload,
        phase: Sequence[AdmittedPodSet],
        staying_demands: Sequence[Demand],
        staying: Sequence[AdmittedWorkload],
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
            verdict, shortfall = self.fitting.judge_joint(together, self._groups)
            if verdict is not Verdict.FITS:
                # Whichever comes first runs: a Job that ends makes room.
                names = {demand.pod.name for demand in together}
                rivals = [workload for workload in _named(staying) if str(workload) in names]
                waits = Competition(together, shortfall, job=job.workload, staying=rivals)
                outcome += Outcome.of(Verdict.UNDETERMINED, waits)
        return outcome
