"""The program of every stack: read the settings, compose the components, export what others need."""

from typing import Any

import pulumi
import settings as stack_file
from ml_foundations import (
    CpuNodePool,
    GkeCluster,
    GpuNodePool,
    GpuOperator,
    InferenceService,
    StorageClasses,
    TeamNamespace,
    TrainingJob,
    Volume,
)
from ml_foundations._spec import Spec
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSettings
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings

COMPONENTS: dict[str, Any] = {
    "training_jobs": TrainingJob,
    "inference_services": InferenceService,
}
"""The component of each section of workloads."""


def main() -> None:
    """Declare the environment that the stack file describes."""
    settings = stack_file.load()
    cluster = _cluster(settings)
    pools = _node_pools(settings, cluster)
    provider = cluster.kubernetes_provider(depends_on=pools)
    in_cluster = pulumi.ResourceOptions(provider=provider)
    platform: list[pulumi.Resource] = [StorageClasses("storage", settings.storage.given(), in_cluster)]
    if settings.gpu_operator is not None:
        platform.append(GpuOperator("gpu-operator", settings.gpu_operator.given(), in_cluster))
    for name, team in settings.teams.items():
        _team(name, team, pulumi.ResourceOptions(provider=provider, depends_on=platform))
    pulumi.export("cluster", cluster.cluster_name)
    pulumi.export("location", cluster.location)
    pulumi.export("kubeconfig", pulumi.Output.secret(cluster.kubeconfig))


def _cluster(settings: stack_file.Settings) -> GkeCluster:
    given = settings.cluster.given()
    return GkeCluster(given.pop("name"), given | {"project": settings.project})


def _node_pools(settings: stack_file.Settings, cluster: GkeCluster) -> list[pulumi.Resource]:
    """Pools without GPUs first: GKE's own pods must find a place before GPU nodes come."""
    common: dict[str, Any] = {
        "project": settings.project,
        "location": settings.cluster.location,
        "cluster_name": cluster.cluster_name,
        "node_service_account": cluster.node_service_account,
    }
    cpu: list[pulumi.Resource] = [
        CpuNodePool(f"{settings.cluster.name}-{name}", _pool(name, pool, common))
        for name, pool in settings.node_pools.items()
        if isinstance(pool, CpuNodePoolSettings)
    ]
    after_cpu = pulumi.ResourceOptions(depends_on=cpu)
    gpu: list[pulumi.Resource] = [
        GpuNodePool(f"{settings.cluster.name}-{name}", _pool(name, pool, common), after_cpu)
        for name, pool in settings.node_pools.items()
        if isinstance(pool, GpuNodePoolSettings)
    ]
    return cpu + gpu


def _pool(name: str, pool: Spec, common: dict[str, Any]) -> Any:
    return common | {"pool_name": name} | pool.given()


def _team(name: str, team: stack_file.Team, opts: pulumi.ResourceOptions) -> None:
    namespace = TeamNamespace(name, team.tenancy | {"namespace": name}, opts)
    inside = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[namespace]))
    volumes: dict[str, pulumi.Resource] = {
        claim: Volume(f"{name}-{claim}", volume.given() | {"namespace": name, "claim_name": claim}, inside)
        for claim, volume in team.volumes.items()
    }
    for section, workload_name, workload in team.workloads:
        mounted = [volumes[mount.claim] for mount in workload.mounts]
        after = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=mounted))
        _, name_argument = stack_file.WORKLOADS[section]
        arguments = workload.given() | {"namespace": name, name_argument: workload_name}
        COMPONENTS[section](f"{name}-{workload_name}", arguments, after)


main()
