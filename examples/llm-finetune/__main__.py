"""A fine-tuning on two nodes with eight H100s each, with checkpoints that outlive the run."""

from pathlib import Path

from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    StorageClasses,
    TeamNamespace,
    Volume,
)

ZONES = ["us-central1-a"]
# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

cluster = GkeCluster(
    "finetune",
    location="us-central1",
    deletion_protection=False,
    filestore=True,
    # Its trainings last days: GKE upgrades no nodes, until it ends the support of their version.
    maintenance_window={
        "start_time": "2026-01-03T02:00:00Z",
        "end_time": "2026-01-03T10:00:00Z",
        "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
    },
    maintenance_exclusions={
        "trainings": {
            "start_time": "2026-01-01T00:00:00Z",
            "scope": "NO_MINOR_OR_NODE_UPGRADES",
        }
    },
)
system = CpuNodePool(
    "system", cluster=cluster, zones=ZONES, machine_type="n2-standard-4", min_nodes=1, max_nodes=3
)
h100 = GpuNodePool("h100", cluster=cluster, zones=ZONES, machine_type="a3-highgpu-8g", max_nodes=2)

storage = StorageClasses("storage", cluster=cluster, filestore={"tiers": ["zonal"]})
llm = TeamNamespace(
    "llm", cluster=cluster, gpus=16, cpu="416", memory="4Ti", storage="20Ti", data=True
)
checkpoints = Volume(
    "checkpoints",
    team=llm,
    size="4Ti",
    storage_class=storage.classes["filestore-zonal"],
    access_mode="ReadWriteMany",
)
DistributedTraining(
    "llama",
    team=llm,
    gpu=h100.gpu,
    nodes=2,
    gpus=h100.gpus_per_node,
    cpu="192",
    memory="1600Gi",
    shared_memory="128Gi",
    image="nvcr.io/nvidia/pytorch:25.06-py3",
    command=["torchrun", "/workspace/train.py", "--steps=100000"],
    files={"/workspace/train.py": SCRIPT.read_text()},
    mounts=[{"volume": checkpoints, "path": "/checkpoints"}],
    grace_seconds=120,
    active_deadline_seconds=72 * 3600,
)
