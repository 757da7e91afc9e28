"""The components' contract: wrong arguments refused all at once, names resolved, schema complete, pure manifests."""

import subprocess
import sys
from typing import Any

import ml_foundations
import pytest
from ml_foundations.component.spec import check
from ml_foundations.component.types import derived

from tests.support.refusing import refusal


def spec_of(component: str, args: dict[str, Any]) -> Any:
    return check(getattr(ml_foundations, component).spec_type(), component, args)


POOL = {
    "pool_name": "p",
    "project": "project",
    "location": "us-central1",
    "cluster_name": "c",
    "node_service_account": "s",
}
WORKLOAD = {"namespace": "ml", "image": "i", "cpu": "8", "memory": "64Gi"}
JOB = WORKLOAD | {"job_name": "train"}
SERVICE = WORKLOAD | {"service_name": "chat"}
TEAM = {"namespace": "ml", "gpus": 1, "cpu": "1", "memory": "1Gi", "storage": "1Gi"}
CLUSTER = {"project": "project", "location": "us-central1"}
RIGHT: dict[str, dict[str, Any]] = {
    "GkeCluster": CLUSTER,
    "GpuNodePool": POOL,
    "CpuNodePool": POOL,
    "TrainingJob": JOB,
    "InferenceService": SERVICE,
    "TeamNamespace": TEAM,
}


def wrong(component: str, *words: str, **args: Any) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """A component, arguments of which some are wrong, and words of the message about them."""
    return component, RIGHT.get(component, {}) | args, words


ONE_L4 = {"machine_type": "g2-standard-8", "max_nodes": 1}
WRONG = [
    wrong("GpuNodePool", "max_nodes", "got 0", machine_type="g2-standard-8", max_nodes=0),
    wrong("GpuNodePool", "has no GPU", "CpuNodePool", machine_type="n2-standard-8", max_nodes=1),
    wrong("GpuNodePool", "set gpu and gpus", machine_type="n1-standard-8", max_nodes=1),
    wrong(
        "GpuNodePool",
        "1 or 2 or 4 GPUs",
        machine_type="n1-standard-8",
        max_nodes=1,
        gpu="T4",
        gpus=3,
    ),
    wrong("GpuNodePool", "driver", "operator", **ONE_L4, driver="mine"),
    wrong("GpuNodePool", "\n  min_nodes: is 2, above max_nodes (1)", **ONE_L4, min_nodes=2),
    wrong("CpuNodePool", "has GPUs", "GpuNodePool", machine_type="g2-standard-8", max_nodes=1),
    wrong(
        "CpuNodePool",
        "max_node: is not known",
        "max_nodes",
        "is required",
        machine_type="n2-standard-8",
        max_node=1,
    ),
    wrong("GkeCluster", "31 characters, and 30", name="x" * 25),
    wrong("GkeCluster", "location", "us-central1-a", name="dev", location="us-central1-a"),
    wrong("TrainingJob", "\n  gpus: is 0", gpu="H100"),
    wrong("TrainingJob", "gpu", "GPU 'B52' is not in the catalog", gpu="B52", gpus=1),
    wrong("TrainingJob", "\n  job_name: must be lower case", "'Train'", job_name="Train"),
    wrong("TrainingJob", "\n  workload_name: is not known", workload_name="train"),
    wrong("TrainingJob", "\n  shared_memory: is 64Gi", "memory (64Gi)", shared_memory="64Gi"),
    wrong(
        "TrainingJob",
        "\n  mounts[1].path: /data is taken",
        mounts=[{"claim": "a", "path": "/data"}, {"claim": "b", "path": "/data"}],
    ),
    wrong(
        "TrainingJob",
        "2 invalid arguments",
        "\n  gpus:",
        "\n  shared_memory:",
        gpu="H100",
        shared_memory="1Ti",
    ),
    wrong(
        "InferenceService",
        "\n  tolerations[0].value:",
        "Exists accepts no value",
        tolerations=[{"key": "team", "operator": "Exists", "value": "ml"}],
    ),
    wrong("TrainingJob", "memory", "more than 0", memory="-4Gi"),
    wrong(
        "TrainingJob",
        "ttl_seconds_after_finished",
        wait_for_completion=True,
        ttl_seconds_after_finished=60,
    ),
    wrong("TrainingJob", "\n  job_name: has 64 characters, and 63 are allowed", job_name="x" * 64),
    wrong(
        "InferenceService",
        "2 invalid arguments",
        "port",
        "health_path",
        port=0,
        health_path="health",
    ),
    wrong(
        "Volume",
        "size",
        "1Gx",
        namespace="ml",
        claim_name="c",
        size="1Gx",
        storage_class="fast-ssd",
    ),
    wrong(
        "TeamNamespace",
        "\n  extra_quota.limits.nvidia.com/gpu: limits nothing",
        "Set gpus",
        extra_quota={"limits.nvidia.com/gpu": "1"},
    ),
    wrong(
        "GpuOperator", "mode", "'operator', 'cos', 'ubuntu' or 'gke'", "'nouveau'", mode="nouveau"
    ),
]


@pytest.mark.parametrize(("component", "args", "words"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_arguments_are_refused_with_the_way_out(
    component: str, args: dict[str, Any], words: tuple[str, ...]
) -> None:
    message = refusal(spec_of, component, args)
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize(
    "name", ["A100", "a100-sxm4-40gb", "nvidia-tesla-a100", "NVIDIA-A100-SXM4-40GB"]
)
def test_a_gpu_by_any_of_its_names_becomes_its_label(name: str) -> None:
    assert spec_of("TrainingJob", JOB | {"gpu": name, "gpus": 1}).gpu == "NVIDIA-A100-SXM4-40GB"


def test_a_derived_name_is_held_to_its_limit() -> None:
    assert derived("a" * 57, "-xxxxx") == "a" * 57 + "-xxxxx"
    with pytest.raises(ValueError, match="64 characters, and 63 are allowed"):
        derived("a" * 58, "-xxxxx")


@pytest.mark.parametrize("module", ["ml_foundations", "ml_foundations.planning.scheduler.filters"])
def test_neither_the_package_nor_planning_loads_pulumi_or_a_client(module: str) -> None:
    shown = "[name for name in sys.modules if name.startswith(('pulumi', 'kubernetes'))]"
    code = f"import sys, {module}; print({shown})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_seeds_storage_class_is_exactly_theirs() -> None:
    classes = {each["metadata"]["name"]: each for each in spec_of("StorageClasses", {}).manifests()}
    fast = classes["fast-ssd"]
    assert fast == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast-ssd"},
        "provisioner": "pd.csi.storage.gke.io",
        "parameters": {"type": "pd-ssd", "replication-type": "regional-pd"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }


def test_values_of_the_user_win_and_maps_join() -> None:
    from ml_foundations.kubernetes.merging import merged

    joined = {"a": {"b": 1, "c": [2]}, "d": 3}
    assert merged({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": 3}) == joined
