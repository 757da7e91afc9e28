"""Checks across the sections of a stack file: names, references, add-ons and drivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import fabrics
from defaults import is_reference, mode_for, read_reference
from existing_cluster import ExistingCluster
from ml_foundations.catalog.compute_classes import OWN_PREFIXES
from ml_foundations.catalog.nodes import NEW_NODE_SECONDS
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.component.partial import while_valid
from ml_foundations.component.topology import level_label
from ml_foundations.component.types import derived
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.kubernetes.words import names
from ml_foundations.storage.classes import GCS_FUSE_CLASS, NFS_CLASS, WEIGHTS
from ml_foundations.storage.volume import DEFAULT_CLASS
from ml_foundations.tenancy.quota import gpu_key
from ml_foundations.workloads.model_cache import ModelCacheSpec
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.serving import ServerSpec
from ml_foundations.workloads.sharded_set import ShardedSetSpec
from ml_foundations.workloads.train_job import TrainJobSpec
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from settings import Settings
    from team import Team


def errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield every error with its path. What depends on an invalid argument is not checked."""
    for check in while_valid(_checks(settings)):
        yield from while_valid(check)


def _checks(settings: Settings) -> Iterator[Iterator[tuple[str, str]]]:
    yield _add_on_errors(settings)
    yield _group_errors(settings)
    yield _flavor_errors(settings)
    yield _system_pool_errors(settings)
    for name, pool in settings.gpu_pools.items():
        yield _network_errors(name, pool, settings)
        yield _network_pool_errors(f"nodePools.{name}.networkPool", pool, settings)
        yield _pool_errors(f"nodePools.{name}", pool, settings)
    for name, monitor in settings.gpu_monitors.items():
        yield _monitor_errors(f"gpuMonitors.{name}", monitor, settings)
    yield _compute_class_errors(settings)
    yield _joined_name_errors(settings)
    for team_name, team in settings.teams.items():
        taken: dict[str, str] = {}
        for section, name, workload in team.workloads:
            path = f"teams.{team_name}.{section}.{name}"
            yield _name_errors(path, team_name, name, taken)
            for check in _WORKLOAD_CHECKS:
                yield check(path, workload, team, settings)
        for name, volume in team.volumes.items():
            path = f"teams.{team_name}.volumes.{name}"
            yield _class_errors(path, volume.class_name, settings)
        for name, cache in team.model_caches.items():
            yield _cache_errors(f"teams.{team_name}.modelCaches.{name}.size", cache, settings)
        for name, job in team.train_jobs.items():
            yield _queue_name_errors(f"teams.{team_name}.trainJobs.{name}", job, team, settings)


def _compute_class_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the pools and classes that name each other, and one of them does not exist."""
    pools = settings.node_pools
    classes = settings.compute_classes
    is_complete = not isinstance(settings.cluster, ExistingCluster)
    for name, compute_class in classes.items():
        for index, pool in enumerate(compute_class.pools):
            path = f"computeClasses.{name}.pools[{index}]"
            if pool in pools and pools[pool].compute_class != name:
                reason = f"nodePools.{pool} has the computeClass {pools[pool].compute_class}"
                yield path, f"{reason}; a pool has one class"
            elif pool not in pools and is_complete:
                yield path, not_among(pool, "node pool", pools)
    named = [(f"nodePools.{name}", pool.compute_class) for name, pool in pools.items()]
    for team_name, team in settings.teams.items():
        for section, name, workload in team.workloads:
            named.append((f"teams.{team_name}.{section}.{name}", workload.compute_class))
    for path, compute_class in named if is_complete else ():
        if compute_class is None or compute_class.startswith(OWN_PREFIXES):
            continue
        if compute_class not in classes:
            yield f"{path}.computeClass", not_among(compute_class, "ComputeClass", classes)


def _monitor_errors(
    path: str, monitor: GpuMonitorSpec, settings: Settings
) -> Iterator[tuple[str, str]]:
    operator = settings.gpu_operator
    if monitor.is_dcgm_exporter and operator is not None and operator.dcgm_exporter.enabled:
        yield path, "gpuOperator.dcgmExporter exports the same metrics; remove one of them"


def _joined_name_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield objects without namespace whose names, "<team>-<name>", are the same."""
    # These are the components of the program, PersistentVolumes and PriorityClasses.
    taken: dict[tuple[str, str], str] = {}
    for team_name, team in settings.teams.items():
        classes = {"priorities": team.priorities, "quota.gpusByModel": team.quota.gpus_by_model}
        named = [(section, section, name) for section, name, _ in team.components]
        named += [
            ("classes", section, name) for section, names in classes.items() for name in names
        ]
        for kind, section, name in named:
            path = f"teams.{team_name}.{section}.{name}"
            joined = f"{team_name}-{name}"
            if (first := taken.setdefault((kind, joined), path)) != path:
                yield path, f"makes the name {joined}, as {first} does; choose another"


