"""Networks between GPUs: what a pool creates for them, in which order, and what is refused."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from ml_foundations import GkeCluster, GpuNodePool, TeamNamespace
from ml_foundations.catalog.gpu_fabrics import GPU_FABRICS
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.component.spec import check
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.workloads.gpu_fabric import GpuFabric

from tests.gke import networks
from tests.gke.networks import A3_HIGH, A3_MEGA, A3_ULTRA, A4, POOLS
from tests.support.declaring import declared, inputs
from tests.support.golden import GOLDEN, holds, whole
from tests.support.refusing import refusal

COMMON: Any = {"project": "project", "location": "us-central1", "cluster_name": "ml"}
COMMON |= {"node_service_account": "s", "pool_name": "gpus"}
TWO_ZONES = {"zones": ["us-central1-a", "us-central1-b"]}
MULTI: Any = {"gpu_network": "multi-network"}
NETWORKS = [{"network": f"gpu-{index}", "subnetwork": f"gpu-{index}"} for index in range(9)]


def spec(arguments: Any) -> GpuNodePoolSpec:
    return check(GpuNodePoolSpec, "GpuNodePool gpus", COMMON | arguments)


def made(case: str) -> dict[str, Any]:
    return declared(lambda: networks.pool(networks.cluster(), case))


def waits_for(request: Any) -> set[str]:
    """The names of the resources that a request depends on."""
    return {urn.rpartition("::")[2] for urn in request.dependencies}


def described(request: Any) -> dict[str, Any]:
    """A child with its inputs, and the other children that it waits for."""
    own = sorted(name for name in waits_for(request) if name.startswith("gpus-"))
    return {"name": request.name, "type": request.type, "inputs": inputs(request), "after": own}


@pytest.mark.parametrize("case", POOLS)
def test_the_children_are_as_they_were(case: str) -> None:
    found = [described(request) for name, request in made(case).items() if name[:5] == "gpus-"]
    found.sort(key=lambda resource: resource["name"])
    holds(GOLDEN / "gke" / f"{case}.yaml", whole(found))


@pytest.mark.parametrize("case", POOLS)
def test_the_pool_is_in_the_networks_of_its_interfaces_in_their_order(case: str) -> None:
    requests = made(case)
    config = inputs(requests["gpus-pool"])["networkConfig"]
    if case == "a4-managed":
        assert config == {"acceleratorNetworkProfile": "auto"}
        return
    fabric = GPU_FABRICS[MACHINE_TYPES[POOLS[case]["machine_type"]].network]
    configs = config["additionalNodeNetworkConfigs"]
    assert len(configs) == fabric.interfaces
    for index, names in enumerate(configs, start=1):
        parameters = inputs(requests[f"gpus-eth{index}-parameters"])["spec"]
        network, mode = names["network"].removeprefix("ml-gpus-"), fabric.device_mode
        assert parameters["vpc"] == names["network"]
        assert parameters["vpcSubnet"] == names["subnetwork"]
        subnetwork = inputs(requests[f"gpus-eth{index}-subnetwork"])
        assert subnetwork["name"] == names["subnetwork"]
        assert subnetwork["network"] == f"link/gpus-{network}-network"
        is_extra = index <= fabric.extra_interfaces
        assert parameters["deviceMode"] == ("NetDevice" if is_extra else mode)


def test_an_rdma_network_has_the_profile_of_the_zone_and_no_firewall() -> None:
    requests = made("a3-ultra")
    profile = "projects/project/global/networkProfiles/us-central1-a-vpc-roce"
    assert inputs(requests["gpus-rdma-network"])["networkProfile"] == profile
    assert "networkProfile" not in inputs(requests["gpus-eth1-network"])
    firewalls = [request.name for request in requests.values() if "Firewall" in request.type]
    assert firewalls == ["gpus-eth1-firewall"]


def test_the_pool_comes_after_its_networks_and_workloads_come_after_all() -> None:
    def program() -> None:
        cluster = networks.cluster()
        networks.pool(cluster, "a3-mega")
        TeamNamespace("team", cluster=cluster, gpus=8, cpu="8", memory="8Gi", storage="1Gi")

    requests = declared(program)
    after = waits_for(requests["gpus-pool"])
    assert {"gpus-eth8", "gpus-eth8-subnetwork", "gpus-eth8-firewall", "system-pool"} <= after
    own, others = requests["gpus-eth1"].provider, requests["team-namespace"].provider
    assert "::ml-kubernetes-node-pools::" in own
    assert "::ml-kubernetes::" in others
    awaited = waits_for(requests["ml-kubernetes"])
    assert {"gpus-pool", "gpus-eth8", "gpus-nccl-plugin", "system-pool"} <= awaited
    awaited = waits_for(requests["ml-kubernetes-node-pools"])
    assert not {name for name in awaited if name.startswith(("gpus", "system"))}


def test_new_networks_need_new_nodes() -> None:
    requests = made("a3-mega")
    from_networks = requests["gpus-pool"].propertyDependencies["networkConfig"].urns
    assert {urn.rpartition("::")[2] for urn in from_networks} == {
        f"gpus-eth{index}-{kind}" for index in range(1, 9) for kind in ("network", "subnetwork")
    }


def test_a_pool_without_a_network_creates_nothing_else() -> None:
    def program() -> None:
        GpuNodePool("gpus", A3_MEGA | {"cluster": networks.cluster()})

    requests = declared(program)
    assert [name for name in requests if name.startswith("gpus-")] == ["gpus-pool"]
    assert "ml-kubernetes-node-pools" not in requests


@pytest.mark.parametrize("case", POOLS)
def test_workloads_accept_what_the_pool_publishes(case: str) -> None:
    found: list[Any] = []

    def program() -> None:
        found.append(networks.pool(networks.cluster(), case).gpu_fabric.value)

    requests = declared(program)
    fabric = GpuFabric.model_validate(found[0])
    assert fabric.gpus_per_node == 8
    objects = [request for request in requests.values() if request.type.endswith(":Network")]
    names = {
        inputs(each)["metadata"]["name"] for each in objects if each.type.startswith("kubernetes:")
    }
    assert {*fabric.networks} == names
    assert fabric.networks == [f"gpus-eth{index}" for index in range(1, len(names) + 1)]


def test_a_pool_without_a_network_publishes_none() -> None:
    assert spec(A3_MEGA).gpu_fabric is None


@pytest.mark.parametrize("case", POOLS)
def test_the_daemons_run_on_the_nodes_of_the_pool_alone(case: str) -> None:
    requests = made(case)
    kind = GPU_FABRICS[MACHINE_TYPES[POOLS[case]["machine_type"]].network].kind
    daemons = [inputs(request) for request in requests.values() if "DaemonSet" in request.type]
    assert len(daemons) == (1 if kind == "rdma" else 2)
    for daemon in daemons:
        pod = daemon["spec"]["template"]["spec"]
        assert pod["nodeSelector"]["cloud.google.com/gke-nodepool"] == "gpus"
        accelerator = MACHINE_TYPES[POOLS[case]["machine_type"]].gpu
        assert pod["nodeSelector"]["cloud.google.com/gke-accelerator"] == accelerator
        assert daemon["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
        assert "$$" not in str(pod), "no word is left to fill in"


def test_two_pools_of_a_cluster_have_separate_objects() -> None:
    def program() -> None:
        cluster = networks.cluster()
        GpuNodePool("one", A3_MEGA | MULTI | {"cluster": cluster})
        GpuNodePool("two", A3_MEGA | MULTI | {"cluster": cluster})

    def names(prefix: str) -> set[Any]:
        found = [inputs(requests[name]) for name in requests if name.startswith(f"{prefix}-")]
        kinds = [each for each in found if "kind" in each or "name" in each]
        return {(each.get("kind"), each.get("name") or each["metadata"]["name"]) for each in kinds}

    requests = declared(program)
    assert names("one")
    assert not names("one") & names("two")


def refused(base: Any, field: str, fix: str, **changes: Any) -> tuple[Any, Any, str, str]:
    """A row: what is right, what makes it wrong, and the argument that is refused with a fix."""
    return base, changes, field, fix


REFUSED = {
    "a machine without such a network": refused(
        {"machine_type": "a2-highgpu-8g", "max_nodes": 4},
        "gpu_network",
        "a3-highgpu-8g, a3-edgegpu-8g, a3-megagpu-8g, a3-ultragpu-8g or a4-highgpu-8g",
        gpu_network="auto",
    ),
    "a range for the networks of another pool": refused(
        A3_MEGA | MULTI | {"network_pool": "reserved"},
        "gpu_network_cidr",
        "reserved creates these",
        gpu_network_cidr="172.24.0.0/14",
    ),
    "networks of another pool, but none": refused(
        A3_MEGA, "network_pool", "set gpu_network", network_pool="reserved"
    ),
    "claimed interfaces on A3 Mega": refused(
        A3_MEGA, "gpu_network", "TCPXO", gpu_network="managed"
    ),
    "claimed interfaces on A3 High": refused(A3_HIGH, "gpu_network", "TCPX", gpu_network="managed"),
    "RDMA in two zones": refused(A3_ULTRA, "zones", "are 2 zones", **MULTI, **TWO_ZONES),
    "RDMA in any zone": refused(A4, "zones", "are not set", gpu_network="auto", zones=None),
    "Ubuntu": refused(A3_MEGA, "image", "leave it out", **MULTI, image="ubuntu"),
    "networks of both kinds": refused(
        A3_MEGA, "additional_networks", "leave one", **MULTI, additional_networks=NETWORKS[:8]
    ),
    "a ninth network of A3 Mega": refused(
        A3_MEGA, "additional_networks", "leave out 1", additional_networks=NETWORKS
    ),
    "a cluster without multi-networking": refused(
        A3_MEGA, "gpu_network", "multi_networking to true", **MULTI, multi_networking=False
    ),
    "additional networks without multi-networking": refused(
        A3_MEGA,
        "additional_networks",
        "multi_networking to true",
        additional_networks=NETWORKS[:8],
        multi_networking=False,
    ),
    "addresses without networks": refused(
        A3_MEGA, "gpu_network_cidr", "set gpu_network", gpu_network_cidr="172.24.0.0/14"
    ),
    "addresses of GKE's own networks": refused(
        A4,
        "gpu_network_cidr",
        "leave it out",
        gpu_network="managed",
        gpu_network_cidr="172.24.0.0/14",
    ),
    "too small a range": refused(
        A3_MEGA, "gpu_network_cidr", "/8 to a /25", **MULTI, gpu_network_cidr="192.168.0.0/26"
    ),
    "more nodes than addresses": refused(
        A3_MEGA,
        "gpu_network_cidr",
        "up to 29 nodes",
        **MULTI,
        gpu_network_cidr="192.168.0.0/23",
        max_nodes=29,
    ),
    "names that are too long": refused(
        A3_MEGA, "pool_name", "64 characters", **MULTI, cluster_name="c" * 19, pool_name="p" * 39
    ),
}
ALLOWED: dict[str, tuple[Any, Any]] = {
    "TCPXO in two zones": (A3_MEGA, MULTI | TWO_ZONES),
    "eight networks of A3 Mega": (A3_MEGA, {"additional_networks": NETWORKS[:8]}),
    "more networks of A3 High": (A3_HIGH, {"additional_networks": NETWORKS[:5]}),
    "networks of another pool": (A3_MEGA, MULTI | {"network_pool": "reserved"}),
    "the smallest range": (A3_MEGA, MULTI | {"gpu_network_cidr": "192.168.0.0/25", "max_nodes": 4}),
    "as many nodes as addresses": (
        A3_MEGA,
        MULTI | {"gpu_network_cidr": "192.168.0.0/23", "max_nodes": 28},
    ),
    "the longest names": (A3_MEGA, MULTI | {"cluster_name": "c" * 19, "pool_name": "p" * 38}),
    "GKE's networks without multi-networking": (
        A4,
        {"gpu_network": "managed", "multi_networking": False},
    ),
    "a cluster with multi-networking": (A3_MEGA, MULTI | {"multi_networking": True}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_a_fix(case: str) -> None:
    base, changes, field, fix = REFUSED[case]
    spec(base)
    lines = [line.strip() for line in refusal(spec, base | changes).splitlines()]
    assert [line for line in lines if line.startswith(f"{field}: ") and fix in line], lines
    assert len(lines) == 2, lines


@pytest.mark.parametrize("case", ALLOWED)
def test_what_works_is_allowed(case: str) -> None:
    base, changes = ALLOWED[case]
    spec(base | changes)


def test_the_cluster_decides_whether_there_may_be_networks() -> None:
    def program() -> None:
        networks.pool(networks.cluster(multi_networking=False), "a3-mega")

    with pytest.raises(pulumi.RunError, match="gpu_network: needs a cluster with multi-networking"):
        declared(program)


def test_without_a_cluster_a_provider_is_needed() -> None:
    def program(**options: Any) -> None:
        GpuNodePool("gpus", COMMON | A4 | MULTI, pulumi.ResourceOptions(**options))

    with pytest.raises(pulumi.RunError, match="to the option providers"):
        declared(program)

    def with_provider() -> None:
        program(providers={"kubernetes": k8s.Provider("other", kubeconfig="{}")})

    requests = declared(with_provider)
    assert "::other::" in requests["gpus-eth1"].provider
    assert requests["gpus-pool"].provider == ""


def test_a_checked_spec_needs_a_provider_too() -> None:
    def program() -> None:
        checked: Any = spec(A4 | MULTI)
        GpuNodePool("gpus", checked)

    with pytest.raises(pulumi.RunError, match="to the option providers"):
        declared(program)


def test_the_cluster_publishes_whether_it_allows_networks() -> None:
    found: list[bool] = []

    def program() -> None:
        cluster = GkeCluster("ml", project="project", location="us-central1")
        found.append(cluster.multi_networking.value)

    declared(program)
    assert found == [False]


def test_a_second_pool_may_use_the_same_networks() -> None:
    fabrics: list[Any] = []

    def program() -> None:
        cluster = networks.cluster()
        first = networks.pool(cluster, "a3-mega")
        spot: Any = A3_MEGA | {"spot": True}
        second = GpuNodePool("spot", spot | {"cluster": cluster, "gpu_network": first})
        third = GpuNodePool("third", spot | {"cluster": cluster, "gpu_network": second})
        fabrics.extend(pool.gpu_fabric.value for pool in (first, second, third))

    requests = declared(program)
    assert fabrics[0] == fabrics[1] == fabrics[2]
    configs = [inputs(requests[f"{name}-pool"])["networkConfig"] for name in ("gpus", "spot")]
    assert configs[0] == configs[1]
    own = {name for name in requests if name.startswith("spot-")}
    assert own == {"spot-nccl-plugin", "spot-device-injector", "spot-pool"}
    selector = inputs(requests["spot-nccl-plugin"])["spec"]["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/gke-nodepool"] == "spot"
    # The networks of the first pool exist before the second pool, and are deleted after it.
    waits = waits_for(requests["spot-pool"])
    assert {"gpus-eth1-subnetwork", "gpus-eth8", "spot-nccl-plugin"} <= waits
