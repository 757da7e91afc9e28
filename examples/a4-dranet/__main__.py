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
IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"
# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

# GKE has the DeviceClasses of DRANET from this version on.
cluster = GkeCluster(
    "a4", location="us-central1", kubernetes_version="1.35", deletion_protection=False
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
    command=["torchrun", "/workspace/train.py", "--checkpoints=/tmp"],
    files={"/workspace/train.py": SCRIPT.read_text()},
)
