"""Rules that hold for whatever any component creates: deadlines, doors, daemons, and upgrades of pools."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args

import ml_foundations
import pulumi
import pytest
from ml_foundations import GkeCluster, GpuNodePool, InferenceService, ModelCache, NcclTest
from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.spec import check
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.workloads.inference_gateway import InferenceGatewaySpec
from ml_foundations.workloads.server_groups import GroupedServerSpec

from codegen.construction import construct
from tests.gke.building import POOL
from tests.support import recording
from tests.support.declaring import inputs, requests

Object = Mapping[str, Any]
LAUNCHERS = [
    name for name in get_args(get_args(GroupedServerSpec.model_fields["launcher"].annotation)[0])
]
FABRIC: Any = {"kind": "rdma", "gpus_per_node": 8}
OWN: dict[str, Any] = {"namespace": "ml"}


def also() -> None:
    """Declare the forms of components that wait for nodes, or install something on them."""
    construct()
    disk: Any = {"image": "cli", "command": ["cp"]}
    ModelCache("disk", **OWN, size="1Ti", download=disk)
    for jobset in (False, True):
        name = f"net-{jobset}".lower()
        NcclTest(name, **OWN, nodes=2, gpu="H200", gpu_fabric=FABRIC, jobset=jobset)
    for launcher in LAUNCHERS:
        given = {"gpus": 8, "gpu": "H200", "image": "i", "arguments": ["-pp=2", "-tp=8"]}
        is_parallel = launcher in ("vllm-data-parallel", "none")
        given |= {"arguments": []} if is_parallel else {}
        name = f"on-two-{launcher}"
        InferenceService(name, **OWN, **given, nodes=2, launcher=launcher, load_seconds=7200)
    place: Any = {"project": "ml-project-1", "location": "us-central1"}
    cluster = GkeCluster("nets", multi_networking=True, **place)
    for machine in ("a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g"):
        reserved = {"reservation": "r", "zones": ["us-central1-a"], "max_nodes": 2}
        name = machine.removesuffix("-8g")
        GpuNodePool(name, cluster=cluster, machine_type=machine, gpu_network="auto", **reserved)


@cache
def of_components() -> list[tuple[Any, Object]]:
    pulumi.runtime.set_all_config({"gcp:project": "ml-project-1"})
    try:
        return [(request, inputs(request)) for request in requests(also)]
    finally:
        pulumi.runtime.set_all_config({})


@cache
def everything() -> list[Object]:
    """What components, stacks and examples create."""
    shown = [*map(recording.stack, recording.STACKS), *map(recording.example, recording.EXAMPLES)]
    return [
        *(made for _, made in of_components()),
        *(each["inputs"] for resources in shown for each in resources),
    ]


def of_kind(*kinds: str) -> list[Object]:
    found = [each for each in everything() if each.get("kind") in kinds]
    assert {each["kind"] for each in found} == {*kinds}
    return found


def job_specs(made: Object) -> Iterator[Object]:
    spec = made["spec"]
    yield spec
    yield from (section(job, "template", "spec") for job in items(spec, "replicatedJobs"))


def test_no_component_sets_a_deadline_that_counts_the_wait_for_nodes() -> None:
    # A run of a CronJob has to end before the next.
    kinds = ("Job", "JobSet", "RayJob", "TrainJob")
    made = [each for _, each in of_components() if each.get("kind") in kinds]
    assert {each["kind"] for each in made} == {*kinds}
    for each in made:
        assert not any("activeDeadlineSeconds" in spec for spec in job_specs(each)), each[
            "metadata"
        ]


def test_whatever_has_a_deadline_by_default_has_it_in_the_pod() -> None:
    """A deadline of a pod counts from the time when a node has it."""
    for name in ml_foundations.COMPONENTS:
        spec = getattr(ml_foundations, name).spec_type()
        field = spec.model_fields.get("active_deadline_seconds")
        assert field is None or field.default is None or name == "Task", name
    fill = next(
        each for _, each in of_components() if "disk" in str(each) and each.get("kind") == "Job"
    )
    assert fill["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 7200


def test_pulumi_waits_longer_for_jobs_without_a_deadline_than_a_scarce_node_takes() -> None:
    waiting = 0
    for request, made in of_components():
        annotations = section(made, "metadata", "annotations")
        if made.get("kind") == "Job" and "pulumi.com/skipAwait" not in annotations:
            seconds = int(request.customTimeouts.create.removesuffix("s"))
            assert seconds > 86400, made["metadata"]
            waiting += 1
    assert waiting >= 2


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_group_waits_for_its_last_node(launcher: str) -> None:
    (group,) = (
        each
        for _, each in of_components()
        if each.get("kind") == "LeaderWorkerSet"
        and each["metadata"]["name"] == f"on-two-{launcher}"
    )
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["restartPolicy"] == "RecreateGroupAfterStart"
    for role in ("leaderTemplate", "workerTemplate"):
        (container,) = template[role]["spec"]["containers"]
        words = " ".join([*container.get("command", []), *container.get("args", [])])
        assert ("multi-node-serving.sh" in words) == ("--ray_init_timeout=7200" in words)


def test_nothing_is_open_to_the_internet_by_default() -> None:
    for made in everything():
        kind, spec = made.get("kind"), section(made, "spec")
        assert kind != "Ingress"
        assert kind != "Service" or spec.get("type", "ClusterIP") == "ClusterIP", made["metadata"]
        assert kind != "Gateway" or spec["gatewayClassName"] == facts.INTERNAL_CLASS


@pytest.mark.parametrize(
    "class_name", get_args(InferenceGatewaySpec.model_fields["gateway_class"].annotation)
)
def test_every_public_door_has_a_lock(class_name: str) -> None:
    """A new class is public unless it is the internal one."""
    server = {"name": "chat", "namespace": "ml", "selector": {"a": "b"}, "port": 8}
    server |= {"health_path": "/"}

    def door(lock: dict[str, Any] | None = None, **more: Any) -> Sequence[Object]:
        own = {"gateway_name": "g", "namespace": "ml", "proxy_only_cidr": "10.21.0.0/23"}
        servers = [server | (lock or {})]
        args = {**own, "certificate": "c", "gateway_class": class_name, "servers": servers, **more}
        return check(InferenceGatewaySpec, "g", args).manifests()

    if class_name != facts.INTERNAL_CLASS:
        with pytest.raises(ArgumentsError, match=r"servers\[0\]\.needs_key: is false"):
            door()
    iap = {"GCPBackendPolicy": {"spec": {"default": {"iap": {"enabled": True}}}}}
    for made in (door({"needs_key": True}), door(unauthenticated=True), door(overrides=iap)):
        (route,) = (each for each in made if each["kind"] == "HTTPRoute")
        for rule in route["spec"]["rules"]:
            assert [match["path"]["value"] for match in rule["matches"]] == ["/v1"]


def test_daemons_that_install_on_nodes_change_no_node_with_pods() -> None:
    """All pods of a gang must find the same libraries."""
    installing = 0
    for made in of_kind("DaemonSet"):
        pod = made["spec"]["template"]["spec"]
        hosts = {volume["name"] for volume in items(pod, "volumes") if "hostPath" in volume}
        for container in items(pod, "initContainers"):
            mounts = items(container, "volumeMounts")
            if any(each["name"] in hosts and not each.get("readOnly") for each in mounts):
                installing += 1
                assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}, made["metadata"]
    assert installing > 5


MORE, FEWER = {"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 1}
BOUGHT: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "on demand": ({}, MORE),
    "no reservation": ({"reservation": "none"}, MORE),
    "Spot": ({"spot": True}, MORE),
    "a reservation": ({"reservation": "block"}, FEWER),
    "any reservation": ({"reservation": "any"}, FEWER),
    "flex-start": ({"flex_start": True}, None),
    "queued": ({"flex_start": True, "queued_provisioning": True, "location_policy": "ANY"}, None),
}
"""By the way in which nodes are bought: which are there at once during an upgrade; None if GKE drains none."""


@pytest.mark.parametrize("way", BOUGHT)
def test_an_upgrade_gives_no_scarce_node_back_before_it_has_the_next(way: str) -> None:
    given, expected = BOUGHT[way]
    pool = POOL | {"pool_name": "h100", "machine_type": "a3-megagpu-8g"}
    spec = check(GpuNodePoolSpec, "GpuNodePool", pool | given)
    (made,) = (child for child in spec.children() if child.suffix == "pool")
    declared: Any = made.declared
    settings = declared.inputs.get("upgradeSettings")
    assert settings == (expected and {"strategy": "SURGE", **expected})
