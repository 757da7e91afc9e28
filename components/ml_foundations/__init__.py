"""GPU infrastructure for ML on Kubernetes, as Pulumi components.

Names are loaded when they are first used: importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_foundations.gke.cluster import GkeCluster
    from ml_foundations.gke.cpu_node_pool import CpuNodePool
    from ml_foundations.gke.gpu_node_pool import GpuNodePool
    from ml_foundations.gpu.device_classes import DeviceClasses
    from ml_foundations.gpu.monitor import GpuMonitor
    from ml_foundations.gpu.operator import GpuOperator
    from ml_foundations.storage.classes import StorageClasses
    from ml_foundations.storage.volume import Volume
    from ml_foundations.tenancy.team_namespace import TeamNamespace
    from ml_foundations.tenancy.training_queue import TrainingQueue
    from ml_foundations.typed_args import (
        CpuNodePoolArgs,
        DeviceClassesArgs,
        DistributedTrainingArgs,
        GkeClusterArgs,
        GpuMonitorArgs,
        GpuNodePoolArgs,
        GpuOperatorArgs,
        InferenceServiceArgs,
        ScheduledTrainingArgs,
        ShardedSetArgs,
        StorageClassesArgs,
        SweepArgs,
        TaskArgs,
        TeamNamespaceArgs,
        TrainingJobArgs,
        TrainingQueueArgs,
        VolumeArgs,
    )
    from ml_foundations.workloads.distributed_training import DistributedTraining
    from ml_foundations.workloads.inference_service import InferenceService
    from ml_foundations.workloads.scheduled_training import ScheduledTraining
    from ml_foundations.workloads.sharded_set import ShardedSet
    from ml_foundations.workloads.sweep import Sweep
    from ml_foundations.workloads.task import Task
    from ml_foundations.workloads.training_job import TrainingJob

__version__ = "0.1.0"

__all__ = [
    "CpuNodePool",
    "CpuNodePoolArgs",
    "DeviceClasses",
    "DeviceClassesArgs",
    "DistributedTraining",
    "DistributedTrainingArgs",
    "GkeCluster",
    "GkeClusterArgs",
    "GpuMonitor",
    "GpuMonitorArgs",
    "GpuNodePool",
    "GpuNodePoolArgs",
    "GpuOperator",
    "GpuOperatorArgs",
    "InferenceService",
    "InferenceServiceArgs",
    "ScheduledTraining",
    "ScheduledTrainingArgs",
    "ShardedSet",
    "ShardedSetArgs",
    "StorageClasses",
    "StorageClassesArgs",
    "Sweep",
    "SweepArgs",
    "Task",
    "TaskArgs",
    "TeamNamespace",
    "TeamNamespaceArgs",
    "TrainingJob",
    "TrainingJobArgs",
    "TrainingQueue",
    "TrainingQueueArgs",
    "Volume",
    "VolumeArgs",
]

_MODULES = {
    "CpuNodePool": "gke.cpu_node_pool",
    "DeviceClasses": "gpu.device_classes",
    "DistributedTraining": "workloads.distributed_training",
    "GkeCluster": "gke.cluster",
    "GpuMonitor": "gpu.monitor",
    "GpuNodePool": "gke.gpu_node_pool",
    "GpuOperator": "gpu.operator",
    "InferenceService": "workloads.inference_service",
    "ScheduledTraining": "workloads.scheduled_training",
    "ShardedSet": "workloads.sharded_set",
    "StorageClasses": "storage.classes",
    "Sweep": "workloads.sweep",
    "Task": "workloads.task",
    "TeamNamespace": "tenancy.team_namespace",
    "TrainingJob": "workloads.training_job",
    "TrainingQueue": "tenancy.training_queue",
    "Volume": "storage.volume",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name.removesuffix("Args"))
    if module is None or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
