"""A program that constructs each component. The page of a component shows the statement."""

from ml_foundations import (
    CheckpointConfiguration,
    ComputeClass,
    CpuNodePool,
    DeviceClasses,
    DistributedTraining,
    GkeCluster,
    GpuMonitor,
    GpuNodePool,
    GpuNodePoolArgs,
    GpuOperator,
    InferenceGateway,
    InferenceService,
    JobSetController,
    LeaderWorkerSetController,
    MetricsAdapter,
    ModelCache,
    NcclTest,
    RayCluster,
    RayJob,
    RayOperator,
    ScheduledTraining,
    ShardedSet,
    StorageClasses,
    Sweep,
    Task,
    TeamNamespace,
    TrainerController,
    TrainingJob,
    TrainingQueue,
    TrainingRuntime,
    TrainJob,
    Volume,
)


def construct() -> None:
    """Declare the components. A statement may use the names cluster, pool, team and data."""
    cluster = GkeCluster("ml", location="us-central1")
    CpuNodePool("system", cluster=cluster, machine_type="n2-standard-8", min_nodes=1, max_nodes=4)
    pool = GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-8", max_nodes=8)
    l4: GpuNodePoolArgs = {"machine_type": "g2-standard-8", "max_nodes": 8}
    spot = GpuNodePool("l4-spot", {**l4, "cluster": cluster, "spot": True, "compute_class": "l4s"})
    on_demand = GpuNodePool("l4-more", {**l4, "cluster": cluster, "compute_class": "l4s"})
    ComputeClass("l4s", cluster=cluster, pools=[spot, on_demand])
    GpuOperator("gpu-operator", cluster=cluster, mode="gke")
    GpuMonitor("dcgm", cluster=cluster, monitoring="google")
    DeviceClasses("claims", cluster=cluster, classes={"large": {"memory": "40Gi"}})
    StorageClasses("storage", cluster=cluster, retain=True)
    MetricsAdapter("metrics", cluster=cluster)
    JobSetController("jobset", cluster=cluster)
    LeaderWorkerSetController("lws", cluster=cluster)
    RayOperator("ray", cluster=cluster)
    TrainerController("trainer", cluster=cluster)
    team = TeamNamespace("nlp", cluster=cluster, gpus=8, cpu="64", memory="512Gi", storage="4Ti")
    TrainingQueue(
        "queue",
        cluster=cluster,
        flavors=[{"name": "l4", "pool": pool}],
        teams=[{"team": team, "cpu": "64", "memory": "512Gi", "gpus": {"l4": 8}}],
    )
    CheckpointConfiguration(
        "ram", cluster=cluster, pool=pool, bucket="my-checkpoints", in_memory_volume_size="8Gi"
    )
    data = Volume("data", team=team, size="500Gi")
    TrainingJob(
        "finetune",
        team=team,
        pool=pool,
        gpus=1,
        cpu="6",
        memory="24Gi",
        image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        command=["python", "/data/train.py"],
        mounts=[{"volume": data, "path": "/data"}],
    )
    DistributedTraining(
        "pretrain",
        team=team,
        pool=pool,
        nodes=4,
        gpus=1,
        image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        command=["torchrun", "/data/train.py"],
        mounts=[{"volume": data, "path": "/data"}],
    )
    NcclTest(
        "network",
        team=team,
        nodes=4,
        gpu="H200",
        gpu_fabric={"kind": "rdma", "gpus_per_node": 8},
        wait_for_completion=True,
    )
    Sweep(
        "search",
        team=team,
        pool=pool,
        gpus=1,
        image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        command=["python", "/data/train.py"],
        parameters={"LEARNING_RATE": {"values": [0.0001, 0.001]}},
        mounts=[{"volume": data, "path": "/data"}],
    )
    ScheduledTraining(
        "nightly",
        team=team,
        pool=pool,
        schedule="0 2 * * *",
        gpus=1,
        image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        command=["python", "/data/train.py"],
        mounts=[{"volume": data, "path": "/data"}],
    )
    Task(
        "gpu-test",
        team=team,
        pool=pool,
        gpus=1,
        image="nvidia/cuda:12.6.3-base-ubuntu24.04",
        command=["nvidia-smi"],
    )
    cache = ModelCache("qwen", team=team, bucket="my-models")
    chat = InferenceService(
        "chat",
        team=team,
        pool=pool,
        image="vllm/vllm-openai:v0.31.0",
        arguments=["--model=/models/qwen3-4b"],
        model_cache=cache,
        port=8000,
    )
    InferenceGateway("llm", team=team, servers=[chat], proxy_only_cidr="10.21.0.0/23")
    ShardedSet("index", team=team, shards=3, image="qdrant/qdrant:v1.19.0-unprivileged", port=6333)
    RayCluster("nb", team=team, pool=pool, workers=2, gpus=1, image="rayproject/ray:2.52.0-gpu")
    RayJob(
        "score",
        team=team,
        pool=pool,
        workers=2,
        gpus=1,
        image="rayproject/ray:2.52.0-gpu",
        entrypoint=["python", "/data/score.py"],
        mounts=[{"volume": data, "path": "/data"}],
    )
    runtime = TrainingRuntime(
        "torch",
        team=team,
        pool=pool,
        gpus=1,
        image="pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        mounts=[{"volume": data, "path": "/data"}],
    )
    TrainJob("mistral", runtime=runtime, nodes=2, command=["torchrun", "/data/train.py"])
