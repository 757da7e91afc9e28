"""A stack file as a checked model: the only reader of Pulumi's configuration.

Every error comes at once, with its path in the stack file, the value and what is allowed. Keys are in camelCase in the
file, as elsewhere in Pulumi's YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import pulumi
from ml_foundations._spec import GpuProduct, MachineTypeName, Name, Quantity, Spec, derived, explain
from ml_foundations.gke.cluster import _GkeClusterSpec
from ml_foundations.gke.cpu_node_pool import _CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import _GpuNodePoolSpec
from ml_foundations.gke.machine_types import GPUS, MACHINE_TYPES
from ml_foundations.storage.classes import DISKS, NFS_CLASS
from ml_foundations.storage.volume import AccessMode
from ml_foundations.tenancy.team_namespace import PodSecurity
from ml_foundations.workloads.inference_service import _InferenceServiceSpec
from ml_foundations.workloads.training_job import _TrainingJobSpec
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

PROJECT = "ml-foundations"
COMPONENTS: dict[str, tuple[type[Spec], str]] = {
    "trainingJobs": (_TrainingJobSpec, "job_name"),
    "inferenceServices": (_InferenceServiceSpec, "service_name"),
}
"""The component of each section of workloads, and its argument for the name."""
NAMES = {"pool_name", *(name for _, name in COMPONENTS.values())}
"""Arguments that are the keys of sections in the stack file."""


class Section(BaseModel):
    """A section of the stack file."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    def given(self) -> Any:
        """The section as the arguments of its component: only what the file says."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


class Cluster(Section):
    """The GKE cluster."""

    name: Name
    location: str = Field(pattern=r"^[a-z]+-[a-z]+\d+$")
    node_zones: list[str] | None = None
    release_channel: Literal["RAPID", "REGULAR", "STABLE"] = "REGULAR"
    endpoint: Literal["dns", "private", "public"] = "dns"
    authorized_networks: dict[str, str] = {}
    deletion_protection: bool = True


class Taint(Section):
    """A taint of every node of a pool."""

    key: str = Field(min_length=1)
    value: str = ""
    effect: Literal["NO_SCHEDULE", "PREFER_NO_SCHEDULE", "NO_EXECUTE"] = "NO_SCHEDULE"


class NodePool(Section):
    """A node pool; with a GPU machine type, a GPU pool."""

    machine_type: MachineTypeName
    min_nodes: int = Field(0, ge=0, le=1000)
    max_nodes: int = Field(ge=1, le=1000)
    gpu: GpuProduct | None = None
    gpus: int | None = Field(None, ge=1)
    driver: Literal["default", "latest", "operator"] | None = None
    node_type: str | None = None
    zones: list[str] | None = None
    disk_size_gb: int = Field(100, ge=10, le=65536)
    disk_type: str | None = None
    spot: bool = False
    labels: dict[str, str] = {}
    taints: list[Taint] = []

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


class GpuOperator(Section):
    """The GPU Operator."""

    driver: Literal["operator", "google"] = "operator"
    driver_version: str | None = None
    service_monitor: bool = False
    critical_pods: int = Field(100, ge=1)
    values: dict[str, Any] = {}


class NfsServer(Section):
    """The NFS server behind the class nfs-client."""

    server: str
    path: str


class Storage(Section):
    """Storage classes."""

    fast_ssd_zones: list[str] = []
    nfs: NfsServer | None = None


class Quota(Section):
    """What a team may use at once."""

    gpus: int = Field(ge=0)
    cpu: Quantity
    memory: Quantity
    storage: Quantity
    volumes: int = Field(20, ge=0)
    jobs: int = Field(100, ge=0)
    pods: int = Field(200, ge=1)


class Volume(Section):
    """A claim of storage."""

    size: Quantity
    storage_class: Name
    access_mode: AccessMode = "ReadWriteOnce"
    data: bool = True


class Mount(Section):
    """A volume in a workload."""

    claim: Name
    path: str = Field(pattern="^/")
    read_only: bool = False


class Toleration(Section):
    """A taint that pods put up with."""

    key: str = Field(min_length=1)
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Workload(Section):
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
    tolerations: list[Toleration] = []
    service_account: str | None = None
    grace_seconds: int | None = Field(None, ge=0)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_overrides: dict[str, Any] = {}


class TrainingJob(Workload):
    """A training or preprocessing run."""

    completions: int = Field(1, ge=1)
    parallelism: int = Field(1, ge=1)
    backoff_limit: int = Field(3, ge=0)
    active_deadline_seconds: int | None = Field(None, ge=1)
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    wait_for_completion: bool = False


class InferenceService(Workload):
    """A model server."""

    gpus: int = Field(1, ge=0)
    replicas: int = Field(1, ge=1)
    port: int = Field(8080, ge=1, le=65535)
    health_path: str = Field("/health", pattern="^/")
    load_seconds: int = Field(300, ge=1)
    surge: bool = False


class Team(Section):
    """A team: its namespace's quota, volumes and workloads."""

    quota: Quota
    group: str | None = None
    pod_security: PodSecurity = "baseline"
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


