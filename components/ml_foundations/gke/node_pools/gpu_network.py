"""The networks between the GPUs of a pool's nodes: the arguments, and which networks they mean."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any, Literal, NamedTuple

from typing_extensions import override

from ml_foundations.catalog.gpu_fabrics import GpuFabric, gpu_fabric
from ml_foundations.catalog.machine_types import MACHINE_TYPES, MachineType
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import MAX_LABEL, Cidr, Name, NonEmpty, concat, derived
from ml_foundations.gke.node_pools.pool import NodePoolSpec
from ml_foundations.kubernetes.words import alternatives, number

_PARTS = 16
"""The parts of a pool's range of addresses, one for each interface of a node: 9 at most."""
_SMALLEST_RANGE = 25
"""The prefix of the smallest range: its parts are a /29, the smallest of a subnetwork (VPC,
"Subnets")."""
_ADDRESSES_OF_GOOGLE = 4
"""The addresses of a subnetwork that machines cannot have (VPC, "Subnets")."""
_RDMA_NETWORK = "rdma"


class NodeNetwork(Spec):
    """An additional network of the nodes."""

    network: NonEmpty
    """The VPC network."""
    subnetwork: NonEmpty
    """Its subnetwork in the cluster's region."""


class Interface(NamedTuple):
    """An interface of each node, in addition to its first one, and its network."""

    name: str
    """Its name on the node and in pods, such as eth1."""
    network: str
    """The suffix of its VPC network. RDMA interfaces are in one network."""
    cidr: IPv4Network
    """The addresses of its subnetwork."""
    device_mode: str
    """How a pod gets it: NetDevice or RDMA."""


