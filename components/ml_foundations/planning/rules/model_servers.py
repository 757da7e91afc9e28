"""Containers whose programs cannot use their GPUs as their arguments say."""

import re
from collections.abc import Iterator

from ml_foundations.kubernetes.labels import GPU_RESOURCE, TRAINING_METHOD
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, section
from ml_foundations.planning.model.workloads import PodSet, is_stored
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack

_PROGRAMS = re.compile("vllm|sglang|text-generation|torchrun|torch.distributed|accelerate")


@rule(
    "server-arguments",
    Severity.ERROR,
    "The sizes of servers and launchers match their GPUs, and probes ask the server's port.",
    source="vllm 0.11 to 0.33, config/parallel.py and config/model.py; sglang; torchrun",
    example="""
        apiVersion: v1
        kind: Pod
        metadata: {name: server}
        spec:
          containers:
          - name: server
            image: vllm/vllm-openai:v0.31.0
            args: [--model=Qwen/Qwen3-8B, --tensor-parallel-size=8]
            resources: {limits: {nvidia.com/gpu: 1}}
    """,
)
@rule(
    "model-memory",
    Severity.ERROR,
    "The weights of a model and the KV cache of one request fit the memory of the GPUs.",
    source="vllm 0.11 to 0.33, v1/worker and v1/core; measured starts of vllm 0.11 to 0.19",
    example="""
        apiVersion: v1
        kind: Pod
        metadata: {name: server}
        spec:
          nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}
          containers:
          - name: server
            image: vllm/vllm-openai:v0.31.0
            args: [--model=meta-llama/Llama-3.3-70B-Instruct, --tensor-parallel-size=2]
            resources: {limits: {nvidia.com/gpu: 2}}
    """,
)
@rule(
    "model-storage",
    Severity.ERROR,
    "A model's files fit where its server downloads them, and its processes have shared memory.",
    source="Kubernetes, Local ephemeral storage; vllm 0.14 to 0.33, weight_utils.py",
    example="""
        apiVersion: v1
        kind: Pod
        metadata: {name: server}
        spec:
          nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}
          containers:
          - name: server
            image: vllm/vllm-openai:v0.31.0
            args: [--model=Qwen/Qwen3-32B, --max-model-len=8k]
            resources: {limits: {nvidia.com/gpu: 1, ephemeral-storage: 20Gi}}
    """,
)
@rule(
    "model-capacity",
    Severity.INFO,
    "The requests that a server holds at once, and the memory of a training, are known.",
    source="vllm 0.11 to 0.33, v1/core",
    example="""
        apiVersion: v1
        kind: Pod
        metadata: {name: server}
        spec:
          nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}
          containers:
          - name: server
            image: vllm/vllm-openai:v0.31.0
            args: [--model=Qwen/Qwen3-8B, --max-model-len=32k]
            resources: {limits: {nvidia.com/gpu: 1}}
    """,
)
def model_servers(stack: Stack) -> Iterator[Finding]:
    """Yield what programs of inference and training do not meet, and what servers hold."""
    programs: list[tuple[JudgedWorkload, PodSet, int]] = []
    for judged in stack.workloads:
        if not is_stored(judged.workload.manifest):
            by_path = {pods.path: pods for pods in judged.workload.pods if pods.count}
            for pods in by_path.values():
                programs += [(judged, pods, index) for index in known_programs(pods.template)]
    if programs:
        # The import takes 0.05 s, for which stacks without such programs do not wait.
        from ml_foundations.planning.rules.gpu_programs import findings

        yield from findings(stack, programs)


def known_programs(pod: Manifest) -> Iterator[int]:
    """Yield the containers with GPUs whose programs may be known, of a pod or its template."""
    is_training = TRAINING_METHOD in annotations_of(pod)
    for index, container in enumerate(items(section(pod, "spec"), "containers")):
        command = [container.get(key) for key in ("image", "command", "args")]
        has_gpus = GPU_RESOURCE in str(container.get("resources"))
        if has_gpus and (is_training or _PROGRAMS.search(str(command))):
            yield index
