"""Model servers with vLLM, Triton and TGI, each with its user, health paths and model."""

from pathlib import Path

import pulumi
from ml_foundations import InferenceService, TeamNamespace

RANKING = Path(__file__).parent / "ranking"
bucket = pulumi.Config().get("bucket")
QWEN = "Qwen/Qwen3-8B"
model = (
    ["/models/chat"] if bucket else [QWEN, "--revision=b968826d9c46dd6066d109eabc6255188de91218"]
)

team = TeamNamespace(
    "serving", gpus=8, cpu="64", memory="256Gi", storage="1Ti", service_account={"name": "models"}
)

vllm = InferenceService(
    "chat",
    team=team,
    image="vllm/vllm-openai:v0.31.0",
    # The model is in a bucket that the service account may read, or comes from Hugging Face.
    arguments=[*model, "--max-model-len=16384", "--port=8080", "--tensor-parallel-size=2"],
    model=QWEN,
    # GKE's own device plugin mounts the driver there. With the GPU Operator's, leave this out.
    env={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/cuda/lib64"},
    mounts=[{"bucket": bucket, "path": "/models", "read_only": True}] if bucket else [],
    service_account="models",
    gpu="L4",
    gpus=2,
    cpu="8",
    memory="48Gi",
    shared_memory="8Gi",
    load_seconds=900,
    # Requests are streamed for up to 90 seconds.
    deregister_seconds=30,
    drain_seconds=90,
    grace_seconds=130,
    callers=["web"],
)

triton = InferenceService(
    "ranking",
    team=team,
    image="nvcr.io/nvidia/tritonserver:25.06-py3",
    command=["tritonserver", "--model-repository=/models"],
    # This model is a few files. Mount a large one as an image: {"image": "…", "path": "/models"}.
    files={
        f"/models/ranking/{name}": (RANKING / name).read_text()
        for name in ("config.pbtxt", "1/model.py")
    },
    port=8000,
    ports=[{"name": "grpc", "port": 8001}, {"name": "metrics", "port": 8002}],
    metrics_port="metrics",
    health_path="/v2/health/ready",
    live_path="/v2/health/live",
    gpu="L4",
    cpu="4",
    memory="24Gi",
    shared_memory="2Gi",
)

tgi = InferenceService(
    "summary",
    team=team,
    image="ghcr.io/huggingface/text-generation-inference:3.3.4",
    # Only root may read its Python in root's home and register the driver at its start.
    image_user=True,
    arguments=[
        "--model-id=Qwen/Qwen2.5-3B-Instruct",
        "--revision=aa8e72537993ba99e69dfaafa59ed015b17504d1",
        "--max-total-tokens=8192",
        "--port=8080",
    ],
    # The server downloads its model to the node's disk. A gated model needs this token.
    secret_env={"HF_TOKEN": {"name": "hugging-face", "key": "token", "optional": True}},
    mounts=[{"scratch": "50Gi", "path": "/data"}],
    gpu="L4",
    cpu="4",
    memory="24Gi",
    shared_memory="1Gi",
    load_seconds=900,
)

for name, service in {"chat": vllm, "ranking": triton, "summary": tgi}.items():
    pulumi.export(name, service.url)
