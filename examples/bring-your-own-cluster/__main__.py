"""A team, its storage and its workloads on an existing cluster: the one that kubectl talks to."""

from pathlib import Path

import pulumi
from ml_foundations import InferenceService, StorageClasses, TeamNamespace, TrainingJob, Volume

# Replace it with your training. This script needs no data and no packages other than PyTorch.
SCRIPT = Path(__file__).parents[2] / "stacks" / "scripts" / "train.py"

team = TeamNamespace("research", gpus=9, cpu="128", memory="1Ti", storage="4Ti")
storage = StorageClasses("storage")
checkpoints = Volume(
    "checkpoints",
    team=team,
    size="200Gi",
    storage_class=storage.classes["zonal-balanced"],
    data=False,
)
TrainingJob(
    "finetune",
    team=team,
    image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
    command=["torchrun", "--standalone", "--nproc-per-node=8", "/workspace/train.py"],
    files={"/workspace/train.py": SCRIPT.read_text()},
    gpu="H100",
    gpus=8,
    cpu="64",
    memory="512Gi",
    shared_memory="64Gi",
    mounts=[{"volume": checkpoints, "path": "/checkpoints"}],
)
chat = InferenceService(
    "chat",
    team=team,
    image="vllm/vllm-openai:v0.31.0",
    gpu="L4",
    cpu="4",
    memory="16Gi",
    # It downloads the model from Hugging Face at this commit, into the pod's home.
    arguments=[
        "Qwen/Qwen3-4B",
        "--revision=1cfa9a7208912126459214e8b04321603b3df60c",
        "--max-model-len=16384",
        "--port=8080",
    ],
    # GKE's own device plugin mounts the driver there. With the GPU Operator's, leave this out.
    env={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/cuda/lib64"},
)
pulumi.export("url", chat.url)