def _add_on_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    users = {add_on: f"storage.{add_on}" for add_on in settings.storage.add_ons}
    if settings.checkpoint_configurations:
        users["multi_tier_checkpointing"] = "checkpointConfigurations"
    for name, team in settings.teams.items():
        if team.inference_gateways:
            users["gateway_api"] = f"teams.{name}.inferenceGateways"
    for add_on, user in users.items():
        if not getattr(settings.cluster, add_on, True):  # one that exists has what it has
            reason = f"is false, but {user} needs it; leave it out to switch it on"
            yield f"cluster.{to_camel(add_on)}", reason


def _group_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    cluster = settings.cluster
    if isinstance(cluster, ExistingCluster) or cluster.security_group:
        return
    grouped = [name for name, team in settings.teams.items() if team.group]
    if grouped:
        what = f"teams.{grouped[0]}.group is a Google group"
        reason = f"is required, as gke-security-groups@DOMAIN: {what}, and GKE knows only its own"
        yield "cluster.securityGroup", reason


def _network_errors(
    name: str, pool: GpuNodePoolSpec, settings: Settings
) -> Iterator[tuple[str, str]]:
    cluster = settings.cluster
    if isinstance(cluster, ExistingCluster):
        if pool.interfaces:
            reason = "creates networks, and the pool exists; list its own in additionalNetworks"
            yield f"nodePools.{name}.gpuNetwork", reason
        return
    for key, networks in (
        ("additionalNetworks", pool.additional_networks),
        ("gpuNetwork", pool.interfaces),
    ):
        if networks and not cluster.multi_networking:
            reason = f"is false, but nodePools.{name}.{key} needs it; set it to true"
            yield "cluster.multiNetworking", reason


def _network_pool_errors(
    path: str, pool: GpuNodePoolSpec, settings: Settings
) -> Iterator[tuple[str, str]]:
    """Yield pools that use networks that no pool creates, or that are not those of their nodes."""
    name = pool.network_pool
    owners = {
        name: candidate
        for name, candidate in settings.gpu_pools.items()
        if candidate.fabric and candidate is not pool and candidate.network_pool is None
    }
    if name is None:
        return
    if name not in owners:
        yield path, not_among(name, "pool with its own gpuNetwork", owners)
        return
    owner = owners[name]
    if (pool.fabric, pool.is_network_managed) != (owner.fabric, owner.is_network_managed):
        reason = f"is {name}, whose networks are for {owner.machine_type}; leave it out"
        yield path, reason
    elif pool.fabric and pool.fabric.shared_vpc and pool.zones != owner.zones:
        yield path, f"is {name}, whose RDMA network is in another zone; leave it out"


def _system_pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    if isinstance(settings.cluster, ExistingCluster):
        return
    if not settings.node_pools:
        yield "nodePools", "are required: add GPU pools, and a pool without GPUs for system pods"
    elif not any(isinstance(pool, CpuNodePoolSpec) for pool in settings.node_pools.values()):
        yield "nodePools", "there are GPU pools only; the system's pods need a pool without GPUs"


def _pool_errors(path: str, pool: GpuNodePoolSpec, settings: Settings) -> Iterator[tuple[str, str]]:
    operator = settings.gpu_operator
    yield from while_valid(_driver_errors(f"{path}.driver", pool, settings))
    if pool.sharing and operator is not None and operator.feature_discovery:
        why = "the operator's feature discovery ignores it and would label the GPUs as not shared"
        reason = f"is GKE's, and {why}; set gpuOperator.featureDiscovery to false"
        yield f"{path}.sharing", reason
    if pool.dra and settings.device_classes is None:
        yield f"{path}.dra", "is true, but there is no deviceClasses; add the section"


def _driver_errors(
    path: str, pool: GpuNodePoolSpec, settings: Settings
) -> Iterator[tuple[str, str]]:
    """Yield pools on which not exactly one of GKE and the operator provides the GPUs."""
    operator = settings.gpu_operator
    mode = mode_for(pool.driver, pool.image_name)
    if operator is None and mode != "gke":
        reason = f"is {pool.driver}, but there is no gpuOperator; add it, or set default or latest"
        yield path, reason
    if operator is not None and operator.mode != mode:
        who = (
            "both would install the driver"
            if mode == "gke"
            else "nobody installs the driver that it expects"
        )
        yield (
            path,
            f"is {pool.driver}, but gpuOperator.mode is {operator.mode}: {who}; change one of them",
        )
    if operator is not None and mode == "operator":
        fault = Operator.of(operator.chart_values).driver_fault(pool.model.architecture)
        if fault:
            where = f"the {pool.model.product} of {path.removesuffix('.driver')}"
            yield "gpuOperator.driver", f"does not suit {where}: {fault}"


