"""Networks between GPUs on a real control plane: the real scheduler places pods by what simulated nodes advertise."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.rehearsal.api import ApiError

from tests.support.cluster import Cluster
from tests.support.simulation import ONE_L4, Cloud, Object, clean, simulated_gke
from tests.support.waiting import is_served, until
from tests.workloads.building import container_of, gang, on_fabric

API = "/apis/networking.gke.io/v1"
GROUP = "networking.gke.io"
NETWORKS, PARAMETERS = f"{API}/networks", f"{API}/gkenetworkparamsets"
NETWORK, SUBNETWORK = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
MULTI = {"name": "ml", "location": "us-central1", "enableMultiNetworking": True}
TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}


def interfaces(*subnets: str) -> dict[str, Any]:
    configs = [{"network": f"vpc-{name}", "subnetwork": name} for name in subnets]
    return {"inputs": {"networkConfig": {"additionalNodeNetworkConfigs": configs}}}


MEGA = replace(
    ONE_L4,
    name="mega",
    machine_type="a3-megagpu-8g",
    max_nodes=2,
    zones=("us-central1-a",),
    gpu=PoolGpu("nvidia-h100-mega-80gb", 8),
    resource=interfaces("gpu-1", "gpu-2"),
)


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Cloud]:
    """A simulated GKE of this module's own: its cluster has more than one network."""
    with simulated_gke(cluster, MULTI) as cloud:
        until(lambda: is_served(cloud.api, PARAMETERS))
        yield cloud


@pytest.fixture
def cloud(running: Cloud) -> Iterator[Cloud]:
    yield running
    clean(running)
    for collection in (NETWORKS, PARAMETERS):
        for item in running.api.get(collection)["items"]:
            running.api.delete(f"{collection}/{item['metadata']['name']}")


def network(cloud: Cloud, name: str, subnet: str, vpc: str = "", mode: str = "NetDevice") -> None:
    spec = {"vpc": vpc or f"vpc-{subnet}", "vpcSubnet": subnet, "deviceMode": mode}
    cloud.api.create(PARAMETERS, parameter_set(name, spec))
    reference = {"group": GROUP, "kind": "GKENetworkParamSet", "name": name}
    cloud.api.create(NETWORKS, of_kind("Network", name, type="Device", parametersRef=reference))


