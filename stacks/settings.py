"""A stack file as a checked model: the only reader of Pulumi's configuration.

Every error comes at once, with its path in the stack file, the value and what is allowed. Keys are in camelCase in the
file, as elsewhere in Pulumi's YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
from ml_foundations._spec import GpuProduct, MachineTypeName, Name, Quantity, derived, explain
from ml_foundations.gke.gpu_node_pool import gpu_mismatch
from ml_foundations.gke.machine_types import GPUS, MACHINE_TYPES
from ml_foundations.storage.classes import DISKS, NFS_CLASS
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

PROJECT = "ml-foundations"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)


class Cluster(_Model):
    """The GKE cluster."""

    name: Name = Field(max_length=40)
    location: str = Field(pattern=r"^[a-z]+-[a-z]+\d+$")
    node_zones: list[str] | None = None
    release_channel: str = Field("REGULAR", pattern="^(RAPID|REGULAR|STABLE)$")
    endpoint: str = Field("dns", pattern="^(dns|private|public)$")
    authorized_networks: dict[str, str] = {}
    deletion_protection: bool = True


class NodePool(_Model):
    """A node pool; with a GPU machine type, a GPU pool."""

    machine_type: MachineTypeName
    min_nodes: int = Field(0, ge=0, le=1000)
    max_nodes: int = Field(ge=1, le=1000)
    gpu: GpuProduct | None = None
    gpus: int | None = Field(None, ge=1)
    driver: str | None = Field(None, pattern="^(default|latest|operator)$")
    node_type: str | None = None
    zones: list[str] | None = None
    disk_size_gb: int = Field(100, ge=10, le=65536)
    disk_type: str | None = None
    spot: bool = False
    labels: dict[str, str] = {}

    @property
    def is_gpu(self) -> bool:
        """Whether its nodes have GPUs."""
        return MACHINE_TYPES[self.machine_type].gpu is not None or self.gpu is not None

    @property
    def product(self) -> str | None:
        """The GPU product of its nodes."""
        built_in = MACHINE_TYPES[self.machine_type].gpu
        return GPUS[built_in].product if built_in else self.gpu

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each of its nodes."""
        return MACHINE_TYPES[self.machine_type].gpu_count or self.gpus or 0


class GpuOperator(_Model):
    """The GPU Operator."""

    driver: str = Field("operator", pattern="^(operator|google)$")
    driver_version: str | None = None
    service_monitor: bool = False
    critical_pods: int = Field(100, ge=1)
    values: dict[str, Any] = {}


class NfsServer(_Model):
    """The NFS server behind the class nfs-client."""

    server: str
    path: str


class Storage(_Model):
    """Storage classes."""

    fast_ssd_zones: list[str] = []
    nfs: NfsServer | None = None


class Quota(_Model):
    """What a team may use at once."""

    gpus: int = Field(ge=0)
    cpu: Quantity
    memory: Quantity
    storage: Quantity
    volumes: int = Field(20, ge=0)
    jobs: int = Field(100, ge=0)
    pods: int = Field(200, ge=1)


class Volume(_Model):
    """A claim of storage."""

    size: Quantity
    storage_class: Name
    access_mode: str = Field("ReadWriteOnce", pattern="^(ReadWriteOnce|ReadWriteOncePod|ReadOnlyMany|ReadWriteMany)$")
    data: bool = True


class Mount(_Model):
    """A volume in a workload."""

    claim: Name
    path: str = Field(pattern="^/")
    read_only: bool = False


class Workload(_Model):
    """What training jobs and inference services have in common."""

    image: str = Field(min_length=1)
    cpu: Quantity
    memory: Quantity
    command: list[str] | None = None
    arguments: list[str] | None = None
    env: dict[str, str] = {}
    gpu: GpuProduct | None = None
    gpus: int = Field(0, ge=0)
    mounts: list[Mount] = []
    shared_memory: Quantity | None = None
    node_selector: dict[str, str] = {}
    grace_seconds: int | None = Field(None, ge=0)


class TrainingJob(Workload):
    """A training or preprocessing run."""

    completions: int = Field(1, ge=1)
    parallelism: int = Field(1, ge=1)
    backoff_limit: int = Field(3, ge=0)
    active_deadline_seconds: int | None = Field(None, ge=1)
    ttl_seconds_after_finished: int | None = Field(None, ge=0)


class InferenceService(Workload):
    """A model server."""

    gpus: int = Field(1, ge=0)
    replicas: int = Field(1, ge=1)
    port: int = Field(8080, ge=1, le=65535)
    health_path: str = Field("/health", pattern="^/")
    load_seconds: int = Field(300, ge=1)
    surge: bool = False


class Team(_Model):
    """A team: its namespace's quota, volumes and workloads."""

    quota: Quota
    group: str | None = None
    pod_security: str = Field("baseline", pattern="^(privileged|baseline|restricted)$")
    volumes: dict[Name, Volume] = {}
    training_jobs: dict[Name, TrainingJob] = {}
    inference_services: dict[Name, InferenceService] = {}

    @property
    def workloads(self) -> Iterator[tuple[str, str, Workload]]:
        """Each workload with its section and name."""
        for name, job in self.training_jobs.items():
            yield "trainingJobs", name, job
        for name, service in self.inference_services.items():
            yield "inferenceServices", name, service


