"""Pods with interfaces in networks that their nodes have besides the cluster's."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict

from tests.factories import cluster_wide, container, job, node, resource, template
from tests.planning.test_program import cluster, judge_program, pool

INTERFACES = '[{"interfaceName": "eth0", "network": "default"}, {"interfaceName": "eth1", "network": "vpc1"}]'
OF_POOL = {"network": "projects/p/global/networks/gpu", "subnetwork": "gpu-1"}
URL = "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1/subnetworks/gpu-1"


def training(pods: int, cpu: int = 1, **spec: Any) -> Any:
    train = template(containers=[container(cpu=cpu)], **spec)
    train["metadata"]["annotations"] = {"networking.gke.io/interfaces": INTERFACES}
    return resource(job("train", pods, train, gang=True))


def networks(subnetwork: Any = "gpu-1", kind: str = "Device", vpc: str = "gpu") -> list[Any]:
    version, group = "networking.gke.io/v1", "networking.gke.io"
    parameters = {"vpc": vpc, "vpcSubnet": subnetwork, "deviceMode": "NetDevice"}
    reference = {"group": group, "kind": "GKENetworkParamSet", "name": "of-vpc1"}
    network = {"type": kind, "parametersRef": reference}
    made = [
        cluster_wide(version, "GKENetworkParamSet", "of-vpc1", spec=parameters),
        cluster_wide(version, "Network", "vpc1", spec=network),
    ]
    return [*map(resource, made)]


def in_network(name: str = "p", nodes: int = 2, **network: Any) -> Any:
    return in_networks(OF_POOL | network, name=name, nodes=nodes)


def in_networks(*networks: Any, name: str = "p", nodes: int = 2) -> Any:
    type_, inputs = pool(nodes=nodes)
    config = {"additionalNodeNetworkConfigs": [*networks]}
    return type_, inputs | {"name": name, "networkConfig": config}


MULTI = cluster(enableMultiNetworking=True, datapathProvider="ADVANCED_DATAPATH")


@pytest.mark.parametrize(
    ("pods", "pools", "expected"),
    [
        (2, [in_network()], Verdict.FITS),
        (2, [in_network(subnetwork=URL)], Verdict.FITS),
        (3, [in_network()], Verdict.CANNOT_FIT),  # a device for one pod of a node
        (3, [in_network(), pool()], Verdict.CANNOT_FIT),
        (2, [in_network(), pool()], Verdict.FITS),
        (2, [pool()], Verdict.CANNOT_FIT),
        (2, [in_network(subnetwork="gpu-2")], Verdict.CANNOT_FIT),
        (2, [in_network(subnetwork=UNKNOWN)], Verdict.UNDETERMINED),
        (2, [in_networks(UNKNOWN)], Verdict.UNDETERMINED),
        (3, [in_network(), in_network("q", subnetwork=UNKNOWN)], Verdict.UNDETERMINED),
    ],
)
def test_pods_need_nodes_in_their_networks(pods: int, pools: list[Any], expected: Verdict) -> None:
    assert judge_program([MULTI, *pools, *networks(), training(pods)]).stack is expected


LACKING = [[], networks()[:1], networks()[1:], networks(kind="L3"), networks(vpc="other")]


@pytest.mark.parametrize("declared", [*LACKING, networks(UNKNOWN)])
def test_a_network_may_be_there_already(declared: list[Any]) -> None:
    """It may be in a cluster that another program made."""
    is_unknown = declared == networks(UNKNOWN)
    stack = [MULTI] if is_unknown else []
    found = judge_program([*stack, in_network(), *declared, training(2)])
    (verdict,) = found.workloads
    assert verdict.verdict is Verdict.UNDETERMINED
    assert any("networks vpc1" in each.message for each in verdict.reasons)
    assert any("additionalNodeNetworkConfigs" in each.remedy for each in verdict.reasons)
    assert "node-networks" not in {each.rule for each in found.findings}


@pytest.mark.parametrize(
    ("declared", "about", "message"),
    [
        (LACKING[0], "NodePool p", "no GKENetworkParamSet is for subnetwork gpu-1"),
        (LACKING[1], "NodePool p", "no Network is for subnetwork gpu-1"),
        (LACKING[2], "Network vpc1", "there is no GKENetworkParamSet of-vpc1"),
        (LACKING[4], "GKENetworkParamSet of-vpc1", "no node pool is in other/gpu-1"),
        (networks("gpu-2"), "GKENetworkParamSet of-vpc1", "node pools are in gpu/gpu-1"),
        (networks(vpc="default"), "GKENetworkParamSet of-vpc1", "cluster's own network"),
    ],
)
def test_the_missing_object_is_named(declared: list[Any], about: str, message: str) -> None:
    found = judge_program([MULTI, in_network(), *declared, training(2)])
    (verdict,) = found.workloads
    assert verdict.verdict is Verdict.CANNOT_FIT
    assert "1 networking.gke.io.networks/vpc1" in verdict.reasons[0].message
    of_networks = [each for each in found.findings if each.rule == "node-networks"]
    assert any(each.object == about and message in each.message for each in of_networks)


def test_a_subnetwork_has_one_set_of_parameters() -> None:
    parameters, network = networks()
    second = {**parameters[1], "metadata": {"name": "second"}}
    stack = [MULTI, in_network(), parameters, network, (parameters[0], second)]
    (found,) = [each for each in judge_program(stack).findings if each.rule == "node-networks"]
    assert "of-vpc1 has the subnetwork gpu-1 already" in found.message


def test_what_fits_together_is_not_reported() -> None:
    found = judge_program([MULTI, in_network(), *networks(), training(2)]).findings
    assert not {"node-networks", "pod-interfaces"} & {each.rule for each in found}


@pytest.mark.parametrize(
    ("annotation", "fault"),
    [
        ("[", "is not JSON"),
        ("{}", "is not a list"),
        ('["eth1"]', "is not a list"),
        ('[{"interfaceName": "eth1"}]', "without network"),
        ('[{"network": "vpc1"}]', "without interfaceName"),
        (INTERFACES.replace("eth0", "eth1"), "has interfaceName eth1 twice"),
        (INTERFACES.replace("default", "vpc1"), "has network vpc1 twice"),
        (INTERFACES, ""),
        (UNKNOWN, ""),
    ],
)
def test_an_annotation_is_a_list_of_interfaces(annotation: Any, fault: str) -> None:
    train = training(1)
    pods = train[1]["spec"]["template"]["metadata"]
    pods["annotations"] = {"networking.gke.io/interfaces": annotation}
    found = judge_program([MULTI, in_network(), *networks(), train])
    reasons = [each for each in found.findings if each.rule == "pod-interfaces"]
    assert [fault in each.message for each in reasons] == [True] * bool(fault)
    assert all(each.severity == "error" for each in reasons)


def test_pods_in_the_network_of_the_node_have_no_interfaces() -> None:
    stack = [MULTI, in_network(), *networks(), training(1, hostNetwork=True)]
    assert "pod-interfaces" in {each.rule for each in judge_program(stack).findings}


@pytest.mark.parametrize("others", [[], [in_network("q")]])
def test_pods_claim_the_interfaces_of_a_managed_pool(others: list[Any]) -> None:
    managed = pool(labels={"cloud.google.com/gke-networking-dra-driver": "true"})
    found = judge_program([MULTI, managed, *others, *networks(), training(1)])
    reasons = [each for each in found.findings if each.rule == "pod-interfaces"]
    assert ["pods of p claim them" in each.message for each in reasons] == [True] * (not others)


def test_pods_that_select_other_nodes_do_not_doubt() -> None:
    selected = training(2, nodeSelector={"cloud.google.com/gke-nodepool": "p"})
    other = in_network("q", subnetwork=UNKNOWN)
    assert judge_program([MULTI, in_network(), other, *networks(), selected]).stack is Verdict.FITS


@pytest.mark.parametrize(("pods", "expected"), [(2, Verdict.FITS), (3, Verdict.CANNOT_FIT)])
def test_a_node_has_what_it_advertises(pods: int, expected: Verdict) -> None:
    nodes = [node("a", **{"networking.gke.io.networks/vpc1.IP": "2"}), node("b")]
    assert judge_program([*map(resource, nodes), training(pods)]).stack is expected