def _name_errors(
    path: str, team: str, name: str, taken: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield names that another workload has, or that are too long.

    The limits are those of the program, and of a Job's pods with their suffix.
    """
    if name in taken:
        yield path, f"the name is taken by {taken[name]}; choose another"
    taken[name] = path
    try:
        derived(name, "-xxxxx")
        derived(team, f"-{name}", limit=100)
    except ValueError as error:
        yield path, str(error)


def _mount_errors(
    path: str, workload: WorkloadSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    for index, mount in enumerate(workload.mounts):
        if mount.claim is not None and mount.claim not in team.volumes:
            yield f"{path}.mounts[{index}].claim", not_among(mount.claim, "volume", team.volumes)


def _file_errors(
    path: str, workload: WorkloadSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    for name, text in workload.files.items():
        if is_reference(text):
            try:
                read_reference(text)
            except ReadError as error:
                reason = f"is {text}, and stacks/{text.removeprefix('@')} cannot be read: {error}"
                yield f"{path}.files.{name}", reason


def _queue_errors(
    path: str, workload: WorkloadSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    queues = settings.training_queue
    yield from _queue_name_errors(path, workload, team, settings)
    for argument, level in workload.topology_levels:
        field = to_camel(argument)
        if not queues.topology:
            reason = f"asks for the level {level}, but trainingQueue.topology has none; add it"
            yield f"{path}.{field}", reason
        elif level_label(level) not in map(level_label, queues.topology):
            yield f"{path}.{field}", not_among(level, "level", queues.topology)
    if isinstance(workload, ServerSpec) and workload.queue is not None and queues.install:
        most = queues.ready_seconds
        needed = workload.load_seconds + NEW_NODE_SECONDS
        if needed > most:
            reason = f"is {workload.load_seconds}, and a new node needs {NEW_NODE_SECONDS} at most"
            reason = f"{reason}; trainingQueue.readySeconds is {most}: make it {needed} or more"
            yield f"{path}.loadSeconds", reason


def _queue_name_errors(
    path: str, workload: WorkloadSpec | TrainJobSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    queue = settings.training_queue.queue_name if team.queue else "none"
    if workload.queue not in (None, queue):
        yield f"{path}.queue", f"the team has no queue {workload.queue}. Its queue: {queue}"


def _flavor_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    known = [flavor["name"] for flavor in settings.flavors.values()]
    for name in settings.training_queue.flavors:
        if name not in known:
            yield f"trainingQueue.flavors.{name}", not_among(name, "GPU pool", known)


def _shard_errors(
    path: str, workload: WorkloadSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    if isinstance(workload, ShardedSetSpec):
        for index, volume in enumerate(workload.volumes):
            yield from _class_errors(f"{path}.volumes[{index}]", volume.storage_class, settings)


def _gpu_errors(
    path: str, workload: WorkloadSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    if workload.gpu_claim is not None and settings.device_classes is None:
        yield f"{path}.gpuClaim", "claims GPUs, but there is no deviceClasses; add the section"
    counted = team.quota.gpus_by_model
    if not counted or not workload.gpus or workload.gpu_claim is not None:
        return
    models = ", ".join(counted)
    if workload.gpu is None:
        yield f"{path}.gpu", f"is required: the team's GPUs are counted by model ({models})"
    elif isinstance(workload.gpu, str) and (model := gpu_key(workload.gpu)) not in counted:
        fix = f"Add it to quota.gpusByModel of the team, which has {models}"
        yield f"{path}.gpu", f"is {model}, and the team has none. {fix}"


def _fabric_errors(
    path: str, workload: WorkloadSpec, team: Team, settings: Settings
) -> Iterator[tuple[str, str]]:
    """Yield workloads of several nodes that could run in different networks between GPUs."""
    nodes = getattr(workload, "nodes", getattr(workload, "workers", 1))
    if workload.gpu_fabric is not None or nodes < 2 or not workload.gpus:
        return
    sections = settings.node_pools.items()
    pools = fabrics.gpu_pools((name, pool.model_dump(by_alias=True)) for name, pool in sections)
    possible = fabrics.possible_pools(workload.model_dump(by_alias=True), pools)
    with_network = [pool.fabric for pool in possible if pool.fabric]
    if len(possible) > 1 and any(
        workload.gpus >= fabric["gpus_per_node"] for fabric in with_network
    ):
        among = names(pool.name for pool in possible)
        fix = f"select one with {labels.GKE_NODE_POOL}"
        reason = f"leaves the choice of {among}, whose networks between GPUs differ; {fix}"
        yield f"{path}.nodeSelector", reason


_WORKLOAD_CHECKS = (
    _mount_errors,
    _file_errors,
    _queue_errors,
    _shard_errors,
    _gpu_errors,
    _fabric_errors,
)


def _cache_errors(
    path: str, cache: ModelCacheSpec, settings: Settings
) -> Iterator[tuple[str, str]]:
    if cache.size is not None and WEIGHTS not in settings.storage.class_names:
        yield path, f"needs the class {WEIGHTS}; set storage.datasetZones"


def _class_errors(path: str, name: str, settings: Settings) -> Iterator[tuple[str, str]]:
    if name == NFS_CLASS and settings.storage.nfs is None:
        yield f"{path}.storageClass", f"is {NFS_CLASS}, but storage.nfs names no server"
    elif name not in (*settings.storage.class_names, GCS_FUSE_CLASS, DEFAULT_CLASS):
        yield f"{path}.storageClass", not_among(name, "class", settings.storage.class_names)
