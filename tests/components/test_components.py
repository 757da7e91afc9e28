"""The components' contract: wrong arguments refused all at once, names resolved, schema complete, pure manifests."""

import subprocess
import sys
from typing import Any

import ml_foundations
import pulumi
import pytest
from ml_foundations.component.spec import check
from ml_foundations.component.types import derived
from ml_foundations.kubernetes import labels


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

WRONG = [
    (
        "GpuNodePool",
        POOL | {"machine_type": "g2-standard-8", "max_nodes": 0},
        ["max_nodes", "got 0"],
    ),
    (
        "GpuNodePool",
        POOL | {"machine_type": "n2-standard-8", "max_nodes": 1},
        ["has no GPU", "CpuNodePool"],
    ),
    ("GpuNodePool", POOL | {"machine_type": "n1-standard-8", "max_nodes": 1}, ["set gpu and gpus"]),
    (
        "GpuNodePool",
        POOL | {"machine_type": "n1-standard-8", "max_nodes": 1, "gpu": "T4", "gpus": 3},
        ["1 or 2 or 4 GPUs"],
    ),
    (
        "GpuNodePool",
        POOL | {"machine_type": "g2-standard-8", "max_nodes": 1, "driver": "mine"},
        ["driver", "operator"],
    ),
    (
        "GpuNodePool",
        POOL | {"machine_type": "g2-standard-8", "max_nodes": 1, "min_nodes": 2},
        ["\n  min_nodes: is 2, above max_nodes (1)"],
    ),
    (
        "CpuNodePool",
        POOL | {"machine_type": "g2-standard-8", "max_nodes": 1},
        ["has GPUs", "GpuNodePool"],
    ),
    (
        "CpuNodePool",
        POOL | {"machine_type": "n2-standard-8", "max_node": 1},
        ["max_node: is not known", "max_nodes", "is required"],
    ),
    (
        "GkeCluster",
        {"name": "x" * 25, "project": "project", "location": "us-central1"},
        ["31 characters, and 30"],
    ),
    (
        "GkeCluster",
        {"name": "dev", "project": "project", "location": "us-central1-a"},
        ["location", "us-central1-a"],
    ),
    ("TrainingJob", JOB | {"gpu": "H100"}, ["\n  gpus: is 0"]),
    ("TrainingJob", JOB | {"gpu": "B52", "gpus": 1}, ["gpu", "GPU 'B52' is not in the catalog"]),
    ("TrainingJob", JOB | {"job_name": "Train"}, ["\n  job_name: must be lower case", "'Train'"]),
    ("TrainingJob", JOB | {"workload_name": "train"}, ["\n  workload_name: is not known"]),
    (
        "TrainingJob",
        JOB | {"shared_memory": "64Gi"},
        ["\n  shared_memory: is 64Gi", "memory (64Gi)"],
    ),
    (
        "TrainingJob",
        JOB | {"mounts": [{"claim": "a", "path": "/data"}, {"claim": "b", "path": "/data"}]},
        ["\n  mounts[1].path: /data is taken"],
    ),
    (
        "TrainingJob",
        JOB | {"gpu": "H100", "shared_memory": "1Ti"},
        ["2 invalid arguments", "\n  gpus:", "\n  shared_memory:"],
    ),
    (
        "InferenceService",
        SERVICE | {"tolerations": [{"key": "team", "operator": "Exists", "value": "ml"}]},
        ["\n  tolerations[0].value:", "Exists accepts no value"],
    ),
    ("TrainingJob", JOB | {"memory": "-4Gi"}, ["memory", "more than 0"]),
    (
        "TrainingJob",
        JOB | {"wait_for_completion": True, "ttl_seconds_after_finished": 60},
        ["ttl_seconds_after_finished"],
    ),
    (
        "TrainingJob",
        JOB | {"job_name": "x" * 64},
        ["\n  job_name: has 64 characters, and 63 are allowed"],
    ),
    (
        "InferenceService",
        SERVICE | {"port": 0, "health_path": "health"},
        ["2 invalid arguments", "port", "health_path"],
    ),
    (
        "Volume",
        {"namespace": "ml", "claim_name": "c", "size": "1Gx", "storage_class": "fast-ssd"},
        ["size", "1Gx"],
    ),
    (
        "TeamNamespace",
        TEAM | {"extra_quota": {"limits.nvidia.com/gpu": "1"}},
        ["\n  extra_quota.limits.nvidia.com/gpu: limits nothing", "Set gpus"],
    ),
    (
        "GpuOperator",
        {"mode": "nouveau"},
        ["mode", "'operator', 'cos', 'ubuntu' or 'gke'", "'nouveau'"],
    ),
]


@pytest.mark.parametrize(("component", "args", "words"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_arguments_are_refused_with_the_way_out(
    component: str, args: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec_of(component, args)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "name", ["A100", "a100-sxm4-40gb", "nvidia-tesla-a100", "NVIDIA-A100-SXM4-40GB"]
)
def test_a_gpu_by_any_of_its_names_becomes_its_label(name: str) -> None:
    assert spec_of("TrainingJob", JOB | {"gpu": name, "gpus": 1}).gpu == "NVIDIA-A100-SXM4-40GB"


def test_a_derived_name_is_held_to_its_limit() -> None:
    assert derived("a" * 57, "-xxxxx") == "a" * 57 + "-xxxxx"
    with pytest.raises(ValueError, match="64 characters, and 63 are allowed"):
        derived("a" * 58, "-xxxxx")


def test_importing_the_package_loads_no_component() -> None:
    code = "import sys, ml_foundations; print([m for m in sys.modules if m.startswith(('pulumi', 'kubernetes'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_planning_imports_neither_pulumi_nor_a_client() -> None:
    code = "import sys, ml_foundations.planning.scheduler.filters; print([m for m in sys.modules if m.startswith(('pulumi', 'kubernetes'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_training_and_preprocessing_pods_run_on_their_own_nodes() -> None:
    def pod(**more: Any) -> dict[str, Any]:
        (job,) = spec_of("TrainingJob", JOB | more).manifests()
        return job["spec"]["template"]["spec"]

    gpu = pod(gpu="H100-SXM5-80GB", gpus=8)
    assert gpu["containers"][0]["resources"]["limits"][labels.GPU_RESOURCE] == "8"
    assert gpu["tolerations"] == [
        {
            "key": labels.GPU_RESOURCE,
            "operator": "Equal",
            "value": "present",
            "effect": "NoSchedule",
        }
    ]
    cpu = pod()
    assert "tolerations" not in cpu
    assert "DoesNotExist" in str(cpu["affinity"])


def test_the_seeds_storage_class_is_exactly_theirs() -> None:
    fast = next(
        m for m in spec_of("StorageClasses", {}).manifests() if m["metadata"]["name"] == "fast-ssd"
    )
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

    assert merged({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": 3}) == {
        "a": {"b": 1, "c": [2]},
        "d": 3,
    }
