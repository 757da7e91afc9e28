"""One GKE cluster, one GPU pool, one team with a volume, one training Job."""

from pathlib import Path

from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool, TeamNamespace, TrainingJob, Volume

ZONES = ["us-central1-a", "us-central1-b"]  # L4 GPUs are in some zones of a region only.
# Replace it with your training. This script needs no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

cluster = GkeCluster("minimal", location="us-central1", deletion_protection=False)
system = CpuNodePool(
    "system", cluster=cluster, zones=ZONES, machine_type="n2-standard-4", min_nodes=1, max_nodes=3
)
l4 = GpuNodePool("l4", cluster=cluster, zones=ZONES, machine_type="g2-standard-8", max_nodes=2)

research = TeamNamespace(
    "research", cluster=cluster, gpus=2, cpu="16", memory="64Gi", storage="1Ti"
)
data = Volume("data", team=research, size="500Gi")
TrainingJob(
    "finetune",
    team=research,
    pool=l4,
    gpus=1,
    cpu="6",
    memory="24Gi",
    image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
    command=["python", "/workspace/train.py", "--checkpoints=/data"],
    files={"/workspace/train.py": SCRIPT.read_text()},
    mounts=[{"volume": data, "path": "/data"}],
)
