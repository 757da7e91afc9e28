"""What the components declare: children, their options, and values that one publishes and another takes."""

import json
import re
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import pytest
from ml_foundations import (
    CpuNodePool,
    GkeCluster,
    GpuMonitor,
    GpuNodePool,
    GpuOperator,
    InferenceService,
    ShardedSet,
    StorageClasses,
    TeamNamespace,
    TrainingJob,
    TrainingQueue,
    Volume,
)
from ml_foundations.component.children import NOT_AWAITED
from ml_foundations.component.outputs import resolve_known
from ml_foundations.kubernetes.quantities import canonical_quantity
from pulumi_gcp.container import outputs as container

from tests.support.checkout import CHECKOUT
from tests.support.declaring import component_host, declared, inputs
from tests.support.refusing import refusal

PLACE: Any = {"project": "project", "location": "us-central1"}
POOL: Any = PLACE | {"cluster_name": "c", "node_service_account": "s"}
WORKLOAD: Any = {"namespace": "ml", "image": "i", "cpu": "8", "memory": "64Gi"}
TEAM: Any = {"gpus": 8, "cpu": "96", "memory": "512Gi", "storage": "4Ti"}
QUEUE: Any = {
    "flavors": [{"name": "l4", "gpu": "L4"}],
    "teams": [{"namespace": "ml", "cpu": "8", "memory": "64Gi", "gpus": {"l4": 4}}],
}
SCHEMA: Any = json.loads((CHECKOUT / "components" / "schema.json").read_text())
CLAIM: Any = {"namespace": "ml", "size": "500Gi", "storage_class": "zonal-ssd"}


def two(machine_type: str, **more: Any) -> Any:
    """The arguments of a pool with two nodes."""
    return POOL | {"machine_type": machine_type, "max_nodes": 2} | more


def pod(request: Any) -> dict[str, Any]:
    return inputs(request)["spec"]["template"]["spec"]


PROGRAMS = {
    GkeCluster: lambda: GkeCluster("x", PLACE),
    GpuNodePool: lambda: GpuNodePool("x", two("g2-standard-8")),
    CpuNodePool: lambda: CpuNodePool("x", two("n2-standard-8")),
    GpuOperator: lambda: GpuOperator("x", {}),
    StorageClasses: lambda: StorageClasses("x", nfs={"server": "nfs.example", "path": "/export"}),
    Volume: lambda: Volume("x", CLAIM),
    TeamNamespace: lambda: TeamNamespace("x", {**TEAM, "group": "ml@example.com"}),
    TrainingJob: lambda: TrainingJob("x", WORKLOAD),
    InferenceService: lambda: InferenceService("x", WORKLOAD),
    ShardedSet: lambda: ShardedSet("x", {**WORKLOAD, "shards": 2}),
    GpuMonitor: lambda: GpuMonitor("x", {"files": {"a": "b"}, "monitoring": "google"}),
    TrainingQueue: lambda: TrainingQueue("x", QUEUE),
}


@pytest.mark.parametrize("component", PROGRAMS, ids=lambda component: component.__name__)
def test_children_are_named_after_their_component(
    component: type[pulumi.ComponentResource],
) -> None:
    requests = declared(PROGRAMS[component])
    own = requests.pop("x")
    assert own.type == f"ml-foundations:index:{component.__name__}"
    assert requests
    for name, request in requests.items():
        assert name.startswith("x-")
        assert request.parent.endswith("::x")


def test_what_one_component_publishes_another_takes() -> None:
    def program() -> None:
        taints = [{"key": "team", "value": "research"}]
        gpus = GpuNodePool("gpus", two("a3-highgpu-8g", taints=taints))
        team = TeamNamespace("research", gpus=16, cpu="512", memory="4Ti", storage="10Ti")
        after_team = pulumi.ResourceOptions(depends_on=[team])
        data = Volume("data", CLAIM | {"namespace": team.namespace}, after_team)
        TrainingJob(
            "train",
            {
                **WORKLOAD,
                "namespace": team.namespace,
                "gpu": gpus.gpu,
                "gpus": gpus.gpus_per_node,
                "node_selector": gpus.node_selector,
                "tolerations": gpus.tolerations,
                "mounts": [{"claim": data.claim_name, "path": "/data"}],
            },
            pulumi.ResourceOptions(depends_on=[data, gpus]),
        )

    job = declared(program)["train-job"]
    assert inputs(job)["metadata"]["namespace"] == "research"
    assert pod(job)["nodeSelector"] == {"cloud.google.com/gke-nodepool": "gpus"}
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    assert pod(job)["volumes"][0] == claimed
    assert pod(job)["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "research", "effect": "NoSchedule"},
    ]
    assert "NVIDIA-H100-80GB-HBM3" in json.dumps(pod(job)["affinity"])


