"""A TrainJob on two H100 nodes and a RayJob on L4s, which wait in the queue of one team."""

from pathlib import Path

import pulumi
from ml_foundations import (
    CpuNodePool,
    GkeCluster,
    GpuNodePool,
    JobSetController,
    RayJob,
    RayOperator,
    TeamNamespace,
    TrainerController,
    TrainingQueue,
    TrainingRuntime,
    TrainJob,
)

ZONES = ["us-central1-a"]
# Replace it with your bucket in this region, to which the service account may write.
BUCKET = "my-checkpoints-us-central1"
# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

cluster = GkeCluster("ml", location="us-central1", deletion_protection=False)
system = CpuNodePool(
    "system", cluster=cluster, zones=ZONES, machine_type="n2-standard-8", min_nodes=1, max_nodes=4
)
h100 = GpuNodePool("h100", cluster=cluster, zones=ZONES, machine_type="a3-highgpu-8g", max_nodes=2)
l4 = GpuNodePool("l4", cluster=cluster, zones=ZONES, machine_type="g2-standard-12", max_nodes=4)

jobsets = JobSetController("jobsets", cluster=cluster)
trainer = TrainerController(
    "trainer", cluster=cluster, opts=pulumi.ResourceOptions(depends_on=[jobsets])
)
ray = RayOperator("ray", cluster=cluster)

team = TeamNamespace(
    "nlp",
    cluster=cluster,
    gpus=20,
    cpu="512",
    memory="4Ti",
    storage="1Ti",
    service_account={"name": "trainer"},
)
queue = TrainingQueue(
    "queue",
    cluster=cluster,
    # Kueue looks for the kinds that it manages when it starts.
    opts=pulumi.ResourceOptions(depends_on=[trainer, ray]),
    kinds=["TrainJob", "RayJob"],
    flavors=[{"name": "h100", "pool": h100}, {"name": "l4", "pool": l4}],
    teams=[{"team": team, "cpu": "512", "memory": "4Ti", "gpus": {"h100": 16, "l4": 4}}],
)

# A platform engineer makes the runtime once. An ML engineer writes the TrainJob.
runtime = TrainingRuntime(
    "torch",
    opts=pulumi.ResourceOptions(depends_on=[trainer]),
    team=team,
    pool=h100,
    gpus=8,
    cpu="192",
    memory="1600Gi",
    shared_memory="128Gi",
    image="nvcr.io/nvidia/pytorch:25.06-py3",
    files={"/workspace/train.py": SCRIPT.read_text()},
    service_account="trainer",
    mounts=[{"bucket": BUCKET, "path": "/checkpoints"}],
)
TrainJob(
    "llama",
    runtime=runtime,
    queue=queue.queue_name,
    nodes=2,
    command=["torchrun", "/workspace/train.py"],
)

RayJob(
    "score",
    team=team,
    opts=pulumi.ResourceOptions(depends_on=[ray]),
    pool=l4,
    queue=queue.queue_name,
    workers=4,
    gpus=1,
    cpu="8",
    memory="36Gi",
    image="rayproject/ray:2.52.0-gpu",
    active_deadline_seconds=3600,
    entrypoint=["python", "-c", "import ray; ray.init(); print(ray.cluster_resources())"],
)
