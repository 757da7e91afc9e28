"""A pool of nodes without GPUs, for the system and for preprocessing."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from typing_extensions import override

from ml_foundations.component.base import Component
from ml_foundations.component.parts import Part
from ml_foundations.gke.node_pool import NodePoolSpec, node_arguments, pool_part
from ml_foundations.typed_args import CpuNodePoolArgs, TolerationArgs


class CpuNodePoolSpec(NodePoolSpec):
    """Arguments of a CpuNodePool."""

    @override
    def parts(self) -> Iterator[Part]:
        yield pool_part(self, node_arguments(self), spare=True)


class CpuNodePool(Component[CpuNodePoolSpec, CpuNodePoolArgs]):
    """A pool of nodes without GPUs, autoscaled. The first pool of a cluster should be one, with a node or more."""

    node_pool_name: pulumi.Output[str]
    """The pool's name in GKE."""
    node_selector: dict[str, str]
    """Labels that select the nodes of this pool."""
    tolerations: list[TolerationArgs]
    """What pods must tolerate to run on its nodes."""

    @override
    def publish(self, spec: CpuNodePoolSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        return {"node_pool_name": made["pool"].name}
