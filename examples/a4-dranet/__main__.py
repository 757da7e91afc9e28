"""B200s of two A4 nodes train over RDMA interfaces that GKE creates and pods claim (DRANET)."""

from pathlib import Path

import pulumi
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    NcclTest,
    TeamNamespace,
)

ZONE = "us-central1-b"
# Replace it with your bucket in this region, to which the service account may write.
BUCKET = "my-checkpoints-us-central1"
IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"
# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

# GKE has the DeviceClasses of DRANET from this version on.
cluster = GkeCluster(
    "a4",
    location="us-central1",
    kubernetes_version="1.35",
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
b200 = GpuNodePool(
    "b200",
    cluster=cluster,
    zones=[ZONE],
    machine_type="a4-highgpu-8g",
    max_nodes=4,
    spot=True,
    gpu_network="managed",
)

team = TeamNamespace(
    "pretraining",
    cluster=cluster,
    gpus=32,
    cpu="896",
    memory="14Ti",
    storage="1Ti",
    pod_security="privileged",
    service_account={"name": "trainer"},
)
# The training starts when the network between the nodes has passed.
# Google publishes no figure for A4. The interfaces of a node carry 400 GB/s together.
nccl = NcclTest(
    "nccl", team=team, pool=b200, nodes=2, minimum_bus_bandwidth=300, wait_for_completion=True
)
DistributedTraining(
    "llama",
    opts=pulumi.ResourceOptions(depends_on=[nccl]),
    team=team,
    pool=b200,
    nodes=2,
    gpus=8,
    cpu="200",
    memory="3200Gi",
    image=IMAGE,
    command=["torchrun", "/workspace/train.py"],
    files={"/workspace/train.py": SCRIPT.read_text()},
    service_account="trainer",
    mounts=[{"bucket": BUCKET, "path": "/checkpoints"}],
)
