"""GKE's topology labels of nodes: which pools may have them, and what a rehearsal sets.

GKE says that they suit reserved capacity with compact placement, and may lack on Spot nodes (AI
Hypercomputer, "Schedule GKE workloads with Topology Aware Scheduling").
"""

from collections.abc import Iterator
from itertools import count

from ml_foundations.catalog.pools import PoolTraits
from ml_foundations.kubernetes import labels

_NVLINK = "nvl72"
_NVLINK_NODES = 18
"""The nodes of an NVLink domain of 72 GPUs, which is a sub-block (GoogleCloudPlatform/
cluster-toolkit@104708037, examples/gke-a4x)."""
_SUB_BLOCK_NODES = 16
_SUB_BLOCKS = 8
"""A rehearsal's nodes in a sub-block of other machines, and sub-blocks in a block. Google gives no
sizes: a reservation has those that Compute Engine's API lists."""


def may_have_topology(pool: PoolTraits) -> bool:
    """Return whether the nodes of a pool may have the labels: those with GPUs or reserved ones."""
    return pool.gpu is not None or bool(pool.reservation)


def places(pool: PoolTraits, zone: str) -> Iterator[dict[str, str]]:
    """Yield the topology labels of the nodes of a pool in a zone, host by host.

    They are empty for machines whose GPUs have no network between nodes, and for Spot and
    flex-start nodes, unless a reservation holds them.
    """
    is_near = pool.gpu is not None and pool.machine.network not in ("", "gvnic")
    is_brief = pool.spot or pool.flex_start
    nodes = _NVLINK_NODES if _NVLINK in pool.machine.network else _SUB_BLOCK_NODES
    where = f"{pool.name}-{zone.rpartition('-')[2]}"
    for host in count():
        if pool.reservation or (is_near and not is_brief):
            sub_block = host // nodes
            block = f"{where}-block-{sub_block // _SUB_BLOCKS}"
            names = (block, f"{where}-sub-block-{sub_block}", f"{where}-host-{host}")
            yield dict(zip(labels.GKE_TOPOLOGY, names, strict=True))
        else:
            yield {}
