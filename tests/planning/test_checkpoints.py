"""Pods with checkpoints in the memory of nodes: the configuration of these nodes, their memory, and the bucket."""

from typing import Any

import pytest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import CLUSTER, NODE_POOL, Resource
from ml_foundations.planning.verdict.program import judge_program

from tests.factories import resource

POOL = {"cloud.google.com/gke-nodepool": "h100"}
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def configuration(
    selector: dict[str, str] = POOL, size: str = "200Gi", *tolerations: dict[str, str]
) -> Resource:
    spec = {"cloudStorageBucketName": "b", "inMemoryVolumeSize": size, "nodeSelector": selector}
    spec |= {"tolerations": list(tolerations or (TAINT,))}
    version = "checkpointing.gke.io/v1"
    return resource(api_object(version, "CheckpointConfiguration", {"name": "ram"}, spec=spec))


def bucket(**inputs: Any) -> Resource:
    return "gcp:storage/bucket:Bucket", {"name": "b", "location": "US-CENTRAL1", **inputs}


def judge(*more: Resource, enabled: bool = True, memory: str = "1000Gi") -> list[tuple[str, str]]:
    """The rules and severities of a Job with checkpoints on a pool with one A3 node."""
    addons = {"highScaleCheckpointingConfig": {"enabled": enabled}}
    addons |= {"gcsFuseCsiDriverConfig": {"enabled": True}}
    inputs = {"name": "ml", "location": "us-central1-a", "removeDefaultNodePool": True}
    identity = {"workloadPool": "p.svc.id.goog"}
    cluster = CLUSTER, inputs | {"addonsConfig": addons, "workloadIdentityConfig": identity}
    gpus = [{"type": "nvidia-h100-80gb", "count": 8}]
    config = {"machineType": "a3-highgpu-8g", "guestAccelerators": gpus}
    config |= {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]}
    place = {"name": "h100", "location": "us-central1-a", "nodeCount": 1, "nodeConfig": config}
    container = {"name": "main", "image": "i"}
    container |= {"resources": {"requests": {"memory": memory, "cpu": "1"}}}
    volume = {"name": "kept", "csi": {"driver": labels.CHECKPOINT_DRIVER}}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    pod |= {"tolerations": [TAINT], "nodeSelector": POOL}
    metadata = {"name": "train", "namespace": "default"}
    job = api_object("batch/v1", "Job", metadata, spec={"template": {"spec": pod}})
    resources = [cluster, (NODE_POOL, place), resource(job), *more]
    found = judge_program(resources).findings
    wanted = ("checkpoints", "controller", "csi-driver")
    return [(each.rule, each.severity) for each in found if each.rule in wanted]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ([configuration()], []),
        ([], [("checkpoints", "error")]),
        ([configuration({"pool": "l4"})], [("checkpoints", "error")]),
        ([configuration(POOL, "200Gi", {"key": "other"})], [("checkpoints", "error")]),
        ([configuration(size="900Gi")], [("checkpoints", "warning")]),
        ([configuration(), bucket()], [("checkpoints", "error")]),
        ([configuration(), bucket(hierarchicalNamespace={"enabled": True})], []),
        ([configuration(), bucket(name="another")], []),
    ],
)
def test_checkpoints_have_nodes_memory_and_a_bucket(
    made: list[Resource], expected: list[tuple[str, str]]
) -> None:
    assert judge(*made) == expected


@pytest.mark.parametrize("value", ["much", UNKNOWN, None, ["1Gi"], {}, -1])
@pytest.mark.parametrize(
    "field", ["cloudStorageBucketName", "inMemoryVolumeSize", "nodeSelector", "tolerations"]
)
def test_a_configuration_of_any_form_is_read(field: str, value: Any) -> None:
    type_, manifest = configuration()
    manifest["spec"][field] = value
    judge((type_, manifest), bucket())


def test_without_the_add_on_there_is_neither_driver_nor_kind() -> None:
    found = judge(configuration(), enabled=False)
    assert sorted(found) == [("controller", "error"), ("csi-driver", "error")]
