"""GPU infrastructure for ML on Kubernetes, as Pulumi components.

Names are loaded when they are first used: importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers, which see neither COMPONENTS nor __getattr__; a test compares the two
    from ml_foundations.gke.cluster import GkeCluster as GkeCluster
    from ml_foundations.gke.cpu_node_pool import CpuNodePool as CpuNodePool
    from ml_foundations.gke.gpu_node_pool import GpuNodePool as GpuNodePool
    from ml_foundations.gpu.device_classes import DeviceClasses as DeviceClasses
    from ml_foundations.gpu.monitor import GpuMonitor as GpuMonitor
    from ml_foundations.gpu.operator import GpuOperator as GpuOperator
    from ml_foundations.storage.classes import StorageClasses as StorageClasses
    from ml_foundations.storage.volume import Volume as Volume
    from ml_foundations.tenancy.jobset_controller import JobSetController as JobSetController
    from ml_foundations.tenancy.team_namespace import TeamNamespace as TeamNamespace
    from ml_foundations.tenancy.training_queue import TrainingQueue as TrainingQueue
    from ml_foundations.typed_args import *  # noqa: F403
    from ml_foundations.workloads.distributed_training import DistributedTraining as DistributedTraining
    from ml_foundations.workloads.inference_service import InferenceService as InferenceService
    from ml_foundations.workloads.scheduled_training import ScheduledTraining as ScheduledTraining
    from ml_foundations.workloads.sharded_set import ShardedSet as ShardedSet
    from ml_foundations.workloads.sweep import Sweep as Sweep
    from ml_foundations.workloads.task import Task as Task
    from ml_foundations.workloads.training_job import TrainingJob as TrainingJob

__version__ = "0.1.0"

COMPONENTS = {
    "GkeCluster": "gke.cluster",
    "CpuNodePool": "gke.cpu_node_pool",
    "GpuNodePool": "gke.gpu_node_pool",
    "GpuOperator": "gpu.operator",
    "DeviceClasses": "gpu.device_classes",
    "GpuMonitor": "gpu.monitor",
    "StorageClasses": "storage.classes",
    "Volume": "storage.volume",
    "TeamNamespace": "tenancy.team_namespace",
    "TrainingQueue": "tenancy.training_queue",
    "JobSetController": "tenancy.jobset_controller",
    "Task": "workloads.task",
    "TrainingJob": "workloads.training_job",
    "DistributedTraining": "workloads.distributed_training",
    "Sweep": "workloads.sweep",
    "ScheduledTraining": "workloads.scheduled_training",
    "ShardedSet": "workloads.sharded_set",
    "InferenceService": "workloads.inference_service",
}
"""Every component and its module. The component host, the schema and the pages follow from it."""

_NAMES = [*COMPONENTS, *(f"{name}Args" for name in COMPONENTS)]
if not TYPE_CHECKING:  # type checkers take what is imported above
    __all__ = _NAMES


def __getattr__(name: str) -> Any:
    if name.endswith("Args"):
        return getattr(import_module(f"{__name__}.typed_args"), name)
    if name not in COMPONENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{COMPONENTS[name]}"), name)


def __dir__() -> list[str]:
    return [*_NAMES, "COMPONENTS", "__version__"]
