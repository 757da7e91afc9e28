"""A stack file as a checked model: the only reader of Pulumi's configuration.

Every error comes at once, with its path in the stack file, the value and what is allowed. Keys are in camelCase in the
file, as elsewhere in Pulumi's YAML.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any

import devices
import pulumi
from existing import ExistingClusterSettings, is_existing
from ml_foundations.catalog.disks import ClassFacts
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.component.errors import explain
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name, derived
from ml_foundations.gke.cluster import GkeClusterSettings, _GkeClusterSpec
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSettings, _CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings, _GpuNodePoolSpec
from ml_foundations.gke.node_pool import tolerations
from ml_foundations.gpu.device_classes import DeviceClassesSettings
from ml_foundations.gpu.monitor import GpuMonitorSettings, _GpuMonitorSpec
from ml_foundations.gpu.operator import GpuOperatorSettings, Mode
from ml_foundations.kubernetes import labels
from ml_foundations.planning.verdict.rules import RULES
from ml_foundations.storage.classes import GCS_FUSE_CLASS, NFS_CLASS, StorageClassesSettings, class_facts
from ml_foundations.storage.volume import VolumeSettings, class_errors
from ml_foundations.tenancy.team_namespace import QuotaSettings, TeamNamespaceSettings
from ml_foundations.tenancy.training_queue import TeamQueue, TrainingQueueSettings
from ml_foundations.workloads.distributed_training import DistributedTrainingSettings, _DistributedTrainingSpec
from ml_foundations.workloads.inference_service import InferenceServiceSettings, _InferenceServiceSpec
from ml_foundations.workloads.pod import WorkloadSettings
from ml_foundations.workloads.scheduled_training import ScheduledTrainingSettings, _ScheduledTrainingSpec
from ml_foundations.workloads.sharded_set import ShardedSetSettings, _ShardedSetSpec
from ml_foundations.workloads.sweep import SweepSettings, _SweepSpec
from ml_foundations.workloads.task import TaskSettings, _TaskSpec
from ml_foundations.workloads.training_job import TrainingJobSettings, _TrainingJobSpec
from pydantic import Discriminator, Field, Tag, ValidationError
from pydantic.alias_generators import to_camel
from typing_extensions import override

PROJECT = "ml-foundations"
WORKLOADS: dict[str, tuple[type[Spec], str]] = {
    "training_jobs": (_TrainingJobSpec, "job_name"),
    "distributed_trainings": (_DistributedTrainingSpec, "job_name"),
    "sweeps": (_SweepSpec, "sweep_name"),
    "scheduled_trainings": (_ScheduledTrainingSpec, "cron_name"),
    "tasks": (_TaskSpec, "task_name"),
    "inference_services": (_InferenceServiceSpec, "service_name"),
    "sharded_sets": (_ShardedSetSpec, "set_name"),
}
"""Of each section of workloads: what its component checks, and the component's argument for the name."""
NAMES = {"poolName", "monitorName", *(to_camel(name) for _, name in WORKLOADS.values())}
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


Cluster = Annotated[
    Annotated[GkeClusterSettings, Tag(GkeClusterSettings.__name__)]
    | Annotated[ExistingClusterSettings, Tag(ExistingClusterSettings.__name__)],
    Discriminator(lambda given: (ExistingClusterSettings if is_existing(given) else GkeClusterSettings).__name__),
]
"""A cluster to be made; with a kubeconfig or context, one that is there already."""


class Team(TeamNamespaceSettings):
    """A team: its namespace and quota, its volumes and workloads."""

    quota: QuotaSettings = Field(description="What the team may have at once.")
    queue: TeamQueue | None = Field(default=None, description="The team's share in the queues of Kueue.")
    volumes: dict[Name, VolumeSettings] = Field(default={}, description="Claims, by name.")
    training_jobs: dict[Name, TrainingJobSettings] = Field(default={}, description="Jobs on one node, by name.")
    distributed_trainings: dict[Name, DistributedTrainingSettings] = Field(
        default={}, description="Trainings on several nodes, by name."
    )
    sweeps: dict[Name, SweepSettings] = Field(default={}, description="Searches for hyperparameters, by name.")
    scheduled_trainings: dict[Name, ScheduledTrainingSettings] = Field(
        default={}, description="Trainings by a schedule, by name."
    )
    tasks: dict[Name, TaskSettings] = Field(default={}, description="Single pods that run once, by name.")
    inference_services: dict[Name, InferenceServiceSettings] = Field(default={}, description="Model servers, by name.")
    sharded_sets: dict[Name, ShardedSetSettings] = Field(
        default={}, description="Servers of which each pod holds a shard, by name."
    )

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


