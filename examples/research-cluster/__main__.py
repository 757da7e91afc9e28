"""Two teams share H100s by Kueue's queues: a team borrows free GPUs and returns them."""

from pathlib import Path

import pulumi
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    MountArgs,
    ScheduledTraining,
    StorageClasses,
    Sweep,
    TeamNamespace,
    TeamQueueArgs,
    TrainingQueue,
    Volume,
)

ZONES = ["us-central1-a"]
# Replace it with your bucket in this region, to which the service accounts may write.
CHECKPOINTS: MountArgs = {"bucket": "my-checkpoints-us-central1", "path": "/checkpoints"}
IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"
# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"
FILES = {"/workspace/train.py": SCRIPT.read_text()}
settings = pulumi.Config().require_object("teams")

cluster = GkeCluster("research", location="us-central1", deletion_protection=False)
system = CpuNodePool(
    "system", cluster=cluster, zones=ZONES, machine_type="n2-standard-8", min_nodes=1, max_nodes=4
)
h100 = GpuNodePool("h100", cluster=cluster, zones=ZONES, machine_type="a3-highgpu-8g", max_nodes=3)
l4 = GpuNodePool("l4", cluster=cluster, zones=ZONES, machine_type="g2-standard-8", max_nodes=4)

storage = StorageClasses("storage", cluster=cluster, retain=True)
teams = {
    name: TeamNamespace(name, cluster=cluster, service_account={"name": "trainer"}, **team["quota"])
    for name, team in settings.items()
}
queue = TrainingQueue(
    "queue",
    cluster=cluster,
    flavors=[{"name": "h100", "pool": h100}, {"name": "l4", "pool": l4}],
    teams=[TeamQueueArgs(team=teams[name], **team["queue"]) for name, team in settings.items()],
)

DistributedTraining(
    "llama",
    team=teams["language"],
    queue=queue.queue_name,
    nodes=2,
    gpu=h100.gpu,
    gpus=8,
    cpu="192",
    memory="1600Gi",
    image=IMAGE,
    command=["torchrun", "/workspace/train.py"],
    files=FILES,
    service_account="trainer",
    mounts=[CHECKPOINTS],
)
images = Volume(
    "images", team=teams["vision"], size="500Gi", storage_class=storage.classes["zonal-balanced"]
)
Sweep(
    "segment",
    team=teams["vision"],
    queue=queue.queue_name,
    parameters={"LEARNING_RATE": {"values": [0.0001, 0.001]}, "BATCH_SIZE": {"values": [16, 32]}},
    parallelism=4,
    gpu=l4.gpu,
    gpus=1,
    cpu="4",
    memory="16Gi",
    image=IMAGE,
    command=["python", "/workspace/train.py"],
    files=FILES,
    service_account="trainer",
    mounts=[CHECKPOINTS],
)
ScheduledTraining(
    "evaluate",
    team=teams["vision"],
    queue=queue.queue_name,
    schedule="0 3 * * *",
    time_zone="Etc/UTC",
    active_deadline_seconds=4 * 3600,
    gpu=l4.gpu,
    gpus=1,
    cpu="4",
    memory="16Gi",
    image=IMAGE,
    command=[
        "python",
        "/workspace/train.py",
        "--data=/images",
        "--checkpoints=/images/models",
        "--steps=100",
    ],
    files=FILES,
    mounts=[{"volume": images, "path": "/images"}],
)
