"""A pool of nodes without GPUs, for the system and for preprocessing."""

from collections.abc import Iterator
from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
from typing_extensions import override

from ml_foundations import labels
from ml_foundations._manifest import child_options
from ml_foundations._spec import check
from ml_foundations._tolerations import TolerationArgs
from ml_foundations.gke._node_pool import (
    NodePoolSettings,
    NodePoolSpec,
    TaintArgs,
    node_arguments,
    node_pool_arguments,
    taint_arguments,
    tolerations,
)
from ml_foundations.gke.machine_types import MACHINE_TYPES


class CpuNodePoolArgs(TypedDict):
    """Arguments of a CpuNodePool."""

    project: str
    """The Google Cloud project."""
    location: str
    """The cluster's region."""
    cluster_name: pulumi.Input[str]
    """The cluster, as GkeCluster.cluster_name gives it."""
    node_service_account: pulumi.Input[str]
    """The nodes' identity, as GkeCluster.node_service_account gives it."""
    machine_type: str
    """The machine type, such as n2-standard-8."""
    max_nodes: int
    """The most nodes of the pool, over all zones."""
    min_nodes: NotRequired[int]
    """The fewest nodes of the pool, over all zones; default 0. Give the system pool at least 1."""
    node_type: NotRequired[str]
    """What the nodes are for, as the label node-type; default system."""
    pool_name: NotRequired[str]
    """The pool's name in GKE; default is the component's."""
    zones: NotRequired[list[str]]
    """The zones of the nodes; by default the cluster's."""
    disk_size_gb: NotRequired[int]
    """Size of the boot disk in GB; default 100."""
    disk_type: NotRequired[str]
    """Type of the boot disk; by default GKE's own choice for the machine type."""
    spot: NotRequired[bool]
    """Whether the nodes are Spot VMs; default false."""
    labels: NotRequired[dict[str, str]]
    """More labels of the nodes."""
    taints: NotRequired[list[TaintArgs]]
    """Taints of the nodes."""


class CpuNodePoolSettings(NodePoolSettings):
    """What a stack file says about a pool of nodes without GPUs."""

    node_type: str = "system"

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        if MACHINE_TYPES[self.machine_type].gpu:
            yield "machine_type", f"{self.machine_type} has GPUs; take a GpuNodePool"


class _CpuNodePoolSpec(CpuNodePoolSettings, NodePoolSpec):
    pass


class CpuNodePool(pulumi.ComponentResource):
    """A pool of nodes without GPUs, autoscaled."""

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
        config = node_arguments(spec, {}, "COS_CONTAINERD") | {"taints": taint_arguments(spec.taints)}
        pool = gcp.container.NodePool(
            f"{name}-pool",
            **node_pool_arguments(spec),
            node_config=config,  # pyright: ignore[reportArgumentType]
            opts=child_options(self, ignore_changes=["initialNodeCount"]),
        )
        self.node_pool_name = pool.name
        self.node_selector = {labels.GKE_NODE_POOL: spec.pool_name}
        self.tolerations = tolerations(spec.taints)
        self.register_outputs(
            {
                "node_pool_name": self.node_pool_name,
                "node_selector": self.node_selector,
                "tolerations": self.tolerations,
            }
        )
