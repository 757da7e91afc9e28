"""Findings about the GPU Operator: its container toolkit on GKE's containerd 2, and drivers for old and new GPUs."""

from typing import Any, get_args

import pytest
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.tables import rows
from ml_foundations.gke.cluster import GkeClusterSpec
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import CLUSTER, NODE_POOL, Resource, nodes_of
from ml_foundations.planning.verdict.program import judge_program

GPU = "nvidia.com/gpu"
LABELS = {"gke-no-default-nvidia-gpu-device-plugin": "true"}
FILE = [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]


def cluster(**inputs: Any) -> Resource:
    given = {"name": "ml", "location": "us-central1", "removeDefaultNodePool": True}
    return CLUSTER, {**given, "initialNodeCount": 1, **inputs}


def gpu_pool(
    gpu: str = "nvidia-l4", machine: str = "g2-standard-8", image: str = "UBUNTU_CONTAINERD"
) -> Resource:
    driver = {"gpuDriverVersion": "INSTALLATION_DISABLED"}
    accelerator = {"type": gpu, "count": 1, "gpuDriverInstallationConfig": driver}
    config = {"machineType": machine, "labels": LABELS, "imageType": image}
    config |= {"guestAccelerators": [accelerator]}
    inputs = {"name": "gpus", "location": "us-central1", "nodeCount": 1, "nodeConfig": config}
    return NODE_POOL, {**inputs, "nodeLocations": ["us-central1-a"]}


def release(**values: Any) -> Resource:
    return RELEASE, {"chart": "gpu-operator", "namespace": "gpus", "values": values}


def found(rule: str, *resources: Resource) -> list[tuple[str, str]]:
    findings = judge_program(resources).findings
    return [(each.object, str(each.severity)) for each in findings if each.rule == rule]


def gpus(*resources: Resource) -> float:
    [node] = [each for each in nodes_of(resources) if each.name == "gpus"]
    return node.allocatable.get(GPU, 0) / 1000


EXTENDED = {"releaseChannel": {"channel": "EXTENDED"}}
BREAKS = [("GPU Operator", "error")]
MAY_BREAK = [("GPU Operator", "warning")]


STABLE = {"releaseChannel": {"channel": "STABLE"}}


