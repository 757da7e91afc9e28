"""Dynamic resource allocation on a real control plane: the real scheduler allocates the devices of simulated nodes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.catalog.versions import DRA_DRIVER
from ml_foundations.component.spec import check
from ml_foundations.gpu.device_classes import DeviceClassesSpec
from ml_foundations.kubernetes.labels import DRA_POOL_LABELS, GPU_RESOURCE
from ml_foundations.rehearsal.api import ApiError
from ml_foundations.rehearsal.cloud import dra
from ml_foundations.rehearsal.cloud.store import Pool

from tests.support.controlled import cluster_of
from tests.support.parts import manifest_of
from tests.support.simulation import ONE_L4, Cloud, Object, clean
from tests.support.waiting import until

TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
A100 = replace(
    ONE_L4,
    name="claimed",
    machine_type="a2-highgpu-2g",
    zones=("us-central1-a",),
    labels=DRA_POOL_LABELS,
    gpu=PoolGpu("nvidia-tesla-a100", 2, "INSTALLATION_DISABLED"),
)
L4 = replace(
    A100,
    name="claimed-l4",
    machine_type="g2-standard-8",
    gpu=PoolGpu("nvidia-l4", 1, "INSTALLATION_DISABLED"),
)
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


@pytest.fixture
def cloud(plain_gke: Cloud) -> Iterator[Cloud]:
    install(plain_gke)
    yield plain_gke
    clean(plain_gke)
    for template in plain_gke.api.get(TEMPLATES)["items"]:
        plain_gke.api.delete(f"{TEMPLATES}/{template['metadata']['name']}")
    until(lambda: not slices(plain_gke))


def install(cloud: Cloud) -> None:
    """Record the release of the driver's chart."""
    cloud.record_release("dra", DRA_DRIVER.name)


def slices(cloud: Cloud) -> list[Object]:
    return cloud.api.get(dra.SLICES)["items"]


def device_class(selection: dict[str, Any]) -> dict[str, Any]:
    spec = check(DeviceClassesSpec, "devices", {"classes": {"ours": selection}})
    return manifest_of(spec, "DeviceClass")


def claim_template(name: str, *alternatives: dict[str, Any], same_gpu: bool = False) -> Object:
    """The template of a claim, as our component writes it."""
    given = {"namespace": "default", "alternatives": list(alternatives), "same_gpu": same_gpu}
    spec = check(DeviceClassesSpec, "devices", {"claim_templates": {name: given}})
    return manifest_of(spec, "ResourceClaimTemplate")


def claim(cloud: Cloud, pod: str, *alternatives: dict[str, Any], same_gpu: bool = False) -> None:
    """A pod, and the template of its claim."""
    cloud.api.create(TEMPLATES, claim_template(pod, *alternatives, same_gpu=same_gpu))
    cloud.run(
        pod,
        tolerations=[TOLERATION],
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": pod}],
        containers=[
            {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}
        ],
    )


