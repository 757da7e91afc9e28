"""Arguments of ours that say what 12 public manifests of GPU workloads say; public_fields.yaml has their fields."""

from collections.abc import Callable, Mapping
from typing import Any

from ml_foundations.component.spec import ComponentSpec
from ml_foundations.kubernetes.selectors import REQUIRED

from tests.workloads.building import gang_spec, job_spec, service_spec, shards_spec

TEXT = "several\nlines"
"""What stands for a text of several lines."""
NO_AMOUNTS: dict[str, Any] = {"cpu": None, "memory": None}
SHARED_MEMORY = {"name": "dshm", "path": "/dev/shm", "volume": {"emptyDir": {"medium": "Memory"}}}
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
LATEST_DRIVER = {"cloud.google.com/gke-gpu-driver-version": "latest"}
LIBRARIES = "/usr/local/nvidia/lib64"


def words(text: str) -> list[str]:
    """The words of a command."""
    return text.split()


def overriding(kind: str, **fields: Any) -> dict[str, Any]:
    return {"overrides": {kind: fields}}


def of_host(path: str) -> dict[str, Any]:
    return {"hostPath": {"path": path}}


def mount(name: str, path: str, volume: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "path": path, "volume": volume, **more}


def gke_labels(model: str, server: str) -> dict[str, str]:
    source = {"examples.ai.gke.io/source": "user-guide"}
    return {"ai.gke.io/model": model, "ai.gke.io/inference-server": server} | source


def token(secret: str, key: str) -> dict[str, Any]:
    return {"HUGGING_FACE_HUB_TOKEN": {"name": secret, "key": key}}


VLLM: dict[str, Any] = {
    "deployment_name": "vllm-gemma-deployment",
    "service_name": "llm-service",
    "container_name": "inference-server",
    "command": words("python3 -m vllm.entrypoints.openai.api_server"),
    "cpu": "2",
    "mounts": [SHARED_MEMORY],
    "port": 8000,
    "service_port": 8000,
    "selector_labels": {"app": "gemma-server"},
}
TOGETHER: dict[str, Any] = {
    "job_name": "nccl-test-host-1",
    "service_name": "nccl-host-1",
    "nodes": 1,
    "gpus": 8,
    "container_name": "nccl-test",
    "selector_labels": {"name": "nccl-host-1"},
    "env": {"LD_LIBRARY_PATH": LIBRARIES},
}
DAEMONS = {"matchExpressions": [{"key": "tcpxo", "operator": "In", "values": ["daemon"]}]}
APART = {"labelSelector": DAEMONS, "topologyKey": "kubernetes.io/hostname"}
BIN, APERTURE = "/home/kubernetes/bin", "/dev/aperture_devices"
LOCKS = {"capabilities": {"add": ["IPC_LOCK"]}}
SCRIPTS = {"configMap": {"name": "launch-tritonserver", "defaultMode": 0o700}}
NCCL_SCRIPTS = {"configMap": {"name": "nccl-configmap", "defaultMode": 0o777}}
OF_SERVER = {
    "metadata.user_labels.app": "tensorflow-serving",
    "resource.labels.container_name": "tensorflow-serving-container",
}
BY_GPU_USE = {
    "type": "External",
    "external": {
        "metric": {
            "name": "container.googleapis.com|container|accelerator|duty_cycle",
            "selector": {"matchLabels": OF_SERVER},
        },
        "target": {"type": "AverageValue", "averageValue": "20"},
    },
}
SLOW = {"initialDelaySeconds": 600, "failureThreshold": 60, "periodSeconds": 5}
SERVICE_PORTS = [
    {"name": "http-inference-server", "port": 8000, "targetPort": "http"},
    {"name": "grpc-inference-server", "port": 8001, "targetPort": "grpc"},
    {"name": "http-metrics", "port": 8002, "targetPort": "metrics"},
]

TEMPLATES = {"name": "chat-templates", "config_map": "llama-chat-templates"}
TEMPLATES |= {"path": "/templates", "read_only": True}
NOTEBOOKS = {"name": "stateful", "size": "1Gi", "path": "/home/jovyan/stateful"}
NOTEBOOKS |= {"storage_class": "standard-rwo"}
HTTP = {"name": "http", "port": 80, "targetPort": "notebook"}

