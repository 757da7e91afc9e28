"""Facts about the networks between the GPUs of several nodes: GPUDirect-TCPX, -TCPXO and RDMA."""

from __future__ import annotations

from dataclasses import dataclass

from ml_foundations.catalog.machine_types import MachineType
from ml_foundations.catalog.tables import table
from ml_foundations.kubernetes import labels


@dataclass(frozen=True)
class GpuFabric:
    """The network between the GPUs of several nodes of a machine type."""

    network: str
    """The network of the machine type in the catalog."""
    kind: str
    """What pods need to use it: tcpx, tcpxo or rdma."""
    gpu_interfaces: int
    """Interfaces of a node for the traffic between GPUs."""
    extra_interfaces: int
    """gVNIC interfaces of a node next to its first one, before those of the GPUs."""
    mtu: int
    """The MTU of the GPUs' networks, in bytes."""
    device_mode: str
    """How a pod gets a GPU interface, the deviceMode of a GKENetworkParamSet: NetDevice or RDMA."""
    shared_vpc: bool
    """Whether all GPU interfaces are in one VPC network, each in its own subnetwork."""
    managed: bool
    """Whether GKE can create the networks itself, with devices that pods claim (DRANET)."""

    @property
    def claimable(self) -> dict[str, int]:
        """The interfaces that pods of a node can claim by GKE's DRANET, by device class."""
        if self.device_mode == "RDMA":
            of_gpus = labels.RDMA_DEVICE_CLASS
            others = labels.NETDEV_DEVICE_CLASS
            return {of_gpus: self.gpu_interfaces, others: self.extra_interfaces}
        return {labels.NETDEV_DEVICE_CLASS: self.interfaces}

    @property
    def interfaces(self) -> int:
        """Interfaces of a node in addition to its first one."""
        return self.extra_interfaces + self.gpu_interfaces


GPU_FABRICS = table("gpu_fabrics.csv", GpuFabric)
"""Fabrics by the network of a machine type."""


def by_address_only(kind: str) -> bool:
    """Return whether nodes may advertise a network by NAME.IP alone, while GKE requests NAME too.

    llm-d has seen that with H200 and B200 (guides/wide-ep-lws, overlay for GKE). For the networks
    of TCPX and TCPXO, Google's own manifests work without a request of zero.
    """
    return kind == "rdma"


def gpu_fabric(machine: MachineType) -> GpuFabric | None:
    """Return the fabric of a machine type, or None if its GPUs have only the node's network."""
    return GPU_FABRICS.get(machine.network)
