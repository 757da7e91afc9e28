"""The cost of what a Pulumi program declares besides nodes and storage: clusters, Cloud NAT and addresses."""

from collections.abc import Iterator, Sequence

from ml_foundations.kubernetes.objects import items
from ml_foundations.planning.input.program import ADDRESSES, CLUSTER, NAT, Resource
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.verdict.cost import PoolCost, piece

_MOST_VMS = 32
"""The most VMs that Google bills for one Cloud NAT (Cloud NAT pricing)."""


def platform_cost(
    resources: Sequence[Resource], nodes: Sequence[NodeClass], region: str | None
) -> Iterator[PoolCost]:
    """Yield the cost of clusters, Cloud NAT and external addresses; traffic is not counted."""
    fewest = min(sum(node.fewest for node in nodes if not node.unknown), _MOST_VMS)
    most = min(sum(node.count for node in nodes if not node.unknown), _MOST_VMS)
    for type_, inputs in resources:
        name = inputs.get("name")
        if type_ == CLUSTER:
            yield piece(f"GKE's fee for cluster {name}", region, {"cluster": 1})
        if type_ == NAT:
            yield piece(f"VMs of Cloud NAT {name}", region, {"nat": 1}, fewest, most)
            yield piece(
                f"addresses of Cloud NAT {name}",
                region,
                {"address": max(1, len(items(inputs, "natIps")))},
            )
        # The range of private services access is free.
        if type_ in ADDRESSES and inputs.get("addressType") != "INTERNAL":
            yield piece(f"address {name}", region, {"address": 1})
