"""The verdict on every workload, and on all of them together."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ml_foundations.kubernetes.objects import Manifest, name_of
from ml_foundations.kubernetes.quantities import total
from ml_foundations.planning.api_server.admission import Admission
from ml_foundations.planning.api_server.cluster import Cluster, Spread
from ml_foundations.planning.api_server.queue_overcommit import overpromised
from ml_foundations.planning.api_server.validation import refused_objects
from ml_foundations.planning.input.closed_world import ClassifiedDocuments, classify
from ml_foundations.planning.model.decisions import (
    AdmittedWorkload,
    Competition,
    Reason,
    Verdict,
    needed_claims,
    together,
)
from ml_foundations.planning.model.node_groups import PodGroup
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.performance import without_garbage_collector
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.scheduler.competition import independent_sets
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.advice import advise, unserved_metrics
from ml_foundations.planning.verdict.cost import GpuPrices, RunCost, cost_of, run_cost
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.fitting import Fitting
from ml_foundations.planning.verdict.objects import own_logs_findings
from ml_foundations.planning.verdict.report import SHOWN
from ml_foundations.planning.verdict.verdicts import QuotaLeft, Verdicts, WorkloadVerdict

_Reasons = list[tuple[Verdict, Reason]]
_Refused = tuple[Sequence[Refusal], Sequence[Refusal]]
"""What the API server refuses of what decides about workloads, and of other objects."""


def judge(
    documents: Iterable[Manifest],
    nodes: Iterable[NodeClass] = (),
    gke: Manifest | None = None,
    accepted: Collection[str] = (),
) -> Verdicts:
    """Judge workloads against nodes, quotas and limits.

    If an accepted rule is broken, the verdicts are those without the rule, and its findings are shown with them.

    Args:
        documents: Manifests: Nodes, ResourceQuotas, LimitRanges, PriorityClasses, volumes and workloads.
        nodes: More nodes, such as those of node pools that are only planned.
        gke: The properties of the GKE cluster, where the documents are all that is in it.
        accepted: The rules whose errors the user accepts.
    """
    with without_garbage_collector():
        world, nodes = classify(documents), list(nodes)
        found = _judge_world(world, nodes, gke)
        errors = (finding for finding in found.findings if finding.severity is Severity.ERROR)
        if not any(finding.rule in accepted for finding in errors):
            return found
        return _with_accepted(_judge_world(world, nodes, gke, frozenset(accepted)), found, accepted)


def _judge_world(
    world: ClassifiedDocuments,
    nodes: Sequence[NodeClass],
    gke: Manifest | None,
    ignored: frozenset[str] = frozenset(),
) -> Verdicts:
    """Judge what is declared as if some rules did not exist."""
    cluster = Cluster(world.judged, nodes, gke=gke, ignored=ignored)
    sent = [*map(world.as_declared, world.judged)]
    objects = refused_objects(sent), refused_objects([*world.harmless, *world.admission.objects])
    found = _judge(world, cluster, gke, objects)
    if found.stack is not Verdict.CANNOT_FIT or not (cluster.is_split or cluster.some_end):
        return found
    # GKE may spread a pool's nodes otherwise, and pods end: what cannot fit must be so with more room.
    spreads = (Spread.FULL, Spread.UNKNOWN) if cluster.is_split else (Spread.FULL,)
    relaxed = [Cluster(world.judged, nodes, spread, gke, ignored) for spread in spreads]
    return _judge(
        world, cluster, gke, objects, [_judge(world, each, gke, objects) for each in relaxed]
    )


def _with_accepted(without: Verdicts, found: Verdicts, accepted: Collection[str]) -> Verdicts:
    """Return the verdicts without the accepted rules, with what these rules found."""

    def of_rules(findings: Iterable[Finding], shown: Sequence[Finding]) -> tuple[Finding, ...]:
        return *(each for each in findings if each.rule in accepted and each not in shown), *shown

    workloads = tuple(
        replace(item, reasons=of_rules(before.reasons, item.reasons))
        for item, before in zip(without.workloads, found.workloads, strict=True)
    )
    return replace(without, workloads=workloads, reasons=of_rules(found.reasons, without.reasons))


def _judge(
    world: ClassifiedDocuments,
    cluster: Cluster,
    gke: Manifest | None,
    objects: _Refused,
    relaxed: Sequence[Verdicts] = (),
) -> Verdicts:
    """The verdicts on a cluster; ``cannot-fit`` is not certain where it is so in none of some relaxed ones."""
    admission = Admission(cluster, [*world.harmless, *world.judged])
    candidates = [admission.admit(workload) for workload in (*cluster.workloads, *world.foreign)]
    refused, beside = (
        [refusal for refusal in refusals if refusal.rule not in cluster.ignored]
        for refusals in ([*world.refused, *objects[0]], objects[1])
    )
    for candidate in candidates:
        if id(candidate.workload) not in cluster.fully_running:
            candidate.unknowns = [
                *world.unknowns(candidate.workload),
                *(each._replace(certain=False) for each in refused),
            ]
    for workload, reasons in world.malformed:
        candidates.append(AdmittedWorkload(workload))
        candidates[-1].refuse(reasons)
    _ignore(cluster.ignored, candidates)
    fitting = Fitting(cluster, candidates)
    for candidate in candidates:
        if candidate.verdict is None:
            fitting.place(candidate)
        elif candidate.pod_sets and candidate.reasons and candidate.is_refused_at_worst:
            fitting.place_refused(candidate)
    unplaced = _ignore(cluster.ignored, candidates)
    for candidate in unplaced:
        candidate.decide(Verdict.FITS)
    fitting.judge_shared_claims()
    fitting.judge_inline_disks()
    advise(cluster, candidates)
    for index, candidate in enumerate(candidates):
        if _is_uncertain(candidate.verdict, [other.workloads[index].verdict for other in relaxed]):
            candidate.verdict = Verdict.UNDETERMINED
        candidate.refuse(world.possible_rejections(candidate.workload))
        candidate.downgrade_unknown()
    verdict, reasons = _Together(cluster, admission, fitting, candidates, unplaced).judge()
    findings = [explain.finding(reason, of) for of, reason in reasons]
    fits_alone = all(candidate.verdict is not Verdict.CANNOT_FIT for candidate in candidates)
    if fits_alone and _is_uncertain(verdict, [other.stack for other in relaxed]):
        verdict, findings = Verdict.UNDETERMINED, [finding.as_warning() for finding in findings]
    unknown = [*world.unknown, *(each for each in beside if not each.certain)]
    unknown = [each for each in unknown if each.rule not in cluster.ignored]
    refused += [*(each for each in beside if each.certain), *unserved_metrics(cluster, gke)]
    if any(reason.certain for reason in refused):
        verdict = Verdict.CANNOT_FIT
    findings += _of_stack(refused)
    findings += [explain.finding(reason, Verdict.UNDETERMINED) for reason in unknown]
    if unknown:
        verdict = together([verdict, Verdict.UNDETERMINED])
    findings += _of_stack(overpromised(cluster))
    findings += own_logs_findings([*world.judged, *world.harmless])
    for claim in cluster.volumes.unmounted(cluster.workloads):
        findings += _of_stack(cluster.volumes.class_refusals(claim))
    prices, stored = (
        GpuPrices(cluster, admission.quotas),
        tuple(cluster.volumes.stored(cluster.workloads)),
    )
    return Verdicts(
        tuple(
            WorkloadVerdict(
                candidate.workload,
                candidate.verdict or Verdict.UNDETERMINED,
                tuple(_reasons(candidate, [other.workloads[index] for other in relaxed])),
                tuple(
                    explain.finding(reason, Verdict.FITS, candidate.workload)
                    for reason in candidate.warnings
                ),
                _run_cost(fitting, candidate),
                prices.of(candidate, at_least=candidate.workload in world.foreign),
            )
            for index, candidate in enumerate(candidates)
        ),
        verdict,
        tuple(findings),
        cost_of(cluster.declared, stored),
        tuple(_quotas_left(admission, candidates)),
        prices.of_teams(candidates, world.foreign),
        stored,
    )


def _ignore(
    rules: frozenset[str], candidates: Iterable[AdmittedWorkload]
) -> list[AdmittedWorkload]:
    """Drop the reasons that break accepted rules, and return the workloads that nothing else is decided about."""

    def is_ignored(verdict: Verdict, reason: Reason) -> bool:
        return explain.finding(reason, verdict).rule in rules

    changed = [candidate for candidate in candidates if rules and candidate.ignore(is_ignored)]
    return [candidate for candidate in changed if candidate.verdict is None]


def _of_stack(refused: Iterable[Refusal]) -> Iterable[Finding]:
    """What is said against objects of the stack: errors where it is certain."""
    return [
        explain.finding(each, Verdict.CANNOT_FIT if each.certain else Verdict.FITS)
        for each in refused
    ]


def _is_uncertain(verdict: Verdict | None, elsewhere: Sequence[Verdict]) -> bool:
    return verdict is Verdict.CANNOT_FIT and bool(elsewhere) and Verdict.CANNOT_FIT not in elsewhere


def _reasons(
    candidate: AdmittedWorkload, elsewhere: Sequence[WorkloadVerdict]
) -> Iterable[Finding]:
    """A workload's reasons; those that are certain in no relaxed cluster are none for certain."""
    certain = {
        each.rule
        for other in elsewhere
        for each in other.reasons
        if each.severity is Severity.ERROR
    }
    for verdict, reason in candidate.reasons:
        finding = explain.finding(reason, verdict, candidate.workload)
        is_certain = finding.rule in certain or not elsewhere
        yield finding if is_certain and not candidate.unknowns else finding.as_warning()