class Settings(Section):
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
    yield from _cluster_errors(settings)
    yield from _pool_errors(settings)
    for team_name, team in settings.teams.items():
        names: dict[str, str] = {}
        for section, name, workload in team.workloads:
            path = f"teams.{team_name}.{section}.{name}"
            if name in names:
                yield path, f"the name is taken by teams.{team_name}.{names[name]}.{name}; choose another"
            names[name] = section
            yield from _name_errors(path, team_name, name)
            spec, name_field = COMPONENTS[section]
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
        for field, reason in explain(error, spec):
            here = path if field in NAMES else f"{path}.{_in_camel_case(field, spec)}"
            yield here, _in_camel_case(reason, spec)


def _in_camel_case(text: str, spec: type[Spec]) -> str:
    """A text with the names of a component's arguments as the stack file writes them."""
    for name in spec.model_fields:
        text = re.sub(rf"\b{name}\b", to_camel(name), text)
    return text


def _cluster_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    arguments = {**settings.cluster.given(), "project": settings.project}
    yield from _component_errors("cluster", _GkeClusterSpec, arguments)


def _pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    cluster = {"project": settings.project, "location": settings.cluster.location}
    made_later = {"cluster_name": "", "node_service_account": ""}
    for name, pool in settings.node_pools.items():
        spec = _GpuNodePoolSpec if pool.is_gpu else _CpuNodePoolSpec
        arguments = {**cluster, **made_later, "pool_name": name, **pool.given()}
        yield from _component_errors(f"nodePools.{name}", spec, arguments)
        if pool.is_gpu:
            yield from _driver_errors(f"nodePools.{name}.driver", pool, settings.gpu_operator)
    if all(pool.is_gpu for pool in settings.node_pools.values()):
        yield "nodePools", "there are GPU pools only; the system's pods need a pool without GPUs"


def _driver_errors(path: str, pool: NodePool, operator: GpuOperator | None) -> Iterator[tuple[str, str]]:
    """Exactly one side gives a node its driver and advertises its GPUs: GKE or the operator."""
    if pool.driver == "operator" and operator is None:
        yield path, "is operator, but there is no gpuOperator; declare it, or choose default or latest"
    if pool.driver == "operator" and operator is not None and operator.driver == "google":
        yield path, "is operator, but gpuOperator.driver is google: nobody installs the driver; change one of them"
    if pool.driver != "operator" and operator is not None and operator.driver == "operator":
        yield path, f"is {pool.driver or 'default'}, but gpuOperator.driver is operator: both would; change one of them"


def _name_errors(path: str, team: str, name: str) -> Iterator[tuple[str, str]]:
    """The name in the program is made of both; a Job's pods add a suffix to the name."""
    try:
        derived(name, "-xxxxx")
        derived(team, f"-{name}", limit=100)
    except ValueError as error:
        yield path, str(error)


def _gpu_errors(path: str, workload: Workload, settings: Settings) -> Iterator[tuple[str, str]]:
    pools = {name: pool for name, pool in settings.node_pools.items() if pool.is_gpu}
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
