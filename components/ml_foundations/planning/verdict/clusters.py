"""The verdict on a program with several clusters: each is judged on its own."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.planning.input.clusters import Declared, clusters_of
from ml_foundations.planning.input.program import Resource, is_judged, nodes_of
from ml_foundations.planning.input.repeated import repeated
from ml_foundations.planning.model.decisions import together
from ml_foundations.planning.model.declared import of_type
from ml_foundations.planning.rules.rule import Rule
from ml_foundations.planning.verdict.cost import Cost, PoolCost, platform_cost
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.quota_needs import QuotaNeed, added, quota_needs
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict

_T = TypeVar("_T")


def judge_clusters(
    declared: Sequence[Declared],
    existing: Sequence[Resource] = (),
    *,
    rehearsed: bool = False,
    accepted: Collection[str] = (),
    rules: Sequence[Rule] = (),
) -> Verdicts:
    """Judge the workloads of a program, each in the cluster of its Kubernetes provider.

    The arguments are those of ``judge_program``. If several clusters exist already, the pools in
    ``existing`` are of none for certain, and do not count.
    """
    titles = clusters_of(declared) or {}
    parts: dict[str, list[Declared]] = {title: [] for title in titles.values()} or {"": []}
    shared: list[Declared] = []
    for item in declared:
        if is_judged(item.resource[0]):
            title = titles.get(item.key)
            (parts[title or ""] if title or not titles else shared).append(item)
    of_none = list(map(_resource_of, shared))
    resources = {title: list(map(_resource_of, part)) for title, part in parts.items()}
    unmade = [title for title, of_cluster in resources.items() if not of_type(of_cluster, CLUSTER)]
    repeats = dict(repeated(declared))
    judged: list[Verdicts] = []
    for title, of_cluster in resources.items():
        pools = existing if len(parts) == 1 or unmade == [title] else ()
        kept = [item.resource for item in parts[title] if item.is_kept]
        verdicts = judge_program(
            of_cluster,
            pools,
            kept,
            repeated=[repeats[item.key] for item in parts[title] if item.key in repeats],
            rehearsed=rehearsed,
            accepted=accepted,
            shared=of_none,
            rules=rules,
        )
        judged.append(_in_cluster(title, verdicts) if titles else verdicts)
    if not titles:
        return judged[0]
    nodes = [node for of_cluster in resources.values() for node in nodes_of(of_cluster)]
    regions = {verdicts.cost.region for verdicts in judged}
    region = regions.pop() if len(regions) == 1 else None
    merged = _merged(judged, quota_needs(of_none))
    platform = (*merged.cost.platform, *platform_cost(of_none, nodes, region))
    return replace(merged, cost=replace(merged.cost, platform=platform, region=region))


_resource_of = attrgetter("resource")


def _in_cluster(title: str, verdicts: Verdicts) -> Verdicts:
    """Return the verdicts with the cluster in the names of workloads, objects and pieces."""

    def of_cluster(pieces: Iterable[PoolCost]) -> tuple[PoolCost, ...]:
        return tuple(replace(piece, name=f"{piece.name} in {title}") for piece in pieces)

    marked = verdicts.with_findings(lambda finding: replace(finding, cluster=title))
    workloads: list[WorkloadVerdict] = []
    for item in marked.workloads:
        workloads.append(replace(item, workload=replace(item.workload, cluster=title)))
    cost = verdicts.cost
    return replace(
        marked,
        workloads=tuple(workloads),
        cost=replace(
            cost,
            pools=of_cluster(cost.pools),
            storage=of_cluster(cost.storage),
            platform=of_cluster(cost.platform),
        ),
        quotas=tuple(replace(quota, name=f"{quota.name} in {title}") for quota in verdicts.quotas),
        teams={f"{team} in {title}": gpus for team, gpus in verdicts.teams.items()},
        retained=tuple(replace(r, object=f"{r.object} in {title}") for r in verdicts.retained),
    )


def _merged(judged: Sequence[Verdicts], needs: Sequence[QuotaNeed]) -> Verdicts:
    """Return verdicts as one, with more needs: all must fit, and costs and quotas are added."""

    def chained(values: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
        return tuple(chain.from_iterable(values))

    return Verdicts(
        chained(verdicts.workloads for verdicts in judged),
        together(verdicts.stack for verdicts in judged),
        chained(verdicts.reasons for verdicts in judged),
        Cost(
            chained(verdicts.cost.pools for verdicts in judged),
            chained(verdicts.cost.storage for verdicts in judged),
            chained(verdicts.cost.platform for verdicts in judged),
        ),
        chained(verdicts.quotas for verdicts in judged),
        dict(chained(verdicts.teams.items() for verdicts in judged)),
        chained(verdicts.stored for verdicts in judged),
        chained(verdicts.retained for verdicts in judged),
        added([*needs, *chained(verdicts.needs for verdicts in judged)]),
    )