class ProofSettings(Spec):
    """What a stack file says about the proof before spend."""

    accept: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default={},
        description="Rules whose errors are accepted, each with the reason.",
        json_schema_extra={"propertyNames": {"enum": list(RULES)}},
    )
    monthly_budget: Decimal | None = Field(
        default=None, ge=0, description="The most US dollars that all nodes may cost in a month, at list prices."
    )

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        for rule in self.accept.keys() - RULES.keys():
            near = difflib.get_close_matches(rule, RULES, n=2)
            way_out = f"Did you mean {' or '.join(near)}?" if near else f"Rules: {', '.join(RULES)}"
            yield f"accept.{rule}", f"there is no such rule. {way_out}"


class Settings(Spec):
    """A whole stack file."""

    project: str = Field(min_length=6)
    cluster: Cluster = Field(
        description="The cluster to make; with `kubeconfig` or `context`, the one that is there already."
    )
    node_pools: dict[Name, NodePool] = Field(
        default={}, description="Node pools, by name: of GPU nodes where the machine type or the keys say so."
    )
    gpu_operator: GpuOperatorSettings | None = Field(
        default=None, description="The NVIDIA GPU Operator; without it, no pool may leave its GPUs to it."
    )
    device_classes: DeviceClassesSettings | None = Field(
        default=None, description="GPUs by claims (DRA); without it, no workload may claim any."
    )
    gpu_monitors: dict[Name, GpuMonitorSettings] = Field(
        default={}, description="DaemonSets that watch GPU nodes, by name."
    )
    storage: StorageClassesSettings = Field(default=StorageClassesSettings(), description="The storage classes.")
    training_queue: TrainingQueueSettings = Field(
        default=TrainingQueueSettings(), description="Kueue, which is installed where a team has a `queue`."
    )
    teams: dict[Name, Team] = Field(default={}, description="Teams with all that is theirs, by namespace.")
    proof: ProofSettings = Field(default=ProofSettings(), description="The proof before spend.")

    @property
    def gpu_pools(self) -> dict[str, GpuNodePoolSettings]:
        """The pools of GPU nodes, by name."""
        return {name: pool for name, pool in self.node_pools.items() if isinstance(pool, GpuNodePoolSettings)}

    @property
    def queues(self) -> Any:
        """The arguments of the TrainingQueue, with a flavor for each GPU pool; None where no team has a queue."""
        teams = [{"namespace": name, **team.queue.given()} for name, team in self.teams.items() if team.queue]
        if not teams:
            return None
        flavors = [
            {
                "name": name,
                "gpu": pool.product,
                "node_selector": {labels.GKE_NODE_POOL: name},
                "tolerations": tolerations(pool.taints),
            }
            for name, pool in self.gpu_pools.items()
        ]
        return {"flavors": flavors, "teams": teams, **self.training_queue.given()}

    @property
    def operator(self) -> GpuOperatorSettings | None:
        """The GPU Operator, in the mode that suits the pools where the file names none."""
        if self.gpu_operator is None or "mode" in self.gpu_operator.model_fields_set:
            return self.gpu_operator
        pools = [pool for pool in self.node_pools.values() if isinstance(pool, GpuNodePoolSettings)]
        modes = {_mode_for(pool) for pool in pools}
        # Where pools want different modes, the contradiction is reported for each pool that the default leaves out.
        mode = modes.pop() if len(modes) == 1 else self.gpu_operator.mode
        return self.gpu_operator.model_copy(update={"mode": mode})

    @property
    def claims(self) -> DeviceClassesSettings | None:
        """Dynamic resource allocation, with the GPU driver where the operator or Google's installer puts it."""
        if self.device_classes is None or "gpu_driver_from" in self.device_classes.model_fields_set:
            return self.device_classes
        by_operator = self.operator is not None and self.operator.mode == "operator"
        return self.device_classes.model_copy(update={"gpu_driver_from": "operator" if by_operator else "google"})

    @property
    def workload_pool(self) -> str:
        """The project's Workload Identity pool."""
        return f"{self.project}.svc.id.goog"


