"""The networks between GPUs in a stack file: what follows from the pools, and what is refused."""

import copy
from typing import Any

import pytest

from tests.support import recording
from tests.support.stack_files import errors, settings

GANG: Any = {
    **{"image": "i", "command": ["torchrun", "a"], "cpu": "100", "memory": "1000Gi"},
    **{"gpu": "H100-MEGA", "gpus": 8, "nodes": 4},
}
MEGA: Any = {"machineType": "a3-megagpu-8g", "maxNodes": 4, "zones": ["us-central1-a"]}
BASE: Any = {
    "project": "my-project",
    "cluster": {"name": "ml", "location": "us-central1"},
    "nodePools": {
        "system": {"machineType": "n2-standard-8", "minNodes": 1, "maxNodes": 2},
        "mega": MEGA | {"gpuNetwork": "auto"},
    },
    "teams": {
        "research": {
            "quota": {"gpus": 32, "cpu": "800", "memory": "8Ti", "storage": "1Ti"},
            "distributedTrainings": {"train": GANG},
        }
    },
}
NAMES = [f"mega-eth{index}" for index in range(1, 9)]
PATH = "ml-foundations:teams.research.distributedTrainings.train.nodeSelector"


def stack(pools: Any = None, cluster: Any = None, **training: Any) -> dict[str, Any]:
    """The stack file with more pools, keys of the cluster, and keys of the training."""
    given = copy.deepcopy(BASE)
    given["nodePools"] |= pools or {}
    given["cluster"] |= cluster or {}
    given["teams"]["research"]["distributedTrainings"]["train"] |= training
    return given


def fabric(given: dict[str, Any]) -> Any:
    return settings.parse(given).teams["research"].distributed_trainings["train"].gpu_fabric


def test_a_training_uses_the_network_of_the_only_pool_that_can_run_it() -> None:
    found = fabric(stack())
    assert (found.kind, found.networks, found.gpus_per_node) == ("tcpxo", NAMES, 8)
    assert fabric(stack({"l4": {"machineType": "g2-standard-8", "maxNodes": 1}})) == found
    assert fabric(stack(gpu=None)) == found
    assert fabric(stack(gpu=["H100-MEGA", "A100"])) == found
    assert fabric(stack(gpu="L4", gpus=1)) is None
    assert fabric(stack(nodeSelector={"team": "any"})) == found
    assert fabric(stack(nodeSelector={"node-type": "inference"})) is None


def test_a_training_keeps_its_own_network() -> None:
    names = [f"own-{index}" for index in range(8)]
    own = {"kind": "tcpxo", "networks": names, "gpusPerNode": 8}
    assert fabric(stack(gpuFabric=own)).networks == names


def test_a_pool_of_another_network_must_be_selected() -> None:
    others: Any = {"other": MEGA}
    assert "mega and other, whose networks between GPUs differ" in errors(stack(others))
    assert PATH in errors(stack(others))
    select = {"cloud.google.com/gke-nodepool": "mega"}
    assert fabric(stack(others, nodeSelector=select)).networks == NAMES
    assert fabric(stack(others, nodeSelector={"cloud.google.com/gke-nodepool": "other"})) is None


def test_pools_with_the_same_networks_need_not_be_chosen() -> None:
    spot = MEGA | {"gpuNetwork": "auto", "networkPool": "mega", "spot": True}
    assert fabric(stack({"other": spot})).networks == NAMES


@pytest.mark.parametrize("training", [{"nodes": 1}, {"gpus": 4}])
def test_pods_that_use_no_network_need_not_choose(training: Any) -> None:
    assert fabric(stack({"other": MEGA}, **training)) is None


def test_pools_without_networks_need_not_be_chosen() -> None:
    assert fabric(stack({"mega": MEGA, "other": MEGA})) is None


ULTRA: Any = {"machineType": "a3-ultragpu-8g", "maxNodes": 4, "spot": True}
A4: Any = {"machineType": "a4-highgpu-8g", "maxNodes": 4, "spot": True}


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [
        (MEGA | {"gpuNetwork": "multi-network"}, True),
        (MEGA, False),
        (ULTRA | {"gpuNetwork": "auto", "zones": ["us-central1-a"]}, False),
        (A4 | {"gpuNetwork": "multi-network", "zones": ["us-central1-a"]}, True),
    ],
)
def test_the_cluster_allows_networks_if_a_pool_creates_some(pool: Any, wanted: bool) -> None:
    found: Any = settings.parse(stack({"mega": pool}, gpu=None)).cluster
    assert found.multi_networking == wanted


def test_a_cluster_that_allows_none_is_refused() -> None:
    found = errors(stack(cluster={"multiNetworking": False}))
    wanted = "cluster.multiNetworking: is false, but nodePools.mega.gpuNetwork needs it"
    assert wanted in found
    assert found.count("multiNetworking") == 1


def test_the_pool_itself_has_no_such_key() -> None:
    found = errors(stack({"mega": MEGA | {"multiNetworking": True}}))
    assert "nodePools.mega.multiNetworking: is True, but follows from its place" in found


def test_a_pool_that_exists_creates_no_networks() -> None:
    cluster: Any = {"name": "ml", "kubeconfig": "~/.kube/ml"}
    pools: Any = {"mega": MEGA | {"gpuNetwork": "auto"}}
    given = {key: value for key, value in stack(pools).items() if key != "cluster"}
    assert "nodePools.mega.gpuNetwork: creates networks" in errors(given | {"cluster": cluster})
    given["nodePools"]["mega"] = ULTRA | {"gpuNetwork": "auto", "zones": ["us-central1-a"]}
    assert settings.parse(given | {"cluster": cluster}).gpu_pools["mega"].is_network_managed


SHARED: Any = MEGA | {"gpuNetwork": "multi-network", "networkPool": "mega"}
IN_A: Any = A4 | {"gpuNetwork": "multi-network", "zones": ["us-central1-a"]}
HIGH: Any = {"machineType": "a3-highgpu-8g", "maxNodes": 2, "gpuNetwork": "auto"}


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ({"spot": SHARED | {"networkPool": "megs"}}, "Did you mean mega?"),
        ({"spot": SHARED, "mega": MEGA}, 'no pool with its own gpuNetwork "mega"'),
        ({"spot": SHARED | {"networkPool": "spot"}}, 'no pool with its own gpuNetwork "spot"'),
        ({"spot": SHARED | {"networkPool": "high"}, "high": HIGH}, "are for a3-highgpu-8g"),
        (
            {"a": IN_A, "b": IN_A | {"zones": ["us-central1-b"], "networkPool": "a"}},
            "in another zone",
        ),
    ],
)
def test_the_networks_of_another_pool_must_suit_the_nodes(pools: Any, reason: str) -> None:
    found = errors(stack(pools, gpu="L4", gpus=1))
    assert ".networkPool: " in found
    assert reason in found
    assert found.startswith("1 invalid value"), found


def test_a_pool_comes_after_that_whose_networks_it_uses() -> None:
    given = stack({"a-spot": SHARED})
    given["teams"]["research"]["podSecurity"] = "privileged"
    config = {f"ml-foundations:{key}": value for key, value in given.items() if key != "project"}
    resources = recording.changed_stack("dev", {"gcp:project": "my-project"} | config)
    (pool,) = [each for each in resources if each["name"] == "ml-a-spot-pool"]
    assert "ml-mega" in pool["after"]
