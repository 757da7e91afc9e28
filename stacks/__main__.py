"""The program of every stack: read the settings, compose the components, export what others need."""

from typing import Any

import existing
import ml_foundations
import pulumi
import pulumi_kubernetes as k8s
import settings as stack_file
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.gke.cluster import GkeClusterSpec
from ml_foundations.proof import Proof

COMPONENTS = {
    component.spec_type(): component
    for component in (getattr(ml_foundations, name) for name in ml_foundations.COMPONENTS)
}
"""Every component by its arguments."""


def main() -> None:
    """Declare the environment that the stack file describes."""
    settings = stack_file.load()
    there = settings.node_pools.values() if isinstance(settings.cluster, existing.ExistingCluster) else ()
    proof = settings.proof
    pools = existing.node_pools(there)
    with Proof(proof.accept, proof.monthly_budget, settings.places, pools, proof.require_digests):
        _environment(settings)


def _environment(settings: stack_file.Settings) -> None:
    provider = _provider(settings)
    in_cluster = pulumi.ResourceOptions(provider=provider)
    named = {
        "storage": settings.storage,
        "gpu-operator": settings.gpu_operator,
        "devices": settings.device_classes,
        "job-sets": settings.job_sets,
    }
    platform = [_declare(name, spec, in_cluster) for name, spec in named.items() if spec is not None]
    for name, monitor in settings.gpu_monitors.items():
        _declare(name, monitor, in_cluster)
    after_platform = pulumi.ResourceOptions(provider=provider, depends_on=platform)
    namespaces = {name: _declare(name, spec, after_platform) for name, spec in settings.namespaces.items()}
    before = list(platform)
    if settings.queues is not None:
        after_teams = pulumi.ResourceOptions(provider=provider, depends_on=[*platform, *namespaces.values()])
        before.append(_declare(stack_file.QUEUES, settings.queues, after_teams))
    for name, team in settings.teams.items():
        _team(name, team, pulumi.ResourceOptions(provider=provider, depends_on=[*before, namespaces[name]]))


def _declare(name: str, spec: ComponentSpec, opts: pulumi.ResourceOptions | None = None) -> Any:
    """Declare the component that has these arguments."""
    return COMPONENTS[type(spec)](name, spec, opts)


def _provider(settings: stack_file.Settings) -> k8s.Provider:
    """The provider of the cluster: of one that is made, with its node pools, or of one that exists already."""
    if isinstance(settings.cluster, existing.ExistingCluster):
        pulumi.export("cluster", settings.cluster.name)
        return existing.provider(settings.cluster)
    cluster = _declare(settings.cluster.name, settings.cluster)
    pulumi.export("cluster", cluster.cluster_name)
    pulumi.export("location", cluster.location)
    pulumi.export("kubeconfig", pulumi.Output.secret(cluster.kubeconfig))
    return cluster.kubernetes_provider(depends_on=_node_pools(settings, settings.cluster, cluster))


def _node_pools(settings: stack_file.Settings, spec: GkeClusterSpec, cluster: Any) -> list[pulumi.Resource]:
    """Pools without GPUs first: GKE's own pods must find a place before GPU nodes come."""
    made = {"cluster_name": cluster.cluster_name, "node_service_account": cluster.node_service_account}
    pools = {name: pool.model_copy(update=made) for name, pool in settings.node_pools.items()}
    cpu = [_declare(f"{spec.name}-{name}", pool) for name, pool in pools.items() if name not in settings.gpu_pools]
    after_cpu = pulumi.ResourceOptions(depends_on=cpu)
    return cpu + [_declare(f"{spec.name}-{name}", pools[name], after_cpu) for name in settings.gpu_pools]


def _team(name: str, team: stack_file.Team, inside: pulumi.ResourceOptions) -> None:
    volumes = {claim: _declare(f"{name}-{claim}", volume, inside) for claim, volume in team.volumes.items()}
    for _, workload_name, workload in team.workloads:
        mounted = [volumes[mount.claim] for mount in workload.mounts if mount.claim]
        after = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=mounted))
        _declare(f"{name}-{workload_name}", workload, after)


main()
