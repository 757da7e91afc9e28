"""Rules that GKE states for a whole cluster are judged over all of its pools, not for each."""

from typing import Any

from ml_foundations import GkeCluster, GpuNodePool
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.program import CLUSTER, NODE_POOL, Resource
from ml_foundations.planning.rules.pools import interfaces

from tests.support.declaring import declared, inputs
from tests.support.stacks import stack_of

V2 = {"datapathProvider": "ADVANCED_DATAPATH"}
NAMED = {"additionalNodeNetworkConfigs": [{"network": "gpu", "subnetwork": "gpu-1"}]}


def of(name: str, **more: Any) -> Resource:
    return CLUSTER, {"name": name, **V2} | more


def pool(name: str, of_cluster: Any = "one", **config: Any) -> Resource:
    return NODE_POOL, {"name": name, "cluster": of_cluster, "networkConfig": config}


CLAIMS = pool("a4", acceleratorNetworkProfile="auto")
LABEL = {"cloud.google.com/gke-networking-dra-driver": "true"}
LABELLED = (NODE_POOL, {"name": "own", "cluster": "one", "nodeConfig": {"labels": LABEL}})


def found(resources: list[Resource]) -> list[tuple[str, str]]:
    return [(each.rule, each.object) for each in interfaces(stack_of([], *resources))]


def test_a_rule_is_about_the_pools_of_one_cluster() -> None:
    apart = [of("one"), of("two"), CLAIMS, pool("mega", "two", **NAMED)]
    assert found([of("one"), CLAIMS, pool("mega", **NAMED)]) == [
        ("dranet-or-networks", "NodePool a4")
    ]
    assert found(apart) == []


def test_the_other_pool_is_named_whatever_starts_the_driver() -> None:
    mega = pool("mega", **NAMED)
    (finding,) = interfaces(stack_of([], of("one"), LABELLED, mega))
    assert "those of pool mega name them" in finding.message
    assert found([LABELLED, mega]) == [("dranet-or-networks", "NodePool own")]
    unknown = pool("a4", UNKNOWN, acceleratorNetworkProfile="auto")
    assert found([unknown, mega]) == []
    assert found([of("one"), of("two"), unknown, mega]) == []
    assert found([of("one"), unknown, mega]) == [("dranet-or-networks", "NodePool a4")]


def test_auto_mixes_both_in_one_cluster_and_is_warned_about() -> None:
    """gpu_network: auto of A3 Mega names interfaces, and of A4 claims them."""

    def program() -> None:
        cluster = GkeCluster(
            "ml", project="my-project", location="us-central1", multi_networking=True
        )
        for name, machine in (("mega", "a3-megagpu-8g"), ("b200", "a4-highgpu-8g")):
            pool: Any = {"cluster": cluster, "machine_type": machine, "max_nodes": 2, "spot": True}
            GpuNodePool(name, pool | {"zones": ["us-central1-b"], "gpu_network": "auto"})

    pools = [each for each in declared(program).values() if each.type == NODE_POOL]
    assert len(pools) == 2
    resources = [(NODE_POOL, inputs(each)) for each in pools]
    assert found([of("one"), *resources]) == [("dranet-or-networks", "NodePool b200")]
