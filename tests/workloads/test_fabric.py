"""Trainings on several nodes in the network between GPUs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations import CpuNodePool, DistributedTraining, GkeCluster, GpuNodePool
from ml_foundations.catalog.fabric_pods import NCCL_PAIRS, WITHOUT_PLUGIN, fabric_pods
from ml_foundations.workloads.fabric import PodFabric
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.pod import WorkloadSpec

from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal
from tests.workloads import building
from tests.workloads.building import (
    FABRICS,
    container_of,
    gang,
    gang_spec,
    on_fabric,
    pod_of,
    template_of,
)


def is_pooled(spec: Any) -> bool:
    """Whether it is the spec of a workload that runs on a pool."""
    is_workload = isinstance(spec, type) and issubclass(spec, WorkloadSpec)
    return is_workload and "pool" in spec.objects and spec.name_field is not None


def on(name: str, **more: Any) -> dict[str, Any]:
    """The Job of a training in a network."""
    return gang(**on_fabric(name, **more))[-1]


@pytest.mark.parametrize("name", ["tcpx", "tcpxo", "rdma"])
def test_each_interface_has_its_network_in_order(name: str) -> None:
    annotations = template_of(on(name))["metadata"]["annotations"]
    interfaces = json.loads(annotations["networking.gke.io/interfaces"])
    networks = ["default", *FABRICS[name]["networks"]]
    assert [each["network"] for each in interfaces] == networks
    names = [each["interfaceName"] for each in interfaces]
    assert names == [f"eth{index}" for index in range(len(networks))]
    assert annotations["networking.gke.io/default-interface"] == "eth0"


@pytest.mark.parametrize(("name", "more"), [("tcpx", 2), ("tcpxo", 3)])
def test_the_daemon_gets_the_gpus_and_ends_with_the_job(name: str, more: int) -> None:
    job = on(name)
    (daemon,) = pod_of(job)["initContainers"]
    assert daemon["name"] == f"{name}-daemon"
    assert daemon["restartPolicy"] == "Always"
    assert daemon["image"] == NCCL_PAIRS[name].daemon
    annotations = template_of(job)["metadata"]["annotations"]
    devices = annotations[f"devices.gke.io/container.{name}-daemon"]
    paths = [each["path"] for each in yaml.safe_load(devices)]
    assert paths[:8] == [f"/dev/nvidia{index}" for index in range(8)]
    assert len(paths) == 8 + more
    assert "NET_ADMIN" in daemon["securityContext"]["capabilities"]["add"]
    # A namespace's default limit would slow the daemon down.
    assert daemon["resources"].keys() == {"requests", "limits"}


def test_every_volume_is_mounted_and_every_mount_has_a_volume() -> None:
    for name in FABRICS:
        pod = pod_of(on(name))
        containers = [*pod["containers"], *pod.get("initContainers", [])]
        mounted = {mount["name"] for each in containers for mount in each["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_managed_interfaces_are_claimed_one_for_each_gpu() -> None:
    template, _, job = gang(**on_fabric("managed"))
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    eight = {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": 8}
    assert request["exactly"] == eight
    claim = {"name": "interfaces", "resourceClaimTemplateName": template["metadata"]["name"]}
    assert pod_of(job)["resourceClaims"] == [claim]
    assert container_of(job)["resources"]["claims"] == [{"name": "interfaces"}]
    assert "annotations" not in template_of(job)["metadata"]


def test_gpus_and_interfaces_can_both_be_claimed() -> None:
    job = on("managed", gpu_claim={})
    assert [each["name"] for each in pod_of(job)["resourceClaims"]] == ["gpus", "interfaces"]
    assert container_of(job)["resources"]["claims"] == [{"name": "gpus"}, {"name": "interfaces"}]


def without_plugin(manifest: dict[str, Any]) -> dict[str, str]:
    """The variables that keep NCCL from the plugin of its node."""
    variables = container_of(manifest)["env"]
    return {each["name"]: each.get("value") for each in variables if each["name"] in WITHOUT_PLUGIN}


@pytest.mark.parametrize("more", [{"nodes": 1}, {"gpus": 4}, {"gpus": 0}, {"gpu_fabric": None}])
def test_other_pods_are_as_without_the_network(more: dict[str, Any]) -> None:
    wanted = gang(**(on_fabric("tcpxo") | more | {"gpu_fabric": None}))
    (*_, found) = made = gang(**(on_fabric("tcpxo") | more))
    kept = container_of(found)["env"]
    container_of(found)["env"] = [each for each in kept if each["name"] not in WITHOUT_PLUGIN]
    assert made == wanted


@pytest.mark.parametrize(
    ("more", "finds_it"),
    [
        ({"nodes": 1}, True),
        ({"gpus": 1}, True),  # one GPU on each of two nodes
        ({"gpus": 1, "nodes": 1}, False),
        ({"gpus": 0}, False),
        ({"gpu_fabric": None}, False),
    ],
)
@pytest.mark.parametrize("name", FABRICS)
def test_pods_without_the_network_leave_nccls_plugin_alone(
    name: str, more: dict[str, Any], finds_it: bool
) -> None:
    """The images of vLLM and NGC find the plugin on the node, and NCCL fails without its settings."""
    *_, found = gang(**(on_fabric(name) | more))
    assert without_plugin(found) == (WITHOUT_PLUGIN if finds_it else {})
    assert without_plugin(on(name)) == {}
    *_, own = gang(**(on_fabric(name) | more | {"env": {"NCCL_TUNER_PLUGIN": "mine"}}))
    assert without_plugin(own)["NCCL_TUNER_PLUGIN"] == "mine"


def test_without_gkes_device_plugin_there_is_no_plugin_to_find() -> None:
    """With the GPU Operator, pods have no libraries of the node."""
    fabric = FABRICS["tcpx"] | {"gpus_per_node": 8, "host_libraries": False}
    *_, found = gang(**(on_fabric("tcpx", gpu_fabric=fabric) | {"nodes": 1}))
    assert without_plugin(found) == {}
    pod = pod_of(trained(GpuNodePool, "a3-megagpu-8g", nodes=1))
    assert {"name": "NCCL_TUNER_PLUGIN", "value": "none"} in pod["containers"][0]["env"]
    operated = pod_of(trained(GpuNodePool, "a3-megagpu-8g", nodes=1, driver="installer"))
    assert "NCCL_TUNER_PLUGIN" not in {each["name"] for each in operated["containers"][0]["env"]}


POOLED = [spec for spec in vars(building).values() if is_pooled(spec)]


def test_every_workload_with_gpus_knows_the_network_of_its_pool() -> None:
    """Otherwise its pods find NCCL's plugin, and nothing sets it up or switches it off."""
    assert len(POOLED) > 8
    for spec in POOLED:
        assert "gpu_fabric" in spec.objects["pool"].outputs, spec
        least = {name: None for name in spec.model_fields}
        fabric = GpuFabric.model_validate(FABRICS["tcpxo"] | {"gpus_per_node": 8})
        made = spec.model_construct(**least | {"gpu_fabric": fabric, "gpus": 4, "nodes": 1})
        made = made.model_copy(update={"workers": 1})
        off = {name: {"value": value} for name, value in WITHOUT_PLUGIN.items()}
        assert dict(made.fabric.env) == off, spec