class Settings(_Model):
    """A whole stack file."""

    project: str = Field(min_length=6)
    cluster: Cluster
    node_pools: dict[Name, NodePool] = Field(min_length=1)
    gpu_operator: GpuOperator | None = None
    storage: Storage = Storage()
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
        settings = Settings.model_validate(json.loads(json.dumps(given)))
    except ValidationError as error:
        found += explain(error, Settings)
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
    yield from _pool_errors(settings)
    for team_name, team in settings.teams.items():
        names: dict[str, str] = {}
        for section, name, workload in team.workloads:
            path = f"teams.{team_name}.{section}.{name}"
            if name in names:
                yield path, f"the name is taken by teams.{team_name}.{names[name]}.{name}; choose another"
            names[name] = section
            yield from _name_errors(path, team_name, name)
            yield from _gpu_errors(path, workload, settings)
            yield from _mount_errors(path, workload, team, settings)
        for name, volume in team.volumes.items():
            yield from _class_errors(f"teams.{team_name}.volumes.{name}.storageClass", volume, settings)


def _pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, pool in settings.node_pools.items():
        path = f"nodePools.{name}"
        if pool.min_nodes > pool.max_nodes:
            yield f"{path}.minNodes", f"is {pool.min_nodes}, above maxNodes ({pool.max_nodes})"
        if pool.is_gpu and (reason := gpu_mismatch(pool.machine_type, pool.gpu, pool.gpus)):
            yield path, reason
        if not pool.is_gpu and pool.driver is not None:
            yield f"{path}.driver", f"{pool.machine_type} has no GPU to drive; leave it out"
        if pool.driver == "operator" and settings.gpu_operator is None:
            yield f"{path}.driver", "is operator, but there is no gpuOperator; declare it, or choose default or latest"
        if len(name) > 40:
            yield path, f"the name has {len(name)} characters; GKE allows a node pool 40"
    if all(pool.is_gpu for pool in settings.node_pools.values()):
        yield "nodePools", "there are GPU pools only; the system's pods need a pool without GPUs"


def _name_errors(path: str, team: str, name: str) -> Iterator[tuple[str, str]]:
    """The name in the program is made of both; a Job's pods add a suffix to the name."""
    try:
        derived(name, "-xxxxx")
        derived(team, f"-{name}", limit=100)
    except ValueError as error:
        yield path, str(error)


def _gpu_errors(path: str, workload: Workload, settings: Settings) -> Iterator[tuple[str, str]]:
    pools = {name: pool for name, pool in settings.node_pools.items() if pool.is_gpu}
    if workload.gpu is not None and not workload.gpus:
        yield f"{path}.gpus", f"is 0, but gpu is {workload.gpu}; say how many each pod needs"
    if not workload.gpus:
        return
    fitting = {name: pool for name, pool in pools.items() if workload.gpu in (None, pool.product)}
    if not fitting:
        known = ", ".join(sorted({str(pool.product) for pool in pools.values()})) or "none: there is no GPU pool"
        wanted = f"no pool has {workload.gpu}" if workload.gpu else "no pool has GPUs"
        yield f"{path}.gpu", f"{wanted}. The pools have: {known}"
    elif workload.gpus > max(pool.gpus_per_node for pool in fitting.values()):
        offers = ", ".join(f"{name} has {pool.gpus_per_node}" for name, pool in fitting.items())
        yield f"{path}.gpus", f"is {workload.gpus}, more than any node offers ({offers})"


def _mount_errors(path: str, workload: Workload, team: Team, settings: Settings) -> Iterator[tuple[str, str]]:
    for index, mount in enumerate(workload.mounts):
        here = f"{path}.mounts[{index}].claim"
        if mount.claim not in team.volumes:
            yield here, f'there is no volume "{mount.claim}" in this team. Volumes: {", ".join(team.volumes) or "none"}'
        else:
            yield from _attach_errors(here, workload, team.volumes[mount.claim].storage_class, settings)


def _attach_errors(path: str, workload: Workload, storage_class: str, settings: Settings) -> Iterator[tuple[str, str]]:
    """A disk that attaches to no machine on which the pod can run."""
    if storage_class not in DISKS:
        return
    machines = sorted(
        {
            pool.machine_type
            for pool in settings.node_pools.values()
            if (pool.is_gpu and workload.gpu in (None, pool.product) if workload.gpus else not pool.is_gpu)
        }
    )
    if machines and all(_attaches(machine, storage_class) is False for machine in machines):
        others = [name for name in DISKS if any(_attaches(machine, name) for machine in machines)]
        better = " or ".join([*others, NFS_CLASS] if settings.storage.nfs else others) or "hyperdisk"
        yield path, f"its class {storage_class} attaches to no {' or '.join(machines)}; a class that does: {better}"


def _attaches(machine: str, storage_class: str) -> bool | None:
    disk, regional = DISKS[storage_class]
    return MACHINE_TYPES[machine].attaches(disk, regional=regional)


def _class_errors(path: str, volume: Volume, settings: Settings) -> Iterator[tuple[str, str]]:
    if volume.storage_class == NFS_CLASS and settings.storage.nfs is None:
        yield path, f"is {NFS_CLASS}, but storage.nfs names no server"
    if volume.storage_class in DISKS and volume.access_mode == "ReadWriteMany":
        yield (
            path,
            f"{volume.storage_class} is a disk, and only one node can write to it; for ReadWriteMany: {NFS_CLASS}",
        )
