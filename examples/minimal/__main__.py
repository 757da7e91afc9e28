"""One GKE cluster, one GPU pool, one team, one training Job."""

from pathlib import Path

import pulumi
from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool, TeamNamespace, TrainingJob

# Your own training in its place; this one needs no data and no packages but PyTorch.
TRAIN = {"/workspace/train.py": (Path(__file__).parents[2] / "stacks" / "scripts" / "train.py").read_text()}

place = {"project": pulumi.Config("gcp").require("project"), "location": "us-central1"}
cluster = GkeCluster("minimal", {**place, "deletion_protection": False})

in_cluster = {
    **place,
    "cluster_name": cluster.cluster_name,
    "node_service_account": cluster.node_service_account,
    "zones": ["us-central1-a", "us-central1-b"],
}
with_gpus = {**in_cluster, "deletion_protection": False}
system = CpuNodePool("system", {**in_cluster, "machine_type": "n2-standard-4", "min_nodes": 1, "max_nodes": 3})
l4 = GpuNodePool(
    "l4", {**with_gpus, "machine_type": "g2-standard-8", "max_nodes": 2}, pulumi.ResourceOptions(depends_on=[system])
)

kubernetes = pulumi.ResourceOptions(provider=cluster.kubernetes_provider(depends_on=[system, l4]))
team = TeamNamespace("research", {"gpus": 2, "cpu": "16", "memory": "64Gi", "storage": "1Ti"}, kubernetes)
TrainingJob(
    "finetune",
    {
        "namespace": team.namespace,
        "image": "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        "command": ["python", "/workspace/train.py", "--checkpoints=/tmp"],
        "files": TRAIN,
        "gpus": l4.gpus_per_node,
        "cpu": "6",
        "memory": "24Gi",
        "node_selector": l4.node_selector,
        "tolerations": l4.tolerations,
    },
    pulumi.ResourceOptions.merge(kubernetes, pulumi.ResourceOptions(depends_on=[team])),
)