def _mode_for(pool: GpuNodePoolSettings) -> Mode:
    """The operator's mode in which exactly one side gives the pool's nodes a driver and advertises their GPUs."""
    if pool.driver == "installer":
        return "ubuntu" if pool.image_name == "ubuntu" else "cos"
    return "operator" if pool.driver == "operator" else "gke"


def load() -> Settings:
    """The settings of the stack that runs.

    Raises:
        pulumi.RunError: something in the stack file is wrong; the message lists all of it.
    """
    config = pulumi.Config(PROJECT)
    sections = (
        "cluster",
        "nodePools",
        "gpuOperator",
        "deviceClasses",
        "gpuMonitors",
        "storage",
        "trainingQueue",
        "teams",
        "proof",
    )
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
        found += _stack_errors(settings)
    if settings is None or found:
        lines = "".join(f"\n  {_in_file(path)}: {reason}" for path, reason in found)
        raise ValueError(f"{len(found)} error{'s' if len(found) > 1 else ''}{lines}")
    return settings


def _in_file(path: str) -> str:
    return "gcp:project" if path == "project" else f"{PROJECT}:{path.removesuffix('.[key]')}"


def _stack_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """What each part allows and the whole does not."""
    yield from _cluster_errors(settings)
    yield from _add_on_errors(settings)
    yield from _pool_errors(settings)
    yield from _operator_errors(settings)
    yield from devices.pool_errors(settings)
    yield from _monitor_errors(settings)
    yield from _queue_errors(settings)
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
            yield from devices.claim_errors(path, workload, team_name, team)
            yield from _mount_errors(path, workload, team, settings)
            if isinstance(workload, ShardedSetSettings):
                yield from _shard_errors(path, workload, settings)
            if workload.queue is not None and (
                team.queue is None or workload.queue != settings.training_queue.queue_name
            ):
                there_is = "none" if team.queue is None else settings.training_queue.queue_name
                yield f"{path}.queue", f"the team has no queue {workload.queue}. Its queue: {there_is}"
        for name, volume in team.volumes.items():
            yield from _class_errors(f"teams.{team_name}.volumes.{name}", volume, settings)


