"""The cost of nodes, GPUs, storage, clusters and networks by the list prices of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ml_foundations.catalog.charges import HOURS_PER_MONTH, STAND_IN, charge
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.input.program import ADDRESSES, CLUSTER, NAT, Resource
from ml_foundations.planning.model.node_groups import Demand, NodeGroup
from ml_foundations.planning.model.nodes import BOOT_DISK_GIB, NodeClass, machine_of
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.rules.findings import Finding, error, warning
from ml_foundations.planning.verdict.gpu_limits import gpu_uses

if TYPE_CHECKING:
    from ml_foundations.planning.api_server.cluster import Cluster
    from ml_foundations.planning.api_server.quotas import Quota
    from ml_foundations.planning.model.decisions import AdmittedWorkload

NOT_COUNTED = (
    "traffic, logs, flow logs, snapshots, the speed of Hyperdisk other than ML, and the credit of "
    "GKE's free tier"
)
"""The items of a bill that no price here covers."""
_MOST_NAT_VMS = 32
"""The most VMs that Google bills for one Cloud NAT (Cloud NAT pricing)."""


@dataclass(frozen=True)
class PoolCost:
    """The cost per hour of nodes of one class, or of other pieces that are alike.

    None if no price is known.
    """

    name: str
    per_node: Decimal | None
    fewest: int
    most: int
    missing: str = ""
    """The label without which no price is known."""

    @property
    def per_hour_min(self) -> Decimal | None:
        """The cost of the fewest nodes."""
        return times(self.per_node, self.fewest)

    @property
    def per_hour_max(self) -> Decimal | None:
        """The cost of the most nodes."""
        return times(self.per_node, self.most)


@dataclass(frozen=True)
class Cost:
    """The cost of a stack per hour: of its nodes and of what else the catalog has a price for."""

    pools: tuple[PoolCost, ...] = ()
    storage: tuple[PoolCost, ...] = ()
    """Disks that nodes start from, the volumes of claims, and their speed if it is billed."""
    platform: tuple[PoolCost, ...] = ()
    """Clusters, Cloud NAT and addresses."""
    currency: str = "USD"
    region: str | None = None
    """The region of all nodes; None if it is not known, or there are several."""

    @property
    def parts(self) -> dict[str, Cost]:
        """Each part that has something in it, by its name."""
        named = {
            "nodes": Cost(pools=self.pools),
            "storage": Cost(storage=self.storage),
            "clusters and networks": Cost(platform=self.platform),
        }
        return {name: part for name, part in named.items() if part.every}

    @property
    def every(self) -> tuple[PoolCost, ...]:
        """All pieces, the nodes first."""
        return (*self.pools, *self.storage, *self.platform)

    @property
    def per_hour_min(self) -> Decimal | None:
        """The cost with the fewest nodes; None if a price is not known."""
        return sum_known(piece.per_hour_min for piece in self.every)

    @property
    def per_hour_max(self) -> Decimal | None:
        """The cost with the most nodes; None if a price is not known."""
        return sum_known(piece.per_hour_max for piece in self.every)

    @property
    def what(self) -> str:
        """The parts that are counted, in words."""
        return ", ".join(self.parts) or "nodes"

    @property
    def unknown(self) -> list[str]:
        """The names of the pieces that have no known price."""
        pools = sorted(self.pools, key=lambda pool: pool.name)
        pieces = (*pools, *self.storage, *self.platform)
        return list(dict.fromkeys(p.name for p in pieces if p.per_node is None and p.most))

    @property
    def unpriced(self) -> list[str]:
        """The same, with the label that is missing."""
        missing = {piece.name: piece.missing for piece in self.every if piece.missing}
        texts: list[str] = []
        for name in self.unknown:
            label = missing.get(name)
            texts.append(f"{name} (label {label} is missing)" if label else name)
        return texts

    @property
    def is_known(self) -> bool:
        """Return whether some price is known."""
        return any(piece.per_node is not None for piece in self.every)

    @property
    def text(self) -> str:
        """The cost at least and at most, without the pieces that have no known price."""
        if self.unknown and not self.is_known:
            return "unknown"
        return f"{'at least ' if self.unknown else ''}{range_text(*self.at_least)}"

    @property
    def at_least(self) -> tuple[Decimal, Decimal]:
        """The known cost with the fewest and with the most nodes."""
        fewest = most = Decimal(0)
        for piece in self.every:
            fewest += piece.per_hour_min or 0
            most += piece.per_hour_max or 0
        return fewest, most


def range_text(*amounts: Decimal | None) -> str:
    """Return an amount, or one at least and one at most, for people."""
    shown = ["unknown" if amount is None else f"{amount:,.2f}" for amount in amounts]
    return " to ".join(dict.fromkeys(shown))


def times(price: Decimal | None, count: int) -> Decimal | None:
    """Return the price of several pieces; none cost nothing, even if the price is not known."""
    if not count:
        return Decimal(0)
    return None if price is None else price * count


def sum_known(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """Return a sum; None if an amount is not known."""
    total = Decimal(0)
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def cost_of(nodes: Iterable[NodeClass], stored: Iterable[Stored] = ()) -> Cost:
    """Return the cost of nodes, and of the volumes of claims, by the catalog's list prices."""
    nodes = [*nodes]
    region = _region_of(nodes)
    pools: list[PoolCost] = []
    for node in nodes:
        needed = () if node.unknown else (labels.INSTANCE_TYPE, labels.REGION)
        missing = next((label for label in needed if label not in node.labels), "")
        pools.append(PoolCost(node.name, price_of(node), node.fewest, node.count, missing))
    # The price of a machine excludes the disk that a node starts from.
    storage: list[PoolCost] = []
    for node in nodes:
        gib = annotations_of(node.manifest).get(BOOT_DISK_GIB)
        kind = node.labels.get(labels.GKE_BOOT_DISK)
        if gib is not None and isinstance(kind, str):
            name = f"boot disks of {node.name} ({gib} GiB of {kind})"
            disk = {kind: whole_number(gib)}
            storage.append(piece(name, _region_of([node]), disk, node.fewest, node.count))
    for volume in stored:
        storage.append(piece(str(volume), region, volume.billed, volume.number, volume.number))
    return Cost(tuple(pools), tuple(storage), region=region)


