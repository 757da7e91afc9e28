"""Manifests of workloads, as their specs declare them."""

from typing import Any

from ml_foundations.component.spec import check
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.workloads.distributed_training import DistributedTrainingSpec
from ml_foundations.workloads.inference_service import InferenceServiceSpec
from ml_foundations.workloads.nccl_test import NcclTestSpec
from ml_foundations.workloads.ray_cluster import RayClusterSpec, RaySpec
from ml_foundations.workloads.ray_job import RayJobSpec
from ml_foundations.workloads.scheduled_training import ScheduledTrainingSpec
from ml_foundations.workloads.sharded_set import ShardedSetSpec
from ml_foundations.workloads.sweep import SweepSpec
from ml_foundations.workloads.task import TaskSpec
from ml_foundations.workloads.train_job import TrainJobSpec
from ml_foundations.workloads.training_job import TrainingJobSpec
from ml_foundations.workloads.training_runtime import TrainingRuntimeSpec

from tests.support.parts import manifest_of

WORKLOAD: dict[str, Any] = {"namespace": "ml", "image": "i", "cpu": "8", "memory": "64Gi"}


def job_spec(**more: Any) -> TrainingJobSpec:
    return check(TrainingJobSpec, "TrainingJob", WORKLOAD | {"job_name": "train"} | more)


def gang_spec(**more: Any) -> DistributedTrainingSpec:
    given = WORKLOAD | {"job_name": "gang", "nodes": 2} | more
    return check(DistributedTrainingSpec, "DistributedTraining", given)


def sweep_spec(**more: Any) -> SweepSpec:
    given = WORKLOAD | {"sweep_name": "search", "command": ["python", "train.py"]}
    given["parameters"] = {"LR": {"values": [0.1, 0.01]}}
    return check(SweepSpec, "Sweep", given | more)


def cron_spec(**more: Any) -> ScheduledTrainingSpec:
    given = WORKLOAD | {"cron_name": "nightly", "schedule": "0 3 * * *"} | more
    return check(ScheduledTrainingSpec, "ScheduledTraining", given)


def task_spec(**more: Any) -> TaskSpec:
    return check(TaskSpec, "Task", WORKLOAD | {"task_name": "check"} | more)


def service_spec(**more: Any) -> InferenceServiceSpec:
    given = WORKLOAD | {"service_name": "chat"} | more
    return check(InferenceServiceSpec, "InferenceService chat", given)


def shards_spec(**more: Any) -> ShardedSetSpec:
    given = WORKLOAD | {"set_name": "parts", "shards": 4} | more
    return check(ShardedSetSpec, "ShardedSet parts", given)


def job(**more: Any) -> dict[str, Any]:
    """The Job of a TrainingJob."""
    return manifest_of(job_spec(**more), "Job")


def gang(**more: Any) -> list[dict[str, Any]]:
    """The Service and the Job, or the JobSet, of a DistributedTraining."""
    return gang_spec(**more).manifests()


def searched(**more: Any) -> list[dict[str, Any]]:
    """The ConfigMap and the Job of a Sweep."""
    return sweep_spec(**more).manifests()


def cron(**more: Any) -> dict[str, Any]:
    """The CronJob of a ScheduledTraining."""
    return manifest_of(cron_spec(**more), "CronJob")


def pod(**more: Any) -> dict[str, Any]:
    """The Pod of a Task."""
    return manifest_of(task_spec(**more), "Pod")


def template_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The pod that a manifest makes: metadata and spec."""
    match manifest["kind"]:
        case "Pod":
            labels = without_none({"labels": manifest["metadata"].get("labels")})
            return {"metadata": labels, "spec": manifest["spec"]}
        case "CronJob":
            return manifest["spec"]["jobTemplate"]["spec"]["template"]
        case "JobSet":
            return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        case _:
            return manifest["spec"]["template"]


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return template_of(manifest)["spec"]


def container_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return pod_of(manifest)["containers"][0]


GPU = {"gpu": "H100", "gpus": 8, "shared_memory": "16Gi"}
DATA = [
    {"claim": "data", "path": "/data", "read_only": True},
    {"claim": "checkpoints", "path": "/checkpoints"},
]
CLAIM = {"gpu": "L4", "gpus": 1, "gpu_claim": {}}
TEN = {"indexed": True, "completions": 10}
VLLM = {"image": "vllm/vllm-openai:v0.31.0", "port": 8000}

FABRICS: dict[str, dict[str, Any]] = {
    "tcpx": {"kind": "tcpx", "networks": [f"vpc{index}" for index in range(1, 5)]},
    "tcpxo": {"kind": "tcpxo", "networks": [f"vpc{index}" for index in range(1, 9)]},
    "rdma": {"kind": "rdma", "networks": ["gvnic-1", *(f"rdma-{index}" for index in range(8))]},
    "managed": {"kind": "rdma"},
}
"""The networks between GPUs of node pools, by the names of Google's examples."""


def on_fabric(name: str, **more: Any) -> dict[str, Any]:
    """The arguments of a training in a network between GPUs."""
    fabric = FABRICS[name] | {"gpus_per_node": 8}
    return {"gpus": 8, "command": ["torchrun", "train.py"], "gpu_fabric": fabric} | more


def nccl_spec(name: str, **more: Any) -> NcclTestSpec:
    fabric = FABRICS[name] | {"gpus_per_node": 8}
    own = {"job_name": "network", "namespace": "ml", "nodes": 2, "gpu_fabric": fabric}
    return check(NcclTestSpec, "NcclTest", own | more)