def _component_errors(path: str, spec: type[Spec], arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the component will say to its section, so that it is said before anything is declared."""
    try:
        spec.model_validate(arguments)
    except ValidationError as error:
        for field, reason in explain(error, spec, to_camel):
            yield path if field in NAMES else f"{path}.{field}", reason


def _add_on_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """A driver that storage classes need, and that the file switches off."""
    if isinstance(settings.cluster, ExistingClusterSettings):
        return
    for add_on in settings.storage.add_ons:
        if add_on in settings.cluster.model_fields_set and not getattr(settings.cluster, add_on):
            yield f"cluster.{add_on}", f"is false, but storage.{add_on} needs it; leave it out, and it is switched on"


def _cluster_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    cluster = settings.cluster
    if isinstance(cluster, ExistingClusterSettings):
        return
    yield from _component_errors("cluster", _GkeClusterSpec, {**cluster.given(), "project": settings.project})
    if grouped := [name for name, team in settings.teams.items() if team.group and not cluster.security_group]:
        what = f"teams.{grouped[0]}.group is a Google group"
        yield "cluster.securityGroup", f"is required, as gke-security-groups@DOMAIN: {what}, and GKE knows only its own"
    if not cluster.multi_networking:
        for name, pool in settings.gpu_pools.items():
            if pool.additional_networks:
                yield "cluster.multiNetworking", f"is false, but nodePools.{name}.additionalNetworks need it; say true"


def _pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, pool in settings.gpu_pools.items():
        yield from _driver_errors(f"nodePools.{name}.driver", pool, settings.operator)
        if pool.sharing and settings.operator is not None and settings.operator.feature_discovery:
            why = "the operator's feature discovery knows nothing of it and would label the GPUs as not shared"
            yield f"nodePools.{name}.sharing", f"is GKE's, and {why}; say false in gpuOperator.featureDiscovery"
    if isinstance(settings.cluster, ExistingClusterSettings):
        return
    cluster = {"project": settings.project, "location": settings.cluster.location}
    made_later = {"cluster_name": "", "node_service_account": ""}
    for name, pool in settings.node_pools.items():
        spec = _GpuNodePoolSpec if isinstance(pool, GpuNodePoolSettings) else _CpuNodePoolSpec
        arguments = {**cluster, **made_later, "pool_name": name, **pool.given()}
        yield from _component_errors(f"nodePools.{name}", spec, arguments)
    if not settings.node_pools:
        yield "nodePools", "are required: a cluster needs a pool without GPUs for the system's pods, and GPU pools"
    elif not any(isinstance(pool, CpuNodePoolSettings) for pool in settings.node_pools.values()):
        yield "nodePools", "there are GPU pools only; the system's pods need a pool without GPUs"


def _operator_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """What the operator says to the mode that follows from the pools."""
    if settings.operator is not None:
        yield from _component_errors("gpuOperator", GpuOperatorSettings, settings.operator.given())


def _monitor_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """GPU metrics are exported once: by the operator's exporter, or by one of ours."""
    for name, monitor in settings.gpu_monitors.items():
        yield from _component_errors(f"gpuMonitors.{name}", _GpuMonitorSpec, {"monitor_name": name, **monitor.given()})
        if monitor.is_dcgm_exporter and settings.operator is not None and settings.operator.dcgm_exporter.enabled:
            yield f"gpuMonitors.{name}", "gpuOperator.dcgmExporter exports the same metrics; take one of them out"


def _queue_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Teams are promised no more than there is, and no more than their namespaces allow."""
    promised: Counter[str] = Counter()
    for name, team in settings.teams.items():
        if team.queue is None:
            continue
        promised.update(team.queue.gpus)
        path = f"teams.{name}.queue"
        for pool in sorted(team.queue.flavors - settings.gpu_pools.keys()):
            yield f"{path}.gpus.{pool}", f"there is no such GPU pool. Pools: {', '.join(settings.gpu_pools) or 'none'}"
        if (own := sum(team.queue.gpus.values())) > team.quota.gpus:
            yield f"{path}.gpus", f"are {own}, and the team's pods may request {team.quota.gpus} (quota.gpus)"
    for name, pool in settings.gpu_pools.items():
        if promised[name] > (there := pool.most_nodes * pool.gpu_resources_per_node):
            yield (
                f"nodePools.{name}",
                f"has {there} GPUs at the most, and teams' queues promise {promised[name]} of them",
            )


def _shard_errors(path: str, workload: ShardedSetSettings, settings: Settings) -> Iterator[tuple[str, str]]:
    """What is said of a team's volumes holds for those that each shard has."""
    for index, volume in enumerate(workload.volumes):
        here = f"{path}.volumes[{index}]"
        made = VolumeSettings(size=volume.size, storage_class=volume.storage_class)
        yield from _class_errors(here, made, settings)
        yield from _attach_errors(f"{here}.storageClass", workload, made, settings)


def _driver_errors(
    path: str, pool: GpuNodePoolSettings, operator: GpuOperatorSettings | None
) -> Iterator[tuple[str, str]]:
    """Exactly one side gives a node its driver and advertises its GPUs: GKE or the operator."""
    wanted = _mode_for(pool)
    if operator is None and wanted != "gke":
        yield path, f"is {pool.driver}, but there is no gpuOperator; declare it, or choose default or latest"
    if operator is not None and operator.mode != wanted:
        who = "both would install the driver" if wanted == "gke" else "nobody installs the driver that it expects"
        yield path, f"is {pool.driver}, but gpuOperator.mode is {operator.mode}: {who}; change one of them"


def _name_errors(path: str, team: str, name: str) -> Iterator[tuple[str, str]]:
    """The name in the program is made of both; a Job's pods add a suffix to the name."""
    try:
        derived(name, "-xxxxx")
        derived(team, f"-{name}", limit=100)
    except ValueError as error:
        yield path, str(error)


def _gpu_errors(path: str, workload: WorkloadSettings, settings: Settings) -> Iterator[tuple[str, str]]:
    pools = {name: pool for name, pool in settings.node_pools.items() if isinstance(pool, GpuNodePoolSettings)}
    unknown = isinstance(settings.cluster, ExistingClusterSettings) and not settings.node_pools
    if not workload.gpus or unknown:
        return
    fitting = {name: pool for name, pool in pools.items() if devices.suits(pool, workload)}
    if not fitting:
        known = ", ".join(sorted({pool.product for pool in pools.values()})) or "none: there is no GPU pool"
        wanted = f"no pool has {workload.gpu}" if workload.gpu else "no pool has GPUs"
        claimed = " that can be claimed" if workload.gpu_claim is not None else ""
        yield f"{path}.gpu", f"{wanted}{claimed}. The pools have: {known}"
    elif workload.gpus > max(pool.most_gpus_per_pod for pool in fitting.values()):
        offers = ", ".join(f"{name} has {pool.most_gpus_per_pod}" for name, pool in fitting.items())
        yield f"{path}.gpus", f"is {workload.gpus}, more than any node offers ({offers})"


def _mount_errors(path: str, workload: WorkloadSettings, team: Team, settings: Settings) -> Iterator[tuple[str, str]]:
    for index, mount in enumerate(workload.mounts):
        here = f"{path}.mounts[{index}].claim"
        if mount.claim is None:
            continue
        if mount.claim not in team.volumes:
            yield here, f'there is no volume "{mount.claim}" in this team. Volumes: {", ".join(team.volumes) or "none"}'
        else:
            yield from _attach_errors(here, workload, team.volumes[mount.claim], settings)


def _attach_errors(
    path: str, workload: WorkloadSettings, volume: VolumeSettings, settings: Settings
) -> Iterator[tuple[str, str]]:
    """A disk that attaches to no machine on which the pod can run."""
    classes = class_facts(settings.storage)
    facts = classes.get(volume.storage_class)
    machines = sorted({pool.machine_type for pool in settings.node_pools.values() if _may_run_on(pool, workload)})
    if facts is None or not machines or any(_attaches(machine, facts) is not False for machine in machines):
        return
    others = [
        name
        for name, other in classes.items()
        if volume.mode in other.access_modes and any(_attaches(machine, other) for machine in machines)
    ]
    better = " or ".join(others) or "none; declare one in storage"
    yield path, f"its class {volume.storage_class} attaches to no {' or '.join(machines)}; a class that does: {better}"


def _may_run_on(pool: GpuNodePoolSettings | CpuNodePoolSettings, workload: WorkloadSettings) -> bool:
    if isinstance(pool, GpuNodePoolSettings):
        return bool(workload.gpus) and devices.suits(pool, workload)
    return not workload.gpus


def _attaches(machine: str, facts: ClassFacts) -> bool | None:
    """Whether volumes of a class attach to a machine type: what is mounted over the network always does."""
    if facts.disk_type is None:
        return True
    return MACHINE_TYPES[machine].attaches(facts.disk_type, regional=facts.regional)


def _class_errors(path: str, volume: VolumeSettings, settings: Settings) -> Iterator[tuple[str, str]]:
    classes = class_facts(settings.storage)
    if volume.storage_class == NFS_CLASS and settings.storage.nfs is None:
        yield f"{path}.storageClass", f"is {NFS_CLASS}, but storage.nfs names no server"
    elif volume.storage_class not in classes and volume.storage_class != GCS_FUSE_CLASS:
        known = ", ".join(classes)
        yield f"{path}.storageClass", f'there is no class "{volume.storage_class}". Classes: {known}'
    elif facts := classes.get(volume.storage_class):
        for field, reason in class_errors(volume, facts):
            sharing = [name for name, other in classes.items() if volume.mode in other.access_modes]
            way_out = f". For {volume.mode}: {' or '.join(sharing)}" if field == "access_mode" and sharing else ""
            yield f"{path}.{to_camel(field)}", f"{reason}{way_out}"
