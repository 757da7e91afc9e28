"""A cluster that exists: the program creates only what is inside."""

from collections.abc import Iterable
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
from ml_foundations.component.children import CloudResource
from ml_foundations.component.outputs import inputs_as_sent
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.types import Name
from ml_foundations.planning.input.program import NODE_POOL, Resource


class ExistingCluster(Spec):
    """A cluster that exists already."""

    name: Name
    """The cluster's name in Pulumi. If you change it, it is another cluster."""
    kubeconfig: str | None = None
    """The kubeconfig file. By default, KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    """The context in that file. By default, its current context."""


def provider(cluster: ExistingCluster) -> k8s.Provider:
    """Return the Kubernetes provider of the cluster."""
    return k8s.Provider(
        f"{cluster.name}-kubernetes",
        kubeconfig=str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None,
        context=cluster.context,
        # Another kubeconfig of the same cluster then replaces nothing.
        cluster_identifier=cluster.name,
    )


def node_pools(described: Iterable[ComponentSpec]) -> list[Resource]:
    """Return the cluster's own node pools, as the engine would get them from a program."""
    pools: list[Resource] = []
    for spec in described:
        for child in spec.children():
            if isinstance(child.declared, CloudResource):
                inputs = inputs_as_sent(pulumi.CustomResource, child.declared.inputs)
                pools.append((NODE_POOL, inputs))
    return pools
