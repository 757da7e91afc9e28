"""What each section of a stack file allows and the whole does not: names, references, add-ons, drivers, GPU claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from existing import ExistingCluster
from ml_foundations.catalog.machine_types import gpu_by_name
from ml_foundations.component.types import derived
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.storage.classes import GCS_FUSE_CLASS, NFS_CLASS, class_facts
from ml_foundations.storage.volume import VolumeSpec, class_errors
from ml_foundations.tenancy.quota import priority_class_name
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.sharded_set import ShardedSetSpec
from places import mode_for
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from settings import Settings
    from team import Team


def errors(settings: Settings) -> list[tuple[str, str]]:
    """Every error by its path."""
    return list(_errors(settings))


def _errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from _cluster_errors(settings)
    yield from _pool_errors(settings)
    yield from _queue_errors(settings)
    for name, monitor in settings.gpu_monitors.items():
        operator = settings.gpu_operator
        if monitor.is_dcgm_exporter and operator is not None and operator.dcgm_exporter.enabled:
            yield f"gpuMonitors.{name}", "gpuOperator.dcgmExporter exports the same metrics; take one of them out"
    for team_name, team in settings.teams.items():
        taken: dict[str, str] = {}
        for section, name, workload in team.workloads:
            path = f"teams.{team_name}.{section}.{name}"
            if name in taken:
                yield path, f"the name is taken by {taken[name]}; choose another"
            taken[name] = path
            yield from _name_errors(path, team_name, name)
            yield from _workload_errors(path, workload, team, settings)
            yield from _gpu_errors(path, workload, settings)
            yield from _model_errors(path, workload, team_name, team)
        for name, volume in team.volumes.items():
            yield from _class_errors(f"teams.{team_name}.volumes.{name}", volume, settings)


def _cluster_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    cluster = settings.cluster
    if isinstance(cluster, ExistingCluster):
        return
    for add_on in settings.storage.add_ons:
        if not getattr(cluster, add_on):
            yield f"cluster.{add_on}", f"is false, but storage.{add_on} needs it; leave it out, and it is switched on"
    if grouped := [name for name, team in settings.teams.items() if team.group and not cluster.security_group]:
        what = f"teams.{grouped[0]}.group is a Google group"
        yield "cluster.securityGroup", f"is required, as gke-security-groups@DOMAIN: {what}, and GKE knows only its own"
    for name, pool in settings.gpu_pools.items():
        if pool.additional_networks and not cluster.multi_networking:
            yield "cluster.multiNetworking", f"is false, but nodePools.{name}.additionalNetworks need it; say true"
    if not settings.node_pools:
        yield "nodePools", "are required: a cluster needs a pool without GPUs for the system's pods, and GPU pools"
    elif not any(isinstance(pool, CpuNodePoolSpec) for pool in settings.node_pools.values()):
        yield "nodePools", "there are GPU pools only; the system's pods need a pool without GPUs"


def _pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    operator = settings.gpu_operator
    for name, pool in settings.gpu_pools.items():
        path = f"nodePools.{name}"
        yield from _driver_errors(f"{path}.driver", pool, settings)
        if pool.sharing and operator is not None and operator.feature_discovery:
            why = "the operator's feature discovery knows nothing of it and would label the GPUs as not shared"
            yield f"{path}.sharing", f"is GKE's, and {why}; say false in gpuOperator.featureDiscovery"
        if pool.dra and settings.device_classes is None:
            yield f"{path}.dra", "is true, but there is no deviceClasses; declare it"


def _driver_errors(path: str, pool: GpuNodePoolSpec, settings: Settings) -> Iterator[tuple[str, str]]:
    """Exactly one side gives a node its driver and advertises its GPUs: GKE or the operator."""
    operator, wanted = settings.gpu_operator, mode_for(pool.driver, pool.image_name)
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


def _workload_errors(path: str, workload: WorkloadSpec, team: Team, settings: Settings) -> Iterator[tuple[str, str]]:
    for index, mount in enumerate(workload.mounts):
        if mount.claim is not None and mount.claim not in team.volumes:
            known = ", ".join(team.volumes) or "none"
            yield f"{path}.mounts[{index}].claim", f'there is no volume "{mount.claim}" in this team. Volumes: {known}'
    queue = settings.training_queue.queue_name if team.queue else "none"
    if workload.queue not in (None, queue):
        yield f"{path}.queue", f"the team has no queue {workload.queue}. Its queue: {queue}"
    if isinstance(workload, ShardedSetSpec):
        for index, volume in enumerate(workload.volumes):
            made = VolumeSpec(
                namespace=workload.namespace,
                claim_name=volume.name,
                size=volume.size,
                storage_class=volume.storage_class,
            )
            yield from _class_errors(f"{path}.volumes[{index}]", made, settings)


def _gpu_errors(path: str, workload: WorkloadSpec, settings: Settings) -> Iterator[tuple[str, str]]:
    """What planning does not judge: claims, nodes of a cluster that exists, and that a pod gets one shared GPU."""
    claimed = workload.gpu_claim is not None
    if not workload.gpus or not settings.node_pools:
        return
    fitting = [p for p in settings.gpu_pools.values() if workload.gpu in (None, p.product) and p.dra == claimed]
    most = max((pool.most_gpus_per_pod for pool in fitting), default=0)
    if claimed or isinstance(settings.cluster, ExistingCluster):
        if not fitting:
            known = ", ".join(sorted({p.product for p in settings.gpu_pools.values()})) or "none: there is no GPU pool"
            wanted = f"no pool has {workload.gpu or 'GPUs'}{' that can be claimed' if claimed else ''}"
            yield f"{path}.gpu", f"{wanted}. The pools have: {known}"
        elif workload.gpus > most:
            yield f"{path}.gpus", f"is {workload.gpus}, more than any node offers: {most}"
    elif fitting and all(pool.sharing for pool in fitting) and workload.gpus > most:
        yield f"{path}.gpus", f"is {workload.gpus}, and GKE gives a pod one shared GPU and no more"


def _model_errors(path: str, workload: WorkloadSpec, name: str, team: Team) -> Iterator[tuple[str, str]]:
    """The class by which GPUs are counted, where they are counted by model."""
    if workload.gpus and workload.gpu_claim is None and team.quota.gpus_by_model:
        if workload.gpu is None:
            models = ", ".join(team.quota.gpus_by_model)
            yield f"{path}.gpu", f"is required: the team's GPUs are counted by model ({models})"
            return
        wanted = priority_class_name(name, gpu_by_name(workload.gpu).accelerator_type)
        if workload.priority_class != wanted:
            yield f"{path}.priorityClass", f"is {workload.priority_class}; GPUs of its model are counted by {wanted}"


def _queue_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Queues promise no more than the pools of a cluster that exists have: planning does not see those pools."""
    if not isinstance(settings.cluster, ExistingCluster):
        return
    promised: Counter[str] = Counter()
    for team in settings.teams.values():
        promised.update(team.queue.gpus if team.queue else {})
    for name, pool in settings.gpu_pools.items():
        if promised[name] > (most := pool.most_nodes * pool.gpu_resources_per_node):
            too_many = f"teams' queues promise {promised[name]} of them"
            yield f"nodePools.{name}", f"has {most} GPUs at the most, and {too_many}"


def _class_errors(path: str, volume: VolumeSpec, settings: Settings) -> Iterator[tuple[str, str]]:
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
