"""A fine-tuning on two nodes with eight H100s each: torchrun finds its peers, checkpoints outlive the run."""

from pathlib import Path

import pulumi
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    StorageClasses,
    TeamNamespace,
    Volume,
)

# Your own training in its place; this one needs no data and no packages but PyTorch.
TRAIN = {"/workspace/train.py": (Path(__file__).parents[2] / "stacks" / "scripts" / "train.py").read_text()}

place = {"project": pulumi.Config("gcp").require("project"), "location": "us-central1"}
cluster = GkeCluster("finetune", {**place, "deletion_protection": False, "filestore": True})

in_cluster = {
    **place,
    "cluster_name": cluster.cluster_name,
    "node_service_account": cluster.node_service_account,
    "zones": ["us-central1-a"],
}
with_gpus = {**in_cluster, "deletion_protection": False}
system = CpuNodePool("system", {**in_cluster, "machine_type": "n2-standard-4", "min_nodes": 1, "max_nodes": 3})
h100 = GpuNodePool(
    "h100", {**with_gpus, "machine_type": "a3-highgpu-8g", "max_nodes": 2}, pulumi.ResourceOptions(depends_on=[system])
)

kubernetes = pulumi.ResourceOptions(provider=cluster.kubernetes_provider(depends_on=[system, h100]))
storage = StorageClasses("storage", {"filestore": {"tiers": ["zonal"]}, "network": "finetune"}, kubernetes)
team = TeamNamespace("llm", {"gpus": 16, "cpu": "416", "memory": "4Ti", "storage": "20Ti", "data": True}, kubernetes)


def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """In the cluster, once these are there."""
    return pulumi.ResourceOptions.merge(kubernetes, pulumi.ResourceOptions(depends_on=list(resources)))


checkpoints = Volume(
    "checkpoints",
    {"namespace": team.namespace, "size": "4Ti", "storage_class": "filestore-zonal", "access_mode": "ReadWriteMany"},
    after(team, storage),
)
DistributedTraining(
    "llama",
    {
        "namespace": team.namespace,
        "image": "nvcr.io/nvidia/pytorch:25.06-py3",
        "command": ["torchrun", "/workspace/train.py", "--steps=100000"],
        "files": TRAIN,
        "nodes": 2,
        "gpu": h100.gpu,
        "gpus": h100.gpus_per_node,
        "cpu": "192",
        "memory": "1600Gi",
        "shared_memory": "128Gi",
        "grace_seconds": 120,
        "active_deadline_seconds": 72 * 3600,
        "mounts": [{"claim": checkpoints.claim_name, "path": "/checkpoints"}],
    },
    after(team, checkpoints),
)