def _run_cost(fitting: Fitting, candidate: AdmittedWorkload) -> RunCost | None:
    """What a run costs, where the workload says how long it may last."""
    seconds = candidate.workload.deadline
    if seconds is None or len(candidate.pod_sets) != 1 or candidate.verdict is not Verdict.FITS:
        return None
    for demand in fitting.demands([candidate], fitting.occupied):
        return run_cost(demand, seconds)
    return None


@dataclass
class _Together:
    """All workloads at once: each alone, quotas summed, and all that keep their places."""

    cluster: Cluster
    admission: Admission
    fitting: Fitting
    candidates: Sequence[AdmittedWorkload]
    unplaced: Sequence[AdmittedWorkload]
    """Those whose pods find no place, which the user accepts."""
    reasons: _Reasons = field(default_factory=list[tuple[Verdict, Reason]])

    def judge(self) -> tuple[Verdict, _Reasons]:
        """The verdict on all workloads, and why."""
        for candidate in self.candidates:
            if candidate.verdict is not Verdict.FITS:
                verdict = candidate.verdict or Verdict.UNDETERMINED
                who = str(candidate.workload)
                self._decide(verdict, told("workload", object=who, who=who, verdict=SHOWN[verdict]))
        if self._verdict is not Verdict.CANNOT_FIT:
            self._sum_quotas()
            self._sum_queues()
            counted = [c for c in self.candidates if c.workload.kind != "DaemonSet"]
            shortage, lasting = (
                self.cluster.volumes.shortage,
                [c for c in counted if not c.workload.takes_turns],
            )
            scarce = [*shortage(needed_claims(lasting))]
            self._decide(Verdict.CANNOT_FIT, *scarce)
            self._decide(
                Verdict.UNDETERMINED,
                *(() if scarce else shortage(needed_claims(counted, in_all=True))),
            )
            # Pods that name their node take no room from others: the kubelet takes them, or not.
            judged = [
                c
                for c in self.candidates
                if c.pod_sets and c.verdict is not None and not c.unknowns
            ]
            judged = [c for c in judged if c not in self.unplaced]
            judged = [c for c in judged if not c.pod_sets[0][1].spec.get("nodeName")]
            always = [c for c in judged if not c.workload.takes_turns]
            staying = [
                demand
                for demand in self.fitting.demands(always, self.cluster.places)
                if demand.places
            ]
            for group in independent_sets(staying):
                if len(group) > 1 or group[0].everywhere:
                    verdict, shortfall = self.fitting.judge_together(group, self.cluster.places)
                    self._decide(
                        self._while_all_last(verdict, group), Competition(group, shortfall)
                    )
            for candidate in judged:
                if staying and candidate.workload.takes_turns:
                    self._wait(candidate, staying, always)
            self._decide(Verdict.UNDETERMINED, *self.fitting.failing(judged))
        return self._verdict, self.reasons

    @property
    def _verdict(self) -> Verdict:
        return together(verdict for verdict, _ in self.reasons)

    def _decide(self, verdict: Verdict, *reasons: Reason) -> None:
        if verdict is not Verdict.FITS:
            found = [(verdict, reason) for reason in reasons]
            ignored = self.cluster.ignored
            self.reasons += [
                each
                for each in found
                if not ignored or explain.finding(each[1], verdict).rule not in ignored
            ]

    def _wait(
        self, job: AdmittedWorkload, staying: Sequence[PodGroup], always: Sequence[AdmittedWorkload]
    ) -> None:
        """Whether a plain Job finds room for a pod beside what stays; Jobs make room for each other."""
        for sets in job.phases():
            self._wait_with(
                job,
                self.fitting.demands([AdmittedWorkload(job.workload, sets)], self.cluster.places),
                staying,
                always,
            )

    def _wait_with(
        self,
        job: AdmittedWorkload,
        demands: list[PodGroup],
        staying: Sequence[PodGroup],
        always: Sequence[AdmittedWorkload],
    ) -> None:
        if not demands:
            return
        if not job.workload.all_at_once:
            demands = [PodGroup(demand.pod, 1, demand.places) for demand in demands]
        group = next(
            group
            for group in independent_sets([*staying, *demands])
            if any(d is demands[0] for d in group)
        )
        if len(group) == 1:
            return
        verdict, shortfall = self.fitting.judge_together(group, self.cluster.places)
        if verdict is not Verdict.FITS:
            # Whichever comes first runs: a Job that ends makes room.
            names = {demand.pod.name for demand in group}
            beside = [
                candidate.workload for candidate in always if str(candidate.workload) in names
            ]
            self._decide(Verdict.UNDETERMINED, Competition(group, shortfall, job.workload, beside))

    def _while_all_last(self, verdict: Verdict, group: Sequence[PodGroup]) -> Verdict:
        """The verdict on demands that compete, where pods may end and make room for the others."""
        lasting = {str(c.workload) for c in self.candidates if not c.workload.may_make_room}
        rest = [demand for demand in group if demand.pod.name in lasting]
        near_others = any(demand.pod.spread or demand.pod.affinity for demand in group)
        if (
            verdict is Verdict.CANNOT_FIT
            and near_others
            and any(c.unknowns for c in self.candidates)
        ):
            return (
                Verdict.UNDETERMINED
            )  # pods of which not all is known may be those that they wait for
        if verdict is not Verdict.CANNOT_FIT or len(rest) == len(group):
            return verdict
        without, _ = self.fitting.judge_together(rest, self.cluster.places)
        return verdict if without is Verdict.CANNOT_FIT else Verdict.UNDETERMINED

    def _sum_queues(self) -> None:
        """What stays keeps what it has of a queue; a Job that needs more than the rest may wait for ever."""
        queued = [c for c in self.candidates if c.queue_usage and c.verdict is Verdict.FITS]
        always = [draw for c in queued if not c.workload.takes_turns for draw in c.queue_usage]
        jobs = {
            id(c.queue_usage): [*always, *c.queue_usage]
            for c in queued
            if always and c.workload.takes_turns
        }
        found = [
            each
            for draws in (always, *jobs.values())
            for each in self.cluster.queues.refusals(draws)
        ]
        self._decide(Verdict.UNDETERMINED, *dict.fromkeys(found))

    def _sum_quotas(self) -> None:
        for namespace, quotas in self.admission.quotas.items():
            mine = [
                c
                for c in self.candidates
                if c.workload.namespace == namespace and c.pod_sets and not c.unknowns
            ]
            if "quota" in self.cluster.ignored:  # then those that exceed one alone are accepted
                mine = [
                    c
                    for c in mine
                    if not any(quota.exceeded(quota.charge([c])) for quota in quotas)
                ]
            always, turns = (
                [c for c in mine if c.workload.takes_turns is takes] for takes in (False, True)
            )
            names, everyone = [c.workload for c in always], [c.workload for c in mine]
            for quota in quotas:
                (now, beside, _), (*_, in_all) = map(quota.objects_charges, (always, mine))
                crowded, of_objects = quota.crowded(now)
                self._decide(crowded, *of_objects)
                own, charge = quota.own_charge(turns), total((*map(quota.pods_charge, always), now))
                own = {name: amount + charge.pop(name, 0) for name, amount in own.items()}
                self._decide(Verdict.CANNOT_FIT, *(refused := quota.exceeded(own, everyone)))
                exceeded = quota.exceeded(charge, names)
                lasting = quota.charge([c for c in always if not c.workload.may_make_room])
                self._decide(
                    Verdict.CANNOT_FIT if quota.exceeded(lasting) else Verdict.UNDETERMINED,
                    *exceeded,
                )
                contested = quota.exceeded(beside, names) or quota.exceeded(
                    in_all, everyone, in_all=True
                )
                self._decide(
                    Verdict.UNDETERMINED, *(contested if not exceeded and not refused else ())
                )
                at_once = quota.exceeded(total((charge, *map(quota.pods_charge, turns))))
                for job in turns if not exceeded else ():
                    pods = quota.pods_charge(job, None if job.workload.all_at_once else 1)
                    waits = quota.exceeded(total((charge, pods)), [*names, job.workload])
                    self._decide(Verdict.UNDETERMINED, *waits)
                    if job.workload.deadline is not None and at_once:
                        late = told("waits-too-long", certain=False, object=str(job.workload))
                        self._decide(Verdict.UNDETERMINED, late)


def _quotas_left(
    admission: Admission, candidates: Sequence[AdmittedWorkload]
) -> Iterable[QuotaLeft]:
    for namespace, quotas in admission.quotas.items():
        mine = [
            c
            for c in candidates
            if c.workload.namespace == namespace and c.pod_sets and not c.unknowns
        ]
        for quota in quotas:
            used = total(
                (quota.taken, quota.charge(mine), quota.other_claims(mine), *quota.beside.values())
            )
            left = {name: max(0, amount - used.get(name, 0)) for name, amount in quota.hard.items()}
            yield QuotaLeft(namespace, name_of(quota.manifest), left, quota.hard)
