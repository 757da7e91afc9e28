"""The verdict on a Pulumi program or on manifests: of the workloads, and by every rule."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.planning.api_server.trainer_webhooks import of_train_job
from ml_foundations.planning.input import program
from ml_foundations.planning.input.field_catalog import well_formed
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.input.repeated import Repeated
from ml_foundations.planning.input.scaled_objects import with_autoscalers
from ml_foundations.planning.input.train_jobs import with_job_sets, written_fields
from ml_foundations.planning.model.decisions import together
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.owners import without_owned
from ml_foundations.planning.model.written import written_path
from ml_foundations.planning.rules.added import RULE_ERROR, added_findings
from ml_foundations.planning.rules.built_in import OF_THE_STACK, OF_WORKLOADS
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.rules.rule import Rule
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack
from ml_foundations.planning.verdict.cost import platform_cost
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.quota_needs import quota_needs
from ml_foundations.planning.verdict.references import DeclaredObjects, with_references
from ml_foundations.planning.verdict.retained import retained
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict, verdict_of


def judge_documents(
    documents: Sequence[Manifest], accepted: Collection[str] = (), rules: Sequence[Rule] = ()
) -> Verdicts:
    """Judge manifests as ``judge_program`` judges a program."""
    return _judged(documents, (), (), accepted=accepted, rules=rules)[0]


def judge_program(
    resources: Iterable[Resource],
    existing: Sequence[Resource] = (),
    kept: Iterable[Resource] = (),
    *,
    repeated: Sequence[Repeated] = (),
    rehearsed: bool = False,
    accepted: Collection[str] = (),
    shared: Sequence[Resource] = (),
    rules: Sequence[Rule] = (),
) -> Verdicts:
    """Judge the workloads of a program against its node pools, quotas and limits.

    ``judge_clusters`` judges each of several clusters by this. If an accepted rule is broken, the
    verdict is the one without the rule.

    Args:
        resources: The resources that the program declares.
        existing: Node pools of a cluster that exists already; all that have GPUs must be among
            them.
        kept: The resources that Pulumi does not delete with the stack (``retain_on_delete``).
        repeated: The resources that make what an earlier resource makes.
        rehearsed: Whether the program may have placeholders: nothing of it goes to Google Cloud.
        accepted: The rules whose errors the user accepts, or ``RULE/NAME`` for one object.
        shared: More resources, of no cluster, whose cost and quotas are not counted.
        rules: Rules besides those of this package and of installed ones.
    """
    of_cluster = list(resources)
    declared = [*of_cluster, *shared]
    nodes = program.nodes_of(declared, existing)
    objects = program.objects_of(declared)
    verdicts, stack = _judged(
        objects,
        declared,
        nodes,
        kept,
        repeated,
        rehearsed=rehearsed,
        accepted=accepted,
        rules=rules,
    )
    region = verdicts.cost.region
    platform = tuple(platform_cost(of_cluster, nodes, region))
    return replace(
        verdicts,
        cost=replace(verdicts.cost, platform=platform),
        retained=tuple(retained(verdicts.stored, stack.objects, stack.kept, region)),
        needs=quota_needs(of_cluster, existing),
    )


def _judged(
    objects: Sequence[Manifest],
    resources: Sequence[Resource],
    nodes: Sequence[NodeClass],
    kept: Iterable[Resource] = (),
    repeated: Sequence[Repeated] = (),
    *,
    rehearsed: bool = False,
    accepted: Collection[str],
    rules: Sequence[Rule],
) -> tuple[Verdicts, Stack]:
    """Judge objects with everything that is known of their cluster, and by every rule."""
    written = written_fields(objects)
    objects = with_autoscalers(with_job_sets(objects, of_train_job))
    clusters = program.shown_clusters(resources)
    verdicts = judge(objects, nodes, clusters[0] if len(clusters) == 1 else None, accepted)
    charts = program.chart_namespaces(resources)
    existing = DeclaredObjects(objects, charts)
    workloads = (JudgedWorkload(w.workload, w.verdict, w.reasons) for w in verdicts.workloads)
    # The objects of a cluster hold its pods several times: a Deployment, its ReplicaSet, its Pods.
    once = without_owned(well_formed(objects))
    stack = Stack(
        objects=once,
        existing=existing,
        resources=resources,
        nodes=nodes,
        workloads=tuple(workloads),
        kept=[inputs for _, inputs in kept if "kind" in inputs],
        repeated=repeated,
        stored=verdicts.stored,
        is_rehearsed=rehearsed,
    )
    verdicts = _with_findings_of_workloads(verdicts, stack, accepted)
    verdicts = with_references(
        verdicts,
        objects,
        existing,
        in_own_cluster=bool(clusters),
        in_manifests=not stack.is_program,
        accepted=accepted,
    )
    findings = list(chain.from_iterable(rule(stack) for rule in OF_THE_STACK))
    added = list(added_findings(stack, rules))
    # The findings on manifests are reported only: a Service that they lack may exist.
    deciding = [*findings, *added] if stack.is_program else added
    errors = [item for item in deciding if item.is_error or item.rule == RULE_ERROR]
    verdict = together([verdicts.stack, verdict_of(errors, accepted)])
    verdicts = replace(verdicts, stack=verdict, reasons=(*verdicts.reasons, *findings, *added))
    if not written:
        return verdicts, stack

    def renamed(finding: Finding) -> Finding:
        """Return a finding about what a controller makes, at the field that the user wrote."""
        path = written_path(finding.path, written.get(finding.object, {}))
        return replace(finding, path=path)

    return verdicts.with_findings(renamed), stack


def _with_findings_of_workloads(
    verdicts: Verdicts, stack: Stack, accepted: Collection[str]
) -> Verdicts:
    """Return verdicts with the findings of the rules that count for a workload's own verdict."""
    by_workload: defaultdict[str, dict[Finding, None]] = defaultdict(dict)
    for finding in chain.from_iterable(rule(stack) for rule in OF_WORKLOADS):
        by_workload[finding.object][finding] = None
    workloads: list[WorkloadVerdict] = []
    for item in verdicts.workloads:
        findings = by_workload[str(item.workload)]
        warnings = [finding for finding in findings if not finding.is_error]
        item = replace(item, warnings=(*item.warnings, *warnings))
        errors = [finding for finding in findings if finding.is_error]
        workloads.append(item.with_reasons(errors, accepted))
    stack_verdict = together([verdicts.stack, *(item.verdict for item in workloads)])
    return replace(verdicts, workloads=tuple(workloads), stack=stack_verdict)