def _region_of(nodes: Iterable[NodeClass]) -> str | None:
    regions = {node.labels.get(labels.REGION) for node in nodes if not node.unknown}
    region = regions.pop() if len(regions) == 1 else None
    return region if isinstance(region, str) else None


def piece(
    name: str, region: str | None, billed: Mapping[str, int], fewest: int = 1, most: int = 1
) -> PoolCost:
    """Return the cost of pieces that are alike; one is billed by rows of ``charges.csv``."""
    price = Decimal(0)
    is_stand_in = False
    for row, amount in billed.items():
        priced = charge(row, region) if region else None
        if priced is None:
            return PoolCost(name, None, fewest, most)
        price += priced[0] * amount
        is_stand_in |= priced[1]
    if not billed:
        return PoolCost(name, None, fewest, most)
    marked = f"{name}, at the price of {STAND_IN}" if is_stand_in else name
    return PoolCost(marked, price, fewest, most)


def price_of(node: NodeClass) -> Decimal | None:
    """Return the hourly price of one node, by its annotation or machine type, if it is known."""
    annotated = annotations_of(node.manifest).get(labels.HOURLY_PRICE)
    if declared := annotated or node.labels.get(labels.HOURLY_PRICE):
        try:
            price = Decimal(str(declared))
        except InvalidOperation:  # not known yet
            return None
        return price if price.is_finite() else None
    machine = machine_of(node)
    region = node.labels.get(labels.REGION)
    gpu = node.labels.get(labels.GKE_ACCELERATOR)
    if machine is None or not isinstance(region, str):
        return None
    if gpu is not None and not machine.gpu_counts(gpu):
        return None
    count = node.labels.get(labels.GKE_ACCELERATOR_COUNT) or gpus(node.allocatable)
    is_spot = node.labels.get(labels.GKE_SPOT) == "true"
    return machine.price(region, gpu, whole_number(count), spot=is_spot)


