"""A team, its storage and its workloads on an existing cluster: the one that kubectl talks to."""

import pulumi
from ml_foundations import InferenceService, StorageClasses, TeamNamespace, TrainingJob, Volume

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
        "image": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
        "command": ["python", "train.py"],
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
        "image": "vllm/vllm-openai:v0.10.1",
        "gpu": "L4",
        "cpu": "4",
        "memory": "16Gi",
        "arguments": ["--model", "Qwen/Qwen3-4B", "--port", "8080"],
    },
    inside,
)
pulumi.export("url", chat.url)