def ray_spec(spec: type[RaySpec], **args: Any) -> list[dict[str, Any]]:
    least = WORKLOAD | {"workers": 2}
    return check(spec, "Ray", least | GPU | args).manifests()


CASES: dict[str, list[dict[str, Any]]] = {
    "task": [pod(command=["nvidia-smi"], gpu="L4", gpus=1)],
    "preprocessing": [job(mounts=DATA[:1], parallelism=4, completions=16)],
    "training-job": [
        job(**GPU, mounts=DATA, grace_seconds=600, spot=True, fail_on_exit_codes=[2, 1])
    ],
    "training-job-by-index": [
        job(**TEN, parallelism=3, backoff_limit_per_index=1, max_failed_indexes=5)
    ],
    "training-job-in-a-queue": [job(**GPU, queue="research", queue_priority="high")],
    "inference-service-on-two-nodes": service_spec(
        **VLLM,
        **GPU,
        nodes=2,
        arguments=["--model=m", "--tensor-parallel-size=8", "--pipeline-parallel-size=2"],
        queue="research",
        topology="required:block",
    ).manifests(),
    "inference-service-with-prefill": service_spec(
        **VLLM,
        **GPU,
        arguments=["--model=m", "--tensor-parallel-size=8"],
        prefill={"replicas": 2, "gpus": 4, "arguments": ["--model=m", "-tp=4"]},
    ).manifests(),
    "ray-cluster": ray_spec(RayClusterSpec, cluster_name="notebooks"),
    "ray-job-in-a-queue": ray_spec(
        RayJobSpec, job_name="score", entrypoint=["python", "score.py"], queue="research"
    ),
    "training-runtime": check(
        TrainingRuntimeSpec, "TrainingRuntime", WORKLOAD | GPU | {"runtime_name": "torch"}
    ).manifests(),
    "train-job-in-a-queue": check(
        TrainJobSpec,
        "TrainJob",
        {
            "job_name": "llama",
            "namespace": "ml",
            "runtime": "torch",
            "nodes": 2,
            "command": ["torchrun", "train.py"],
            "env": {"LR": "0.1"},
            "queue": "research",
        },
    ).manifests(),
    "training-job-with-a-claim": job_spec(**CLAIM).manifests(),
    "training-job-with-everything": [
        job(
            **GPU,
            mounts=[
                *DATA,
                {"bucket": "my_bucket.example", "path": "/models", "read_only": True},
                {"secret": "certificates", "path": "/etc/certificates", "read_only": True},
                {"config_map": "settings", "path": "/etc/settings/a.yaml", "sub_path": "a.yaml"},
                {"scratch": "100Gi", "path": "/scratch"},
                {"image": "registry.example/model:1", "path": "/model", "read_only": True},
                {"name": "memory", "volume": {"emptyDir": {"medium": "Memory"}}, "path": "/cache"},
            ],
            env={"WANDB_NAME": "run-$(POD_NAME)"},
            secret_env={"HF_TOKEN": {"name": "hugging-face", "key": "token"}},
            config_env={"LEVEL": {"name": "settings", "key": "level", "optional": True}},
            field_env={"POD_NAME": "metadata.name"},
            env_from=[
                {"config_map": "defaults", "prefix": "DEFAULT_"},
                {"secret": "keys", "optional": True},
            ],
            requests={"ephemeral-storage": "100Gi"},
            limits={"memory": "96Gi", "cpu": None},
            init_containers=[
                {"name": "download", "image": "fetch", "command": ["fetch"]},
                {"name": "logs", "image": "fluent-bit", "restartPolicy": "Always"},
            ],
            ports=[{"port": 6006, "name": "tensorboard"}],
            node_selector={"cloud.google.com/compute-class": "gpu"},
            tolerations=[{"key": "team", "operator": "Exists"}],
            priority_class="high",
            service_account="trainer",
            image_pull_policy="Always",
            image_pull_secrets=["registry"],
            working_dir="/workspace",
            labels={"team": "ml"},
            annotations={"example.com/owner": "ml"},
            active_deadline_seconds=86400,
            backoff_limit=6,
            grace_seconds=120,
            pod_overrides={"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["licence"]}]},
        )
    ],
    "distributed-training": gang(**GPU, nodes=4, mounts=DATA),
    "distributed-training-as-a-jobset": gang(
        **GPU, nodes=4, jobset=True, fail_on_exit_codes=[2], queue="research"
    ),
    **{f"distributed-training-on-{name}": gang(**on_fabric(name)) for name in FABRICS},
    **{
        f"jobset-on-{name}": gang(**on_fabric(name, jobset=True, queue="research"))
        for name in ("tcpxo", "managed")
    },
    "nccl-test": nccl_spec("tcpxo", gpu="H100-MEGA", nodes=4).manifests(),
    "nccl-test-as-a-jobset": nccl_spec("managed", gpu="B200", jobset=True).manifests(),
    "sweep": searched(
        **{"gpu": "A100", "gpus": 1, "parallelism": 4, "samples": 3, "seed": 7},
        parameters={
            "LEARNING_RATE": {"low": 1e-5, "high": 1e-2, "scale": "log"},
            "LAYERS": {"low": 2, "high": 12, "integer": True},
            "OPTIMISER": {"values": ["adam", "sgd with a 'quote'"]},
        },
    ),
    "scheduled-training": [cron(gpu="A100", gpus=4, time_zone="Europe/Berlin", queue="research")],
}
"""Of each kind of workload: what it is called here, and the manifests that it makes."""
