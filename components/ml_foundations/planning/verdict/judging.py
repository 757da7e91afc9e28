"""The verdicts on all workloads, step by step.

``judge`` classifies the documents, builds the cluster, admits the workloads, places each alone,
judges all of them together, relaxes what is certain only if nodes are spread evenly, and reports.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ml_foundations.kubernetes.objects import Manifest, name_of
from ml_foundations.kubernetes.quantities import total
from ml_foundations.planning.api_server.admission import Admission
from ml_foundations.planning.api_server.cluster import Cluster, Spread
from ml_foundations.planning.api_server.queue_overcommit import overpromised
from ml_foundations.planning.api_server.validation import refused_by_controllers, refused_objects
from ml_foundations.planning.input.closed_world import ClassifiedDocuments
from ml_foundations.planning.model.decisions import AdmittedWorkload, Outcome, Verdict, together
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.performance import without_garbage_collector
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.scheduler.budget import is_exhausted, limited_work
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.advice import advice
from ml_foundations.planning.verdict.autoscalers import unserved_metrics
from ml_foundations.planning.verdict.combining import judge_all_together
from ml_foundations.planning.verdict.cost import GpuPrices, RunCost, cost_of, run_cost
from ml_foundations.planning.verdict.explain import without_accepted
from ml_foundations.planning.verdict.fitting import Fitting
from ml_foundations.planning.verdict.long_runs import longest_run
from ml_foundations.planning.verdict.shared_disks import inline_disks, shared_claims
from ml_foundations.planning.verdict.topology import Topologies
from ml_foundations.planning.verdict.verdicts import (
    QuotaLeft,
    Verdicts,
    WorkloadVerdict,
    verdict_of,
)


def judge(
    documents: Iterable[Manifest],
    nodes: Iterable[NodeClass] = (),
    gke: Manifest | None = None,
    accepted: Collection[str] = (),
) -> Verdicts:
    """Judge workloads against nodes, quotas and limits.

    If an accepted rule is broken, judge again without all accepted rules, and add their findings.

    Args:
        documents: Manifests, such as Nodes, ResourceQuotas, LimitRanges, volumes and workloads.
        nodes: More nodes, such as those of node pools that are only planned.
        gke: The properties of the GKE cluster, or None if the cluster may hold objects that the
            documents lack.
        accepted: The rules whose errors the user accepts, or ``RULE/NAME`` for one object.
    """
    with without_garbage_collector(), limited_work():
        classified = ClassifiedDocuments(documents)
        nodes = [*nodes, *classified.made_nodes]
        verdicts = _judge_cluster(classified, nodes, gke)
        errors = [finding for finding in verdicts.findings if finding.is_error]
        if not any(finding.is_accepted(accepted) for finding in errors):
            return verdicts
        rules = frozenset(name.partition("/")[0] for name in accepted)
        verdicts_without_rules = _judge_cluster(classified, nodes, gke, rules)
        return _with_findings_of(accepted, verdicts, verdicts_without_rules)


def _with_findings_of(
    accepted: Collection[str], verdicts: Verdicts, verdicts_without_rules: Verdicts
) -> Verdicts:
    """Return the verdicts without the accepted rules, with the findings of these rules.

    An error of a rule that is accepted for other objects counts.
    """
    rules = {name.partition("/")[0] for name in accepted}

    def dropped(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(item for item in before if item.rule in rules and item not in after)

    def verdict_of_errors(findings: Iterable[Finding]) -> Verdict:
        return verdict_of((item for item in findings if item.is_error), accepted)

    workloads: list[WorkloadVerdict] = []
    for before, after in zip(verdicts.workloads, verdicts_without_rules.workloads, strict=True):
        added = dropped(before.reasons, after.reasons)
        verdict = together([after.verdict, verdict_of_errors(added)])
        workloads.append(replace(after, verdict=verdict, reasons=(*added, *after.reasons)))
    added = dropped(verdicts.reasons, verdicts_without_rules.reasons)
    stack = together([verdicts_without_rules.stack, verdict_of_errors(added)])
    return replace(
        verdicts_without_rules,
        workloads=tuple(workloads),
        stack=together([stack, *(item.verdict for item in workloads)]),
        reasons=(*added, *verdicts_without_rules.reasons),
    )


@dataclass(frozen=True)
class _Input:
    """The classified documents, and the objects that are not workloads and that are rejected."""

    documents: ClassifiedDocuments
    gke: Manifest | None
    """The properties of the GKE cluster, if the documents are all that is in it."""
    deciding: Sequence[Refusal]
    """Refusals of objects that decide about workloads."""
    remaining: Sequence[Refusal]
    """Refusals of the remaining objects."""


def _judge_cluster(
    documents: ClassifiedDocuments,
    nodes: Sequence[NodeClass],
    gke: Manifest | None,
    ignored: frozenset[str] = frozenset(),
) -> Verdicts:
    """Judge the workloads in a cluster, without some rules."""

    def applied(refused: Iterable[Refusal]) -> list[Refusal]:
        return [refusal for refusal in refused if refusal.rule not in ignored]

    declared = list(map(documents.as_declared, documents.judged))
    deciding = applied([*documents.refused, *refused_objects(declared)])
    harmless = refused_objects([*documents.harmless, *documents.admission.objects])
    remaining = applied([*harmless, *refused_by_controllers(documents.undescribed)])
    inputs = _Input(documents, gke, deciding, remaining)
    cluster = Cluster(documents.judged, nodes, gke=gke, ignored=ignored)
    placed = _place_each(inputs, cluster)
    verdicts = _report(inputs, placed)
    if verdicts.stack is not Verdict.CANNOT_FIT or not (cluster.is_split or cluster.some_end):
        return verdicts
    # "Cannot fit" is certain only if it holds with more space too. Running pods may end: a cluster
    # of another spread than EVEN is built without them. And GKE may spread a pool over its zones in
    # another way. Example: a pool of 4 nodes has 2 in each of 2 zones, and may have 3 in one.
    spreads = (Spread.FULL, Spread.UNKNOWN) if cluster.is_split else (Spread.FULL,)
    relaxed: list[Verdicts] = []
    for spread in spreads:
        relaxed_cluster = Cluster(documents.judged, nodes, spread, gke, ignored)
        relaxed.append(_report(inputs, _place_each(inputs, relaxed_cluster)))
    return _report(inputs, placed, relaxed)


@dataclass(frozen=True)
class _Placed:
    """The workloads, each placed alone in a cluster, with the outcome of that."""

    cluster: Cluster
    admission: Admission
    fitting: Fitting
    workloads: Sequence[AdmittedWorkload]
    unplaced: frozenset[AdmittedWorkload]
    """Those whose pods find no nodes, which the user accepts."""


def _place_each(inputs: _Input, cluster: Cluster) -> _Placed:
    """Admit the workloads to a cluster, and place each of them alone."""
    admission = Admission(cluster, [*inputs.documents.harmless, *inputs.documents.judged])
    workloads: list[AdmittedWorkload] = []
    for admitted in _admit_all(inputs, admission, cluster):
        outcome = without_accepted(admitted.outcome, cluster.ignored)
        workloads.append(admitted.with_outcome(outcome))
    fitting = Fitting(cluster, workloads)
    topologies = Topologies(fitting)
    shared = shared_claims(fitting, workloads)
    placed: list[AdmittedWorkload] = []
    unplaced: set[AdmittedWorkload] = set()
    for before in workloads:
        outcome = before.outcome
        if outcome.verdict is None:
            outcome += fitting.place(before)
            outcome += fitting.place_in_other_flavors(before, outcome)
            outcome += topologies.place(before)
        elif before.pod_sets and outcome.reasons and outcome.is_refused_at_worst:
            outcome += fitting.place_nowhere(before)
        outcome = without_accepted(outcome, cluster.ignored)
        is_unplaced = outcome.verdict is None
        if is_unplaced:
            outcome += Outcome.of(Verdict.FITS)
        outcome += shared.get(before, Outcome()) + inline_disks(before)
        outcome += Outcome.warned(advice(cluster, before))
        placed.append(before.with_outcome(outcome))
        if is_unplaced:
            unplaced.add(placed[-1])
    return _Placed(cluster, admission, fitting, placed, frozenset(unplaced))


def _admit_all(
    inputs: _Input, admission: Admission, cluster: Cluster
) -> Iterable[AdmittedWorkload]:
    """Yield all workloads as the API server admits them, with what is not known of each."""
    documents = inputs.documents
    deciding = [refusal._replace(certain=False) for refusal in inputs.deciding]
    for workload in (*cluster.workloads, *documents.foreign):
        admitted = admission.admit(workload)
        if workload not in cluster.fully_running:
            unknowns = [*documents.unknowns(workload), *deciding]
            admitted = replace(admitted, unknowns=unknowns) if unknowns else admitted
        yield admitted
    for workload, reasons in documents.malformed:
        yield AdmittedWorkload(workload, outcome=Outcome.refused(reasons))


def _report(inputs: _Input, placed: _Placed, relaxed: Sequence[Verdicts] = ()) -> Verdicts:
    """Judge all placed workloads together, and report everything that is found."""
    documents = inputs.documents
    cluster = placed.cluster
    workloads: list[AdmittedWorkload] = []
    unplaced: set[AdmittedWorkload] = set()
    for index, before in enumerate(placed.workloads):
        # What cannot fit here and may fit in all relaxed clusters is undetermined.
        elsewhere = [verdicts.workloads[index].verdict for verdicts in relaxed]
        after = _relaxed(documents, before, elsewhere)
        workloads.append(after)
        if before in placed.unplaced:
            unplaced.add(after)
    all_together = judge_all_together(placed.admission, placed.fitting, workloads, unplaced)
    verdict, findings = _stack(inputs, placed, workloads, all_together, relaxed)
    prices = GpuPrices(cluster, placed.admission.quotas)
    stored = tuple(cluster.volumes.stored(cluster.workloads))
    items: list[WorkloadVerdict] = []
    for index, admitted in enumerate(workloads):
        workload = admitted.workload
        reasons = _findings_of(admitted, [verdicts.workloads[index] for verdicts in relaxed])
        warnings: list[Finding] = []
        for warning in admitted.outcome.warnings:
            warnings.append(explain.finding(warning, Verdict.FITS, workload))
        item = WorkloadVerdict(
            workload,
            verdict=admitted.verdict or Verdict.UNDETERMINED,
            # Pods of several sets may have the same template.
            reasons=tuple(dict.fromkeys(reasons)),
            warnings=tuple(dict.fromkeys(warnings)),
            run_cost=_run_cost(placed.fitting, admitted),
            gpus=prices.of([admitted], at_least=workload in documents.foreign),
        )
        items.append(item)
    return Verdicts(
        workloads=tuple(items),
        stack=verdict,
        reasons=tuple(findings),
        cost=cost_of(cluster.declared, stored),
        quotas=tuple(_quotas_left(placed.admission, workloads)),
        teams=prices.of_teams(workloads, documents.foreign),
        stored=stored,
    )


def _relaxed(
    documents: ClassifiedDocuments, admitted: AdmittedWorkload, elsewhere: Sequence[Verdict]
) -> AdmittedWorkload:
    """Return a workload as undetermined if it is not certain that it cannot fit."""
    # It is not if it may fit in clusters with more space, if a webhook or policy may reject it, or
    # if something about it is not known.
    outcome = admitted.outcome
    if _is_uncertain(outcome.verdict, elsewhere):
        outcome = replace(outcome, verdict=Verdict.UNDETERMINED)
    outcome += Outcome.refused(documents.possible_rejections(admitted.workload))
    if outcome is not admitted.outcome:
        admitted = admitted.with_outcome(outcome)
    return admitted.downgrade_unknown()


def _is_uncertain(verdict: Verdict | None, elsewhere: Sequence[Verdict]) -> bool:
    """Return whether something that cannot fit here may fit in all clusters with more space."""
    return verdict is Verdict.CANNOT_FIT and bool(elsewhere) and Verdict.CANNOT_FIT not in elsewhere


_TOO_MUCH_WORK = doubt(
    "work-budget",
    "",
    "there are more ways to place the pods than planning tries",
    "Select nodes by labels instead of by pods, or plan parts of the stack on their own.",
)
"""The doubt about a stack whose searches have spent their budget together."""


def _stack(
    inputs: _Input,
    placed: _Placed,
    workloads: Sequence[AdmittedWorkload],
    all_together: Outcome,
    relaxed: Sequence[Verdicts],
) -> tuple[Verdict, list[Finding]]:
    """Return the verdict on the whole stack, and the findings that are about no single workload."""
    cluster = placed.cluster
    documents = inputs.documents
    verdict = all_together.verdict or Verdict.FITS
    findings = [explain.finding(reason, of) for of, reason in all_together.reasons]
    each_may_fit = not any(admitted.is_refused for admitted in workloads)
    if each_may_fit and _is_uncertain(verdict, [verdicts.stack for verdicts in relaxed]):
        verdict = Verdict.UNDETERMINED
        findings = list(map(Finding.as_warning, findings))
    unknown = [gap for gap in documents.unknown if gap.rule not in cluster.ignored]
    if is_exhausted():
        unknown.append(_TOO_MUCH_WORK)
    refused = list(inputs.deciding)
    for refusal in inputs.remaining:
        (refused if refusal.certain else unknown).append(refusal)
    refused += unserved_metrics(cluster, inputs.gke)
    if any(refusal.certain for refusal in refused):
        verdict = Verdict.CANNOT_FIT
    if unknown:
        verdict = together([verdict, Verdict.UNDETERMINED])
    findings += map(_of_object, refused)
    findings += [explain.finding(gap, Verdict.UNDETERMINED) for gap in unknown]
    # What waits in a queue for nodes or for a quota may not be declared.
    findings += [explain.finding(overcommit, Verdict.FITS) for overcommit in overpromised(cluster)]
    for claim in cluster.volumes.unmounted(cluster.workloads):
        findings += map(_of_object, cluster.volumes.class_refusals(claim))
    return verdict, findings


def _of_object(refusal: Refusal) -> Finding:
    """Return a refusal of an object as a finding: an error if it is certain."""
    return explain.finding(refusal, Verdict.CANNOT_FIT if refusal.certain else Verdict.FITS)


def _findings_of(
    admitted: AdmittedWorkload, elsewhere: Sequence[WorkloadVerdict]
) -> Iterable[Finding]:
    """Yield a workload's reasons as findings: warnings, unless they are certain."""
    # A reason is certain if nothing about the workload is unknown, and a cluster with more space
    # has an error of the same rule.
    certain: set[str] = set()
    for item in elsewhere:
        certain.update(reason.rule for reason in item.reasons if reason.is_error)
    for verdict, reason in admitted.outcome.reasons:
        finding = explain.finding(reason, verdict, admitted.workload)
        is_certain = finding.rule in certain or not elsewhere
        yield finding if is_certain and not admitted.unknowns else finding.as_warning()


def _run_cost(fitting: Fitting, admitted: AdmittedWorkload) -> RunCost | None:
    """Return the cost of a run, if the workload sets how long it may last."""
    seconds = longest_run(admitted.workload)
    if seconds is None or len(admitted.pod_sets) != 1 or admitted.verdict is not Verdict.FITS:
        return None
    demands = fitting.demands([admitted], fitting.occupied)
    return run_cost(demands[0], seconds) if demands else None


def _quotas_left(
    admission: Admission, workloads: Sequence[AdmittedWorkload]
) -> Iterable[QuotaLeft]:
    """Yield what each quota leaves once every workload runs."""
    for namespace, quotas in admission.quotas.items():
        charged = [admitted for admitted in workloads if admitted.is_charged_in(namespace)]
        for quota in quotas:
            new = quota.charge(charged), quota.other_claims(charged)
            used = total((quota.taken, *new, *quota.other_charges.values()))
            left = {name: max(0, most - used.get(name, 0)) for name, most in quota.hard.items()}
            yield QuotaLeft(namespace, name_of(quota.manifest), left, quota.hard)
