"""The verdict on a Pulumi program."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ml_foundations.catalog.gke_kinds import enforces_policies
from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.catalog.versions import KUEUE
from ml_foundations.kubernetes.objects import RELEASE, Manifest
from ml_foundations.planning.input.program import (
    Resource,
    nodes_of,
    objects_of,
    shown_clusters,
    values_of,
    without_controller,
)
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.cost import platform_cost
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.network_policies import network_findings
from ml_foundations.planning.verdict.objects import placeholder_findings, quota_findings
from ml_foundations.planning.verdict.platform import platform_findings
from ml_foundations.planning.verdict.quota_needs import quota_needs
from ml_foundations.planning.verdict.references import with_references
from ml_foundations.planning.verdict.retained import lost_with_namespaces, retained
from ml_foundations.planning.verdict.values import with_values
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.planning.verdict.webhooks import webhook_findings


def judge_documents(documents: Sequence[Manifest]) -> Verdicts:
    """Judge manifests as `judge` does, with the findings about objects that decide nothing about places."""
    verdicts = with_values(judge(documents), documents)
    verdicts = with_references(verdicts, documents, in_own_cluster=False, in_manifests=True)
    found = (
        *webhook_findings(documents, None),
        *network_findings(documents),
        *quota_findings(documents),
    )
    return replace(verdicts, reasons=(*verdicts.reasons, *found))


def _object_findings(found: Sequence[Resource], objects: Sequence[Manifest]) -> Iterator[Finding]:
    clusters = [inputs for type_, inputs in found if type_ == CLUSTER]
    yield from webhook_findings(objects, values_of(found, KUEUE))
    yield from quota_findings(objects)
    if not clusters or any(map(enforces_policies, clusters)):
        yield from network_findings(objects)


def judge_program(
    resources: Iterable[Resource],
    existing: Sequence[Resource] = (),
    kept: Iterable[Resource] = (),
    *,
    rehearsed: bool = False,
    accepted: Collection[str] = (),
) -> Verdicts:
    """Judge the workloads of a program against its node pools, quotas and limits.

    Of a cluster that exists already, some node pools may be given: among them, all that have GPUs. Pulumi leaves the
    resources that are kept when it deletes the stack (``retain_on_delete``). A program that is ``rehearsed`` may have
    placeholders: nothing of it goes to Google Cloud. If an accepted rule is broken, the verdict is the one without it.
    """
    found = list(resources)
    nodes = nodes_of(found, existing)
    clusters = shown_clusters(found)
    objects = objects_of(found)
    verdicts = judge(objects, nodes, clusters[0] if len(clusters) == 1 else None, accepted)
    verdicts = with_values(verdicts, objects, accepted)
    charts = [str(inputs.get("namespace")) for type_, inputs in found if type_ == RELEASE]
    verdicts = with_references(
        verdicts, objects, in_own_cluster=bool(clusters), charts=charts, accepted=accepted
    )
    left = [inputs for _, inputs in kept]
    missing = (explain.finding(each, Verdict.CANNOT_FIT) for each in without_controller(found))
    placeholders = () if rehearsed else placeholder_findings(found)
    more = (
        *platform_findings(found, nodes),
        *_object_findings(found, objects),
        *missing,
        *placeholders,
        *lost_with_namespaces(verdicts.stored, objects, left),
    )
    is_refused = any(each.severity is Severity.ERROR and each.rule not in accepted for each in more)
    cannot = Verdict.CANNOT_FIT if is_refused else verdicts.stack
    cost = replace(verdicts.cost, platform=tuple(platform_cost(found, nodes, verdicts.cost.region)))
    return replace(
        verdicts,
        stack=cannot,
        reasons=(*verdicts.reasons, *more),
        cost=cost,
        retained=tuple(retained(verdicts.stored, objects, left, cost.region)),
        needs=quota_needs(found, existing),
    )
