"""A stack file as a checked model: the only reader of Pulumi's configuration.

Every error comes at once, with its path in the stack file, the value and what is allowed. Keys are in camelCase in the
file, as elsewhere in Pulumi's YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import pulumi
from ml_foundations._spec import Name, Spec, derived, explain
from ml_foundations.gke.cluster import GkeClusterSettings, _GkeClusterSpec
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSettings, _CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings, _GpuNodePoolSpec
from ml_foundations.gke.machine_types import MACHINE_TYPES
from ml_foundations.gpu.operator import GpuOperatorSettings
from ml_foundations.storage.classes import DISKS, NFS_CLASS, StorageClassesSettings
from ml_foundations.storage.volume import VolumeSettings
from ml_foundations.tenancy.team_namespace import QuotaSettings, TeamNamespaceSettings
from ml_foundations.workloads._pod import WorkloadSettings
from ml_foundations.workloads.inference_service import InferenceServiceSettings, _InferenceServiceSpec
from ml_foundations.workloads.training_job import TrainingJobSettings, _TrainingJobSpec
from pydantic import Discriminator, Field, Tag, ValidationError
from pydantic.alias_generators import to_camel

PROJECT = "ml-foundations"
WORKLOADS: dict[str, tuple[type[Spec], str]] = {
    "training_jobs": (_TrainingJobSpec, "job_name"),
    "inference_services": (_InferenceServiceSpec, "service_name"),
}
"""Of each section of workloads: what its component checks, and the component's argument for the name."""
NAMES = {"poolName", *(to_camel(name) for _, name in WORKLOADS.values())}
"""Arguments that are the keys of sections in the stack file."""

ONLY_GPU = {to_camel(name) for name in GpuNodePoolSettings.model_fields if name not in CpuNodePoolSettings.model_fields}
"""Keys that only a pool of GPU nodes has."""


def _kind_of_pool(given: Any) -> str:
    """Which component a node pool is for: one of GPU nodes, if its machine type or its section has GPUs."""
    if not isinstance(given, dict):
        return type(given).__name__
    machine = MACHINE_TYPES.get(given.get("machineType", ""))
    has_gpus = ONLY_GPU & given.keys() or (machine is not None and machine.gpu is not None)
    return (GpuNodePoolSettings if has_gpus else CpuNodePoolSettings).__name__


NodePool = Annotated[
    Annotated[GpuNodePoolSettings, Tag(GpuNodePoolSettings.__name__)]
    | Annotated[CpuNodePoolSettings, Tag(CpuNodePoolSettings.__name__)],
    Discriminator(_kind_of_pool),
]
"""A node pool; with a GPU machine type, a GPU pool."""


class Team(TeamNamespaceSettings):
    """A team: its namespace and quota, its volumes and workloads."""

    quota: QuotaSettings
    volumes: dict[Name, VolumeSettings] = {}
    training_jobs: dict[Name, TrainingJobSettings] = {}
    inference_services: dict[Name, InferenceServiceSettings] = {}

    @property
    def tenancy(self) -> Any:
        """The arguments of the team's namespace."""
        beside_quota = self.model_dump(include=set(TeamNamespaceSettings.model_fields), exclude_unset=True)
        return beside_quota | self.quota.given()

    @property
    def workloads(self) -> Iterator[tuple[str, str, WorkloadSettings]]:
        """Section, name and settings of every workload."""
        for section in WORKLOADS:
            yield from ((section, name, workload) for name, workload in getattr(self, section).items())


class Settings(Spec):
    """A whole stack file."""

    project: str = Field(min_length=6)
    cluster: GkeClusterSettings
    node_pools: dict[Name, NodePool] = Field(min_length=1)
    gpu_operator: GpuOperatorSettings | None = None
    storage: StorageClassesSettings = StorageClassesSettings()
    teams: dict[Name, Team] = {}


