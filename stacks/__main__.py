"""The program of every stack: read the settings, compose the components, export what others need."""

from typing import Any

import arguments
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
    platform: list[pulumi.Resource] = [StorageClasses("storage", arguments.storage(settings), in_cluster)]
    if settings.operator is not None:
        platform.append(GpuOperator("gpu-operator", settings.operator.given(), in_cluster))
    if settings.claims is not None:
        platform.append(DeviceClasses("devices", settings.claims.given(), in_cluster))
    for name, monitor in settings.gpu_monitors.items():
        GpuMonitor(name, monitor.given(), in_cluster)
    after_platform = pulumi.ResourceOptions(provider=provider, depends_on=platform)
    namespaces = {
        name: TeamNamespace(name, arguments.tenancy(name, team, settings), after_platform)
        for name, team in settings.teams.items()
    }
    before: list[pulumi.Resource] = list(platform)
    if queues := settings.queues:
        after_teams = pulumi.ResourceOptions(provider=provider, depends_on=[*platform, *namespaces.values()])
        before.append(TrainingQueue(arguments.QUEUES, queues, after_teams))
    for name, team in settings.teams.items():
        _team(name, team, pulumi.ResourceOptions(provider=provider, depends_on=[*before, namespaces[name]]))
    proof.finish()


def _provider(settings: stack_file.Settings) -> k8s.Provider:
    """The provider of the cluster: of one that is made, with its node pools, or of one that is there already."""
    if isinstance(settings.cluster, existing.ExistingClusterSettings):
        pulumi.export("cluster", settings.cluster.name)
        return existing.provider(settings.cluster)
    given = arguments.cluster(settings)
    cluster = GkeCluster(given.pop("name"), given)
    pulumi.export("cluster", cluster.cluster_name)
    pulumi.export("location", cluster.location)
    pulumi.export("kubeconfig", pulumi.Output.secret(cluster.kubeconfig))
    return cluster.kubernetes_provider(depends_on=_node_pools(settings, settings.cluster, cluster))


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
        CpuNodePool(f"{section.name}-{name}", arguments.pool(name, pool, common))
        for name, pool in settings.node_pools.items()
        if isinstance(pool, CpuNodePoolSettings)
    ]
    after_cpu = pulumi.ResourceOptions(depends_on=cpu)
    gpu: list[pulumi.Resource] = [
        GpuNodePool(f"{section.name}-{name}", arguments.pool(name, pool, common), after_cpu)
        for name, pool in settings.node_pools.items()
        if isinstance(pool, GpuNodePoolSettings)
    ]
    return cpu + gpu


def _team(name: str, team: stack_file.Team, inside: pulumi.ResourceOptions) -> None:
    volumes: dict[str, pulumi.Resource] = {
        claim: Volume(f"{name}-{claim}", arguments.volume(claim, volume, name), inside)
        for claim, volume in team.volumes.items()
    }
    for section, workload_name, workload in team.workloads:
        mounted = [volumes[mount.claim] for mount in workload.mounts if mount.claim]
        after = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=mounted))
        _, name_argument = stack_file.WORKLOADS[section]
        given = arguments.workload(name_argument, workload_name, workload, name, team)
        COMPONENTS[section](f"{name}-{workload_name}", given, after)


main()
