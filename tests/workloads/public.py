"""Arguments of ours that say what 12 public manifests of GPU workloads say; public_fields.yaml has their fields."""

from collections.abc import Callable, Mapping
from typing import Any

from ml_foundations.component.spec import ComponentSpec

from tests.workloads.building import gang_spec, job_spec, service_spec, shards_spec

VLLM: dict[str, Any] = {
    "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
    "arguments": ["--model=$(MODEL_ID)"],
    "env": {"MODEL_ID": "m"},
    "secret_env": {"HUGGING_FACE_HUB_TOKEN": {"name": "hf", "key": "token"}},
    "shared_memory": "1Gi",
    "requests": {"ephemeral-storage": "20Gi"},
    "node_selector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "labels": {"model": "m"},
    "service_port": 8000,
}
NODES_FILES = [
    {"name": "nvidia", "path": "/usr/local/nvidia", "volume": {"hostPath": {"path": "/home/kubernetes/bin/nvidia"}}},
    {"name": "sys", "volume": {"hostPath": {"path": "/sys"}}},
]
DAEMON = {
    "name": "daemon",
    "image": "i",
    "imagePullPolicy": "Always",
    "command": ["/bin/sh"],
    "args": ["-c"],
    "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
    "volumeMounts": [{"name": "sys", "mountPath": "/hostsysfs"}],
}
TOGETHER: dict[str, Any] = {
    "gpus": 8,
    "command": ["/bin/bash"],
    "arguments": ["-c"],
    "env": {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"},
    "mounts": NODES_FILES,
    "shared_memory": "1Gi",
    "annotations": {"networking.gke.io/default-interface": "eth0"},
    "labels": {"name": "host"},
}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
BY_GPU_USE = {
    "type": "External",
    "external": {
        "metric": {"name": "duty_cycle", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "AverageValue", "averageValue": "20"},
    },
}
SLOW = {"initialDelaySeconds": 600, "failureThreshold": 60}
EXEC = {"exec": {"command": ["true"]}, "httpGet": None}

Said = tuple[Callable[..., ComponentSpec], dict[str, Any], dict[str, Any]]
OURS: Mapping[str, Said] = {
    "vllm-gemma": (service_spec, VLLM, {}),
    "resnet": (
        job_spec,
        {"command": ["python"], "env": {"STEPS": "1"}, "gpus": 1, "mounts": [{"claim": "nfs", "path": "/data"}]},
        {},
    ),
    "quantize": (
        job_spec,
        {
            **{key: VLLM[key] for key in ("command", "env", "secret_env", "shared_memory", "node_selector")},
            "gpus": 1,
            "ttl_seconds_after_finished": 100,
        },
        {},
    ),
    "triton-gemma": (
        service_spec,
        {
            "command": ["/scripts/entrypoint.sh"],
            "files": {"/scripts/entrypoint.sh": "#!/bin/sh"},
            "image_pull_policy": "IfNotPresent",
            "mounts": [{"claim": "models", "path": "/data"}],
            "ports": [{"name": "grpc", "port": 8001}, {"name": "metrics", "port": 8002}],
            "probes": {"liveness": SLOW, "readiness": SLOW},
            "node_selector": VLLM["node_selector"],
            "tolerations": [{"key": "key", "operator": "Exists", "effect": "NoSchedule"}],
            "object_labels": {"version": "v1"},
        },
        {},
    ),
    "vllm-llama": (service_spec, VLLM | {"files": {"/templates/chat.jinja": ""}}, {}),
    "tgi-gemma": (service_spec, VLLM, {}),
    "nccl-tcpx": (
        gang_spec,
        TOGETHER
        | {
            "host_network": True,
            "privileged": True,
            "image_pull_policy": "Always",
            "side_containers": [DAEMON],
            "files": {"/configs/hosts": ""},
            "mounts": [*NODES_FILES, {"name": "scratch", "volume": {"emptyDir": {}}}],
        },
        {},
    ),
    "nccl-tcpxo": (
        gang_spec,
        TOGETHER | {"side_containers": [DAEMON], "affinity": APART},
        {"pod_overrides": {"hostname": "host-1"}},
    ),
    "nccl-rdma": (gang_spec, TOGETHER, {}),
    "tensorflow-serving": (
        service_spec,
        {
            "command": ["/usr/local/bin/tensorflow_model_server"],
            "arguments": ["--port=9000"],
            "port": 9000,
            "probes": {"readiness": EXEC},
            "autoscaling": {"max_replicas": 10, "cpu_percent": 80},
        },
        {"overrides": {"HorizontalPodAutoscaler": {"spec": {"metrics": [BY_GPU_USE]}}}},
    ),
    "tensorflow-notebook": (
        shards_spec,
        {
            "shards": 1,
            "port": 8888,
            "port_name": "notebook",
            "run_as_user": 0,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "stateful", "size": "1Gi", "storage_class": "standard-rwo", "path": "/home/jovyan"}],
            "services": [{"name": "notebook", "type": "LoadBalancer"}],
        },
        {},
    ),
    "vllm-kubernetes": (service_spec, VLLM, {}),
}
"""Of each manifest: the component that makes it, typed arguments, and what overrides add."""