def load() -> Settings:
    """The settings of the stack that runs.

    Raises:
        pulumi.RunError: something in the stack file is wrong; the message lists all of it.
    """
    config = pulumi.Config(PROJECT)
    sections = ("cluster", "nodePools", "gpuOperator", "storage", "teams")
    given = {key: value for key in sections if (value := config.get_object(key)) is not None}
    unknown = _unknown_keys(sections)
    try:
        return parse({"project": pulumi.Config("gcp").get("project") or "", **given}, unknown)
    except ValueError as error:
        raise pulumi.RunError(f"stacks/Pulumi.{pulumi.get_stack()}.yaml: {error}") from None


def _unknown_keys(sections: tuple[str, ...]) -> list[tuple[str, str]]:
    """Keys of our own namespace that no section has."""
    prefix = f"{PROJECT}:"
    keys = [key.removeprefix(prefix) for key in pulumi.runtime.get_config_env() if key.startswith(prefix)]
    return [(key, f"is not known. Known: {', '.join(sections)}") for key in keys if key not in sections]


def parse(given: dict[str, Any], errors: list[tuple[str, str]] | None = None) -> Settings:
    """The settings in a stack file's sections.

    Raises:
        ValueError: with every error, a line each: its path, what is wrong with the value, what is allowed.
    """
    found = list(errors or [])
    settings = None
    try:
        settings = Settings.model_validate(json.loads(json.dumps(given)), by_alias=True, by_name=False)
    except ValidationError as error:
        found += explain(error, Settings, to_camel)
    if settings is not None:
        found += contradictions(settings)
    if settings is None or found:
        lines = "".join(f"\n  {_in_file(path)}: {reason}" for path, reason in found)
        raise ValueError(f"{len(found)} error{'s' if len(found) > 1 else ''}{lines}")
    return settings


def _in_file(path: str) -> str:
    return "gcp:project" if path == "project" else f"{PROJECT}:{path.removesuffix('.[key]')}"


def contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """What each part allows and the whole does not."""
    yield from _cluster_errors(settings)
    yield from _pool_errors(settings)
    for team_name, team in settings.teams.items():
        names: dict[str, str] = {}
        for section, name, workload in team.workloads:
            path = f"teams.{team_name}.{to_camel(section)}.{name}"
            if name in names:
                yield path, f"the name is taken by teams.{team_name}.{to_camel(names[name])}.{name}; choose another"
            names[name] = section
            yield from _name_errors(path, team_name, name)
            spec, name_field = WORKLOADS[section]
            arguments = {"namespace": team_name, name_field: name, **workload.given()}
            yield from _component_errors(path, spec, arguments)
            yield from _gpu_errors(path, workload, settings)
            yield from _mount_errors(path, workload, team, settings)
        for name, volume in team.volumes.items():
            yield from _class_errors(f"teams.{team_name}.volumes.{name}.storageClass", volume, settings)