def test_an_output_is_refused_where_a_value_must_be_known() -> None:
    def program() -> None:
        gpus: Any = pulumi.Output.from_input(1)
        TrainingJob("x", {**WORKLOAD, "gpus": gpus})

    assert re.search(r"gpus: is an Output.*Give a plain value", refusal(declared, program))


def test_the_gpu_pool_of_the_seeds() -> None:
    request = declared(PROGRAMS[GpuNodePool])["x-pool"]
    config = inputs(request)["nodeConfig"]
    assert config["labels"] == {
        "node-type": "training",
        "accelerator": "nvidia-gpu",
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "nvidia.com/gpu.memory": "23034",
    }
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
    assert config["taints"] == [taint]
    assert config["guestAccelerators"][0]["type"] == "nvidia-l4"


def test_data_is_protected_and_kept_and_scratch_is_neither() -> None:
    data = declared(PROGRAMS[Volume])["x-claim"]
    assert (data.protect, data.retainOnDelete) == (True, True)
    scratch = declared(lambda: Volume("x", {**CLAIM, "data": False}))["x-claim"]
    assert (scratch.protect, scratch.retainOnDelete) == (False, False)


def test_a_job_ends_before_its_replacement_starts() -> None:
    job = declared(PROGRAMS[TrainingJob])["x-job"]
    assert job.deleteBeforeReplace
    assert inputs(job)["metadata"]["name"] == "x"
    assert set(job.replaceOnChanges) == {
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
        "spec.successPolicy",
        "spec.managedBy",
    }
    assert inputs(job)["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert "suspend" not in inputs(job)["spec"]
    assert "ttlSecondsAfterFinished" not in inputs(job)["spec"]


def test_waiting_for_a_job_outlasts_its_deadline() -> None:
    args: Any = {**WORKLOAD, "wait_for_completion": True, "active_deadline_seconds": 7200}
    job = declared(lambda: TrainingJob("x", args))["x-job"]
    assert "pulumi.com/skipAwait" not in inputs(job)["metadata"].get("annotations", {})
    assert job.customTimeouts.create == "7260s"


def test_a_rollout_outlasts_the_models_load_time() -> None:
    requests = declared(lambda: InferenceService("x", {**WORKLOAD, "load_seconds": 605}))
    rollout = int(inputs(requests["x-deployment"])["spec"]["progressDeadlineSeconds"])
    assert rollout > 605
    assert requests["x-deployment"].customTimeouts.create == f"{rollout + 60}s"
    assert inputs(requests["x-service"])["metadata"]["annotations"] == NOT_AWAITED


def test_a_claim_that_is_mounted_twice_is_one_volume() -> None:
    mounts: Any = [{"claim": "data", "path": "/in"}, {"claim": "data", "path": "/out"}]
    found = pod(declared(lambda: TrainingJob("x", {**WORKLOAD, "mounts": mounts}))["x-job"])
    assert [volume["name"] for volume in found["volumes"]] == ["data", "home"]
    paths = [mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]]
    assert paths == ["/in", "/out", "/home/user"]