def platform_cost(
    resources: Sequence[Resource], nodes: Sequence[NodeClass], region: str | None
) -> Iterator[PoolCost]:
    """Yield the cost of clusters, Cloud NAT and external addresses; traffic is not counted."""
    fewest = most = 0
    for node in nodes:
        if not node.unknown:
            fewest = fewest + node.fewest
            most = most + node.count
    fewest = min(fewest, _MOST_NAT_VMS)
    most = min(most, _MOST_NAT_VMS)
    for type_, inputs in resources:
        name = inputs.get("name")
        own_region = inputs.get("region")
        place = region or (own_region if isinstance(own_region, str) else None)
        if type_ == CLUSTER:
            yield piece(f"GKE's fee for cluster {name}", place, {"cluster": 1})
        if type_ == NAT:
            addresses = max(1, len(items(inputs, "natIps")))
            yield piece(f"VMs of Cloud NAT {name}", place, {"nat": 1}, fewest, most)
            yield piece(f"addresses of Cloud NAT {name}", place, {"address": addresses})
        # The range of private services access is free.
        if type_ in ADDRESSES and inputs.get("addressType") != "INTERNAL":
            yield piece(f"address {name}", place, {"address": 1})


def over_budget(cost: Cost, monthly_budget: Decimal) -> Finding | None:
    """Return the finding on a stack that may cost more in a month than the budget, if it may."""
    most = cost.at_least[1] * HOURS_PER_MONTH
    is_partial = bool(cost.unknown)
    unpriced = f"no price is known for {', '.join(cost.unknown)}"
    if most > monthly_budget:
        dearest = max(cost.every, key=lambda piece: piece.per_hour_max or Decimal(0))
        size = f"the size of {dearest.name}"
        if dearest in cost.pools:
            size = f'the maximum of the dearest pool "{dearest.name}" ({dearest.most} nodes)'
        severe = error
        remedy = f"Lower {size}, or raise the budget."
        message = (
            f"at their most, the {cost.what} cost {'at least ' if is_partial else ''}{most:.0f} "
            f"{cost.currency} in a month of {HOURS_PER_MONTH} h, {most - monthly_budget:.0f} above "
            f"the budget of {monthly_budget:.0f}{f'; {unpriced}' if is_partial else ''}"
        )
    elif is_partial:
        severe = warning
        others = f"other resources cost {most:.0f} at most"
        message = f"the cost cannot be compared with the budget: {unpriced}; {others}"
        label = f"the label {labels.HOURLY_PRICE} of its nodes"
        remedy = f"Set the price: node_price of the pool, or {label}."
    else:
        return None
    return severe("monthly-budget", "stack", "monthly_budget", message, remedy)


@dataclass(frozen=True)
class RunCost:
    """The most that a run costs: its nodes of the cheapest pool, for as long as it may last."""

    pool: str
    nodes: int
    hours: Decimal
    amount: Decimal


def run_cost(pods: Demand, seconds: int) -> RunCost | None:
    """Return the cost of a run of at most this many seconds; None if no price is known."""
    hours = Decimal(seconds) / 3600
    costs: list[RunCost] = []
    for group in pods.node_groups:
        room = group.room(pods.pod)
        price = price_of(group.node)
        if room and price is not None:
            needed = (pods.count + room - 1) // room
            nodes = min(group.count, needed)
            costs.append(RunCost(group.node.name, nodes, hours, price * nodes * hours))
    return min(costs, key=lambda cost: cost.amount, default=None)


