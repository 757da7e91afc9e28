"""vLLM on L4s, with two to four replicas by the number of waiting requests."""

import pulumi
from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool, InferenceService, TeamNamespace

ZONES = ["us-central1-a", "us-central1-b"]

cluster = GkeCluster(
    "serving",
    location="us-central1",
    deletion_protection=False,
    # GKE reads vLLM's own metrics for the autoscaler, in the Rapid channel only.
    release_channel="RAPID",
    hpa_profile="PERFORMANCE",
)
system = CpuNodePool(
    "system", cluster=cluster, zones=ZONES, machine_type="n2-standard-4", min_nodes=1, max_nodes=3
)
l4 = GpuNodePool(
    "l4",
    cluster=cluster,
    zones=ZONES,
    machine_type="g2-standard-12",
    max_nodes=4,
    node_type="inference",
)

team = TeamNamespace("chat", cluster=cluster, gpus=4, cpu="48", memory="192Gi", storage="1Ti")
chat = InferenceService(
    "chat",
    team=team,
    gpu=l4.gpu,
    gpus=l4.gpus_per_node,
    cpu="8",
    memory="36Gi",
    shared_memory="4Gi",
    image="vllm/vllm-openai:v0.31.0",
    # The server downloads the model from Hugging Face at this commit, into the pod's home.
    arguments=[
        "Qwen/Qwen3-8B",
        "--revision=b968826d9c46dd6066d109eabc6255188de91218",
        "--max-model-len=8192",
        "--port=8080",
    ],
    # GKE's own device plugin mounts the driver there. With the GPU Operator's, leave this out.
    env={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/cuda/lib64"},
    load_seconds=900,
    replicas=2,
    autoscaling={
        "max_replicas": 4,
        "metric": "vllm:num_requests_waiting",
        "target": "5",
        "served_by": "gke",
    },
)
pulumi.export("url", chat.url)
