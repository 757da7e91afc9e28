"""Pools with networks between GPUs: one of each kind of machine and network."""

from typing import Any

from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool

ZONE = {"zones": ["us-central1-a"]}
A3_HIGH: Any = ZONE | {"machine_type": "a3-highgpu-8g", "max_nodes": 4}
A3_MEGA: Any = ZONE | {"machine_type": "a3-megagpu-8g", "max_nodes": 16}
A3_ULTRA: Any = ZONE | {"machine_type": "a3-ultragpu-8g", "max_nodes": 4, "spot": True}
A4: Any = ZONE | {"machine_type": "a4-highgpu-8g", "max_nodes": 4, "spot": True}

POOLS: dict[str, Any] = {
    "a3-high": A3_HIGH | {"gpu_network": "auto"},
    "a3-mega": A3_MEGA | {"gpu_network": "multi-network", "gpu_network_cidr": "172.24.0.0/14"},
    "a3-ultra": A3_ULTRA | {"gpu_network": "multi-network"},
    "a4-managed": A4 | {"gpu_network": "auto"},
    "a4-multi-network": A4 | {"gpu_network": "multi-network"},
}
"""The arguments of a pool, by the name of its golden file."""


def cluster(**more: Any) -> GkeCluster:
    """A cluster that allows additional networks, with a pool for the system."""
    arguments: Any = {"project": "project", "location": "us-central1", "multi_networking": True}
    made = GkeCluster("ml", arguments | more)
    CpuNodePool("system", cluster=made, machine_type="n2-standard-8", min_nodes=1, max_nodes=2)
    return made


def pool(of: GkeCluster, case: str) -> GpuNodePool:
    """The pool of a case in a cluster."""
    return GpuNodePool("gpus", POOLS[case] | {"cluster": of})
