"""The network between GPUs that the pods of a workload use, as a node pool publishes it."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.gpu_fabrics import GPU_FABRICS
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name


class GpuFabric(Spec):
    """The network between the GPUs of a node pool's nodes, such as GpuNodePool.gpu_fabric."""

    kind: Literal["tcpx", "tcpxo", "rdma"]
    """What pods need to use it: tcpx (A3 High), tcpxo (A3 Mega) or rdma (A3 Ultra, A4)."""
    networks: list[Name] = []
    """The names of GKE's Network objects, in the order of the interfaces eth1, eth2 and so on. It
    is empty if pods claim the interfaces (DRANET)."""
    gpus_per_node: int = Field(ge=1)
    """GPUs on each node. Pods that request all of them get the interfaces."""
    host_libraries: bool = True
    """Pods with GPUs have the libraries of their node, and NCCL's plugin among them. The default is
    true. It is false if the GPU Operator advertises the GPUs."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        fabric = next(
            gpu_fabric for gpu_fabric in GPU_FABRICS.values() if gpu_fabric.kind == self.kind
        )
        if not self.networks and not fabric.managed:
            yield "networks", f"is empty, and nobody can claim interfaces of {self.kind}; name them"
        elif self.networks and len(self.networks) != fabric.interfaces:
            reason = (
                f"has {len(self.networks)} names, but nodes have {fabric.interfaces} interfaces"
            )
            yield "networks", f"{reason} for {self.kind}; name one network for each, in order"
