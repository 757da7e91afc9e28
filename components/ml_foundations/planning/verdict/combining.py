"""All workloads together: their quotas, queues and claims, and the nodes that they compete for."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ml_foundations.kubernetes.quantities import Amounts, total
from ml_foundations.planning.api_server.admission import Admission
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    AdmittedWorkload,
    Competition,
    Outcome,
    PodSets,
    QuotaExceeded,
    Verdict,
    needed_claims,
)
from ml_foundations.planning.model.node_groups import PodGroup
from ml_foundations.planning.model.performance import unique
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.scheduler.competition import independent_sets
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.fitting import Fitting, may_wait_too_long
from ml_foundations.planning.verdict.report import SHOWN


def judge_all_together(
    cluster: Cluster,
    admission: Admission,
    fitting: Fitting,
    workloads: Sequence[AdmittedWorkload],
    unplaced: Collection[AdmittedWorkload],
) -> Outcome:
    """Return the outcome for the whole stack, without the accepted rules.

    Args:
        cluster: The cluster before the workloads.
        admission: Its API server, with the quotas.
        fitting: Its nodes.
        workloads: The workloads with the verdict on each alone.
        unplaced: Those whose pods find no nodes, which the user accepts.
    """
    outcome = _without_accepted(cluster, _each_alone(workloads))
    if outcome.verdict is Verdict.CANNOT_FIT:
        return outcome
    for shared in (
        _quotas(cluster, admission, workloads),
        _queues(cluster, workloads),
        _claims(cluster, workloads),
        _Nodes(cluster, fitting, workloads, unplaced).outcome(),
    ):
        outcome += _without_accepted(cluster, shared)
    return outcome


def _without_accepted(cluster: Cluster, outcome: Outcome) -> Outcome:
    """Return an outcome without the reasons that break accepted rules."""
    ignored = cluster.ignored
    if not ignored:
        return outcome
    return outcome.without(lambda of, reason: explain.finding(reason, of).rule in ignored)


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
    counted = [each for each in workloads if each.workload.kind != "DaemonSet"]
    lasting = [each for each in counted if not each.workload.takes_turns]
    if scarce := [*cluster.volumes.shortage(needed_claims(lasting))]:
        return Outcome.of(Verdict.CANNOT_FIT, *scarce)
    in_all = [*cluster.volumes.shortage(needed_claims(counted, in_all=True))]
    return Outcome.of(Verdict.UNDETERMINED, *in_all) if in_all else NOTHING_DECIDED


def _queues(cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> Outcome:
    """Return whether queues admit all workloads.

    What stays keeps its share of a queue. A Job that needs more than the rest may wait forever.
    """
    queued = [each for each in workloads if each.queue_usage and each.verdict is Verdict.FITS]
    staying = [u for each in queued if not each.workload.takes_turns for u in each.queue_usage]
    refused = list(cluster.queues.refusals(staying))
    waiting = [each.queue_usage for each in queued if each.workload.takes_turns]
    for usage in unique(waiting) if staying else ():  # equivalent Jobs share it
        refused += cluster.queues.refusals([*staying, *usage])
    distinct = dict.fromkeys(refused)
    return Outcome.of(Verdict.UNDETERMINED, *distinct) if distinct else NOTHING_DECIDED


def _quotas(
    cluster: Cluster, admission: Admission, workloads: Sequence[AdmittedWorkload]
) -> Outcome:
    """Return whether the quotas of each namespace admit all of its workloads and objects."""
    outcome = NOTHING_DECIDED
    for namespace, quotas in admission.quotas.items():
        charged = [each for each in workloads if each.is_charged_in(namespace)]
        if "quota" in cluster.ignored:  # then those that exceed a quota alone are accepted
            charged = [
                each
                for each in charged
                if not any(quota.exceeded(quota.charge([each])) for quota in quotas)
            ]
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
        quota, everyone = self.quota, [each.workload for each in self.workloads]
        staying = [each for each in self.workloads if not each.workload.takes_turns]
        jobs = [each for each in self.workloads if each.workload.takes_turns]
        names = [each.workload for each in staying]
        objects, with_other_claims, _ = quota.objects_charges(staying)
        *_, in_all = quota.objects_charges(self.workloads)
        outcome = _exceeded(*quota.crowded(objects))

        # Jobs exist from the start, even if their pods take turns.
        charge = total((*map(quota.pods_charge, staying), objects))
        counted = quota.own_charge(jobs)
        own = {name: amount + charge.pop(name, 0) for name, amount in counted.items()}
        refused = quota.exceeded(own, everyone)
        outcome += _exceeded(Verdict.CANNOT_FIT, refused)

        exceeded = quota.exceeded(charge, names)
        lasting = quota.charge([each for each in staying if not each.workload.may_make_room])
        is_certain = bool(quota.exceeded(lasting))
        outcome += _exceeded(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, exceeded)
        if exceeded:
            return outcome
        if not refused:
            contested = quota.exceeded(with_other_claims, names)
            contested = contested or quota.exceeded(in_all, everyone, in_all=True)
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
        names = [each.workload for each in staying]
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

    cluster: Cluster
    fitting: Fitting
    workloads: Sequence[AdmittedWorkload]
    unplaced: Collection[AdmittedWorkload]

    def outcome(self) -> Outcome:
        """Return whether the nodes have room for all pods."""
        competing = [each for each in self.workloads if self._competes(each)]
        always = [each for each in competing if not each.workload.takes_turns]
        demands = self.fitting.demands(always, self.cluster.node_groups)
        staying = [demand for demand in demands if demand.node_groups]
        outcome = NOTHING_DECIDED
        for group in independent_sets(staying):
            if len(group) > 1 or group[0].everywhere:
                outcome += self._staying_together(group)
        for job in competing if staying else ():
            if job.workload.takes_turns:
                for phase in job.phases():
                    outcome += self._waiting(job, phase, staying, always)
        failing = [*self.fitting.failing(competing)]
        return outcome + (
            Outcome.of(Verdict.UNDETERMINED, *failing) if failing else NOTHING_DECIDED
        )

    def _competes(self, admitted: AdmittedWorkload) -> bool:
        """Return whether a workload competes for nodes, as far as it is known.

        Pods that name their node do not: its kubelet accepts them, or not.
        """
        if not admitted.pod_sets or admitted.verdict is None or admitted.unknowns:
            return False
        names_node = admitted.pod_sets[0][1].spec.get("nodeName")
        return admitted not in self.unplaced and not names_node

    def _staying_together(self, group: Sequence[PodGroup]) -> Outcome:
        """Return whether competing pods fit together; pods that may end make room for others."""
        places = self.cluster.node_groups
        verdict, shortfall = self.fitting.judge_together(group, places)
        if verdict is Verdict.CANNOT_FIT:
            verdict = self._while_all_last(group)
        if verdict is Verdict.FITS:
            return NOTHING_DECIDED
        return Outcome.of(verdict, Competition(group, shortfall))

    def _while_all_last(self, group: Sequence[PodGroup]) -> Verdict:
        """Return the verdict on pods that cannot fit together, if some of them may end.

        It is undetermined if they must be near other pods and not all pods are known.
        """
        near_others = any(demand.pod.spread or demand.pod.affinity for demand in group)
        if near_others and any(each.unknowns for each in self.workloads):
            return Verdict.UNDETERMINED
        workloads = [each.workload for each in self.workloads]
        lasting = {str(workload) for workload in workloads if not workload.may_make_room}
        rest = [demand for demand in group if demand.pod.name in lasting]
        if len(rest) == len(group):
            return Verdict.CANNOT_FIT
        without, _ = self.fitting.judge_together(rest, self.cluster.node_groups)
        return Verdict.CANNOT_FIT if without is Verdict.CANNOT_FIT else Verdict.UNDETERMINED

    def _waiting(
        self,
        job: AdmittedWorkload,
        phase: PodSets,
        staying: Sequence[PodGroup],
        always: Sequence[AdmittedWorkload],
    ) -> Outcome:
        """Return whether a Job may wait for pods that stay; Jobs make room for each other.

        A Job whose pods need not run at once waits only if one of its pods finds no node.
        """
        places = self.cluster.node_groups
        demands = self.fitting.demands([AdmittedWorkload(job.workload, phase)], places)
        if not demands:
            return NOTHING_DECIDED
        if not job.workload.all_at_once:
            demands = [PodGroup(demand.pod, 1, demand.node_groups) for demand in demands]
        group = next(each for each in independent_sets([*staying, *demands]) if demands[0] in each)
        if len(group) == 1:
            return NOTHING_DECIDED
        verdict, shortfall = self.fitting.judge_together(group, places)
        if verdict is Verdict.FITS:
            return NOTHING_DECIDED
        # Whichever comes first runs: a Job that ends makes room.
        names = {demand.pod.name for demand in group}
        beside = [each.workload for each in always if str(each.workload) in names]
        waits = Competition(group, shortfall, job.workload, beside)
        return Outcome.of(Verdict.UNDETERMINED, waits)