def allocated(cloud: Cloud) -> list[str]:
    """The devices that claims hold."""
    claims = cloud.api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")["items"]
    results = [
        (item.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", [])
        for item in claims
    ]
    return sorted(result["device"] for found in results for result in found)


def waits(cloud: Cloud, pod: str) -> bool:
    found = cloud.pods(f"run={pod}")[0]["status"].get("conditions", [])
    return any("allocate all claims" in condition.get("message", "") for condition in found)


def test_the_scheduler_allocates_all_gpus_of_a_model(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(A100, max_nodes=1))
    until(lambda: len(slices(cloud)) == 1)
    for name in ("one", "two", "three"):
        claim(cloud, name, {"gpu": "A100"})
    until(lambda: sum(len(cloud.running(name)) for name in ("one", "two", "three")) == 2)
    assert allocated(cloud) == ["gpu-0", "gpu-1"]
    late = next(name for name in ("one", "two", "three") if not cloud.running(name))
    until(lambda: waits(cloud, late))
    cloud.stop(next(name for name in ("one", "two", "three") if name != late))
    until(lambda: len(cloud.running(late)) == 1)


def test_a_claim_of_another_model_stays_pending(cloud: Cloud) -> None:
    cloud.store.save_pool(A100)
    until(lambda: len(slices(cloud)) == 1)
    claim(cloud, "other-model", {"gpu": "L4"})
    claim(cloud, "too-large", {"memory": "80Gi"})
    until(lambda: waits(cloud, "other-model") and waits(cloud, "too-large"))
    time.sleep(2)
    assert not allocated(cloud)
    assert len(cloud.nodes("claimed")) == 1


def test_forty_gibibytes_are_enough_where_forty_are_asked_for(cloud: Cloud) -> None:
    cloud.store.save_pool(A100)
    claim(cloud, "exact", {"memory": "40Gi"})
    until(lambda: len(cloud.running("exact")) == 1)


def test_the_first_alternative_that_can_be_had_is_taken(cloud: Cloud) -> None:
    cloud.store.save_pool(A100)
    claim(cloud, "either", {"gpu": "H100", "count": 8}, {"gpu": "A100", "count": 2})
    until(lambda: len(cloud.running("either")) == 1)
    assert allocated(cloud) == ["gpu-0", "gpu-1"]


def test_mig_devices_are_claimed_by_profile_and_from_one_gpu(cloud: Cloud) -> None:
    partitioned = PoolGpu("nvidia-tesla-a100", 2, "INSTALLATION_DISABLED", partition_size="3g.20gb")
    cloud.store.save_pool(replace(A100, gpu=partitioned))
    claim(cloud, "pair", {"mig_profile": "3g.20gb", "count": 2}, same_gpu=True)
    until(lambda: len(cloud.running("pair")) == 1)
    found = allocated(cloud)
    assert len(found) == 2
    assert len({name.partition("-mig-")[0] for name in found}) == 1
    claim(cloud, "three", {"mig_profile": "3g.20gb", "count": 3}, same_gpu=True)
    until(lambda: waits(cloud, "three"))


def test_a_pool_of_the_claimed_model_grows_from_zero(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, min_nodes=0, initial_nodes=0))
    cloud.store.save_pool(replace(A100, min_nodes=0, initial_nodes=0))
    claim(cloud, "first", {"gpu": "A100", "count": 2})
    claim(cloud, "second", {"gpu": "A100", "count": 2})
    until(lambda: len(cloud.running("first") + cloud.running("second")) == 2)
    assert len(cloud.nodes("claimed")) == 2
    assert not cloud.nodes("claimed-l4")


def test_no_device_plugin_advertises_what_is_claimed(cloud: Cloud) -> None:
    from_file = {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]}
    cloud.record_release("gpu-operator", "gpu-operator", toolkit=from_file)
    cloud.store.save_pool(replace(A100, image_type="UBUNTU_CONTAINERD"))
    until(lambda: len(slices(cloud)) == 1)
    time.sleep(1)
    assert cloud.gpus("claimed") == [0]
    cloud.record_release("gpu-operator", "gpu-operator", toolkit={})
    until(lambda: not slices(cloud), "the driver for DRA does not run on nodes without networking")


def test_devices_go_with_the_driver_and_with_their_node(cloud: Cloud) -> None:
    cloud.store.save_pool(A100)
    until(lambda: len(slices(cloud)) == 1)
    (cloud.rehearsal.releases_dir / "dra.dra.json").unlink()
    until(lambda: not slices(cloud))
    install(cloud)
    until(lambda: len(slices(cloud)) == 1)
    cloud.store.delete("node_pools", "claimed")
    until(lambda: not slices(cloud))


def test_a_pool_without_the_label_has_no_devices(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(A100, labels={}))
    until(lambda: len(cloud.nodes("claimed")) == 1)
    time.sleep(1)
    assert not slices(cloud)


