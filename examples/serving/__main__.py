"""Model servers with vLLM, Triton and TGI: each with its own paths of health, its metrics and where its model is."""

import pulumi
from ml_foundations import InferenceService, TeamNamespace

# The images run as any user, but that user has no home.
HOME = {"HOME": "/tmp"}

team = TeamNamespace(
    "serving",
    {"gpus": 8, "cpu": "64", "memory": "256Gi", "storage": "1Ti", "service_account": {"name": "models"}},
)
inside = pulumi.ResourceOptions(depends_on=[team])

vllm = InferenceService(
    "chat",
    {
        "namespace": team.namespace,
        "image": "vllm/vllm-openai:v0.10.1",
        "arguments": ["--model=/models/chat", "--port=8080", "--tensor-parallel-size=2"],
        "env": HOME,
        "gpu": "L4",
        "gpus": 2,
        "cpu": "8",
        "memory": "48Gi",
        "shared_memory": "8Gi",
        "load_seconds": 600,
        # The model is in a Cloud Storage bucket, which this service account may read.
        "mounts": [{"bucket": "example-models", "path": "/models", "read_only": True}],
        "service_account": "models",
        # Requests are streamed for up to 90 seconds.
        "deregister_seconds": 30,
        "drain_seconds": 90,
        "grace_seconds": 130,
        "autoscaling": {"max_replicas": 2, "metric": "vllm:num_requests_waiting", "target": "5"},
        "callers": ["web"],
    },
    inside,
)

triton = InferenceService(
    "ranking",
    {
        "namespace": team.namespace,
        "image": "nvcr.io/nvidia/tritonserver:25.06-py3",
        "command": ["tritonserver", "--model-repository=/models"],
        "port": 8000,
        "ports": [{"name": "grpc", "port": 8001}, {"name": "metrics", "port": 8002}],
        "metrics_port": "metrics",
        "health_path": "/v2/health/ready",
        "live_path": "/v2/health/live",
        "gpu": "L4",
        "cpu": "4",
        "memory": "24Gi",
        "shared_memory": "2Gi",
        "load_seconds": 120,
        # The models are an OCI image, which the node pulls as it pulls the server's.
        "mounts": [{"image": "us-docker.pkg.dev/example/models/ranking:1", "path": "/models"}],
    },
    inside,
)

tgi = InferenceService(
    "summary",
    {
        "namespace": team.namespace,
        "image": "ghcr.io/huggingface/text-generation-inference:3.3.4",
        "arguments": ["--model-id=Qwen/Qwen3-4B", "--port=8080"],
        "env": HOME,
        # The server fetches its model from Hugging Face, with this token, to the node's disk.
        "secret_env": {"HF_TOKEN": {"name": "hugging-face", "key": "token"}},
        "mounts": [{"scratch": "50Gi", "path": "/data"}],
        "gpu": "L4",
        "cpu": "4",
        "memory": "24Gi",
        "shared_memory": "1Gi",
        "load_seconds": 900,
    },
    inside,
)

for service in (vllm, triton, tgi):
    pulumi.export(service.service_name, service.url)
