"""A team in a stack file: the one table of what it can have."""

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from ml_foundations.component.partial import models_in
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.storage.volume import VolumeSpec
from ml_foundations.tenancy.quota import TeamQuota
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec, Tenancy
from ml_foundations.tenancy.training_queue import TeamQueue
from ml_foundations.workloads.distributed_training import DistributedTrainingSpec
from ml_foundations.workloads.inference_gateway import InferenceGatewaySpec
from ml_foundations.workloads.inference_service import InferenceServiceSpec
from ml_foundations.workloads.model_cache import ModelCacheSpec
from ml_foundations.workloads.nccl_test import NcclTestSpec
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.ray_cluster import RayClusterSpec
from ml_foundations.workloads.ray_job import RayJobSpec
from ml_foundations.workloads.scheduled_training import ScheduledTrainingSpec
from ml_foundations.workloads.sharded_set import ShardedSetSpec
from ml_foundations.workloads.sweep import SweepSpec
from ml_foundations.workloads.task import TaskSpec
from ml_foundations.workloads.train_job import TrainJobSpec
from ml_foundations.workloads.training_job import TrainingJobSpec
from ml_foundations.workloads.training_runtime import TrainingRuntimeSpec
from pydantic.alias_generators import to_camel

S = TypeVar("S", bound=ComponentSpec)


class Entry(NamedTuple, Generic[S]):
    """A component in the section of a team."""

    section: str
    """The key of its section in the file."""
    name: str
    spec: S


class Team(Tenancy):
    """A team with its namespace, quota, volumes and workloads."""

    quota: TeamQuota
    """The most that the team may use at once."""
    queue: TeamQueue | None = None
    """The team's share in the queues of Kueue."""
    volumes: dict[str, VolumeSpec] = {}
    """Claims, by name."""
    model_caches: dict[str, ModelCacheSpec] = {}
    """Weights of models, by name. Servers have the name as `modelCache`."""
    training_jobs: dict[str, TrainingJobSpec] = {}
    """Jobs on one node, by name."""
    distributed_trainings: dict[str, DistributedTrainingSpec] = {}
    """Trainings on several nodes, by name."""
    nccl_tests: dict[str, NcclTestSpec] = {}
    """Benchmarks of the network between GPUs, by name."""
    sweeps: dict[str, SweepSpec] = {}
    """Hyperparameter searches, by name."""
    scheduled_trainings: dict[str, ScheduledTrainingSpec] = {}
    """Trainings on a schedule, by name."""
    training_runtimes: dict[str, TrainingRuntimeSpec] = {}
    """Pods of TrainJobs, by name."""
    train_jobs: dict[str, TrainJobSpec] = {}
    """Trainings by Kubeflow Trainer, by name. Each has the name of its `runtime`."""
    ray_jobs: dict[str, RayJobSpec] = {}
    """Programs, each on a separate Ray cluster, by name."""
    ray_clusters: dict[str, RayClusterSpec] = {}
    """Ray clusters, by name."""
    tasks: dict[str, TaskSpec] = {}
    """Single pods that run once, by name."""
    inference_services: dict[str, InferenceServiceSpec] = {}
    """Model servers, by name."""
    sharded_sets: dict[str, ShardedSetSpec] = {}
    """Servers with a shard in each pod, by name."""
    inference_gateways: dict[str, InferenceGatewaySpec] = {}
    """Addresses of model servers, by name. `servers` has names of `inferenceServices`."""

    @property
    def components(self) -> list[Entry[ComponentSpec]]:
        """Every component of the team."""
        components: list[Entry[ComponentSpec]] = []
        for key in SECTIONS:
            for name, spec in getattr(self, key).items():
                components.append(Entry(to_camel(key), name, spec))
        return components

    @property
    def workloads(self) -> list[Entry[WorkloadSpec]]:
        """Every workload of the team."""
        workloads: list[Entry[WorkloadSpec]] = []
        for section, name, spec in self.components:
            if isinstance(spec, WorkloadSpec):
                workloads.append(Entry(section, name, spec))
        return workloads

    @staticmethod
    def uses(spec: ComponentSpec) -> Iterator[tuple[str, str]]:
        """Yield section and name of each component of the team that a component uses."""
        for mount in spec.mounts if isinstance(spec, WorkloadSpec) else ():
            yield "volumes", mount.claim or ""
        for reference in references(type(spec)):
            value = getattr(spec, reference.argument)
            for item in value if isinstance(value, list) else [value]:
                yield to_camel(reference.section), getattr(item, "name", item)

    def tenancy(self, name: str) -> TeamNamespaceSpec:
        """Return the arguments of the team's namespace.

        Raises:
            ValidationError: They do not go together.
        """
        beside_quota = self.model_dump(include=set(Tenancy.model_fields), exclude_unset=True)
        data = any(volume.data for volume in self.volumes.values())
        return TeamNamespaceSpec.model_validate(
            {"namespace": name, "data": data, **self.quota.given(), **beside_quota}
        )


SECTIONS: dict[str, type[ComponentSpec]] = {}
for _section, _field in Team.model_fields.items():
    for _spec in models_in(_field.annotation):
        if issubclass(_spec, ComponentSpec):
            SECTIONS[_section] = _spec
"""The sections of a team that are components by name."""


class Reference(NamedTuple):
    """An argument that is the name of a section of the same team."""

    argument: str
    """The argument."""
    section: str
    """The sections that it may name."""
    component: str
    """What these sections are."""
    outputs: Mapping[str, str]
    """The arguments that the named component sets, and its output for each."""
    is_list: bool
    """Whether the argument is a list of names."""


def references(spec: type[ComponentSpec]) -> Iterator[Reference]:
    """Yield the arguments that are components of the same team in a program."""
    for argument, declared in spec.objects.items():
        for section, named in SECTIONS.items():
            component = named.__name__.removesuffix("Spec")
            if argument in spec.model_fields and component in declared.components:
                outputs = declared.outputs or {argument: declared.item}
                yield Reference(argument, section, component, outputs, bool(declared.item))
