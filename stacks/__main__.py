"""The program of every stack: read the settings, compose the components, export outputs."""

from typing import Any

import existing_cluster
import ml_foundations
import pulumi
import settings as stack_file
from ml_foundations import Proof
from ml_foundations.component.spec import ComponentSpec

_CLASSES = [getattr(ml_foundations, name) for name in ml_foundations.COMPONENTS]
COMPONENTS = {component.spec_type(): component for component in _CLASSES}
"""Every component by its arguments."""


def main() -> None:
    """Declare the environment that the stack file describes."""
    settings = stack_file.load()
    is_existing = isinstance(settings.cluster, existing_cluster.ExistingCluster)
    existing_pools = settings.node_pools.values() if is_existing else ()
    proof = settings.proof
    with Proof(
        accepted_rules=proof.accept,
        monthly_budget=proof.monthly_budget,
        locations=settings.locations,
        existing_node_pools=existing_cluster.node_pools(existing_pools),
        require_digests=proof.require_digests,
    ):
        _environment(settings)


def _environment(settings: stack_file.Settings) -> None:
    in_cluster = _cluster(settings)
    named = {
        "storage": settings.storage,
        "gpu-operator": settings.gpu_operator,
        "devices": settings.device_classes,
        "job-sets": settings.job_sets,
        "leader-worker-sets": settings.leader_worker_sets,
        "ray-operator": settings.ray,
    }
    for name, spec in settings.compute_classes.items():
        _declare(name, spec, **in_cluster)
    platform: list[Any] = []
    for name, spec in named.items():
        if spec is not None:
            platform.append(_declare(name, spec, **in_cluster))
    for name, spec in settings.checkpoint_configurations.items():
        platform.append(_declare(name, spec, **in_cluster))
    if settings.trainer is not None:  # it needs the CRD of JobSets
        platform.append(_declare("trainer", settings.trainer, *platform, **in_cluster))
    if settings.metrics_adapter is not None:
        _declare("metrics-adapter", settings.metrics_adapter, **in_cluster)
    for name, monitor in settings.gpu_monitors.items():
        _declare(name, monitor, **in_cluster)
    namespaces: dict[str, Any] = {}
    for name, spec in settings.namespaces.items():
        namespaces[name] = _declare(name, spec, *platform, **in_cluster)
    if settings.queues is not None:
        before = [*platform, *namespaces.values()]
        platform.append(_declare(stack_file.QUEUES, settings.queues, *before, **in_cluster))
    for name, team in settings.teams.items():
        _team(name, team, namespaces[name], platform)


def _declare(name: str, spec: ComponentSpec, *after: pulumi.Resource, **objects: Any) -> Any:
    """Declare the component that has these arguments, after other resources."""
    opts = pulumi.ResourceOptions(depends_on=list(after), provider=objects.pop("provider", None))
    return COMPONENTS[type(spec)](name, spec, opts, **objects)


def _cluster(settings: stack_file.Settings) -> dict[str, Any]:
    """Return a cluster with its node pools, or the provider of an existing one."""
    if isinstance(settings.cluster, existing_cluster.ExistingCluster):
        pulumi.export("cluster", settings.cluster.name)
        return {"provider": existing_cluster.provider(settings.cluster)}
    cluster = _declare(settings.cluster.name, settings.cluster)
    pulumi.export("cluster", cluster.cluster_name)
    pulumi.export("location", cluster.location)
    pulumi.export("kubeconfig", pulumi.Output.secret(cluster.kubeconfig))
    # Pools without GPUs come first: GPU pools wait for them. A pool that uses the networks of
    # another pool comes after it.
    declared: dict[str, Any] = {}
    ranks = {name: 1 + bool(pool.network_pool) for name, pool in settings.gpu_pools.items()}
    for name in sorted(settings.node_pools, key=lambda name: ranks.get(name, 0)):
        pool = settings.node_pools[name]
        objects: dict[str, Any] = {"cluster": cluster}
        if (owner := getattr(pool, "network_pool", None)) is not None:
            objects["gpu_network"] = declared[owner]
        declared[name] = _declare(f"{settings.cluster.name}-{name}", pool, **objects)
    return {"cluster": cluster}


def _team(name: str, team: stack_file.Team, namespace: Any, platform: list[Any]) -> None:
    declared: dict[tuple[str, str], Any] = {}
    for section, own_name, spec in team.components:
        used = [declared[key] for key in team.uses(spec) if key in declared]
        component = _declare(f"{name}-{own_name}", spec, *platform, *used, team=namespace)
        declared[section, own_name] = component


main()
