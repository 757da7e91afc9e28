"""Two teams share H100s by Kueue's queues: what one leaves, the other borrows, and gives back when it is wanted."""

from pathlib import Path

import pulumi
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    ScheduledTraining,
    StorageClasses,
    Sweep,
    TeamNamespace,
    TrainingQueue,
    Volume,
)

# Your own training in its place; this one needs no data and no packages but PyTorch.
TRAIN = {"/workspace/train.py": (Path(__file__).parents[2] / "stacks" / "scripts" / "train.py").read_text()}
IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"
teams = pulumi.Config().require_object("teams")
place = {"project": pulumi.Config("gcp").require("project"), "location": "us-central1"}
cluster = GkeCluster("research", {**place, "deletion_protection": False})

in_cluster = {
    **place,
    "cluster_name": cluster.cluster_name,
    "node_service_account": cluster.node_service_account,
    "zones": ["us-central1-a"],
}
with_gpus = {**in_cluster, "deletion_protection": False}
system = CpuNodePool("system", {**in_cluster, "machine_type": "n2-standard-8", "min_nodes": 1, "max_nodes": 4})
after_system = pulumi.ResourceOptions(depends_on=[system])
pools = {
    "h100": GpuNodePool("h100", {**with_gpus, "machine_type": "a3-highgpu-8g", "max_nodes": 3}, after_system),
    "l4": GpuNodePool("l4", {**with_gpus, "machine_type": "g2-standard-8", "max_nodes": 4}, after_system),
}

kubernetes = pulumi.ResourceOptions(provider=cluster.kubernetes_provider(depends_on=[system, *pools.values()]))


def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """In the cluster, once these are there."""
    return pulumi.ResourceOptions.merge(kubernetes, pulumi.ResourceOptions(depends_on=list(resources)))


storage = StorageClasses("storage", {"retain": True}, kubernetes)
namespaces = {name: TeamNamespace(name, team["quota"], kubernetes) for name, team in teams.items()}
queue = TrainingQueue(
    "queue",
    {
        "flavors": [
            {"name": name, "gpu": pool.gpu, "node_selector": pool.node_selector, "tolerations": pool.tolerations}
            for name, pool in pools.items()
        ],
        "teams": [{"namespace": name, **team["queue"]} for name, team in teams.items()],
    },
    after(*namespaces.values()),
)

DistributedTraining(
    "llama",
    {
        "namespace": namespaces["language"].namespace,
        "queue": queue.queue_name,
        "image": IMAGE,
        "command": ["torchrun", "/workspace/train.py", "--checkpoints=/tmp"],
        "files": TRAIN,
        "nodes": 2,
        "gpu": pools["h100"].gpu,
        "gpus": 8,
        "cpu": "192",
        "memory": "1600Gi",
    },
    after(queue),
)
images = Volume(
    "images",
    {"namespace": namespaces["vision"].namespace, "size": "500Gi", "storage_class": "zonal-balanced"},
    after(namespaces["vision"], storage),
)
Sweep(
    "segment",
    {
        "namespace": namespaces["vision"].namespace,
        "queue": queue.queue_name,
        "image": IMAGE,
        "command": ["python", "/workspace/train.py", "--checkpoints=/tmp"],
        "files": TRAIN,
        "parameters": {"LEARNING_RATE": {"values": [0.0001, 0.001]}, "BATCH_SIZE": {"values": [16, 32]}},
        "parallelism": 4,
        "gpu": pools["l4"].gpu,
        "gpus": 1,
        "cpu": "4",
        "memory": "16Gi",
    },
    after(queue),
)
ScheduledTraining(
    "evaluate",
    {
        "namespace": namespaces["vision"].namespace,
        "queue": queue.queue_name,
        "image": IMAGE,
        "command": ["python", "/workspace/train.py", "--data=/images", "--checkpoints=/images/models", "--steps=100"],
        "files": TRAIN,
        "schedule": "0 3 * * *",
        "time_zone": "Etc/UTC",
        "active_deadline_seconds": 4 * 3600,
        "gpu": pools["l4"].gpu,
        "gpus": 1,
        "cpu": "4",
        "memory": "16Gi",
        "mounts": [{"claim": images.claim_name, "path": "/images"}],
    },
    after(queue, images),
)