def test_networks_that_nodes_offer_by_address_alone_are_not_requested_by_name() -> None:
    """GKE's webhook would add the request, and the pods would wait for ever."""
    resources = container_of(on("rdma"))["resources"]
    for field in ("requests", "limits"):
        for network in FABRICS["rdma"]["networks"]:
            assert resources[field][f"networking.gke.io.networks/{network}"] == "0"
    for name in ("tcpx", "tcpxo", "managed"):
        assert not [key for key in container_of(on(name))["resources"]["limits"] if "/eth" in key]
        assert len(container_of(on(name))["resources"]["limits"]) == 3


def test_the_pods_run_as_root_unless_a_user_is_set() -> None:
    assert pod_of(on("rdma"))["securityContext"]["runAsUser"] == 0
    assert "capabilities" not in container_of(on("rdma"))["securityContext"]
    assert container_of(on("tcpx"))["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    spec = gang_spec(**on_fabric("tcpx", run_as_user=1000))
    assert pod_of(spec.manifests()[-1])["securityContext"]["runAsUser"] == 1000
    (warning,) = spec.warnings()
    assert "run_as_user is 1000" in warning


def test_fewer_gpus_than_a_node_has_are_warned_about() -> None:
    (warning,) = gang_spec(**on_fabric("tcpxo", gpus=4)).warnings()
    assert "gpus is 4, and its nodes have 8" in warning
    assert "Set gpus to 8" in warning
    for quiet in ({"gpus": 8}, {"gpus": 4, "nodes": 1}, {"gpus": 0}):
        assert not [*gang_spec(**on_fabric("tcpxo", **quiet)).warnings()]


def test_shared_memory_is_bounded_by_the_memory_of_the_pod() -> None:
    def volumes(**more: Any) -> dict[str, Any]:
        return {each["name"]: each for each in pod_of(on("rdma", **more))["volumes"]}

    assert volumes()["shared-memory"]["emptyDir"] == {"medium": "Memory"}
    limited = volumes(shared_memory="16Gi")["shared-memory"]["emptyDir"]
    assert limited["sizeLimit"] == "16Gi"
    mount = {"path": "/dev/shm", "name": "shm", "volume": {"emptyDir": {"medium": "Memory"}}}
    assert "shared-memory" not in volumes(mounts=[mount])


def test_folders_of_the_node_must_exist() -> None:
    for name in FABRICS:
        for volume in pod_of(on(name))["volumes"]:
            assert volume.get("hostPath", {"type": "Directory"})["type"] == "Directory"


def run_with(script: Path, *command: str) -> subprocess.CompletedProcess[str]:
    made = PodFabric(script=str(script)).command([*command[:1]])
    assert made is not None
    return subprocess.run([*made, *command[1:]], capture_output=True, text=True, check=False)


def test_the_command_gets_the_variables_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "profile.sh"
    script.write_text("[[ a =~ a ]] && export NCCL_PROTO=Simple\nfalse\n")
    done = run_with(script, "sh", "-c", 'echo "$NCCL_PROTO" "$1"', "sh", "two  words'")
    assert (done.stdout, done.returncode) == ("Simple two  words'\n", 0)


def test_the_command_fails_loudly_without_the_plugin(tmp_path: Path) -> None:
    done = run_with(tmp_path / "none.sh", "echo", "trained")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "the NCCL plugin is not installed on this node" in done.stderr


@pytest.mark.parametrize("name", ["tcpxo", "rdma"])
def test_the_command_is_read_after_the_script(name: str) -> None:
    script = fabric_pods()[FABRICS[name]["kind"]].script
    command = container_of(on(name))["command"]
    assert f". {script};" in command[2]
    assert command[3:] == ["bash", "torchrun", "train.py"]
    assert container_of(on("tcpx"))["command"] == ["torchrun", "train.py"]


DAEMON = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev"


def changed(image: str) -> dict[str, Any]:
    return {"pod_overrides": {"initContainers": [{"name": "tcpxo-daemon", "image": image}]}}


def fabric(kind: str, *networks: str) -> dict[str, Any]:
    return {"gpu_fabric": {"kind": kind, "networks": [*networks], "gpus_per_node": 8}}


OWN = [{"name": "tcpxo-daemon", "image": f"{DAEMON}:v1.0.21"}]
NINE = [f"vpc{index}" for index in range(9)]


@pytest.mark.parametrize(
    ("name", "words", "more"),
    [
        ("tcpxo", "command: is required: it first reads /usr/local/nvidia", {"command": None}),
        ("managed", "command: is required: it first reads /usr/local/gib", {"command": None}),
        ("tcpxo", "host_network: leaves the pods without the interfaces", {"host_network": True}),
        ("tcpxo", "init_containers: has tcpxo-daemon, which the com", {"init_containers": OWN}),
        ("tcpxo", "than the installed v1.0.15; set the tag v1.0.21", changed(f"{DAEMON}:v1.0.14")),
        ("tcpxo", "gpu_fabric.networks: is empty, and nobody can claim", fabric("tcpxo")),
        ("tcpxo", "has 9 names, but nodes have 8 interfaces", fabric("tcpxo", *NINE)),
        ("tcpxo", "has 1 names, but nodes have 9 interfaces", fabric("rdma", "rdma-0")),
    ],
)
def test_what_cannot_work_is_refused(name: str, words: str, more: dict[str, Any]) -> None:
    message = refusal(gang_spec, **on_fabric(name, **more))
    assert "invalid argument" in message
    assert words in message


def test_what_works_is_accepted() -> None:
    gang_spec(**on_fabric("tcpx", command=None, launcher="torchrun"))
    gang_spec(**on_fabric("tcpxo", nodes=1, command=None, launcher="torchrun"))
    gang_spec(**on_fabric("tcpxo", **changed("mirror.example/rxdm:v1.0.21@sha256:00")))


def trained(
    pool: type[GpuNodePool] | type[CpuNodePool], machine_type: str, nodes: int = 2, **more: Any
) -> dict[str, Any]:
    """The Job of a training on a pool of a cluster."""

    def construct() -> None:
        cluster = GkeCluster("ml", project="project", location="us-central1", multi_networking=True)
        arguments: Any = {"cluster": cluster, "machine_type": machine_type, "max_nodes": 2} | more
        if pool is GpuNodePool:
            arguments["gpu_network"] = "auto"
        DistributedTraining(
            "train",
            pool=pool("nodes", arguments),
            namespace="ml",
            image="i",
            nodes=nodes,
            gpus=8 if pool is GpuNodePool else 0,
            command=["torchrun", "train.py"],
        )

    return inputs(declared(construct)["train-job"])


def test_a_training_gets_the_network_of_its_pool() -> None:
    pod = pod_of(trained(GpuNodePool, "a3-megagpu-8g"))
    assert [each["name"] for each in pod["initContainers"]] == ["tcpxo-daemon"]
    assert "initContainers" not in pod_of(trained(CpuNodePool, "n2-standard-8"))
