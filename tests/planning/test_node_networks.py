"""Networks that only nodes are in: their addresses, and what they are not taken for."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import (
    CLUSTER,
    NETWORK,
    NODE_POOL,
    SUBNETWORK,
    Resource,
    named,
)
from ml_foundations.planning.verdict.program import judge_program

MULTI: Any = {"enableMultiNetworking": True}
PODS: Any = {"ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"}}
PRIVATE: Any = {"privateClusterConfig": {"enablePrivateNodes": True}}


def cluster(name: str | None = "c", **more: Any) -> Resource:
    return CLUSTER, {"name": name, "location": "us-central1"} | MULTI | PODS | more


def pool(name: str, *subnetworks: str, cluster: Any = "c") -> Resource:
    networks = [{"network": f"vpc-{each}", "subnetwork": each} for each in subnetworks]
    return NODE_POOL, {
        **{"name": name, "cluster": cluster, "location": "us-central1", "nodeCount": 1},
        "networkConfig": {"additionalNodeNetworkConfigs": networks},
        "nodeConfig": {"machineType": "n2-standard-8"},
    }


def subnetwork(name: str, block: Any, pods: str | None = None) -> Resource:
    ranges = [{"rangeName": "pods", "ipCidrRange": pods}] if pods else []
    return SUBNETWORK, {"name": name, "ipCidrRange": block, "secondaryIpRanges": ranges}


def told(rule: str, *resources: Resource) -> list[tuple[str, str]]:
    found = judge_program(resources).findings
    return [(each.object, each.severity) for each in found if each.rule == rule]


OF_CLUSTER = subnetwork("main", "10.0.0.0/20", "10.16.0.0/14")
ONE, TWO = pool("one", "a"), pool("two", "b")


@pytest.mark.parametrize(
    ("resources", "overlapping"),
    [
        ([ONE, TWO, subnetwork("a", "192.168.0.0/20"), subnetwork("b", "192.168.0.0/24")], "two"),
        ([ONE, TWO, subnetwork("a", "192.168.0.0/20"), subnetwork("b", "192.168.16.0/20")], None),
        ([ONE, OF_CLUSTER, subnetwork("a", "10.0.15.0/24")], "one"),
        ([ONE, OF_CLUSTER, subnetwork("a", "10.0.16.0/24")], None),
        ([ONE, OF_CLUSTER, subnetwork("a", "10.19.255.0/24")], "one"),
        ([ONE, OF_CLUSTER, subnetwork("a", "10.20.0.0/24")], None),
        ([ONE, OF_CLUSTER, subnetwork("a", UNKNOWN)], None),
        ([ONE, pool("two", "a"), subnetwork("a", "192.168.0.0/20")], None),
        ([ONE, TWO, subnetwork("a", "192.168.0.0/20")], None),
        ([ONE, subnetwork("a", "192.168.0.0/20"), subnetwork("b", "192.168.0.0/20")], None),
    ],
    ids=str,
)
def test_networks_of_one_cluster_have_different_addresses(
    resources: list[Resource], overlapping: str | None
) -> None:
    wanted = [(f"NodePool {overlapping}", "error")] if overlapping else []
    assert told("network-ranges", cluster(), *resources) == wanted


def test_names_that_pulumi_makes_are_those_of_the_networks() -> None:
    """After the registration, a program shows the names that Pulumi made."""
    made = named((SUBNETWORK, {"ipCidrRange": "10.0.15.0/24"}), "a", "a-1a2b3c4")
    in_cluster = pool("one", "a-1a2b3c4", cluster="c-5d6e7f8")
    wanted = [("NodePool one", "error")]
    assert told("network-ranges", cluster(None), in_cluster, OF_CLUSTER, made) == wanted
    unknown = pool("one", "a-1a2b3c4", cluster=UNKNOWN)
    assert told("network-ranges", cluster(None), unknown, OF_CLUSTER, made) == wanted


def test_pools_of_unknown_clusters_may_have_the_same_addresses() -> None:
    ranges = [subnetwork("a", "192.168.0.0/20"), subnetwork("b", "192.168.0.0/20")]
    pools = [pool("one", "a", cluster=UNKNOWN), pool("two", "b", cluster=UNKNOWN)]
    assert not told("network-ranges", *pools, *ranges)


def test_networks_of_two_clusters_may_have_the_same_addresses() -> None:
    ranges = [subnetwork("a", "192.168.0.0/20"), subnetwork("b", "192.168.0.0/20")]
    pools = [ONE, pool("two", "b", cluster="d")]
    assert not told("network-ranges", cluster(), cluster("d"), *pools, *ranges)


def test_a_network_of_nodes_alone_is_not_that_of_the_cluster() -> None:
    of_nodes, other = (NETWORK, {"name": "vpc-a"}), (NETWORK, {"name": "ml"})
    assert not told("way-out", cluster(**PRIVATE), ONE, of_nodes)
    assert told("way-out", cluster(**PRIVATE), ONE, of_nodes, other)


@pytest.mark.parametrize(
    ("version", "is_told"),
    [("1.34.1-gke.1829000", True), ("1.34.1-gke.1829001", False), ("1.34", False)],
)
def test_claimed_interfaces_need_a_version_of_gke(version: str, is_told: bool) -> None:
    type_, inputs = pool("one")
    managed = type_, {**inputs, "networkConfig": {"acceleratorNetworkProfile": "auto"}}
    found = told("version", cluster(minMasterVersion=version), managed)
    assert found == [("NodePool one", "error")] * is_told
