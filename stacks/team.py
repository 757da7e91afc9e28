"""A team in a stack file: the one table of what it can have."""

from ml_foundations.component.partial import models_in
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.storage.volume import VolumeSpec
from ml_foundations.tenancy.quota import TeamQuota
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec, Tenancy
from ml_foundations.tenancy.training_queue import TeamQueue
from ml_foundations.workloads.distributed_training import DistributedTrainingSpec
from ml_foundations.workloads.inference_service import InferenceServiceSpec
from ml_foundations.workloads.nccl_test import NcclTestSpec
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.scheduled_training import ScheduledTrainingSpec
from ml_foundations.workloads.sharded_set import ShardedSetSpec
from ml_foundations.workloads.sweep import SweepSpec
from ml_foundations.workloads.task import TaskSpec
from ml_foundations.workloads.training_job import TrainingJobSpec
from pydantic.alias_generators import to_camel


class Team(Tenancy):
    """A team with its namespace, quota, volumes and workloads."""

    quota: TeamQuota
    """The most that the team may use at once."""
    queue: TeamQueue | None = None
    """The team's share in the queues of Kueue."""
    volumes: dict[str, VolumeSpec] = {}
    """Claims, by name."""
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
    tasks: dict[str, TaskSpec] = {}
    """Single pods that run once, by name."""
    inference_services: dict[str, InferenceServiceSpec] = {}
    """Model servers, by name."""
    sharded_sets: dict[str, ShardedSetSpec] = {}
    """Servers with a shard in each pod, by name."""

    @property
    def components(self) -> list[tuple[str, str, ComponentSpec]]:
        """Key of the section, name and arguments of every component."""
        found: list[tuple[str, str, ComponentSpec]] = []
        for key in SECTIONS:
            for name, spec in getattr(self, key).items():
                found.append((to_camel(key), name, spec))
        return found

    @property
    def workloads(self) -> list[tuple[str, str, WorkloadSpec]]:
        """Section, name and arguments of every workload."""
        found: list[tuple[str, str, WorkloadSpec]] = []
        for section, name, spec in self.components:
            if isinstance(spec, WorkloadSpec):
                found.append((section, name, spec))
        return found

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