@pytest.mark.parametrize(
    "selection",
    [
        {"gpu": "H100", "memory": "80Gi"},
        {"mig_profile": "1g.10gb"},
        {"expressions": ["device.driver != 'x'"]},
    ],
    ids=str,
)
def test_the_api_server_takes_our_classes(cloud: Cloud, selection: dict[str, Any]) -> None:
    manifest = device_class(selection)
    path = f"{dra._CLASSES}?dryRun=All&fieldValidation=Strict"
    assert cloud.api.create(path, manifest)["metadata"]["name"] == "ours"


def test_the_api_server_refuses_a_condition_that_is_no_cel(cloud: Cloud) -> None:
    manifest = device_class({"expressions": ["device.nothing =="]})
    with pytest.raises(ApiError, match="expression"):
        cloud.api.create(f"{dra._CLASSES}?dryRun=All", manifest)


def growth(
    *pools: Pool, gpu: str = "A100", installed: bool = True, running: int = 0, idle: int = 0
) -> str:
    """Return how pools grow for a pod that claims a GPU; the first has nodes that run a pod each, and idle ones."""
    name = {"name": "p", "namespace": "default"}
    claims = [{**claim_template("p", {"gpu": gpu})["spec"], "metadata": name}]
    nodes = [{"metadata": {"name": f"n{index}"}} for index in range(running + idle)]
    busy = [
        {"metadata": {"name": "r"}, "spec": {"nodeName": node["metadata"]["name"]}}
        for node in nodes[:running]
    ]
    named = [{"name": "gpu", "resourceClaimName": "p"}]
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = {
        "metadata": name | {"uid": "u"},
        "spec": {"containers": [], "tolerations": [TOLERATION], "resourceClaims": named},
        "status": {"conditions": [waits]},
    }
    by_pool = defaultdict(list, {pool.name: nodes for pool in pools[:1]})
    live = {dra._CLAIMS: claims}
    pods = [pod, *busy]
    cluster = cluster_of(Mock(), live=live, pods=pods, has_dra=installed, by_pool=by_pool)
    found = dra.DraDriver(cluster).plan(pools)
    assert not any(each.is_hopeless for each in found.unplaced), "its claim may change"
    return "".join(
        [*(pool for pool, _ in found.new_nodes), *(each.reason for each in found.unplaced)]
    )


def test_it_is_reported_why_no_node_comes_for_claimed_devices() -> None:
    assert growth(A100) == "claimed"
    assert growth(L4, A100) == "claimed", "the second suits"
    label = "no node pool with the label cloud.google.com/gke-nvidia-gpu-dra-driver: true"
    other = "or cloud.google.com/gke-networking-dra-driver: true"
    assert growth(A100, gpu="L4") == f"{label} {other} takes it and has the devices that it claims"
    assert "NVIDIA's driver is not installed" in growth(A100, installed=False)
    assert growth(A100, running=2) == "claimed"
    full = 'a node of "claimed" may have the devices that it claims, and no more nodes may come there for it'
    assert growth(A100, running=3) == full
    sold_out = replace(A100, max_nodes=2, is_sold_out=True)
    assert growth(sold_out, running=2) == f'{full}: "claimed" is sold out in the stockout'
    assert growth(A100, running=2, idle=1) == "", (
        "the driver of a new node may be about to offer them"
    )


def test_slices_of_others_stay() -> None:
    """A ResourceSlice of the program's own, of NVIDIA's driver, is not deleted; a slice that was made here is."""
    node = {"metadata": {"name": "n", "uid": "u"}}
    made = dra._resource_slice(dra.NVIDIA, A100, node)
    others = {"metadata": {"name": "theirs"}, "spec": {"driver": dra._DRIVER, "nodeName": "other"}}
    api = Mock()
    dra.DraDriver(cluster_of(api, live={dra.SLICES: [made, others]})).reconcile()
    assert [call.args[0] for call in api.delete.call_args_list] == [
        f"{dra.SLICES}/{made['metadata']['name']}"
    ]
