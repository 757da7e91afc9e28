"""The network interfaces of a pool's nodes: their own, and more for traffic between GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pulumi_gcp as gcp

from ml_foundations.catalog.machine_types import MACHINE_TYPES

if TYPE_CHECKING:
    from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings
    from ml_foundations.gke.node_pool import NodePoolSettings

GPU_NETWORKS = {"tcpx": 4, "tcpxo": 8, "rdma-roce": 8}
"""Networks that GPUs' traffic takes beside the nodes' own, by the kind of network in the catalog.

Source: cluster-toolkit, gke-node-pool/gpu_direct.tf (TCPX, TCPXO), and one for each of the 8 RDMA interfaces.
"""

PROFILE_FAMILIES = ("a3-", "a4-", "a4x-")
"""Machines whose networks GKE makes itself (cluster-toolkit, is_dranet_supported_machine)."""


def errors(pool: GpuNodePoolSettings) -> Iterator[tuple[str, str]]:
    """What does not go together in the nodes' interfaces."""
    machine = MACHINE_TYPES[pool.machine_type]
    given, wanted = len(pool.additional_networks), GPU_NETWORKS.get(machine.network, 0)
    if pool.accelerator_networks and given:
        yield "additional_networks", "are those that accelerator_networks lets GKE make; leave one of them out"
    if pool.accelerator_networks and not machine.name.startswith(PROFILE_FAMILIES):
        yield "accelerator_networks", f"is for A3, A4 and A4X machines, and the machine_type is {machine.name}"
    if 0 < given < wanted:
        yield "additional_networks", f"are {given}, but GPUs of {machine.name} talk over {wanted}; add the others"
    if pool.fast_socket and not uses_gvnic(pool):
        yield "fast_socket", "needs gvnic, and so the image cos"
    if pool.gvnic is False and machine.gpu is not None:
        yield "gvnic", f"is false, but {machine.name} has no other network interface; leave it out"


def uses_gvnic(pool: NodePoolSettings) -> bool:
    """Whether GKE is told to use gVNIC. On Ubuntu it follows the machine type."""
    return pool.image_name == "cos" if pool.gvnic is None else pool.gvnic


def network_arguments(pool: GpuNodePoolSettings) -> gcp.container.NodePoolNetworkConfigArgsDict | None:
    """The network_config of a pool."""
    if pool.accelerator_networks:
        return {"accelerator_network_profile": "auto"}
    if not pool.additional_networks:
        return None
    networks: list[gcp.container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgsDict] = [
        {"network": item.network, "subnetwork": item.subnetwork} for item in pool.additional_networks
    ]
    return {"additional_node_network_configs": networks}
