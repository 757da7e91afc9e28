"""The networks between GPUs in a stack file: which pools have them for a workload."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_foundations.catalog.gpu_fabrics import gpu_fabric
from ml_foundations.catalog.machine_types import MACHINE_TYPES, accelerator
from ml_foundations.gke.gpu_node_pool import DRIVERS_OF_GKE
from ml_foundations.gke.node_pools.gpu_network import creates_networks, published_fabric
from ml_foundations.kubernetes import labels

_NODE_TYPE = "training"
"""The default of nodeType of a GPU pool."""


class GpuPool(NamedTuple):
    """A pool of GPU nodes, as far as it decides about the networks of workloads."""

    name: str
    """Its name."""
    accelerator_type: str
    """The type of its GPUs."""
    labels: Mapping[str, Any]
    """The labels of its nodes that workloads select."""
    fabric: dict[str, Any] | None
    """What it publishes as gpu_fabric."""


def allows_networks(pool: Mapping[str, Any]) -> bool:
    """Return whether a pool's section needs a cluster with multi-networking."""
    machine = MACHINE_TYPES.get(str(pool.get("machineType")))
    fabric = gpu_fabric(machine) if machine else None
    return fabric is not None and creates_networks(str(pool.get("gpuNetwork")), fabric)


def gpu_pools(pools: Iterable[tuple[str, Mapping[str, Any]]]) -> list[GpuPool]:
    """Return the pools of sections with machine types of the catalog, by their names."""
    gpu_pools: list[GpuPool] = []
    for name, pool in pools:
        machine = MACHINE_TYPES.get(str(pool.get("machineType")))
        if machine is None or not machine.gpu:
            continue
        node_labels = {labels.NODE_TYPE: pool.get("nodeType") or _NODE_TYPE}
        node_labels |= {labels.GKE_NODE_POOL: name, labels.GKE_ACCELERATOR: machine.gpu}
        declared = pool.get("labels")
        node_labels |= declared if isinstance(declared, dict) else {}
        owner = str(pool.get("networkPool") or name)
        by_gke = pool.get("driver") in (None, *DRIVERS_OF_GKE)
        fabric = published_fabric(str(pool.get("gpuNetwork") or "none"), machine, owner, by_gke)
        gpu_pools.append(GpuPool(name, machine.gpu, node_labels, fabric))
    return gpu_pools


def possible_pools(workload: Mapping[str, Any], pools: Iterable[GpuPool]) -> list[GpuPool]:
    """Return the pools on whose nodes a workload's section may run, by its GPUs and labels."""
    try:
        types = _accelerator_types(workload.get("gpu"))
    except ValueError:
        return []
    of_types = [pool for pool in pools if types is None or pool.accelerator_type in types]
    selector = workload.get("nodeSelector")
    return [pool for pool in of_types if _is_selected(pool, selector)]


def shared_fabric(pools: Sequence[GpuPool]) -> dict[str, Any] | None:
    """Return the network between GPUs that the nodes of all pools have, or None."""
    fabrics = [pool.fabric for pool in pools]
    return fabrics[0] if fabrics and all(fabric == fabrics[0] for fabric in fabrics) else None


def _is_selected(pool: GpuPool, selector: Any) -> bool:
    """Return whether nodes of a pool may have the labels. Those that GKE adds are not known."""
    selected = selector.items() if isinstance(selector, dict) else ()
    return all(pool.labels.get(key, value) == value for key, value in selected)


def _accelerator_types(gpu: Any) -> list[str] | None:
    """Return the types of the named whole GPUs; None for any."""
    if gpu is None:
        return None
    types: list[str] = []
    for name in gpu if isinstance(gpu, list) else [gpu]:
        named = accelerator(str(name))
        if not named.shared and named.partition is None:
            types += named.types
    return types
