"""What a pool creates for the networks between GPUs: in Google Cloud, and in the cluster."""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.catalog import versions
from ml_foundations.component.children import ChildResource, Ref, cloud_child, node_daemon_set
from ml_foundations.component.data import yaml_file
from ml_foundations.component.types import concat
from ml_foundations.gke.node_pools.gpu_network import GpuNetworkSpec, Interface
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import api_object

_GROUP = "networking.gke.io"
_API = f"{_GROUP}/v1"
"""The kinds Network and GKENetworkParamSet (GoogleCloudPlatform/gke-networking-api@34c617f,
apis/network/v1)."""
_PROTOCOLS = ("tcp", "udp", "icmp")
"""What the firewall of a network between GPUs lets in (cluster-toolkit@104708037,
examples/gke-a3-megagpu and gke-a3-ultragpu)."""


def network_children(spec: GpuNetworkSpec) -> Iterator[ChildResource]:
    """Yield the networks of a pool, and what its nodes need to use them."""
    networks: set[str] = set()
    for interface in spec.interfaces if spec.network_pool is None else ():
        if interface.network not in networks:
            networks.add(interface.network)
            yield from _vpc(spec, interface)
        yield from _network_objects(spec, interface)
    if spec.fabric is not None:
        for name in _DAEMONS[spec.fabric.kind]:
            yield ChildResource(name, _daemon_set(spec, name))


def network_config(spec: GpuNetworkSpec) -> dict[str, Any] | None:
    """Return the networkConfig of a pool in GKE, or None if its nodes have one interface."""
    if spec.is_network_managed:
        return {"acceleratorNetworkProfile": "auto"}
    networks: list[Mapping[str, Any]] = [network.given() for network in spec.additional_networks]
    for interface in spec.interfaces:
        names: dict[str, Any] = {}
        for kind, suffix in (("network", interface.network), ("subnetwork", interface.name)):
            # As an output: if a network is replaced, its nodes are.
            created = Ref(f"{suffix}-{kind}", "name")
            names[kind] = created if spec.network_pool is None else spec.cloud_name(suffix)
        networks.append(names)
    return {"additionalNodeNetworkConfigs": networks} if networks else None


def _vpc(spec: GpuNetworkSpec, interface: Interface) -> Iterator[ChildResource]:
    """Yield the VPC network of an interface, with the firewall that lets its traffic in."""
    is_rdma = interface.device_mode == "RDMA"
    name = spec.cloud_name(interface.network)
    suffix = f"{interface.network}-network"
    common = {"name": name, "project": spec.project}
    network = {
        **common,
        "autoCreateSubnetworks": False,
        "routingMode": "REGIONAL",
        "mtu": spec.fabric and spec.fabric.mtu,
    }
    if is_rdma:
        # The profile for RDMA over Converged Ethernet is of a zone: the network is in one only.
        (zone,) = spec.zones or [""]
        profile = f"/global/networkProfiles/{zone}-vpc-roce"
        network["networkProfile"] = concat("projects/", spec.project, profile)
    yield cloud_child(suffix, "gcp:compute/network:Network", network, ("selfLink",))
    # A network with an RDMA profile has no firewall rules (cluster-toolkit@104708037,
    # modules/network/gpu-rdma-vpc).
    if not is_rdma:
        firewall = {
            **common,
            "network": Ref(suffix, "selfLink"),
            "allows": [{"protocol": protocol} for protocol in _PROTOCOLS],
            "sourceRanges": [str(spec.gpu_network_cidr)],
        }
        type_ = "gcp:compute/firewall:Firewall"
        yield cloud_child(f"{interface.network}-firewall", type_, firewall)


def _network_objects(spec: GpuNetworkSpec, interface: Interface) -> Iterator[ChildResource]:
    """Yield the subnetwork of an interface, and GKE's objects by which pods can name it."""
    subnetwork = {
        "name": spec.cloud_name(interface.name),
        "project": spec.project,
        "region": spec.location,
        "network": Ref(f"{interface.network}-network", "selfLink"),
        "ipCidrRange": str(interface.cidr),
    }
    type_ = "gcp:compute/subnetwork:Subnetwork"
    yield cloud_child(f"{interface.name}-subnetwork", type_, subnetwork)
    name = spec.network_name(interface)
    suffix = f"{interface.name}-parameters"
    parameters = {
        "vpc": spec.cloud_name(interface.network),
        "vpcSubnet": spec.cloud_name(interface.name),
        "deviceMode": interface.device_mode,
    }
    metadata = {"name": name}
    kind = "GKENetworkParamSet"
    manifest = api_object(_API, kind, metadata, spec=parameters)
    yield ChildResource(suffix, manifest, [f"{interface.name}-subnetwork"])
    network = {"type": "Device", "parametersRef": {"group": _GROUP, "kind": kind, "name": name}}
    manifest = api_object(_API, "Network", metadata, spec=network)
    yield ChildResource(interface.name, manifest, [suffix])


_DAEMONS = {
    "tcpx": ("nccl-plugin", "device-injector"),
    "tcpxo": ("nccl-plugin", "device-injector"),
    "rdma": ("nccl-plugin",),
}
"""The DaemonSets that prepare the nodes, by the kind of their network."""


def _daemon_set(spec: GpuNetworkSpec, name: str) -> dict[str, Any]:
    """Return a DaemonSet for the nodes of a pool."""
    pods = yaml_file(
        "gke.node_pools",
        "network_daemons.yaml",
        tcpx_image=versions.TCPX_PLUGIN_IMAGE,
        tcpxo_image=versions.TCPXO_PLUGIN_IMAGE,
        rdma_image=versions.GIB_PLUGIN_IMAGE,
        injector_image=versions.DEVICE_INJECTOR_IMAGE,
        shell_image=versions.HOST_SHELL_IMAGE,
        pause_image=versions.PAUSE_IMAGE,
    )
    kind = spec.fabric.kind if spec.fabric and name == "nccl-plugin" else name
    pod = pods[kind] | {
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "hostPID": True,
        "nodeSelector": {**spec.node_selector, labels.GKE_ACCELERATOR: spec.shape.gpu},
        "tolerations": [{"operator": "Exists"}],
    }
    return node_daemon_set(f"{name}-{spec.pool_name}", pod)
