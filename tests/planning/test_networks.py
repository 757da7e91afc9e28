"""Pods with interfaces in networks that their nodes have besides the cluster's."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict

from tests.factories import container, job, node, template
from tests.planning.test_program import cluster, judge_program, kubernetes, pool

INTERFACES = '[{"interfaceName": "eth0", "network": "default"}, {"interfaceName": "eth1", "network": "vpc1"}]'
OF_POOL = {"network": "projects/p/global/networks/gpu", "subnetwork": "gpu-1"}
URL = "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1/subnetworks/gpu-1"


def training(pods: int, cpu: int = 1, **spec: Any) -> Any:
    train = template(containers=[container(cpu=cpu)], **spec)
    train["metadata"]["annotations"] = {"networking.gke.io/interfaces": INTERFACES}
    return kubernetes(job("train", pods, train, gang=True))


def networks(subnetwork: Any = "gpu-1", kind: str = "Device", vpc: str = "gpu") -> list[Any]:
    parameters = {"group": "networking.gke.io", "kind": "GKENetworkParamSet", "name": "of-vpc1"}
    specs = {
        "GKENetworkParamSet": (
            "of-vpc1",
            {"vpc": vpc, "vpcSubnet": subnetwork, "deviceMode": "NetDevice"},
        ),
        "Network": ("vpc1", {"type": kind, "parametersRef": parameters}),
    }
    return [
        kubernetes(
            {
                "apiVersion": "networking.gke.io/v1",
                "kind": kind,
                "metadata": {"name": name},
                "spec": spec,
            }
        )
        for kind, (name, spec) in specs.items()
    ]


def in_network(name: str = "p", nodes: int = 2, **network: Any) -> Any:
    type_, inputs = pool(nodes=nodes)
    config = {"additionalNodeNetworkConfigs": [OF_POOL | network]}
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
        (2, [pool()], Verdict.UNDETERMINED),
        (2, [in_network(subnetwork="gpu-2")], Verdict.UNDETERMINED),
        (2, [in_network(subnetwork=UNKNOWN)], Verdict.UNDETERMINED),
        (3, [in_network(), in_network("q", subnetwork=UNKNOWN)], Verdict.UNDETERMINED),
    ],
)
def test_pods_need_nodes_in_their_networks(pods: int, pools: list[Any], expected: Verdict) -> None:
    assert judge_program([MULTI, *pools, *networks(), training(pods)]).stack is expected


@pytest.mark.parametrize(
    "declared",
    [
        [],
        networks()[:1],
        networks()[1:],
        networks(UNKNOWN),
        networks(kind="L3"),
        networks(vpc="other"),
    ],
)
def test_a_network_that_is_not_declared_may_be_there(declared: list[Any]) -> None:
    (verdict,) = judge_program([MULTI, in_network(), *declared, training(2)]).workloads
    assert verdict.verdict is Verdict.UNDETERMINED
    assert ["networks vpc1" in each.message for each in verdict.reasons] == [True]
    assert "networkConfig.additionalNodeNetworkConfigs" in verdict.reasons[0].remedy


def test_pods_that_select_other_nodes_do_not_doubt() -> None:
    selected = training(2, nodeSelector={"cloud.google.com/gke-nodepool": "p"})
    other = in_network("q", subnetwork=UNKNOWN)
    assert judge_program([MULTI, in_network(), other, *networks(), selected]).stack is Verdict.FITS


def test_a_node_has_what_it_advertises() -> None:
    nodes = [node("a"), node("b")]
    nodes[0]["status"]["allocatable"]["networking.gke.io.networks/vpc1.IP"] = "2"
    for pods, expected in ((2, Verdict.FITS), (3, Verdict.CANNOT_FIT)):
        found = judge_program([*map(kubernetes, nodes), training(pods)])
        assert found.stack is expected
