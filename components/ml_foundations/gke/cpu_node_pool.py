"""A pool of nodes without GPUs, for the system and for preprocessing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.gke.node_pools.pool import (
    NodePoolSpec,
    join_cluster,
    node_arguments,
    pool_child,
)
from ml_foundations.typed_args import CpuNodePoolComponent, TolerationArgs


class CpuNodePoolSpec(NodePoolSpec):
    """Arguments of a CpuNodePool."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        machine = self.shape
        if machine.gpu is not None or (self.machine and self.machine.gpu is not None):
            yield "machine_type", f"{machine.name} has GPUs; use a GpuNodePool"
        # GKE, "About flex-start provisioning": GPUs, TPUs and H4D.
        if self.flex_start and machine.family != "h4d" and not machine.is_declared:
            reason = f"is for GPU machines and H4D, and {machine.name} is neither; leave it out"
            yield "flex_start", reason
        if self.queued_provisioning and not machine.is_declared:
            reason = f"is for machines with GPUs, and {machine.name} has none; leave it out"
            yield "queued_provisioning", reason

    @override
    def children(self) -> Iterator[ChildResource]:
        yield pool_child(self, node_arguments(self), spare=True)


class CpuNodePool(CpuNodePoolComponent[CpuNodePoolSpec]):
    """A pool of nodes without GPUs, with autoscaling.

    The first pool of a cluster should be a CpuNodePool with at least one node.
    """

    node_pool_name: KnownOutput[str]
    """The pool's name in GKE."""
    node_selector: KnownOutput[dict[str, str]]
    """Labels that select the nodes of this pool."""
    tolerations: KnownOutput[list[TolerationArgs]]
    """The tolerations that pods need to run on its nodes."""
    node_pool = Child("pool")
    """The gcp.container.NodePool."""

    @override
    def joined(self, objects: Mapping[str, pulumi.ComponentResource]) -> Sequence[pulumi.Resource]:
        join_cluster(self, objects)
        return ()

    @override
    def outputs(self, spec: CpuNodePoolSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        return {"node_pool_name": spec.pool_name}
