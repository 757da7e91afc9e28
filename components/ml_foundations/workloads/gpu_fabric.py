"""The network between GPUs that the pods of a workload use, as a node pool publishes it."""

from typing import Literal

from pydantic import Field

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