def _component_errors(path: str, spec: type[Spec], arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the component will say to its section, so that it is said before anything is declared."""
    try:
        spec.model_validate(arguments)
    except ValidationError as error:
        for field, reason in explain(error, spec, to_camel):
            yield path if field in NAMES else f"{path}.{field}", reason


def _cluster_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    arguments = {**settings.cluster.given(), "project": settings.project}
    yield from _component_errors("cluster", _GkeClusterSpec, arguments)


def _pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    cluster = {"project": settings.project, "location": settings.cluster.location}
    made_later = {"cluster_name": "", "node_service_account": ""}
    for name, pool in settings.node_pools.items():
        spec = _GpuNodePoolSpec if isinstance(pool, GpuNodePoolSettings) else _CpuNodePoolSpec
        arguments = {**cluster, **made_later, "pool_name": name, **pool.given()}
        yield from _component_errors(f"nodePools.{name}", spec, arguments)
        if isinstance(pool, GpuNodePoolSettings):
            yield from _driver_errors(f"nodePools.{name}.driver", pool, settings.gpu_operator)
    if not any(isinstance(pool, CpuNodePoolSettings) for pool in settings.node_pools.values()):
        yield "nodePools", "there are GPU pools only; the system's pods need a pool without GPUs"


def _driver_errors(
    path: str, pool: GpuNodePoolSettings, operator: GpuOperatorSettings | None
) -> Iterator[tuple[str, str]]:
    """Exactly one side gives a node its driver and advertises its GPUs: GKE or the operator."""
    if pool.driver == "operator" and operator is None:
        yield path, "is operator, but there is no gpuOperator; declare it, or choose default or latest"
    if pool.driver == "operator" and operator is not None and operator.driver == "google":
        yield path, "is operator, but gpuOperator.driver is google: nobody installs the driver; change one of them"
    if pool.driver != "operator" and operator is not None and operator.driver == "operator":
        yield path, f"is {pool.driver}, but gpuOperator.driver is operator: both would; change one of them"


def _name_errors(path: str, team: str, name: str) -> Iterator[tuple[str, str]]:
    """The name in the program is made of both; a Job's pods add a suffix to the name."""
    try:
        derived(name, "-xxxxx")
        derived(team, f"-{name}", limit=100)
    except ValueError as error:
        yield path, str(error)


def _gpu_errors(path: str, workload: WorkloadSettings, settings: Settings) -> Iterator[tuple[str, str]]:
    pools = {name: pool for name, pool in settings.node_pools.items() if isinstance(pool, GpuNodePoolSettings)}
    if not workload.gpus:
        return
    fitting = {name: pool for name, pool in pools.items() if workload.gpu in (None, pool.product)}
    if not fitting:
        known = ", ".join(sorted({pool.product for pool in pools.values()})) or "none: there is no GPU pool"
        wanted = f"no pool has {workload.gpu}" if workload.gpu else "no pool has GPUs"
        yield f"{path}.gpu", f"{wanted}. The pools have: {known}"
    elif workload.gpus > max(pool.gpus_per_node for pool in fitting.values()):
        offers = ", ".join(f"{name} has {pool.gpus_per_node}" for name, pool in fitting.items())
        yield f"{path}.gpus", f"is {workload.gpus}, more than any node offers ({offers})"


def _mount_errors(path: str, workload: WorkloadSettings, team: Team, settings: Settings) -> Iterator[tuple[str, str]]:
    for index, mount in enumerate(workload.mounts):
        here = f"{path}.mounts[{index}].claim"
        if mount.claim not in team.volumes:
            yield here, f'there is no volume "{mount.claim}" in this team. Volumes: {", ".join(team.volumes) or "none"}'
        else:
            yield from _attach_errors(here, workload, team.volumes[mount.claim].storage_class, settings)


def _attach_errors(
    path: str, workload: WorkloadSettings, storage_class: str, settings: Settings
) -> Iterator[tuple[str, str]]:
    """A disk that attaches to no machine on which the pod can run."""
    if storage_class not in DISKS:
        return
    machines = sorted({pool.machine_type for pool in settings.node_pools.values() if _may_run_on(pool, workload)})
    if machines and all(_attaches(machine, storage_class) is False for machine in machines):
        others = [name for name in DISKS if any(_attaches(machine, name) for machine in machines)]
        better = " or ".join([*others, NFS_CLASS] if settings.storage.nfs else others) or "hyperdisk"
        yield path, f"its class {storage_class} attaches to no {' or '.join(machines)}; a class that does: {better}"


def _may_run_on(pool: GpuNodePoolSettings | CpuNodePoolSettings, workload: WorkloadSettings) -> bool:
    if isinstance(pool, GpuNodePoolSettings):
        return bool(workload.gpus) and workload.gpu in (None, pool.product)
    return not workload.gpus


def _attaches(machine: str, storage_class: str) -> bool | None:
    disk, regional = DISKS[storage_class]
    return MACHINE_TYPES[machine].attaches(disk, regional=regional)


def _class_errors(path: str, volume: VolumeSettings, settings: Settings) -> Iterator[tuple[str, str]]:
    if volume.storage_class == NFS_CLASS and settings.storage.nfs is None:
        yield path, f"is {NFS_CLASS}, but storage.nfs names no server"
    if volume.storage_class in DISKS and volume.access_mode == "ReadWriteMany":
        yield (
            path,
            f"{volume.storage_class} is a disk, and only one node can write to it; for ReadWriteMany: {NFS_CLASS}",
        )