Said = tuple[Callable[..., ComponentSpec], dict[str, Any], dict[str, Any]]
OURS: Mapping[str, Said] = {
    "vllm-gemma": (
        service_spec,
        VLLM
        | {
            "image": "docker.io/vllm/vllm-openai:v0.10.0",
            "memory": "20Gi",
            "requests": {"ephemeral-storage": "20Gi"},
            "arguments": words(
                "--model=$(MODEL_ID) --tensor-parallel-size=1 --host=0.0.0.0 --port=8000 "
                "--max-model-len=32768 --max-num-seqs=4"
            ),
            "env": {
                "LD_LIBRARY_PATH": "${LD_LIBRARY_PATH}:/usr/local/nvidia/lib64",
                "MODEL_ID": "google/gemma-3-4b-it",
            },
            "secret_env": token("hf-secret", "hf_api_token"),
            "labels": gke_labels("gemma-3-4b-it", "vllm"),
            "node_selector": L4 | LATEST_DRIVER,
        },
        {},
    ),
    "resnet": (
        job_spec,
        {
            "job_name": "resnet-gpu",
            "container_name": "resnet-gpu",
            "image": "gcr.io/vishnuk-cloud/tensorflow"
            "@sha256:c5655a73205a447e1552fc833d14ab66eee2304dbf64846edd88c41434c6f5f2",
            "command": words(
                "python /tensorflow_models/models/official/resnet/resnet_main.py "
                "--use_tpu=False --tpu= --precision=float32 --data_dir=$(DATA_BUCKET) "
                "--model_dir=$(MODEL_BUCKET) --train_batch_size=$(TRAIN_BATCH_SIZE) "
                "--train_steps=$(TRAIN_STEPS)"
            ),
            "env": {
                "DATA_BUCKET": "/home/vishnuk/tf-demo/fake_imagenet/",
                "MODEL_BUCKET": "/home/vishnuk/tf-demo/train/resnet-train",
                "TRAIN_BATCH_SIZE": "32",
                "TRAIN_STEPS": "400365",
            },
            "gpus": 1,
            "mounts": [{"name": "nfs-pvc", "claim": "nfs", "path": "/home/vishnuk"}],
        },
        {},
    ),
    "quantize": (
        job_spec,
        {
            "job_name": "quantize",
            "container_name": "llm-compressor",
            "image": "$IMAGE_URL",
            "command": ["python", "main.py"],
            "gpus": 1,
            "cpu": "12",
            "memory": "80Gi",
            "requests": {"ephemeral-storage": "80Gi"},
            "env": {
                "LD_LIBRARY_PATH": "${LD_LIBRARY_PATH}:/usr/local/nvidia/lib64",
                "MODEL_ID": "$MODEL_ID",
            },
            "secret_env": token("hf-secret", "hf_api_token"),
            "mounts": [SHARED_MEMORY],
            "node_selector": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
            "ttl_seconds_after_finished": 100,
        },
        {},
    ),
    "triton-gemma": (
        service_spec,
        {
            "deployment_name": "triton-gemma-deployment",
            "service_name": "triton-server",
            "container_name": "inference-server",
            "image": "us-docker.pkg.dev/google-samples/containers/gke/tritonserver:2.42.0",
            "image_pull_policy": "IfNotPresent",
            "command": ["/scripts/entrypoint.sh"],
            "cpu": None,
            "memory": "40Gi",
            "requests": {"ephemeral-storage": "40Gi"},
            "files": {"/entrypoint.sh": TEXT},
            "mounts": [
                mount("scripts-volume", "/scripts/", SCRIPTS, read_only=True),
                {"name": "data", "claim": "model-data", "path": "/data"},
            ],
            "port": 8000,
            "service_port": 8000,
            "ports": [{"name": "grpc", "port": 8001}, {"name": "metrics", "port": 8002}],
            "health_path": "/v2/health/ready",
            "live_path": "/v2/health/live",
            "probes": {"liveness": SLOW, "readiness": SLOW},
            "labels": gke_labels("gemma", "triton"),
            "selector_labels": {"app": "gemma-server", "version": "v1"},
            "node_selector": L4,
            "tolerations": [{"key": "key", "operator": "Exists", "effect": "NoSchedule"}],
        },
        {
            "overrides": {
                "ConfigMap": {"metadata": {"name": "launch-tritonserver"}},
                "Service": {"spec": {"ports": SERVICE_PORTS}},
            }
        },
    ),
    "vllm-llama": (
        service_spec,
        VLLM
        | {
            "deployment_name": "vllm-llama3-deployment",
            "service_name": "vllm-llama3-service",
            "image": "vllm/vllm-openai:v0.8.5",
            "memory": "10Gi",
            "arguments": words(
                "--model=$(MODEL_ID) --tensor-parallel-size=1 --host=0.0.0.0 --port=8000 "
                "--enable-auto-tool-choice --tool-call-parser=llama3_json "
                "--chat-template=/templates/tool_chat_template_llama3.1_json.jinja "
                "--trust-remote-code --enable-chunked-prefill --max-model-len=32768"
            ),
            "env": {"MODEL_ID": "meta-llama/Llama-3.1-8B-Instruct"},
            "secret_env": token("hf-token-secret", "token"),
            "files": {"/tool_chat_template_llama3.1_json.jinja": TEXT},
            "mounts": [
                SHARED_MEMORY,
                TEMPLATES,
            ],
            "labels": gke_labels("llama3-3-1b-it", "vllm"),
            "selector_labels": {"app": "llama3-server"},
            "node_selector": L4,
        },
        overriding("ConfigMap", metadata={"name": "llama-chat-templates"}),
    ),
    "tgi-gemma": (
        service_spec,
        VLLM
        | {
            "deployment_name": "tgi-gemma-deployment",
            "image": "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/"
            "huggingface-text-generation-inference-cu124.2-3.ubuntu2204.py311",
            "command": None,
            "cpu": "4",
            "memory": "30Gi",
            "gpus": 2,
            "requests": {"ephemeral-storage": "30Gi"},
            "env": {
                "AIP_HTTP_PORT": "8000",
                "NUM_SHARD": "2",
                "MAX_INPUT_LENGTH": "1562",
                "MAX_TOTAL_TOKENS": "2048",
                "MAX_BATCH_PREFILL_TOKENS": "2048",
                "CUDA_MEMORY_FRACTION": "0.93",
                "MODEL_ID": "google/gemma-2-9b-it",
            },
            "secret_env": token("hf-secret", "hf_api_token"),
            "labels": gke_labels("gemma-2-9b-it", "text-generation-inference"),
            "node_selector": L4,
        },
        {},
    ),
    "nccl-tcpx": (
        gang_spec,
        TOGETHER
        | {
            "host_network": True,
            "image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9",
            "image_pull_policy": "Always",
            "command": ["/bin/sh", "-c", TEXT],
            "mounts": [
                {"name": "tcpx-socket", "volume": {"emptyDir": {}}, "path": "/tmp"},
                mount("config-volume", "/configs", NCCL_SCRIPTS),
                {"name": "libraries", "volume": of_host("/home/kubernetes/bin/nvidia/lib64")},
            ],
            "side_containers": [
                {
                    "name": "tcpx-daemon",
                    "image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.9",
                    "imagePullPolicy": "Always",
                    "command": [
                        "/tcpgpudmarxd/build/app/tcpgpudmarxd",
                        "--gpu_nic_preset",
                        "a3vm",
                        "--gpu_shmem_type",
                        "fd",
                        "--uds_path",
                        "/run/tcpx",
                        "--setup_param",
                        '\\"--verbose 128 2 0 \\"',
                    ],
                    "securityContext": {"privileged": True},
                    "volumeMounts": [
                        {"name": "libraries", "mountPath": LIBRARIES, "readOnly": True},
                        {"name": "tcpx-socket", "mountPath": "/run/tcpx"},
                    ],
                    "env": [{"name": "LD_LIBRARY_PATH", "value": LIBRARIES}],
                }
            ],
        },
        {"pod_overrides": {"containers": [{"name": "nccl-test", "securityContext": LOCKS}]}},
    ),
    "nccl-tcpxo": (
        gang_spec,
        TOGETHER
        | {
            "image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.15",
            "image_pull_policy": "Always",
            "command": ["/bin/sh", "-c", TEXT],
            "labels": {"tcpxo": "daemon"},
            "annotations": {
                "devices.gke.io/container.tcpxo-daemon": TEXT,
                "networking.gke.io/default-interface": "eth0",
                "networking.gke.io/interfaces": TEXT,
            },
            "affinity": {"podAntiAffinity": {REQUIRED: [APART]}},
            "env": TOGETHER["env"] | {"NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": APERTURE},
            "shared_memory": "1Gi",
            "mounts": [
                mount("nvidia", LIBRARIES, of_host("/home/kubernetes/bin/nvidia/lib64")),
                mount("aperture-devices", APERTURE, of_host(APERTURE)),
                {"name": "sys", "volume": of_host("/sys")},
                {"name": "proc-sys", "volume": of_host("/proc/sys")},
            ],
            "side_containers": [
                {
                    "name": "tcpxo-daemon",
                    "image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21",
                    "imagePullPolicy": "Always",
                    "command": ["/bin/sh", "-c"],
                    "args": [TEXT],
                    "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_BIND_SERVICE"]}},
                    "volumeMounts": [
                        {"name": "nvidia", "mountPath": LIBRARIES},
                        {"name": "sys", "mountPath": "/hostsysfs"},
                        {"name": "proc-sys", "mountPath": "/hostprocsysfs"},
                    ],
                    "env": [{"name": "LD_LIBRARY_PATH", "value": LIBRARIES}],
                }
            ],
        },
        {"pod_overrides": {"hostname": "host1"}},
    ),
    "nccl-rdma": (
        gang_spec,
        TOGETHER
        | {
            "container_name": "test",
            "image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic:v1.1.1",
            "command": ["/bin/bash", "-c"],
            "arguments": [TEXT],
            "annotations": {
                "networking.gke.io/default-interface": "eth0",
                "networking.gke.io/interfaces": TEXT,
            },
            "memory": None,
            "shared_memory": "250Gi",
            "mounts": [
                mount("library-dir-host", "/usr/local/nvidia", of_host(f"{BIN}/nvidia")),
                mount("gib", "/usr/local/gib", of_host(f"{BIN}/gib")),
            ],
        },
        {},
    ),
    "tensorflow-serving": (
        service_spec,
        {
            "deployment_name": "tensorflow-serving-deployment",
            "service_name": "tensorflow-service",
            "container_name": "tensorflow-serving-container",
            "image": "gcr.io/vishnuk-cloud/tf-serving:1.9-gpu-minimal",
            "command": ["/usr/local/bin/tensorflow_model_server"],
            "arguments": words(
                "--port=9000 --model_name=inception "
                "--model_base_path=gs://vishh/tensorflow/inception/"
            ),
            "port": 9000,
            "service_port": 9000,
            "probes": {"readiness": {"exec": {"command": ["python", "-c", TEXT]}, "httpGet": None}},
            "selector_labels": {"app": "tensorflow-serving"},
            "object_labels": {"run": "tensorflow-service"},
            "autoscaling": {"max_replicas": 10, "cpu_percent": 80},
        },
        overriding(
            "HorizontalPodAutoscaler", metadata={"name": "tf-hpa"}, spec={"metrics": [BY_GPU_USE]}
        ),
    ),
    "tensorflow-notebook": (
        shards_spec,
        {
            "set_name": "tf-notebook",
            "shards": 1,
            "container_name": "tf-notebook",
            "image": "gcr.io/kubeflow/tensorflow-notebook-cpu:v1",
            "cpu": "1",
            "memory": "1Gi",
            "port": 8888,
            "port_name": "notebook",
            "run_as_user": 0,
            "selector_labels": {"app": "tf-notebook"},
            "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
            "volumes": [NOTEBOOKS],
        },
        overriding("Service", spec={"type": "LoadBalancer", "clusterIP": None, "ports": [HTTP]}),
    ),
    "vllm-kubernetes": (
        service_spec,
        VLLM
        | {
            "image": "vllm/vllm-openai:v0.11.0",
            "memory": "10Gi",
            "requests": {"ephemeral-storage": "10Gi"},
            "arguments": words(
                "--model=$(MODEL_ID) --tensor-parallel-size=1 --host=0.0.0.0 --port=8080 "
                "--gpu-memory-utilization=0.85 --max-num-seqs=64"
            ),
            "env": {
                "MODEL_ID": "google/gemma-3-1b-it",
                "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/cuda/lib64",
            },
            "secret_env": token("hf-secret", "hf_token"),
        },
        {},
    ),
}
"""Of each manifest: the component that makes it, typed arguments, and what overrides add."""
