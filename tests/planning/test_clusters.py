"""A program with several clusters: each workload is judged in the cluster of its provider."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.clusters import PROVIDER, Declared, clusters_of, provider_of
from ml_foundations.planning.input.program import BUCKET, CLUSTER, NAT, NODE_POOL, Resource
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.report import as_json, as_text
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    CANNOT,
    FITS,
    OPEN,
    container,
    deployment,
    in_namespace,
    namespace,
    namespaced,
    quota,
    resource,
    template,
)

EAST, WEST = "cluster us-east1-b/east", "cluster us-west1-b/west"
PLACES = {"east": "us-east1-b", "west": "us-west1-b"}
NAMESPACE = namespace()


def provider(name: str, cluster: str = "", **inputs: Any) -> Declared:
    """A provider that has its kubeconfig of a cluster, or of none in the program."""
    given = {"kubeconfig": UNKNOWN if cluster else f"that of {name}", **inputs}
    return Declared((PROVIDER, given), f"provider::{name}", name, sources={cluster} - {""})


def cluster(name: str, machine: str = "n2-standard-8", nodes: int = 1) -> list[Declared]:
    """A cluster with a provider and one pool, whose cluster's name is not known yet."""
    key, place = f"cluster::{name}", {"location": PLACES[name]}
    made = {"name": name, "removeDefaultNodePool": True, **place}
    pool = {"name": "p", "cluster": UNKNOWN, "nodeCount": nodes, **place}
    pool["nodeConfig"] = {"machineType": machine}
    return [
        Declared((CLUSTER, made), key, name),
        provider(name, key),
        Declared((NODE_POOL, pool), f"p::{name}", "p", sources={key}),
    ]


def within(name: str, *objects: Any) -> list[Declared]:
    """Objects of a provider; of Pulumi's default one without a name."""
    key = f"provider::{name}" if name else ""
    return [
        Declared(resource(item), f"{name}-{index}-{item['kind']}", item["kind"], key)
        for index, item in enumerate(objects)
    ]


def web(replicas: int = 1, cpu: str = "5", **spec: Any) -> Any:
    """Pods of which a node of eight CPUs has room for one."""
    return deployment("web", replicas, template(containers=[container(cpu=cpu)], **spec))


def verdicts_of(verdicts: Verdicts) -> dict[str, str]:
    return {str(item.workload): item.verdict for item in verdicts.workloads}


def plain(declared: Iterable[Declared]) -> list[Resource]:
    return [item.resource for item in declared if item.resource[0] != PROVIDER]


def test_each_cluster_has_its_own_namespaces_nodes_and_quotas() -> None:
    one = [*cluster("east"), *within("east", NAMESPACE, quota(hard={"cpu": "6"}), web())]
    two = [*cluster("west", nodes=2), *within("west", NAMESPACE, web(2))]
    verdicts = judge_clusters([*one, *two])
    assert verdicts.stack is FITS, as_text(verdicts)
    everywhere = {f"Deployment team/web in {place}": FITS for place in (EAST, WEST)}
    assert verdicts_of(verdicts) == everywhere
    # In one cluster, the quota of six CPUs would be that of all three pods.
    [left] = verdicts.quotas
    assert (left.namespace, left.name) == ("team", f"quota in {EAST}")
    assert [item.get("cluster") for item in as_json(verdicts)["workloads"]] == [EAST, WEST]


def test_a_workload_that_fits_only_in_the_other_cluster() -> None:
    one, two = cluster("east"), cluster("west", "n2-standard-32")
    objects = [*within("east", NAMESPACE, web(cpu="20")), *within("west", NAMESPACE)]
    verdicts = judge_clusters([*one, *two, *objects])
    assert verdicts.stack is CANNOT
    [found] = [finding for finding in verdicts.findings if finding.is_error]
    assert found.place == f"Deployment team/web in {EAST}"
    assert f"{found.place} cannot fit" in as_text(verdicts)


@pytest.mark.parametrize("own", [True, False])
def test_a_name_of_another_cluster_is_not_there(own: bool) -> None:
    pods, account = web(serviceAccountName="a"), namespaced("v1", "ServiceAccount", "a")
    objects = [*within("east", NAMESPACE, pods), *within("west", NAMESPACE)]
    objects += within("east" if own else "west", account)
    verdicts = judge_clusters([*cluster("east"), *cluster("west"), *objects])
    found = [f.place for f in verdicts.findings if f.rule == "reference"]
    assert found == ([] if own else [f"Deployment team/web in {EAST}"])


