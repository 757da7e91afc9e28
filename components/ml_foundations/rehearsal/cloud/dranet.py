"""GKE's DRANET: the interfaces of nodes that pods claim, and their device classes.

The attributes are those that GKE's autoscaler predicts (GoogleCloudPlatform/
cluster-autoscaler@7d250507, pkg/cloudprovider/gke/machinetypes/dranet.go).
"""

from typing import Any

from ml_foundations.catalog.gpu_fabrics import gpu_fabric
from ml_foundations.kubernetes import labels
from ml_foundations.rehearsal.cloud.store import Pool

Device = dict[str, Any]
_IS_RDMA = f"device.driver == '{labels.NETWORK_DRIVER}' && device.attributes['dra.net'].rdma"
CLASSES = {
    labels.RDMA_DEVICE_CLASS: f"{_IS_RDMA} == true",
    labels.NETDEV_DEVICE_CLASS: f"{_IS_RDMA} == false",
}
"""The conditions of GKE's device classes."""


def has_driver(pool: Pool) -> bool:
    """Return whether GKE runs the driver on a pool's nodes."""
    return pool.labels.get(labels.GKE_NETWORK_DRA_DRIVER) == "true"


def interfaces(pool: Pool) -> list[Device]:
    """Return the interfaces of a node besides its first one."""
    fabric = gpu_fabric(pool.machine)
    if fabric is None:
        return []
    rdma = fabric.claimable.get(labels.RDMA_DEVICE_CLASS, 0)
    plain = fabric.claimable[labels.NETDEV_DEVICE_CLASS]
    devices = [_interface(f"eth{i + 1}", f"default-{i}", fabric.mtu) for i in range(plain)]
    return devices + [
        _interface(f"gpu{i}rdma0", f"rdma-{i}", fabric.mtu, is_rdma=True) for i in range(rdma)
    ]


def _interface(name: str, network: str, mtu: int, *, is_rdma: bool = False) -> Device:
    vendor = "Mellanox Technologies" if is_rdma else "Google, Inc."
    attributes = {
        "ifName": {"string": name},
        "mtu": {"int": mtu},
        "rdma": {"bool": is_rdma},
        "ebpf": {"bool": not is_rdma},
        "pciVendor": {"string": vendor},
        "gce.dra.net/networkName": {"string": f"additional-network-{network}"},
    }
    return {"name": name, "attributes": attributes}
