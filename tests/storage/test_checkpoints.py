"""Multi-tier checkpointing: the bucket's permission, the configuration of a pool's nodes, and the mount."""

from typing import Any

import pytest
from ml_foundations import CheckpointConfiguration, DistributedTraining, GkeCluster, GpuNodePool
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.spec import check
from ml_foundations.storage.checkpoints import CheckpointConfigurationSpec
from ml_foundations.workloads.train_job import TrainJobSpec

from tests.support.declaring import declared, inputs
from tests.workloads import building

H100 = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
ARGS: dict[str, Any] = {
    "configuration_name": "ram",
    "project": "ml",
    "bucket": "my-checkpoints",
    "in_memory_volume_size": "200Gi",
    "node_selector": H100,
}


def test_the_configuration_follows_the_permission_of_gkes_agent() -> None:
    access, configuration = check(CheckpointConfigurationSpec, "C", ARGS).declared_children()
    assert not isinstance(access.declared, dict)
    agent = "gke-managed-checkpointing/gke-checkpointing-multitier-node"
    assert access.declared.inputs == {
        "bucket": "my-checkpoints",
        "role": "roles/storage.objectUser",
        "member": f"serviceAccount:ml.svc.id.goog[{agent}]",
    }
    assert configuration.depends_on == ["access"]
    assert configuration.manifest["spec"] == {
        "cloudStorageBucketName": "my-checkpoints",
        "inMemoryVolumeSize": "200Gi",
        "nodeSelector": H100,
        "tolerations": [],
    }
    (alone,) = check(CheckpointConfigurationSpec, "C", ARGS | {"grant": False}).declared_children()
    assert alone.depends_on == []


def test_it_has_nodes() -> None:
    with pytest.raises(ArgumentsError, match="node_selector"):
        check(CheckpointConfigurationSpec, "C", ARGS | {"node_selector": {}})


def test_a_training_mounts_the_checkpoints_of_its_pool_once_they_are_configured() -> None:
    def program() -> None:
        cluster = GkeCluster(
            "ml", project="my-project", location="us-central1", multi_tier_checkpointing=True
        )
        pool = GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-8", max_nodes=2)
        kept = CheckpointConfiguration(
            "ram", cluster=cluster, pool=pool, bucket="bbb", in_memory_volume_size="8Gi"
        )
        DistributedTraining(
            "train",
            cluster=cluster,
            namespace="ml",
            pool=pool,
            nodes=2,
            gpus=1,
            jobset=True,
            image="i",
            mounts=[{"checkpoints": kept, "path": "/checkpoints"}],
            checkpoint_seconds=600,
        )

    made = declared(program)
    addons = inputs(made["ml-cluster"])["addonsConfig"]
    assert addons["highScaleCheckpointingConfig"] == {"enabled": True}
    spec = inputs(made["ram-configuration"])["spec"]
    assert spec["nodeSelector"] == {"cloud.google.com/gke-nodepool": "l4"} or spec["nodeSelector"]
    assert [each["key"] for each in spec["tolerations"]] == ["nvidia.com/gpu"]
    jobset = inputs(made["train-jobset"])
    assert jobset["metadata"]["annotations"]["ml-foundations/checkpoint-seconds"] == "600"
    (job,) = jobset["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    source = {"csi": {"driver": "multitier-checkpoint.csi.storage.gke.io"}}
    assert {"name": "checkpoints", **source} in pod["volumes"]
    after = made["train-jobset"].dependencies
    assert any("ram-configuration" in urn for urn in after)


def test_checkpoints_come_before_the_end() -> None:
    (job,) = (
        item for item in building.gang(nodes=2, checkpoint_seconds=60) if item["kind"] == "Job"
    )
    assert job["metadata"]["annotations"]["ml-foundations/checkpoint-seconds"] == "60"
    with pytest.raises(ArgumentsError, match="checkpoint_seconds: is 60; the whole Job may run 60"):
        building.gang(nodes=2, checkpoint_seconds=60, active_deadline_seconds=60)
    args = {"job_name": "t", "namespace": "ml", "runtime": "torch", "checkpoint_seconds": 60}
    (train_job,) = check(TrainJobSpec, "TrainJob", args).manifests()
    assert train_job["metadata"]["annotations"]["ml-foundations/checkpoint-seconds"] == "60"