def test_the_second_provider_is_of_a_cluster_that_exists() -> None:
    there = in_namespace("old", namespaced("v1", "ConfigMap", "c"))
    objects = [*within("east", NAMESPACE, web()), *within("other", there, web(99, "100"))]
    verdicts = judge_clusters([*cluster("east"), provider("other"), *objects])
    assert not [finding for finding in verdicts.findings if finding.is_error]
    assert verdicts_of(verdicts) == {
        f"Deployment team/web in {EAST}": FITS,
        "Deployment team/web in the cluster of provider other": OPEN,
    }


def not_known_yet(declared: Declared) -> Declared:
    """What its provider or cluster is shows later."""
    return replace(declared, sources=None)


def test_costs_and_quotas_are_those_of_all_clusters() -> None:
    one = [*cluster("east"), *within("east", NAMESPACE, web())]
    two = [*cluster("west", nodes=2), *within("west", NAMESPACE, web())]
    nat: Resource = (NAT, {"name": "nat", "region": "us-west1"})
    shared = [Declared(nat, "nat", "nat"), Declared((BUCKET, {"name": "b"}), "b", "b")]
    verdicts = judge_clusters([*one, *two, *shared])
    apart = [judge_program(plain(part)) for part in (one, two)]
    platform = [piece for piece in verdicts.cost.platform if "NAT" in piece.name]
    assert len(platform) == 2
    assert all(piece.per_node for piece in platform)
    costs = [item.cost.per_hour_max or 0 for item in apart]
    assert verdicts.cost.per_hour_max == sum(costs) + sum(p.per_hour_max or 0 for p in platform)
    sums = Counter[tuple[str, str]]()
    for need in [need for item in apart for need in item.needs]:
        sums[need.region, need.name] += need.at_most
    needs = {(need.region, need.name): need.at_most for need in verdicts.needs}
    assert needs.pop(("us-west1", "STATIC_ADDRESSES"), 1) == 1
    assert needs == sums


def test_one_cluster_is_judged_as_ever() -> None:
    """Also with Pulumi's default provider, and with a pool and a provider whose cluster is not known yet."""
    made, given, pool = cluster("east")
    for provider_, name in ((given, "east"), (given, ""), (not_known_yet(given), "east")):
        declared = [made, provider_, not_known_yet(pool), *within(name, NAMESPACE, web(2))]
        assert clusters_of(declared) == {}
        assert as_json(judge_clusters(declared)) == as_json(judge_program(plain(declared)))


def test_what_is_not_known_yet_is_in_no_cluster() -> None:
    """It is judged when everything is registered."""
    objects = [*within("east", NAMESPACE), *within("o", web())]
    assert clusters_of([*cluster("east"), not_known_yet(provider("o")), *objects]) is None
    made, given, pool = cluster("east")
    assert clusters_of([made, given, not_known_yet(pool), *cluster("west")]) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("east", EAST), ("projects/p/locations/us-west1/clusters/west", WEST), ("old", "old")],
)
def test_pools_are_of_the_cluster_that_they_name(name: str, expected: str) -> None:
    pool = Declared((NODE_POOL, {"name": "q", "cluster": name}), "q", "q")
    homes = clusters_of([*cluster("east"), *cluster("west"), pool])
    assert homes and homes["q"].endswith(expected)


def test_a_pool_of_a_cluster_that_exists_is_that_of_its_provider() -> None:
    pool = Declared((NODE_POOL, {"name": "q", "cluster": "old"}), "q", "q")
    homes = clusters_of([*cluster("east"), pool, provider("other"), *within("other", web())])
    assert homes and homes["q"] == "the cluster of provider other"


def test_two_providers_with_the_same_access_are_of_one_cluster() -> None:
    one, two = provider("one", kubeconfig="k"), provider("two", kubeconfig="k", namespace="n")
    objects = [*within("one", NAMESPACE), *within("two", web())]
    assert clusters_of([one, two, *objects]) == {}
    other = provider("two", kubeconfig="k", context="c")
    assert len(set((clusters_of([one, other, *objects]) or {}).values())) == 2


def test_children_of_the_component_with_a_cluster_are_of_that_cluster() -> None:
    made, *more = cluster("east")
    nat = Declared((NAT, {"name": "nat"}), "nat", "nat", parent="component")
    stack = [replace(made, parent="component"), *more, *cluster("west"), nat]
    homes = clusters_of(stack)
    assert homes and homes["nat"] == EAST


def test_clusters_of_one_name_and_place_are_told_apart() -> None:
    moved = replace(cluster("east")[0], key="cluster::two", name="two")
    homes = clusters_of([*cluster("east"), moved])
    assert homes and set(homes.values()) == {EAST, f"{EAST} (two)"}


def test_pulumis_default_provider_has_no_urn() -> None:
    start = "urn:pulumi:dev::p::pulumi:providers:kubernetes::"
    assert provider_of(f"{start}default_4_24_0::id") == provider_of("") == ""
    assert provider_of(f"{start}defaults::id") == f"{start}defaults"