class GpuNetworkSpec(NodePoolSpec):
    """Arguments of a node pool about the networks between GPUs."""

    gpu_network: Literal["none", "auto", "multi-network", "managed"] = "none"
    """The networks for the traffic between GPUs of several nodes: none, auto, multi-network or
    managed. The default is none.

    multi-network: the pool creates the VPC networks, and pods name their interfaces. managed: GKE
    creates the networks, and pods claim the interfaces (DRANET), on A3 Ultra and A4. auto: managed
    if it is possible, otherwise multi-network. Both install the plugin of NCCL.
    """
    network_pool: Name | None = None
    """The GPU node pool whose networks the nodes use, with the same gpu_network. By default, they
    use the pool's own. Pods can then run on the nodes of both pools."""
    gpu_network_cidr: Cidr = IPv4Network("192.168.0.0/16")
    """Addresses of the networks that multi-network creates. The default is 192.168.0.0/16. A second
    pool with its own networks needs another range."""
    additional_networks: list[NodeNetwork] = []
    """Your own networks for the traffic between GPUs, in place of gpu_network: 4 for TCPX (A3
    High), 8 for TCPXO (A3 Mega) and RDMA (A3 Ultra, A4)."""
    multi_networking: bool | None = None
    """If false, the cluster has no additional networks, such as GkeCluster.multi_networking. By
    default, it is not checked here."""

    @property
    def fabric(self) -> GpuFabric | None:
        """The network between the GPUs of the machine type; None if gpu_network is none."""
        return None if self.gpu_network == "none" else gpu_fabric(self.shape)

    @property
    def is_network_managed(self) -> bool:
        """Return whether GKE creates the networks, and pods claim the interfaces."""
        return self.fabric is not None and not creates_networks(self.gpu_network, self.fabric)

    @property
    def gpu_fabric(self) -> dict[str, Any] | None:
        """The needs of pods that use the network between the GPUs; None if gpu_network is none."""
        owner = self.network_owner
        return published_fabric(self.gpu_network, self.shape, owner, self.advertised_by_gke)

    @property
    def advertised_by_gke(self) -> bool:
        """Return whether GKE's device plugin advertises the GPUs."""
        raise NotImplementedError

    @property
    def network_owner(self) -> str:
        """The pool that creates the networks of the nodes: this one, unless network_pool is set."""
        return self.network_pool or self.pool_name

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces whose networks a pool creates, in the order of their names."""
        fabric = self.fabric
        if fabric is None or self.is_network_managed:
            return []
        parts = self.gpu_network_cidr.subnets(new_prefix=self._part_prefix)
        interfaces: list[Interface] = []
        for index, (name, part) in enumerate(zip(_names(fabric), parts, strict=False)):
            is_extra = index < fabric.extra_interfaces
            network = name if is_extra or not fabric.shared_vpc else _RDMA_NETWORK
            mode = "NetDevice" if is_extra else fabric.device_mode
            interfaces.append(Interface(name, network, part, mode))
        return interfaces

    @property
    def _part_prefix(self) -> int:
        return self.gpu_network_cidr.prefixlen + _PARTS.bit_length() - 1

    def cloud_name(self, suffix: str) -> Any:
        """Return the name in Google Cloud of what the pool creates for its networks."""
        return concat(self.cluster_name, "-", self.network_owner, "-", suffix)

    def network_name(self, interface: Interface) -> str:
        """Return the name of GKE's Network object of an interface."""
        return _network_name(self.network_owner, interface.name)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from self._own_network_errors()
        yield from self._gpu_network_errors()
        if self.multi_networking is False and (self.interfaces or self.additional_networks):
            field = "gpu_network" if self.interfaces else "additional_networks"
            yield field, "needs a cluster with multi-networking; set its multi_networking to true"

    def _own_network_errors(self) -> Iterator[tuple[str, str]]:
        machine = self.shape
        fabric = gpu_fabric(self.shape)
        given = len(self.additional_networks)
        required = fabric.gpu_interfaces if fabric else 0
        if 0 < given < required:
            reason = f"but GPUs of {machine.name} talk over {required}; add {required - given}"
            yield "additional_networks", f"are {given}, {reason}"
        # The daemon finds 7 of 8 GPUs if a ninth interface has a place among theirs (NVIDIA/aicr,
        # issue 420).
        if fabric is not None and fabric.kind == "tcpxo" and given > required:
            extra = given - required
            reason = f"but {machine.name} has {required} interfaces for GPUs; leave out {extra}"
            yield "additional_networks", f"are {given}, {reason}"

    def _gpu_network_errors(self) -> Iterator[tuple[str, str]]:
        if self.gpu_network == "none":
            for field in ("gpu_network_cidr", "network_pool"):
                if field in self.model_fields_set:
                    yield field, "is for the networks of gpu_network; set gpu_network"
            return
        fabric = self.fabric
        is_set = f"is {self.gpu_network}"
        if fabric is None:
            machines = [machine for machine in MACHINE_TYPES.values() if gpu_fabric(machine)]
            names = [machine.name for machine in machines if not machine.name.endswith("-nolssd")]
            fix = f"choose {alternatives(names)}, or leave it out"
            reason = f"but {self.shape.name} has no network between GPUs of several nodes; {fix}"
            yield "gpu_network", f"{is_set}, {reason}"
            return
        if self.gpu_network == "managed" and not fabric.managed:
            name = fabric.kind.upper()
            reason = f"but GPUDirect-{name} works with named interfaces only, not with claimed ones"
            yield "gpu_network", f"{is_set}, {reason}; set it to multi-network"
        if self.additional_networks:
            reason = "are yours, and gpu_network creates some; leave one of them out"
            yield "additional_networks", reason
        if self.image_name != "cos":
            yield "image", f"is {self.image_name}, and gpu_network needs cos; leave it out"
        zones = self.zones or []
        if fabric.kind == "rdma" and len(zones) != 1:
            count = number(len(zones), "zone") if zones else "not set"
            reason = f"but an RDMA network is in one zone; name the zone of {self.shape.name}"
            yield "zones", f"are {count}, {reason}"
        yield from self._range_errors(fabric)

    def _range_errors(self, fabric: GpuFabric) -> Iterator[tuple[str, str]]:
        field = "gpu_network_cidr"
        cidr = self.gpu_network_cidr
        creator = "GKE" if self.is_network_managed else self.network_pool
        if creator is not None:
            if field in self.model_fields_set:
                yield field, f"is for new networks, and {creator} creates these; leave it out"
            return
        if not 8 <= cidr.prefixlen <= _SMALLEST_RANGE:
            yield field, f"is {cidr}; it must be a /8 to a /{_SMALLEST_RANGE}"
            return
        zones = len(self.zones or []) if self.limits == "zone" else 1
        most = self.max_nodes * zones
        size = 1 << (32 - self._part_prefix)
        if most > size - _ADDRESSES_OF_GOOGLE:
            part = f"each of the {fabric.interfaces} networks has {size} addresses of it"
            yield field, f"is {cidr}; {part}, and the pool has up to {most} nodes; make it larger"
        try:
            longest = max((interface.network for interface in self.interfaces), key=len)
            derived(self.cloud_name(""), longest, MAX_LABEL)
        except ValueError as error:
            yield "pool_name", f"is part of the names of its networks: {error}"


def creates_networks(gpu_network: str, fabric: GpuFabric) -> bool:
    """Return whether a pool creates its own networks, given its argument gpu_network."""
    is_auto = gpu_network == "auto"
    return gpu_network == "multi-network" or (is_auto and not fabric.managed)


def published_fabric(
    gpu_network: str, machine: MachineType, pool: str, by_gke: bool
) -> dict[str, Any] | None:
    """Return what pods need to use the network between the GPUs of a pool, or None without one."""
    fabric = gpu_fabric(machine)
    if gpu_network == "none" or fabric is None:
        return None
    names = _names(fabric) if creates_networks(gpu_network, fabric) else []
    networks = [_network_name(pool, name) for name in names]
    needs = {"kind": fabric.kind, "networks": networks, "gpus_per_node": machine.gpu_count}
    return needs if by_gke else needs | {"host_libraries": False}


def _names(fabric: GpuFabric) -> list[str]:
    """Return the names of the interfaces of a node, in addition to its first one."""
    return [f"eth{index}" for index in range(1, fabric.interfaces + 1)]


def _network_name(pool: str, interface: str) -> str:
    return f"{pool}-{interface}"