@dataclass(frozen=True)
class GpuCost:
    """The cost of the GPUs of a workload or a team in US dollars; None if no price is known."""

    gpus: int
    """The most that can be in use at once."""
    per_hour: Decimal | None
    """Their part of the price of the nodes that hold them."""
    per_run: Decimal | None = None
    """The same for as long as a run may last; None if nothing limits it."""
    at_least: bool = False
    """Whether there may be more pods than the one of each template that counts."""
    per_month: Decimal | None = None
    """The cost in a month of 730 hours of those that stay; None if none stay."""

    @property
    def count(self) -> str:
        """The number of GPUs in words."""
        return f"{'at least ' if self.at_least else ''}{number(self.gpus, 'GPU')}"


class _Offer(NamedTuple):
    """The GPUs of a node group."""

    group: NodeGroup
    gpus: int
    """The number on each node."""
    price: Decimal | None
    """The price of one per hour; None if it is not known."""


class GpuPrices:
    """The prices of GPUs for pods: those of the cheapest nodes that accept them."""

    def __init__(self, cluster: Cluster, quotas: Mapping[str, Sequence[Quota]]) -> None:
        self._cluster = cluster
        self._quotas = quotas

    def of_teams(
        self, workloads: Iterable[AdmittedWorkload], foreign: Iterable[object]
    ) -> dict[str, GpuCost]:
        """Return the cost of the GPUs of each namespace."""
        teams: dict[str, list[AdmittedWorkload]] = {}
        for admitted in workloads:
            teams.setdefault(str(admitted.workload.namespace), []).append(admitted)
        open_ended = list(foreign)
        costs = dict[str, GpuCost]()
        for team, members in sorted(teams.items()):
            # Workloads of ``foreign`` kinds may have more pods than planning knows.
            is_open = any(member.workload in open_ended for member in members)
            if cost := self.of(members, at_least=is_open):
                costs[team] = cost
        return costs

    def of(self, workloads: list[AdmittedWorkload], *, at_least: bool) -> GpuCost | None:
        """Return the cost of the GPUs of workloads; None without GPUs."""
        pod_sets = chain.from_iterable(admitted.pod_sets for admitted in workloads)
        if not any(gpus(pod.requests) for _, pod in pod_sets):
            return None
        count, per_hour = self._at_once(workloads)
        if not count:
            return None
        kept, kept_per_hour = self._at_once([w for w in workloads if not w.workload.ends])
        per_month = None if not kept or kept_per_hour is None else kept_per_hour * HOURS_PER_MONTH
        seconds = workloads[0].workload.deadline if len(workloads) == 1 else None
        per_run = None if per_hour is None or seconds is None else per_hour * seconds / 3600
        return GpuCost(count, per_hour, per_run, at_least, per_month)

    def _at_once(self, workloads: Iterable[AdmittedWorkload]) -> tuple[int, Decimal | None]:
        """Return how many GPUs workloads can use at once, and their price per hour."""
        # Each takes the cheapest ones that are left.
        left = {offer.group: offer.group.count * offer.gpus for offer in self._by_price}
        count = 0
        prices = list[Decimal | None]()
        for use in gpu_uses(workloads, self._quotas, self._cluster.queues):
            missing = use.gpus
            cluster = self._cluster
            able = set(cluster.large_enough(use.pod) or cluster.accepting(use.pod))
            offers = [offer for offer in self._by_price if offer.group in able]
            for offer in offers:
                taken = min(missing, left[offer.group])
                left[offer.group] -= taken
                missing -= taken
                count += taken
                prices.append(times(offer.price, taken))
            if missing and not (offers and use.ends):
                # These pods do not wait for others to end: the stack needs more nodes.
                count += missing
                prices.append(times(offers[0].price if offers else None, missing))
        return count, sum_known(prices)

    @cached_property
    def _by_price(self) -> list[_Offer]:
        """The offers of all node groups with GPUs, the cheapest GPUs first."""
        offers: list[_Offer] = []
        for group in self._cluster.node_groups:
            if count := gpus(group.node.allocatable):
                price = price_of(group.node)
                offers.append(_Offer(group, count, None if price is None else price / count))
        return sorted(offers, key=lambda offer: (offer.price is None, offer.price or 0))
