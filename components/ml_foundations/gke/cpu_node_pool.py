"""A pool of nodes without GPUs, for the system and for preprocessing."""

from collections.abc import Iterator

import pulumi
import pulumi_gcp as gcp
from typing_extensions import override

from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.component.resources import child_options
from ml_foundations.component.spec import check
from ml_foundations.component.tolerations import TolerationArgs
from ml_foundations.gke.node_pool import (
    NodePoolArgs,
    NodePoolSettings,
    NodePoolSpec,
    node_arguments,
    node_pool,
    tolerations,
)
from ml_foundations.kubernetes import labels


class CpuNodePoolArgs(NodePoolArgs):
    """Arguments of a CpuNodePool."""


class CpuNodePoolSettings(NodePoolSettings):
    """What a stack file says about a pool of nodes without GPUs."""

    node_type: str = "system"

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if MACHINE_TYPES[self.machine_type].gpu:
            yield "machine_type", f"{self.machine_type} has GPUs; take a GpuNodePool"
        yield from super().errors()


class _CpuNodePoolSpec(CpuNodePoolSettings, NodePoolSpec):
    pass


class CpuNodePool(pulumi.ComponentResource):
    """A pool of nodes without GPUs, autoscaled. The first pool of a cluster should be one, with a node or more."""

    node_pool_name: pulumi.Output[str]
    """The pool's name in GKE."""
    node_selector: dict[str, str]
    """Labels that select the nodes of this pool."""
    tolerations: list[TolerationArgs]
    """What pods must tolerate to run on its nodes."""

    def __init__(self, name: str, args: CpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the pool."""
        spec = check(_CpuNodePoolSpec, f"CpuNodePool {name}", {"pool_name": name, **args})
        super().__init__("ml-foundations:index:CpuNodePool", name, {}, opts)
        pool = node_pool(f"{name}-pool", spec, node_config(spec), child_options(self), spare=True)
        self.node_pool_name = pool.name
        self.node_selector = {labels.GKE_NODE_POOL: spec.pool_name}
        self.tolerations = tolerations(spec.all_taints)
        self.register_outputs(
            {
                "node_pool_name": self.node_pool_name,
                "node_selector": self.node_selector,
                "tolerations": self.tolerations,
            }
        )


def node_config(spec: _CpuNodePoolSpec) -> gcp.container.NodePoolNodeConfigArgsDict:
    """What the nodes of a pool are."""
    return node_arguments(spec, {}, spec.taints)
