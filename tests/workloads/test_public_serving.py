"""Manifests of serving that people really use, made with our components and compared with them field by field.

An expectation holds what the public manifest says, as in test_public_training.py.
"""

from typing import Any

from tests.support.parts import manifest_of
from tests.workloads.building import service_spec, shards_spec
from tests.workloads.comparing import differences, plain

L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
SHARED_MEMORY = {"name": "dshm", "path": "/dev/shm", "volume": {"emptyDir": {"medium": "Memory"}}}
NO_AMOUNTS = {"cpu": None, "memory": None}


def service(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Deployment and the Service of an InferenceService."""
    spec = service_spec(**more)
    return manifest_of(spec, "Deployment"), manifest_of(spec, "Service")


def shards(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The StatefulSet and the Service of a ShardedSet."""
    spec = shards_spec(**more)
    return manifest_of(spec, "StatefulSet"), manifest_of(spec, "Service")


def test_triton_with_models_in_a_bucket() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/gke-online-serving-single-gpu/src/gke-config:
    deployment-triton.yaml and service-triton.yaml.

    Its pods are selected by the label app; here they have that label, and are selected by one of the component's.
    """
    command = [
        "tritonserver",
        "--model-repository=/data/triton-model-repository",
        "--exit-on-error=false",
    ]
    deployment, front = service(
        service_name="triton-service",
        deployment_name="triton-deployment",
        labels={"app": "triton"},
        image="nvcr.io/nvidia/tritonserver:22.01-py3",
        container_name="triton-server",
        command=command,
        cpu="4",
        memory="16Gi",
        requests={"ephemeral-storage": "1Gi"},
        node_selector=L4,
        service_account="triton",
        mounts=[{"name": "gcs-fuse-csi-vol", "bucket": "models", "path": "/data"}],
        port=8000,
        service_port=8000,
        ports=[{"name": "grpc", "port": 8001}, {"name": "metrics", "port": 8002}],
        health_path="/v2/health/ready",
        overrides={
            "Deployment": {"metadata": {"labels": {"app": "triton-server"}}},
            "Service": {
                "metadata": {"labels": {"app": "triton"}},
                "spec": {"type": "LoadBalancer"},
            },
        },
    )
    amounts = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"}
    expected = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "triton-deployment", "labels": {"app": "triton-server"}},
        "spec": {
            "replicas": 1,
            "template": {
                "metadata": {
                    "labels": {"app": "triton"},
                    "annotations": {"gke-gcsfuse/volumes": "true"},
                },
                "spec": {
                    "nodeSelector": L4,
                    "serviceAccountName": "triton",
                    "containers": [
                        {
                            "name": "triton-server",
                            "image": "nvcr.io/nvidia/tritonserver:22.01-py3",
                            "command": command,
                            "ports": [
                                {"name": "grpc", "containerPort": 8001},
                                {"name": "http", "containerPort": 8000},
                                {"name": "metrics", "containerPort": 8002},
                            ],
                            "resources": {"limits": amounts, "requests": amounts},
                            "volumeMounts": [{"name": "gcs-fuse-csi-vol", "mountPath": "/data"}],
                        }
                    ],
                    "volumes": [
                        {
                            "name": "gcs-fuse-csi-vol",
                            "csi": {
                                "driver": "gcsfuse.csi.storage.gke.io",
                                "volumeAttributes": {
                                    "bucketName": "models",
                                    "mountOptions": "implicit-dirs",
                                },
                            },
                        }
                    ],
                },
            },
        },
    }
    assert not list(differences(expected, deployment))
    # Targets are ports of the pod by name, which are the same numbers.
    ports = [
        {"name": "http", "port": 8000},
        {"name": "grpc", "port": 8001},
        {"name": "metrics", "port": 8002},
    ]
    expected = {
        "metadata": {"name": "triton-service", "labels": {"app": "triton"}},
        "spec": {"type": "LoadBalancer", "ports": ports},
    }
    assert not list(differences(expected, front))


def test_falcon_on_spot_nodes_with_a_disk_for_its_weights() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/llm-multiple-gpus/falcon-40b/text-generation-inference.yaml."""
    image = (
        "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/"
        "huggingface-text-generation-inference-cu121.1-4.ubuntu2204.py310"
    )
    env = {
        "MODEL_ID": "tiiuae/falcon-40b-instruct",
        "NUM_SHARD": "2",
        "PORT": "8080",
        "QUANTIZE": "bitsandbytes-nf4",
    }
    disk = {
        "volumeClaimTemplate": {
            "metadata": {"labels": {"type": "ephemeral"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "premium-rwo",
                "resources": {"requests": {"storage": "175Gi"}},
            },
        }
    }
    spot_l4 = L4 | {"cloud.google.com/gke-spot": "true"}
    deployment, _ = service(
        service_name="llm",
        image=image,
        container_name="llm",
        cpu="10",
        memory="60Gi",
        gpus=2,
        env=env,
        labels={"app": "llm"},
        node_selector=spot_l4,
        spot=True,
        mounts=[
            SHARED_MEMORY,
            {"name": "ephemeral-volume", "path": "/data", "volume": {"ephemeral": disk}},
        ],
    )
    amounts = {"cpu": "10", "memory": "60Gi", "nvidia.com/gpu": "2"}
    expected = {
        "metadata": {"name": "llm"},
        "spec": {
            "replicas": 1,
            "template": {
                "metadata": {"labels": {"app": "llm"}},
                "spec": {
                    "containers": [
                        {
                            "name": "llm",
                            "image": image,
                            "resources": {"requests": amounts, "limits": amounts},
                            "env": plain(**env),
                            "volumeMounts": [
                                {"mountPath": "/dev/shm", "name": "dshm"},
                                {"mountPath": "/data", "name": "ephemeral-volume"},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "dshm", "emptyDir": {"medium": "Memory"}},
                        {"name": "ephemeral-volume", "ephemeral": disk},
                    ],
                    "nodeSelector": spot_l4,
                },
            },
        },
    }
    assert not list(differences(expected, deployment))


def test_vllm_with_adapters_that_a_sidecar_loads() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/infw-gw/examples/getting-started/vllm-llama3-8b-instruct.yaml.

    It asks for GPUs alone, and probes every second: both by pod_overrides.
    """
    command = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    arguments = [
        "--model",
        "meta-llama/Llama-3.1-8B-Instruct",
        "--tensor-parallel-size",
        "1",
        "--port",
        "8000",
    ]
    arguments += ["--enable-lora", "--max-loras", "2", "--max-cpu-loras", "12"]
    env = {"VLLM_USE_V1": "1", "PORT": "8000", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true"}
    syncer = {
        "name": "lora-adapter-syncer",
        "image": "us-central1-docker.pkg.dev/k8s-staging-images/gateway-api-inference-extension/lora-syncer:main",
        "restartPolicy": "Always",
        "imagePullPolicy": "Always",
        "tty": True,
        "stdin": True,
        "env": plain(DYNAMIC_LORA_ROLLOUT_CONFIG="/config/configmap.yaml"),
        "volumeMounts": [{"name": "config-volume", "mountPath": "/config"}],
    }
    asked = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}
    probes = {
        "startupProbe": {"periodSeconds": 1, "failureThreshold": 600, "initialDelaySeconds": 2},
        "readinessProbe": {
            "periodSeconds": 1,
            "failureThreshold": 1,
            "timeoutSeconds": 1,
            "successThreshold": 1,
        },
        "livenessProbe": {
            "periodSeconds": 1,
            "failureThreshold": 5,
            "timeoutSeconds": 1,
            "successThreshold": 1,
        },
    }
    deployment, _ = service(
        service_name="vllm-llama3-8b-instruct",
        replicas=3,
        labels={"app": "vllm-llama3-8b-instruct"},
        image="vllm/vllm-openai:latest",
        image_pull_policy="Always",
        container_name="vllm",
        command=command,
        arguments=arguments,
        env=env,
        secret_env={"HUGGING_FACE_HUB_TOKEN": {"name": "hf-token", "key": "token"}},
        port=8000,
        load_seconds=600,
        deregister_seconds=30,
        drain_seconds=95,
        grace_seconds=130,
        init_containers=[syncer],
        mounts=[
            {"name": "data", "path": "/data", "volume": {"emptyDir": {}}},
            {"name": "shm", "path": "/dev/shm", "volume": {"emptyDir": {"medium": "Memory"}}},
            {"name": "adapters", "path": "/adapters", "volume": {"emptyDir": {}}},
            {"name": "config-volume", "path": "/config", "config_map": "vllm-llama3-8b-adapters"},
        ],
        pod_overrides={
            "containers": [
                {
                    "name": "vllm",
                    "resources": {"limits": NO_AMOUNTS, "requests": NO_AMOUNTS},
                    **probes,
                }
            ]
        },
    )
    expected = {
        "metadata": {"name": "vllm-llama3-8b-instruct"},
        "spec": {
            "replicas": 3,
            "template": {
                "metadata": {"labels": {"app": "vllm-llama3-8b-instruct"}},
                "spec": {
                    "containers": [
                        {
                            "name": "vllm",
                            "image": "vllm/vllm-openai:latest",
                            "imagePullPolicy": "Always",
                            "command": command,
                            "args": arguments,
                            "env": [
                                *plain(**env),
                                {
                                    "name": "HUGGING_FACE_HUB_TOKEN",
                                    "valueFrom": {
                                        "secretKeyRef": {"name": "hf-token", "key": "token"}
                                    },
                                },
                            ],
                            "ports": [{"containerPort": 8000, "name": "http", "protocol": "TCP"}],
                            "lifecycle": {"preStop": {"sleep": {"seconds": 30}}},
                            "resources": {
                                "limits": {"nvidia.com/gpu": "1"},
                                "requests": {"nvidia.com/gpu": "1"},
                            },
                            "volumeMounts": [
                                {"mountPath": "/data", "name": "data"},
                                {"mountPath": "/dev/shm", "name": "shm"},
                                {"mountPath": "/adapters", "name": "adapters"},
                                {"mountPath": "/config", "name": "config-volume"},
                            ],
                            **{name: asked | probe for name, probe in probes.items()},
                        }
                    ],
                    "initContainers": [syncer],
                    "restartPolicy": "Always",
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 130,
                    "volumes": [
                        {"name": "data", "emptyDir": {}},
                        {"name": "shm", "emptyDir": {"medium": "Memory"}},
                        {"name": "adapters", "emptyDir": {}},
                        {"name": "config-volume", "configMap": {"name": "vllm-llama3-8b-adapters"}},
                    ],
                },
            },
        },
    }
    assert not list(differences(expected, deployment))
    main = deployment["spec"]["template"]["spec"]["containers"][0]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": "1"}, (
        "the source names no CPU and no memory"
    )


def test_a_stateful_set_with_a_volume_for_each_pod() -> None:
    """kubernetes/website, content/en/examples/application/web/web.yaml.

    It takes the cluster's default storage class, which a ShardedSet does not leave to chance. Pods are selected by
    the label app there.
    """
    stateful_set, headless = shards(
        set_name="web",
        service_name="nginx",
        shards=2,
        image="registry.k8s.io/nginx-slim:0.7",
        container_name="nginx",
        labels={"app": "nginx"},
        port=80,
        volumes=[
            {
                "name": "www",
                "size": "1Gi",
                "storage_class": "standard-rwo",
                "path": "/usr/share/nginx/html",
            }
        ],
    )
    expected = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {
            "serviceName": "nginx",
            "replicas": 2,
            "template": {
                "metadata": {"labels": {"app": "nginx"}},
                "spec": {
                    "containers": [
                        {
                            "name": "nginx",
                            "image": "registry.k8s.io/nginx-slim:0.7",
                            "ports": [{"containerPort": 80}],
                            "volumeMounts": [{"name": "www", "mountPath": "/usr/share/nginx/html"}],
                        }
                    ]
                },
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "www"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    }
    ports = [{"containerPort": port["containerPort"]} for port in main_of(stateful_set)["ports"]]
    main_of(stateful_set)["ports"] = ports  # the names differ: web there, http here
    assert not list(differences(expected, stateful_set))
    expected = {"metadata": {"name": "nginx"}, "spec": {"clusterIP": "None"}}
    assert not list(differences(expected, headless))
    assert [port["port"] for port in headless["spec"]["ports"]] == [80]


def main_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]["containers"][0]
