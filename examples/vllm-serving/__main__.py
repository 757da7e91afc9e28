"""vLLM on L4s: two to four replicas, by how many requests wait in each."""

import pulumi
from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool, InferenceService, TeamNamespace

place = {"project": pulumi.Config("gcp").require("project"), "location": "us-central1"}
# GKE reads vLLM's own metrics for the autoscaler: so far in the Rapid channel only.
cluster = GkeCluster(
    "serving", {**place, "deletion_protection": False, "release_channel": "RAPID", "hpa_profile": "PERFORMANCE"}
)

in_cluster = {
    **place,
    "cluster_name": cluster.cluster_name,
    "node_service_account": cluster.node_service_account,
    "zones": ["us-central1-a", "us-central1-b"],
}
with_gpus = {**in_cluster, "deletion_protection": False}
system = CpuNodePool("system", {**in_cluster, "machine_type": "n2-standard-4", "min_nodes": 1, "max_nodes": 3})
l4 = GpuNodePool(
    "l4",
    {**with_gpus, "machine_type": "g2-standard-12", "max_nodes": 4, "node_type": "inference"},
    pulumi.ResourceOptions(depends_on=[system]),
)

kubernetes = pulumi.ResourceOptions(provider=cluster.kubernetes_provider(depends_on=[system, l4]))
team = TeamNamespace("chat", {"gpus": 4, "cpu": "48", "memory": "192Gi", "storage": "1Ti"}, kubernetes)
chat = InferenceService(
    "chat",
    {
        "namespace": team.namespace,
        "image": "vllm/vllm-openai:v0.31.0",
        # Fetched from Hugging Face at this commit, into the pod's home.
        "arguments": [
            "Qwen/Qwen3-8B",
            "--revision=b968826d9c46dd6066d109eabc6255188de91218",
            "--max-model-len=8192",
            "--port=8080",
        ],
        # GKE's own device plugin mounts the driver there. With the GPU Operator's, leave this out.
        "env": {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/cuda/lib64"},
        "gpu": l4.gpu,
        "gpus": l4.gpus_per_node,
        "cpu": "8",
        "memory": "36Gi",
        "shared_memory": "4Gi",
        "load_seconds": 900,
        "replicas": 2,
        "autoscaling": {
            "max_replicas": 4,
            "metric": "vllm:num_requests_waiting",
            "target": "5",
            "served_by": "gke",
        },
    },
    pulumi.ResourceOptions.merge(kubernetes, pulumi.ResourceOptions(depends_on=[team])),
)
pulumi.export("url", chat.url)
