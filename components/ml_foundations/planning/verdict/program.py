"""The verdict on a Pulumi program."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ml_foundations.catalog.gke_kinds import enforces_policies
from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.catalog.versions import KUEUE
from ml_foundations.kubernetes.objects import RELEASE, Manifest
from ml_foundations.planning.api_server.trainer_webhooks import of_train_job
from ml_foundations.planning.input import program
from ml_foundations.planning.input.field_catalog import well_formed
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.input.scaled_objects import with_autoscalers
from ml_foundations.planning.input.train_jobs import with_job_sets, written_fields
from ml_foundations.planning.model.decisions import Verdict, together
from ml_foundations.planning.model.declared import of_type
from ml_foundations.planning.model.owners import without_owned
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.bucket_access import access_findings
from ml_foundations.planning.verdict.cluster_rules import cluster_findings
from ml_foundations.planning.verdict.compute_classes import compute_class_findings
from ml_foundations.planning.verdict.cost import platform_cost
from ml_foundations.planning.verdict.eviction_budgets import eviction_budget_findings
from ml_foundations.planning.verdict.field_versions import version_findings
from ml_foundations.planning.verdict.findings import Finding
from ml_foundations.planning.verdict.group_services import group_service_findings
from ml_foundations.planning.verdict.inference_gateways import inference_gateway_findings
from ml_foundations.planning.verdict.injected import scan_findings
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.network_policies import network_findings
from ml_foundations.planning.verdict.objects import placeholder_findings, quota_findings
from ml_foundations.planning.verdict.platform import platform_findings
from ml_foundations.planning.verdict.quota_needs import quota_needs
from ml_foundations.planning.verdict.references import with_references
from ml_foundations.planning.verdict.retained import lost_with_namespaces, retained
from ml_foundations.planning.verdict.targets import target_findings
from ml_foundations.planning.verdict.values import with_values
from ml_foundations.planning.verdict.verdicts import Verdicts, verdict_of
from ml_foundations.planning.verdict.webhooks import webhook_findings
from ml_foundations.planning.verdict.written import as_written


def judge_documents(documents: Sequence[Manifest], accepted: Collection[str] = ()) -> Verdicts:
    """Judge manifests as `judge` does, and add findings about objects that place no pods."""
    written = written_fields(documents)
    documents = with_autoscalers(with_job_sets(documents, of_train_job))
    verdicts = with_values(judge(documents, accepted=accepted), documents, accepted)
    verdicts = with_references(
        verdicts, documents, in_own_cluster=False, in_manifests=True, accepted=accepted
    )
    # The objects of a cluster hold its pods several times: a Deployment, its ReplicaSet, its Pods.
    once = without_owned(well_formed(documents))
    findings = (
        *webhook_findings(once, None),
        *network_findings(once),
        *inference_gateway_findings(once, (), has_policies=True),
        *target_findings(once, is_complete=False),
        *group_service_findings(once),
        *quota_findings(once),
        *eviction_budget_findings(once, verdicts),
    )
    return as_written(replace(verdicts, reasons=(*verdicts.reasons, *findings)), written)


def _object_findings(
    resources: Sequence[Resource], objects: Sequence[Manifest]
) -> Iterator[Finding]:
    """Yield findings about webhooks, quotas, versions, classes, gateways and network policies."""
    clusters, objects = of_type(resources, CLUSTER), well_formed(objects)
    yield from webhook_findings(objects, program.values_of(resources, KUEUE))
    yield from quota_findings(objects)
    yield from version_findings(objects, clusters)
    yield from compute_class_findings(resources, objects)
    yield from group_service_findings(objects)
    has_policies = not clusters or any(map(enforces_policies, clusters))
    yield from scan_findings(objects, resources)
    yield from inference_gateway_findings(objects, resources, has_policies=has_policies)
    charts = [str(inputs.get("namespace")) for inputs in of_type(resources, RELEASE)]
    yield from target_findings(objects, is_complete=bool(clusters), charts=charts)
    if has_policies:
        yield from network_findings(objects)


def judge_program(
    resources: Iterable[Resource],
    existing: Sequence[Resource] = (),
    kept: Iterable[Resource] = (),
    *,
    rehearsed: bool = False,
    accepted: Collection[str] = (),
    shared: Sequence[Resource] = (),
) -> Verdicts:
    """Judge the workloads of a program against its node pools, quotas and limits.

    ``judge_clusters`` judges each of several clusters by this. If an accepted rule is broken, the
    verdict is the one without the rule.

    Args:
        resources: The resources that the program declares.
        existing: Node pools of a cluster that exists already; all that have GPUs must be among
            them.
        kept: The resources that Pulumi does not delete with the stack (``retain_on_delete``).
        rehearsed: Whether the program may have placeholders: nothing of it goes to Google Cloud.
        accepted: The rules whose errors the user accepts, or ``RULE/NAME`` for one object.
        shared: More resources, of no cluster, whose cost and quotas are not counted.
    """
    own = list(resources)
    declared = [*own, *shared]
    nodes = program.nodes_of(declared, existing)
    clusters = program.shown_clusters(declared)
    objects = program.objects_of(declared)
    written = written_fields(objects)
    objects = with_autoscalers(with_job_sets(objects, of_train_job))
    verdicts = judge(objects, nodes, clusters[0] if len(clusters) == 1 else None, accepted)
    verdicts = with_values(verdicts, objects, accepted)
    charts = [str(inputs.get("namespace")) for inputs in of_type(declared, RELEASE)]
    verdicts = with_references(
        verdicts, objects, in_own_cluster=bool(clusters), charts=charts, accepted=accepted
    )
    undeleted = [inputs for _, inputs in kept]
    workloads = [item.workload for item in verdicts.workloads]
    findings = [
        *platform_findings(declared, nodes),
        *cluster_findings(declared),
        *_object_findings(declared, objects),
        *eviction_budget_findings(objects, verdicts),
        *access_findings(workloads, objects, declared),
    ]
    for refusal in (
        *program.without_controller(declared),
        *program.without_class(declared),
        *program.shared_metrics_apis(declared),
        *program.flat_buckets(declared),
    ):
        findings.append(explain.finding(refusal, Verdict.CANNOT_FIT))
    for doubted in program.later_fields(objects):
        findings.append(explain.finding(doubted, Verdict.UNDETERMINED))
    if not rehearsed:
        findings += placeholder_findings(declared)
    findings += lost_with_namespaces(verdicts.stored, objects, undeleted)
    errors = [finding for finding in findings if finding.is_error]
    region = verdicts.cost.region
    platform = tuple(platform_cost(own, nodes, region))
    verdicts = replace(
        verdicts,
        stack=together([verdicts.stack, verdict_of(errors, accepted)]),
        reasons=(*verdicts.reasons, *findings),
        cost=replace(verdicts.cost, platform=platform),
        retained=tuple(retained(verdicts.stored, objects, undeleted, region)),
        needs=quota_needs(own, existing),
    )
    return as_written(verdicts, written)