def test_pod_overrides_keep_what_they_do_not_name() -> None:
    overrides: Any = {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}, "hostIPC": True}
    args: Any = {**WORKLOAD, "pod_overrides": overrides}
    found = pod(declared(lambda: TrainingJob("x", args))["x-job"])
    assert found["hostIPC"] is True
    assert found["securityContext"] == {
        "runAsUser": 0,
        "runAsNonRoot": False,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("2048Mi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        (1500, "1500"),
        ("1e3", "1k"),
        ("512Gi", "512Gi"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("0.9765625Ki", "1k"),
        ("100n", "100n"),
        (0, "0"),
    ],
)
def test_quantities_are_as_the_api_server_writes_them_back(given: Any, canonical: str) -> None:
    assert canonical_quantity(given) == canonical


@pytest.mark.parametrize(
    ("endpoint", "server"),
    [("dns", "gke-1.example"), ("private", "172.16.0.2"), ("public", "203.0.113.1")],
)
def test_a_kubeconfig_has_the_chosen_endpoint_and_no_credential(endpoint: str, server: str) -> None:
    seen: list[str] = []

    def program() -> None:
        args: Any = {"project": "project", "location": "us-central1", "endpoint": endpoint}
        cluster = GkeCluster("x", args | {"authorized_networks": {"office": "203.0.113.0/24"}})
        cluster.kubeconfig.apply(seen.append)

    declared(program)
    config = json.loads(seen[0])
    assert config["clusters"][0]["cluster"]["server"] == f"https://{server}"
    assert config["users"][0]["user"].keys() == {"exec"}


def test_the_cluster_outputs_that_are_read_are_in_the_sdk() -> None:
    """The mocks answer with whatever they are told to: this holds them to the types of the SDK."""
    dns = container.ClusterControlPlaneEndpointsConfigDnsEndpointConfig
    assert isinstance(container.ClusterMasterAuth.cluster_ca_certificate, property)
    assert isinstance(container.ClusterPrivateClusterConfig.private_endpoint, property)
    assert isinstance(dns.endpoint, property)


def test_a_hosted_component_takes_known_outputs_as_plain_values() -> None:
    async def program() -> None:
        team = TeamNamespace("research", TEAM)
        namespace = pulumi.Output.all(team.urn, "research").apply(lambda known: known[1])
        await namespace.future()
        args = {"namespace": namespace, "size": "1Gi", "storageClass": "zonal-ssd"}
        made = construct("data", "Volume", args)
        assert resolve_known(made.state) == {"claimName": "data", "size": "1Gi", "fuse": False}

    requests = declared(program)
    assert inputs(requests["data-claim"])["metadata"] == {"name": "data", "namespace": "research"}
    assert any(urn.endswith("::research-namespace") for urn in requests["data"].dependencies)


HOSTED_POOL: dict[str, Any] = {
    **{"project": "project", "location": "us-central1"},
    **{"clusterName": "c", "nodeServiceAccount": "s"},
    **{"machineType": "a3-highgpu-8g", "maxNodes": 2.0},
}


def construct(name: str, component: str, args: dict[str, Any], *options: Any) -> Any:
    """What the host constructs for a program in another language."""
    return (
        component_host().Host().construct(name, f"ml-foundations:index:{component}", args, *options)
    )


def reasons(error: pulumi.InputPropertiesError) -> dict[str, str]:
    """The reasons of an error by the paths of the properties."""
    return {each["property_path"]: each["reason"] for each in error.errors or []}


def test_a_component_host_accepts_nested_arguments() -> None:
    args = HOSTED_POOL | {"kubelet": {"podPidsLimit": 2048.0}}

    def program() -> None:
        pool = construct("gpus", "GpuNodePool", args)
        assert resolve_known(pool.state["gpusPerNode"]) == 8
        described = SCHEMA["resources"]["ml-foundations:index:GpuNodePool"]
        assert pool.state.keys() == described["properties"].keys()

    kubelet = inputs(declared(program)["gpus-pool"])["nodeConfig"]["kubeletConfig"]
    assert kubelet["podPidsLimit"] == 2048


def test_a_component_host_creates_networks_with_the_provider_of_the_program() -> None:
    args = HOSTED_POOL | {"gpuNetwork": "auto"}

    def program() -> None:
        with pytest.raises(pulumi.InputPropertiesError) as refused:
            construct("gpus", "GpuNodePool", args)
        ((path, reason),) = reasons(refused.value).items()
        assert path == "gpuNetwork"
        assert "to the option providers" in reason
        providers = {"kubernetes": kubernetes.Provider("other", kubeconfig="{}")}
        options = pulumi.ResourceOptions(providers=providers)
        pool = construct("gpus", "GpuNodePool", args, options)
        names = ["gpus-eth1", "gpus-eth2", "gpus-eth3", "gpus-eth4"]
        fabric = resolve_known(pool.state["gpuFabric"])
        assert fabric == {"kind": "tcpx", "networks": names, "gpusPerNode": 8}

    requests = declared(program)
    assert "::other::" in requests["gpus-nccl-plugin"].provider


def test_a_component_host_reports_missing_and_unknown_arguments() -> None:
    def program() -> None:
        args = {"storageClass": "zonal-ssd", "size": "1Gi", "accessModes": "ReadWriteMany"}
        with pytest.raises(pulumi.InputPropertiesError) as refused:
            construct("data", "Volume", args)
        unknown = "is not known. Did you mean accessMode? See docs/components/Volume.md"
        assert reasons(refused.value) == {"namespace": "is required", "accessModes": unknown}

    declared(program)


def test_a_component_host_reports_invalid_arguments() -> None:
    args = {"namespace": "research", "size": "1Gi", "storageClass": "zonal-ssd"}
    args |= {"accessMode": "ReadWriteNever"}

    def program() -> None:
        with pytest.raises(pulumi.InputPropertiesError) as refused:
            construct("data", "Volume", args)
        assert not isinstance(refused.value, pulumi.RunError)
        assert refused.value.message == "Volume data: 1 invalid argument:"
        assert reasons(refused.value).keys() == {"accessMode"}

    declared(program)


def test_other_languages_may_pass_what_a_component_publishes() -> None:
    """They have it as an Output only; types get their suffix from each language's SDK."""
    schema = json.loads(component_host().Host().schema)
    assert '"plain"' not in json.dumps(schema)
    for component, part in (("TrainingJob", "inputProperties"), ("GpuNodePool", "properties")):
        tolerations = schema["resources"][f"ml-foundations:index:{component}"][part]["tolerations"]
        assert tolerations["items"]["$ref"] == "#/types/ml-foundations:index:Toleration"
    assert "ml-foundations:index:Toleration" in schema["types"]
