"""A gang of 128 GPUs on near A3 Mega nodes, after an NCCL test, with flex-start as fallback."""

from pathlib import Path

import pulumi
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    JobSetController,
    NcclTest,
    TeamNamespace,
    TeamQueueArgs,
    TrainingQueue,
)

ZONE = "us-east4-b"
NODES = 16
# Replace it with your bucket in this region, to which the service account may write.
BUCKET = "my-checkpoints-us-east4"
IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"
# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

cluster = GkeCluster(
    "a3mega",
    location="us-east4",
    multi_networking=True,
    deletion_protection=False,
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
    "system", cluster=cluster, zones=[ZONE], machine_type="n2-standard-8", min_nodes=1, max_nodes=3
)
reserved = GpuNodePool(
    "reserved",
    cluster=cluster,
    zones=[ZONE],
    machine_type="a3-megagpu-8g",
    min_nodes=NODES,
    max_nodes=NODES,
    reservation="a3mega-block",
    gpu_network="auto",
)
# Kueue requests these nodes, all at once, if the gang finds no room on the reserved ones.
flex = GpuNodePool(
    "flex",
    cluster=cluster,
    zones=[ZONE],
    machine_type="a3-megagpu-8g",
    max_nodes=NODES,
    flex_start=True,
    queued_provisioning=True,
    gpu_network=reserved,
)

jobsets = JobSetController("jobsets", cluster=cluster)
team = TeamNamespace(
    "pretraining",
    cluster=cluster,
    gpus=2 * NODES * 8,
    cpu="6656",
    memory="60Ti",
    storage="1Ti",
    pod_security="privileged",
    service_account={"name": "trainer"},
)
queue = TrainingQueue(
    "queue",
    cluster=cluster,
    topology=["block", "sub-block", "host", "hostname"],
    flavors=[
        {"name": "reserved", "pool": reserved},
        # GKE does not promise its topology labels on flex-start nodes.
        {"name": "flex", "pool": flex, "topology": ["hostname"]},
    ],
    teams=[
        TeamQueueArgs(
            team=team,
            cpu="6656",
            memory="60Ti",
            gpus={"reserved": NODES * 8, "flex": NODES * 8},
        )
    ],
)

before: list[pulumi.Resource] = []
if pulumi.Config().require_bool("acceptanceTest"):
    # The training starts when the network between all reserved nodes has passed.
    test = NcclTest("nccl", team=team, pool=reserved, nodes=NODES, wait_for_completion=True)
    before.append(test)
DistributedTraining(
    "llama",
    opts=pulumi.ResourceOptions(depends_on=before),
    team=team,
    queue=queue.queue_name,
    # As near as possible: nodes of one block, if its nodes have room for all.
    topology="preferred:hostname",
    jobset=True,
    nodes=NODES,
    # It names no pool, because Kueue chooses the flavor.
    gpu=reserved.gpu,
    gpu_fabric=reserved.gpu_fabric,
    gpus=8,
    cpu="192",
    memory="1600Gi",
    image=IMAGE,
    command=["torchrun", "/workspace/train.py"],
    files={"/workspace/train.py": SCRIPT.read_text()},
    service_account="trainer",
    mounts=[{"bucket": BUCKET, "path": "/checkpoints"}],
)