@pytest.mark.parametrize(
    ("of_cluster", "toolkit", "expected"),
    [
        ({}, {}, BREAKS),
        ({}, {"env": []}, BREAKS),
        ({}, {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "command,file"}]}, BREAKS),
        ({}, {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file,command"}]}, []),
        ({}, {"env": FILE}, []),
        ({}, {"enabled": False}, []),
        ({"minMasterVersion": "1.33"}, {}, BREAKS),
        ({"minMasterVersion": "1.32"}, {}, BREAKS),
        (STABLE, {}, BREAKS),
        (STABLE | {"minMasterVersion": "1.32"}, {}, BREAKS),
        (EXTENDED, {}, MAY_BREAK),
        (EXTENDED | {"minMasterVersion": "1.32.9-gke.1575000"}, {}, MAY_BREAK),
        (EXTENDED | {"minMasterVersion": UNKNOWN}, {}, MAY_BREAK),
        (EXTENDED | {"minMasterVersion": "1.33"}, {}, BREAKS),
        (EXTENDED | {"minMasterVersion": "1.33.5-gke.1308000"}, {}, BREAKS),
        (EXTENDED | {"minMasterVersion": "1.32"}, {"env": FILE}, []),
        ({"releaseChannel": UNKNOWN}, {}, MAY_BREAK),
        ({"releaseChannel": {"channel": UNKNOWN}}, {}, MAY_BREAK),
        ({"releaseChannel": UNKNOWN, "minMasterVersion": "1.34"}, {}, BREAKS),
    ],
)
def test_toolkit_reads_the_file_on_containerd_2(
    of_cluster: dict[str, Any], toolkit: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    program = (cluster(**of_cluster), gpu_pool(), release(toolkit=toolkit))
    assert found("container-toolkit", *program) == expected
    assert gpus(*program) == (0 if expected == BREAKS else 1)


def test_cluster_that_the_program_does_not_make_may_be_older() -> None:
    assert found("container-toolkit", release()) == MAY_BREAK


def test_of_several_clusters_one_may_be_older() -> None:
    assert found("container-toolkit", cluster(), cluster(), release()) == BREAKS
    assert found("container-toolkit", cluster(), cluster(**EXTENDED), release()) == MAY_BREAK


def variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def toolkit(*variables: dict[str, Any]) -> dict[str, Any]:
    return {"toolkit": {"env": [*variables]}}


SOURCES_BY_COMMAND = variable("RUNTIME_CONFIG_SOURCES", "command")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (toolkit(variable("RUNTIME_CONFIG_SOURCE", "file=/etc/containerd/config.toml")), []),
        (toolkit(variable("RUNTIME_CONFIG_SOURCE", " file , command")), []),
        (toolkit(variable("RUNTIME_CONFIG_SOURCES", "file")), []),
        (toolkit(SOURCES_BY_COMMAND), BREAKS),
        (toolkit(*FILE, SOURCES_BY_COMMAND), BREAKS),
        (toolkit(variable("CONTAINERD_CONFIG", "file")), BREAKS),
        ({"cdi": {"nriPluginEnabled": True}}, []),
        ({"cdi": {"nriPluginEnabled": True, "enabled": False}}, BREAKS),
        ({"cdi": {"nriPluginEnabled": False}}, BREAKS),
    ],
)
def test_every_way_to_leave_containerd_alone_is_known(
    values: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    program = (cluster(), gpu_pool(), release(**values))
    assert found("container-toolkit", *program) == expected
    assert gpus(*program) == (0 if expected else 1)


def test_table_of_channels_has_every_channel_of_a_cluster() -> None:
    channels = get_args(GkeClusterSpec.model_fields["release_channel"].annotation)
    assert {row["channel"] for row in rows("release_channels.csv")} == {*channels, "UNSPECIFIED"}


@pytest.mark.parametrize("values", [{"toolkit": UNKNOWN}, {"toolkit": {"env": UNKNOWN}}])
def test_unknown_values_break_nothing(values: dict[str, Any]) -> None:
    assert found("container-toolkit", cluster(), gpu_pool(), release(**values)) == []


def test_nodes_of_gkes_own_driver_are_broken_too() -> None:
    type_, inputs = gpu_pool()
    own = {"guestAccelerators": [{"type": "nvidia-l4", "count": 1}], "labels": {}}
    managed = (type_, {**inputs, "nodeConfig": inputs["nodeConfig"] | own})
    off = {"devicePlugin": {"enabled": False}, "driver": {"enabled": False}}
    assert gpus(cluster(), managed, release(**off)) == 0
    assert gpus(cluster(), managed, release(**off, toolkit={"env": FILE})) == 1


V100, P100 = ("nvidia-tesla-v100", "n1-standard-8"), ("nvidia-tesla-p100", "n1-standard-8")
T4, L4 = ("nvidia-tesla-t4", "n1-standard-8"), ("nvidia-l4", "g2-standard-8")
B200 = ("nvidia-b200", "a4-highgpu-8g")


NOT_DRIVEN = [("NodePool gpus", "error")]


def assert_driven(is_driven: bool, *program: Resource) -> None:
    """Check whether the driver supports the GPUs of the pool, which has one."""
    assert found("gpu-driver", *program) == ([] if is_driven else NOT_DRIVEN)
    assert gpus(*program) == is_driven


@pytest.mark.parametrize(
    ("pool", "driver", "is_driven"),
    [
        (V100, {}, False),
        (P100, {}, False),
        (V100, {"version": "590.44.01"}, False),
        (V100, {"version": "580.105.08"}, True),
        (P100, {"version": "580.105.08", "kernelModuleType": "proprietary"}, True),
        (V100, {"version": "580.105.08", "kernelModuleType": "open"}, False),
        (V100, {"version": "custom"}, True),
        (T4, {}, True),
        (T4, {"kernelModuleType": "open"}, True),
        (L4, {}, True),
        (B200, {}, True),
        (B200, {"version": "565.57.01"}, False),
        (B200, {"version": "570.86.15"}, True),
        (B200, {"kernelModuleType": "proprietary"}, False),
    ],
)
def test_driver_supports_the_gpus(
    pool: tuple[str, str], driver: dict[str, Any], is_driven: bool
) -> None:
    operator = release(driver=driver, toolkit={"env": FILE})
    assert_driven(is_driven, cluster(), gpu_pool(*pool), operator)


@pytest.mark.parametrize(
    ("version", "driver", "is_driven"),
    [
        (None, {}, False),
        ("v26.7.0", {}, False),
        ("26.7.0", {}, False),
        ("v25.3.0", {}, True),
        (UNKNOWN, {}, True),
        ("v25.3.0", {"version": "590.44.01"}, False),
        ("v26.7.0", {"nvidiaDriverCRD": {"enabled": True}}, True),
        ("v26.7.0", {"version": "sha256:595"}, True),
    ],
)
def test_driver_whose_version_is_not_known_is_not_judged(
    version: Any, driver: dict[str, Any], is_driven: bool
) -> None:
    type_, inputs = release(driver=driver, toolkit={"env": FILE})
    assert_driven(is_driven, cluster(), gpu_pool(*V100), (type_, inputs | {"version": version}))


def test_pool_in_a_cluster_and_pool_that_exists_are_judged() -> None:
    operator, old = release(toolkit={"env": FILE}), gpu_pool(*V100)
    assert found("gpu-driver", cluster(nodePools=[old[1]]), operator) == NOT_DRIVEN
    assert found("gpu-driver", old, operator) == NOT_DRIVEN
    findings = judge_program([operator], [old]).findings
    assert [each.object for each in findings if each.rule == "gpu-driver"] == ["NodePool gpus"]
    others = found("gpu-driver", cluster(), cluster(), old, operator)
    assert others == [], "it may be the other's"


def test_driver_of_an_installer_is_googles_matter() -> None:
    program = (cluster(), gpu_pool(*V100, "COS_CONTAINERD"), release(toolkit={"env": FILE}))
    assert found("gpu-driver", *program) == []


def test_default_driver_is_judged_without_a_driver_section() -> None:
    fault = Operator.of({}).driver_fault("volta")
    assert fault.startswith("branch 595 of the driver does not support them")
    assert Operator.of({"driver": {"enabled": False}}).driver_fault("volta") == ""
