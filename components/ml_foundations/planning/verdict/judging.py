"""The verdict on every workload, and on all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ml_foundations.kubernetes.manifests import Manifest, name_of
from ml_foundations.planning.api_server import quotas as quota
from ml_foundations.planning.model.cluster import Cluster, Spread
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.pods import Workload
from ml_foundations.planning.model.resources import Amounts
from ml_foundations.planning.scheduler import competition as stack
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.candidates import Admission, Candidate
from ml_foundations.planning.verdict.cost import Cost, RunCost, cost_of
from ml_foundations.planning.verdict.findings import Finding, Severity, Verdict, together
from ml_foundations.planning.verdict.fitting import Fitting


@dataclass(frozen=True)
class WorkloadVerdict:
    """What becomes of one workload, counted alone with the DaemonSets and the pods that run already."""

    workload: Workload
    verdict: Verdict
    reasons: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    run_cost: RunCost | None = None
    """What one run costs at most, where the workload says how long it may last."""


@dataclass(frozen=True)
class QuotaLeft:
    """What a ResourceQuota leaves once every workload runs, in thousandths by its resources."""

    namespace: str
    name: str
    left: Mapping[str, int]
    hard: Mapping[str, int]


@dataclass(frozen=True)
class Verdicts:
    """All that planning has found."""

    workloads: tuple[WorkloadVerdict, ...]
    stack: Verdict
    reasons: tuple[Finding, ...]
    cost: Cost
    quotas: tuple[QuotaLeft, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """Every finding, those of the stack last."""
        own = [finding for item in self.workloads for finding in (*item.reasons, *item.warnings)]
        return [*own, *self.reasons]


def judge(documents: Iterable[Manifest], nodes: Iterable[NodeClass] = ()) -> Verdicts:
    """Judge workloads against nodes, quotas and limits.

    Args:
        documents: Manifests: Nodes, ResourceQuotas, LimitRanges, PriorityClasses, volumes and workloads.
        nodes: More nodes, such as those of node pools that are only planned.
    """
    documents, nodes = list(documents), list(nodes)
    cluster = Cluster(documents, nodes)
    found = _judge(cluster)
    if found.stack is not Verdict.CANNOT_FIT or not cluster.is_split:
        return found
    # GKE may spread a pool's nodes otherwise: what cannot fit must be so with more nodes, or whatever their zones.
    return _judge(cluster, [_judge(Cluster(documents, nodes, spread)) for spread in (Spread.FULL, Spread.UNKNOWN)])


def _judge(cluster: Cluster, roomier: Sequence[Verdicts] = ()) -> Verdicts:
    """The verdicts on a cluster; ``cannot-fit`` is doubted where it is so in none of some roomier ones."""
    candidates = [Candidate(workload) for workload in cluster.workloads]
    admission = Admission(cluster)
    for candidate in candidates:
        admission.admit(candidate)
    fitting = Fitting(cluster, candidates)
    for candidate in candidates:
        if candidate.verdict is None:
            fitting.place(candidate)
        elif candidate.is_refused and candidate.workload.queue is None:  # a queue sends its pods to a flavor's nodes
            fitting.place_refused(candidate)
    fitting.warn_of_shared_claims()
    if roomier:
        for index, candidate in enumerate(candidates):
            _doubt(candidate, [other.workloads[index] for other in roomier])
    combined = _Together(cluster, fitting, candidates)
    verdict, reasons = combined.verdict()
    if (
        roomier
        and all(candidate.verdict is not Verdict.CANNOT_FIT for candidate in candidates)
        and _is_doubtful(verdict, [other.stack for other in roomier])
    ):
        verdict, reasons = Verdict.UNDETERMINED, [reason.weighed(Verdict.UNDETERMINED) for reason in reasons]
    return Verdicts(
        tuple(
            WorkloadVerdict(
                c.workload, c.verdict or Verdict.UNDETERMINED, tuple(c.reasons), tuple(c.warnings), c.run_cost
            )
            for c in candidates
        ),
        verdict,
        tuple(reasons),
        cost_of(cluster.declared),
        tuple(combined.quotas_left()),
    )


def _doubt(candidate: Candidate, elsewhere: Sequence[WorkloadVerdict]) -> None:
    """Take back what is so in none of some roomier clusters."""
    if _is_doubtful(candidate.verdict, [other.verdict for other in elsewhere]):
        candidate.verdict = Verdict.UNDETERMINED
    certain = {r.rule for other in elsewhere for r in other.reasons if r.severity is Severity.ERROR}
    candidate.reasons = [r if r.rule in certain else r.weighed(Verdict.UNDETERMINED) for r in candidate.reasons]


def _is_doubtful(verdict: Verdict | None, elsewhere: Iterable[Verdict]) -> bool:
    return verdict is Verdict.CANNOT_FIT and Verdict.CANNOT_FIT not in elsewhere


class _Together:
    """All workloads at once: each alone, quotas summed, and all that keep their places."""

    def __init__(self, cluster: Cluster, fitting: Fitting, candidates: Sequence[Candidate]) -> None:
        self._cluster = cluster
        self._fitting = fitting
        self._candidates = candidates

    def verdict(self) -> tuple[Verdict, list[Finding]]:
        """The verdict on all workloads: each alone, quotas summed, and all that keep their places at once."""
        worst = together(c.verdict or Verdict.UNDETERMINED for c in self._candidates)
        reasons = [
            explain.stack_member(c.workload, c.verdict).weighed(c.verdict or Verdict.UNDETERMINED)
            for c in self._candidates
            if c.verdict is not Verdict.FITS
        ]
        if worst is Verdict.CANNOT_FIT:
            return worst, reasons
        verdict, findings = self._sum_quotas()
        reasons += findings
        worst = together([worst, verdict])
        judged = [c for c in self._candidates if c.sets and c.verdict is not None]
        always = [c for c in judged if not c.workload.takes_turns]
        for component in stack.components(self._fitting.demands(always, self._cluster.places)):
            if len(component) == 1 and not component[0].everywhere:
                continue
            judgement = stack.judge_together(component, self._cluster.places)
            worst = together([worst, judgement.verdict])
            if judgement.verdict is not Verdict.FITS:
                reasons.append(explain.competition(component, judgement).weighed(judgement.verdict))
        verdict, findings = self._turns(always, [c for c in judged if c.workload.takes_turns])
        return together([worst, verdict]), [*reasons, *findings]

    def _turns(self, always: Sequence[Candidate], jobs: Sequence[Candidate]) -> tuple[Verdict, list[Finding]]:
        """Whether each plain Job finds room for a pod beside what stays; Jobs make room for each other."""
        worst, reasons = Verdict.FITS, list[Finding]()
        staying = self._fitting.demands(always, self._cluster.places)
        for job in jobs:
            if not staying:
                break
            demands = self._fitting.demands([job], self._cluster.places)
            if job.workload.is_partial:
                demands = [stack.Demand(demand.pod, 1, demand.places) for demand in demands]
            if not demands:
                continue
            component = next(
                group for group in stack.components([*staying, *demands]) if any(d is demands[0] for d in group)
            )
            if len(component) == 1:
                continue
            judgement = stack.judge_together(component, self._cluster.places)
            if judgement.verdict is not Verdict.FITS:
                # Whoever comes first runs: a Job that ends makes room.
                worst = Verdict.UNDETERMINED
                theirs = {demand.pod.name for demand in component}
                beside = [c.workload for c in always if str(c.workload) in theirs]
                reasons.append(explain.job_waits(job.workload, beside, judgement).weighed(Verdict.UNDETERMINED))
        return worst, reasons

    def _sum_quotas(self) -> tuple[Verdict, list[Finding]]:
        worst, reasons = Verdict.FITS, list[Finding]()
        for namespace, quotas in self._cluster.quotas.items():
            mine = [c for c in self._candidates if c.workload.namespace == namespace and c.sets]
            for quota_ in quotas:
                taken = self._cluster.taken[id(quota_)]
                always = [c for c in mine if not c.workload.takes_turns]
                charge = self._charge_of(always, quota_)
                exceeded = quota.excess(quota_, charge, taken)
                for name, numbers in exceeded.items():
                    reasons.append(explain.quota_sum(quota_, name, numbers, [c.workload for c in always]))
                    worst = Verdict.CANNOT_FIT
                if exceeded:
                    continue
                for job in mine:
                    if not job.workload.takes_turns:
                        continue
                    one = quota.charges(
                        [(charge, 1), (self._charge_of([job], quota_, one_pod=job.workload.is_partial), 1)]
                    )
                    for name, numbers in quota.excess(quota_, one, taken).items():
                        worst = together([worst, Verdict.UNDETERMINED])
                        reasons.append(
                            explain.quota_sum(quota_, name, numbers, [*(c.workload for c in always), job.workload])
                        )
        return worst, reasons

    def _charge_of(self, candidates: Iterable[Candidate], quota_: Manifest, *, one_pod: bool = False) -> Amounts:
        parts: list[tuple[Mapping[str, int], int]] = []
        for candidate in candidates:
            for pod_set, pod in candidate.sets:
                if quota.covers_pod(quota_, pod.spec):
                    count = self._cluster.count(candidate.workload, pod_set, pod)
                    parts.append((quota.pod_charge(pod.spec), min(1, count) if one_pod else count))
            if quota.covers_objects(quota_):
                parts.append((quota.object_charge(candidate.workload.kind), 1))
                parts += [
                    (quota.claim_charge(self._cluster.volumes.with_default_class(claim)), candidate.sets[0][0].count)
                    for claim in candidate.workload.claims
                ]
        return quota.charges(parts)

    def quotas_left(self) -> Iterable[QuotaLeft]:
        for namespace, quotas in self._cluster.quotas.items():
            mine = [c for c in self._candidates if c.workload.namespace == namespace and c.sets]
            for quota_ in quotas:
                charge, taken, hard = self._charge_of(mine, quota_), self._cluster.taken[id(quota_)], quota.hard(quota_)
                left = {name: hard[name] - taken.get(name, 0) - charge.get(name, 0) for name in hard}
                yield QuotaLeft(namespace, name_of(quota_), left, hard)