def of_kind(kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def parameter_set(name: str, spec: dict[str, Any]) -> Object:
    return of_kind("GKENetworkParamSet", name, **spec)


def start(cloud: Cloud, name: str, *names: str, gpus: int = 8, **container: Any) -> None:
    """Start a pod with an interface in each network."""
    entries = [f'{{"interfaceName":"eth{i}","network":"{n}"}}' for i, n in enumerate(names, 1)]
    default = '{"interfaceName":"eth0","network":"default"}'
    annotations = {"networking.gke.io/interfaces": f"[{','.join([default, *entries])}]"}
    limits = {GPU_RESOURCE: str(gpus)}
    main = {"name": "main", "image": "busybox", "resources": {"limits": limits}} | container
    metadata = {"name": name, "labels": {"run": name}, "annotations": annotations}
    spec = {"containers": [main], "tolerations": [TOLERATION]}
    cloud.api.create("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})


def offered(cloud: Cloud) -> list[set[str]]:
    """The networks that each node of the pool advertises."""
    prefix = f"{GROUP}.networks/"
    found = [node["status"]["allocatable"] for node in cloud.nodes("mega")]
    return [{key.removeprefix(prefix) for key in each if key.startswith(prefix)} for each in found]


def refusal(cloud: Cloud, pod: str) -> str:
    """The scheduler's words about a pod."""
    conditions = cloud.pods(f"run={pod}")[0]["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["status"] == "False"), "")


def state(cloud: Cloud, collection: str, name: str) -> tuple[str, str]:
    conditions = cloud.api.get(f"{collection}/{name}").get("status", {}).get("conditions", [{}])
    return conditions[0].get("reason", ""), conditions[0].get("message", "")


def test_nodes_advertise_the_networks_that_are_ready(cloud: Cloud) -> None:
    cloud.store.save_pool(MEGA)
    until(lambda: offered(cloud) == [set()])
    network(cloud, "vpc1", "gpu-1")
    network(cloud, "vpc2", "gpu-2")
    until(lambda: offered(cloud) == [{"vpc1", "vpc1.IP", "vpc2", "vpc2.IP"}])
    assert state(cloud, NETWORKS, "vpc1") == ("GNPParamsReady", "")
    assert cloud.api.get(f"{PARAMETERS}/vpc1")["status"]["networkName"] == "vpc1"
    start(cloud, "one", "vpc1", "vpc2")
    until(lambda: len(cloud.running("one")) == 1)
    start(cloud, "two", "vpc1", "vpc2")
    until(lambda: len(cloud.running("two")) == 1)  # on a new node
    start(cloud, "three", "vpc1", "vpc2")
    until(lambda: "Insufficient networking.gke.io.networks/vpc1.IP" in refusal(cloud, "three"))
    cloud.api.delete(f"{NETWORKS}/vpc2")
    until(lambda: offered(cloud) == [{"vpc1", "vpc1.IP"}] * 2)


@pytest.mark.parametrize(
    ("subnet", "vpc", "reason", "message"),
    [
        ("gpu-9", "vpc-gpu-1", "SubnetNotFound", "subnet: gpu-9 not found in VPC: vpc-gpu-1"),
        ("gpu-1", "vpc-9", "VPCNotFound", "VPC: vpc-9 not found"),
        ("far", "vpc-far", "SubnetNotFound", "subnet: far not found in VPC: vpc-far"),
        ("gpu-1", "default", "DeviceModeCantUseDefaultVPC", "can't use the default VPC"),
    ],
)
def test_parameters_of_another_network_leave_pods_pending(
    cloud: Cloud, subnet: str, vpc: str, reason: str, message: str
) -> None:
    """A subnetwork of another region is not found, either."""
    for token, name, region in ((NETWORK, "vpc-far", ""), (SUBNETWORK, "far", "us-east1")):
        outputs = {"name": name, "region": region}
        cloud.store.save("recorded", name, {"type": token, "id": name, "outputs": outputs})
    cloud.store.save_pool(replace(MEGA, max_nodes=1))
    network(cloud, "wrong", subnet, vpc)
    start(cloud, "train", "wrong")
    until(lambda: state(cloud, NETWORKS, "wrong")[0] == "GNPParamsNotReady")
    found, words = state(cloud, PARAMETERS, "wrong")
    assert found == reason and message in words
    until(lambda: "Insufficient networking.gke.io.networks/wrong" in refusal(cloud, "train"))
    until(lambda: offered(cloud) == [set()])
    cloud.stop("train")
    for name in ("vpc-far", "far"):
        cloud.store.delete("recorded", name)


def test_a_network_without_parameters_is_never_ready(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(MEGA, max_nodes=1))
    reference = {"group": GROUP, "kind": "GKENetworkParamSet", "name": "forgotten"}
    cloud.api.create(NETWORKS, of_kind("Network", "vpc1", type="Device", parametersRef=reference))
    start(cloud, "train", "vpc1")
    until(lambda: "Insufficient networking.gke.io.networks/vpc1" in refusal(cloud, "train"))
    assert state(cloud, NETWORKS, "vpc1") == ("", "")


def test_a_subnetwork_belongs_to_the_first_parameters(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(MEGA, max_nodes=1))
    network(cloud, "a", "gpu-1")
    network(cloud, "b", "gpu-1")
    until(lambda: state(cloud, PARAMETERS, "b")[0] == "DeviceModeSubnetAlreadyInUse")
    assert state(cloud, PARAMETERS, "a")[0] == "GNPReady"
    until(lambda: offered(cloud) == [{"a", "a.IP"}])


def test_a_kind_refuses_what_gke_refuses(cloud: Cloud) -> None:
    with pytest.raises(ApiError, match="Unsupported value"):
        network(cloud, "a", "gpu-1", mode="Rdma")


ULTRA = replace(
    MEGA, max_nodes=1, machine_type="a3-ultragpu-8g", gpu=PoolGpu("nvidia-h200-141gb", 8)
)


def test_nodes_that_advertise_addresses_only_leave_pods_pending(cloud: Cloud) -> None:
    """What llm-d has seen with RDMA: GKE's webhook requests NAME too, unless a container requests none of it."""
    cloud.store.save_pool(ULTRA)
    network(cloud, "vpc1", "gpu-1")
    until(lambda: offered(cloud) == [{"vpc1.IP"}])
    start(cloud, "train", "vpc1")
    until(lambda: "Insufficient networking.gke.io.networks/vpc1." in refusal(cloud, "train"))
    cloud.stop("train")
    none = {GPU_RESOURCE: "8", "networking.gke.io.networks/vpc1": "0"}
    start(cloud, "without", "vpc1", resources={"limits": none, "requests": none})
    until(lambda: len(cloud.running("without")) == 1)


def test_pods_of_our_trainings_run_on_such_nodes(cloud: Cloud) -> None:
    """They request none of NAME, and the webhook lets that be."""
    cloud.store.save_pool(ULTRA)
    network(cloud, "vpc1", "gpu-1")
    until(lambda: offered(cloud) == [{"vpc1.IP"}])
    resources = container_of(gang(**on_fabric("rdma"))[-1])["resources"]
    named = {"networking.gke.io.networks/rdma-0": "networking.gke.io.networks/vpc1"}
    only: dict[str, dict[str, str]] = {}
    for field in ("requests", "limits"):
        own = {key: resources[field][key] for key in (GPU_RESOURCE, *named)}
        only[field] = {named.get(key, key): amount for key, amount in own.items()}
    start(cloud, "ours", "vpc1", resources=only)
    until(lambda: len(cloud.running("ours")) == 1)


@pytest.mark.parametrize(("switch", "names"), [(True, {"vpc1.IP"}), (False, {"vpc1", "vpc1.IP"})])
def test_the_switch_is_for_all_machines(cloud: Cloud, switch: bool, names: set[str]) -> None:
    cloud.store.put("networks_by_ip_only", switch)
    try:
        cloud.store.save_pool(replace(ULTRA if not switch else MEGA, max_nodes=1))
        network(cloud, "vpc1", "gpu-1")
        until(lambda: offered(cloud) == [names])
    finally:
        cloud.store.put("networks_by_ip_only", None)


A4 = replace(
    MEGA,
    name="a4",
    machine_type="a4-highgpu-8g",
    labels={"cloud.google.com/gke-networking-dra-driver": "true"},
    gpu=PoolGpu("nvidia-b200", 8),
    resource={},
)
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


def claim(cloud: Cloud, name: str, gpus: int = 1, **request: Any) -> None:
    """Start a pod that claims interfaces of its node."""
    exactly = {"deviceClassName": "mrdma.google.com"} | request
    spec = {"spec": {"devices": {"requests": [{"name": "rdma", "exactly": exactly}]}}}
    cloud.api.create(TEMPLATES, {"metadata": {"name": name}, "spec": spec})
    limits = {GPU_RESOURCE: str(gpus)}
    resources = {"limits": limits, "claims": [{"name": "rdma"}]}
    cloud.run(
        name,
        containers=[{"name": "main", "image": "busybox", "resources": resources}],
        tolerations=[TOLERATION],
        resourceClaims=[{"name": "rdma", "resourceClaimTemplateName": name}],
    )


@pytest.fixture
def claiming(cloud: Cloud) -> Iterator[Cloud]:
    yield cloud
    clean(cloud)
    for item in cloud.api.get(TEMPLATES)["items"]:
        cloud.api.delete(f"{TEMPLATES}/{item['metadata']['name']}")


def test_without_the_label_there_is_no_device_class(claiming: Cloud) -> None:
    """This test comes first: classes stay once they are there, as on GKE."""
    claiming.store.save_pool(replace(A4, max_nodes=1, labels={}))
    claim(claiming, "early", allocationMode="ExactCount", count=8)
    until(lambda: "mrdma.google.com" in refusal(claiming, "early"))
    assert "device class mrdma.google.com does not exist" in refusal(claiming, "early")


def test_pods_claim_the_interfaces_of_their_node(claiming: Cloud) -> None:
    claiming.store.save_pool(replace(A4, max_nodes=1))
    claim(claiming, "all", allocationMode="All")
    until(lambda: len(claiming.running("all")) == 1)
    claim(claiming, "second", allocationMode="All")
    claim(claiming, "one-more", allocationMode="ExactCount", count=1)
    until(lambda: "allocate all claims" in refusal(claiming, "second"))
    until(lambda: "allocate all claims" in refusal(claiming, "one-more"))
    claiming.stop("all")
    until(lambda: len(claiming.running("one-more") + claiming.running("second")) == 1)


def test_a_pool_grows_for_pods_that_claim_interfaces(claiming: Cloud) -> None:
    claiming.store.save_pool(replace(A4, min_nodes=0, initial_nodes=0))
    for name in ("first", "second"):
        claim(claiming, name, gpus=8, allocationMode="ExactCount", count=8)
    until(lambda: len(claiming.running("first") + claiming.running("second")) == 2)
    assert len(claiming.nodes("a4")) == 2
    claim(claiming, "nine", allocationMode="ExactCount", count=9)
    until(lambda: "has the devices that it claims" in str(claiming.store.get("unplaced", {})))
    assert len(claiming.nodes("a4")) == 2
