"""The program of every stack: read the settings, compose the components, export what others need."""

from typing import Any

import devices
import existing
import pulumi
import pulumi_kubernetes as k8s
import settings as stack_file
from ml_foundations import (
    CpuNodePool,
    DeviceClasses,
    DistributedTraining,
    GkeCluster,
    GpuMonitor,
    GpuNodePool,
    GpuOperator,
    InferenceService,
    ScheduledTraining,
    ShardedSet,
    StorageClasses,
    Sweep,
    Task,
    TeamNamespace,
    TrainingJob,
    TrainingQueue,
    Volume,
)
from ml_foundations._spec import Spec
from ml_foundations.gke.cluster import GkeClusterSettings
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSettings
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings
from ml_foundations.proof import Proof

COMPONENTS: dict[str, Any] = {
    "training_jobs": TrainingJob,
    "distributed_trainings": DistributedTraining,
    "sweeps": Sweep,
    "scheduled_trainings": ScheduledTraining,
    "tasks": Task,
    "inference_services": InferenceService,
    "sharded_sets": ShardedSet,
}
"""The component of each section of workloads."""


def main() -> None:
    """Declare the environment that the stack file describes."""
    settings = stack_file.load()
    proof = Proof(settings.proof.accept, settings.proof.monthly_budget)
    provider = _provider(settings)
    in_cluster = pulumi.ResourceOptions(provider=provider)
    platform: list[pulumi.Resource] = [StorageClasses("storage", _storage(settings), in_cluster)]
    if settings.operator is not None:
        platform.append(GpuOperator("gpu-operator", settings.operator.given(), in_cluster))
    if settings.claims is not None:
        platform.append(DeviceClasses("devices", settings.claims.given(), in_cluster))
    for name, monitor in settings.gpu_monitors.items():
        GpuMonitor(name, monitor.given(), in_cluster)
    after_platform = pulumi.ResourceOptions(provider=provider, depends_on=platform)
    namespaces = {
        name: TeamNamespace(name, _tenancy(name, team, settings), after_platform)
        for name, team in settings.teams.items()
    }
    before: list[pulumi.Resource] = list(platform)
    if queues := settings.queues:
        after_teams = pulumi.ResourceOptions(provider=provider, depends_on=[*platform, *namespaces.values()])
        before.append(TrainingQueue("training-queue", queues, after_teams))
    for name, team in settings.teams.items():
        _team(name, team, pulumi.ResourceOptions(provider=provider, depends_on=[*before, namespaces[name]]))
    proof.finish()


def _provider(settings: stack_file.Settings) -> k8s.Provider:
    """The provider of the cluster: of one that is made, with its node pools, or of one that is there already."""
    if isinstance(settings.cluster, existing.ExistingClusterSettings):
        pulumi.export("cluster", settings.cluster.name)
        return existing.provider(settings.cluster)
    add_ons = dict.fromkeys(settings.storage.add_ons, True)
    given = add_ons | settings.cluster.given()
    cluster = GkeCluster(given.pop("name"), given | {"project": settings.project})
    pulumi.export("cluster", cluster.cluster_name)
    pulumi.export("location", cluster.location)
    pulumi.export("kubeconfig", pulumi.Output.secret(cluster.kubeconfig))
    return cluster.kubernetes_provider(depends_on=_node_pools(settings, settings.cluster, cluster))


def _storage(settings: stack_file.Settings) -> Any:
    """Filestore and Lustre are in the cluster's own network, where the file names no other."""
    if isinstance(settings.cluster, existing.ExistingClusterSettings):
        return settings.storage.given()
    brought = settings.cluster.network
    return {"network": brought.network if brought else settings.cluster.name} | settings.storage.given()


def _tenancy(name: str, team: stack_file.Team, settings: stack_file.Settings) -> Any:
    """The team's service account is one of the project's Workload Identity pool."""
    arguments = team.tenancy | {"namespace": name}
    if "service_account" in arguments:
        arguments["service_account"] = {"workload_pool": settings.workload_pool} | arguments["service_account"]
    return arguments


def _node_pools(
    settings: stack_file.Settings, section: GkeClusterSettings, cluster: GkeCluster
) -> list[pulumi.Resource]:
    """Pools without GPUs first: GKE's own pods must find a place before GPU nodes come."""
    common: dict[str, Any] = {
        "project": settings.project,
        "location": section.location,
        "cluster_name": cluster.cluster_name,
        "node_service_account": cluster.node_service_account,
    }
    cpu: list[pulumi.Resource] = [
        CpuNodePool(f"{section.name}-{name}", _pool(name, pool, common))
        for name, pool in settings.node_pools.items()
        if isinstance(pool, CpuNodePoolSettings)
    ]
    after_cpu = pulumi.ResourceOptions(depends_on=cpu)
    gpu: list[pulumi.Resource] = [
        GpuNodePool(f"{section.name}-{name}", _pool(name, pool, common), after_cpu)
        for name, pool in settings.node_pools.items()
        if isinstance(pool, GpuNodePoolSettings)
    ]
    return cpu + gpu


def _pool(name: str, pool: Spec, common: dict[str, Any]) -> Any:
    return common | {"pool_name": name} | pool.given()


def _team(name: str, team: stack_file.Team, inside: pulumi.ResourceOptions) -> None:
    volumes: dict[str, pulumi.Resource] = {
        claim: Volume(f"{name}-{claim}", volume.given() | {"namespace": name, "claim_name": claim}, inside)
        for claim, volume in team.volumes.items()
    }
    for section, workload_name, workload in team.workloads:
        mounted = [volumes[mount.claim] for mount in workload.mounts if mount.claim]
        after = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=mounted))
        _, name_argument = stack_file.WORKLOADS[section]
        arguments = workload.given() | {"namespace": name, name_argument: workload_name}
        if (priority := devices.priority_class(workload, name, team)) is not None:
            arguments["priority_class"] = priority
        COMPONENTS[section](f"{name}-{workload_name}", arguments, after)


main()
