"""DeepSeek-R1 on 16 H100s of two A3 Mega nodes, behind a gateway, scaled by groups of two nodes."""

import pulumi
from ml_foundations import (
    CpuNodePool,
    GkeCluster,
    GpuNodePool,
    InferenceGateway,
    InferenceService,
    LeaderWorkerSetController,
    ModelCache,
    TeamNamespace,
)

ZONE = "us-east4-b"

cluster = GkeCluster(
    "deepseek",
    location="us-east4",
    deletion_protection=False,
    multi_networking=True,
    gateway_api=True,
    proxy_only_cidr="10.21.0.0/23",
    # GKE reads vLLM's own metrics for the autoscaler, in the Rapid channel only.
    release_channel="RAPID",
    hpa_profile="PERFORMANCE",
)
system = CpuNodePool(
    "system", cluster=cluster, zones=[ZONE], machine_type="n2-standard-16", min_nodes=1, max_nodes=3
)
h100 = GpuNodePool(
    "h100",
    cluster=cluster,
    zones=[ZONE],
    machine_type="a3-megagpu-8g",
    max_nodes=4,
    node_type="inference",
    gpu_network="auto",
)
lws = LeaderWorkerSetController("lws", cluster=cluster)

team = TeamNamespace(
    "llm",
    cluster=cluster,
    gpus=32,
    cpu="832",
    memory="7Ti",
    storage="2Ti",
    service_account={"name": "models"},
    # The GPUs' daemon runs as root in each pod.
    pod_security="privileged",
)
# Replace it with your bucket, in the region of the cluster, which the service account may read.
weights = ModelCache(
    "deepseek-r1",
    team=team,
    cluster=cluster,
    bucket="my-models-us-east4",
    bucket_location="us-east4",
)
r1 = InferenceService(
    "r1",
    opts=pulumi.ResourceOptions(depends_on=[lws]),
    team=team,
    pool=h100,
    # Each replica is a group: a leader and a worker with eight GPUs each.
    nodes=2,
    gpus=8,
    cpu="192",
    memory="1600Gi",
    shared_memory="64Gi",
    image="vllm/vllm-openai:v0.31.0",
    command=["vllm", "serve"],
    arguments=[
        "/models/DeepSeek-R1",
        "--served-model-name=deepseek-r1",
        "--tensor-parallel-size=8",
        "--pipeline-parallel-size=2",
        "--port=8080",
    ],
    model_cache=weights,
    service_account="models",
    served_models=["deepseek-r1"],
    load_seconds=3600,
    autoscaling={
        "max_replicas": 2,
        "metric": "vllm:num_requests_waiting",
        "target": "5",
        "served_by": "gke",
    },
)
gateway = InferenceGateway("gateway", team=team, cluster=cluster, servers=[r1])
pulumi.export("gateway", gateway.gateway_name)
