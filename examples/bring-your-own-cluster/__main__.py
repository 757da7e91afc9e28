"""A team, its storage and its workloads on an existing cluster: the one that kubectl talks to."""

from pathlib import Path

import pulumi
from ml_foundations import InferenceService, StorageClasses, TeamNamespace, TrainingJob, Volume

# Your own training in its place; this one needs no data and no packages but PyTorch.
TRAIN = {"/workspace/train.py": (Path(__file__).parents[2] / "stacks" / "scripts" / "train.py").read_text()}

team = TeamNamespace("research", {"gpus": 9, "cpu": "128", "memory": "1Ti", "storage": "4Ti"})
inside = pulumi.ResourceOptions(depends_on=[team])
storage = StorageClasses("storage", {})
checkpoints = Volume(
    "checkpoints",
    {"namespace": team.namespace, "size": "200Gi", "storage_class": "zonal-balanced", "data": False},
    pulumi.ResourceOptions(depends_on=[team, storage]),
)
TrainingJob(
    "finetune",
    {
        "namespace": team.namespace,
        "image": "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        "command": ["torchrun", "--standalone", "--nproc-per-node=8", "/workspace/train.py"],
        "files": TRAIN,
        "gpu": "H100",
        "gpus": 8,
        "cpu": "64",
        "memory": "512Gi",
        "shared_memory": "64Gi",
        "mounts": [{"claim": checkpoints.claim_name, "path": "/checkpoints"}],
    },
    pulumi.ResourceOptions(depends_on=[team, checkpoints]),
)
chat = InferenceService(
    "chat",
    {
        "namespace": team.namespace,
        "image": "vllm/vllm-openai:v0.31.0",
        "gpu": "L4",
        "cpu": "4",
        "memory": "16Gi",
        # Fetched from Hugging Face at this commit, into the pod's home.
        "arguments": [
            "Qwen/Qwen3-4B",
            "--revision=1cfa9a7208912126459214e8b04321603b3df60c",
            "--max-model-len=16384",
            "--port=8080",
        ],
        # GKE's own device plugin mounts the driver there. With the GPU Operator's, leave this out.
        "env": {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/cuda/lib64"},
    },
    inside,
)
pulumi.export("url", chat.url)
