"""What nodes, and disks by their speed, cost by the list prices of the catalog."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from ml_foundations.catalog.machine_types import list_price
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.places import Demand
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.volumes import BILLED_BY_SPEED
from ml_foundations.planning.verdict.findings import Finding, Severity

HOURS_PER_MONTH = 730
"""A year's hours by twelve, as cloud price lists count a month."""


@dataclass(frozen=True)
class PoolCost:
    """What the nodes of one class, or the disks of one claim, cost per hour; None where the price is not known."""

    name: str
    per_node: Decimal | None
    fewest: int
    most: int

    @property
    def per_hour_min(self) -> Decimal | None:
        """With the fewest nodes; no node costs nothing, whatever its price."""
        return self._of(self.fewest)

    @property
    def per_hour_max(self) -> Decimal | None:
        """With the most nodes."""
        return self._of(self.most)

    def _of(self, count: int) -> Decimal | None:
        if not count:
            return Decimal(0)
        return None if self.per_node is None else self.per_node * count


@dataclass(frozen=True)
class Cost:
    """What all nodes cost per hour, and, as if they were nodes, disks whose speed is billed apart from their size."""

    pools: tuple[PoolCost, ...] = ()
    disks: tuple[PoolCost, ...] = ()
    currency: str = "USD"

    @property
    def per_hour_min(self) -> Decimal | None:
        """With the fewest nodes; None where a price is not known."""
        return sum_known(each.per_hour_min for each in (*self.pools, *self.disks))

    @property
    def per_hour_max(self) -> Decimal | None:
        """With the most nodes; None where a price is not known."""
        return sum_known(each.per_hour_max for each in (*self.pools, *self.disks))

    @property
    def what(self) -> str:
        """What is counted, in words."""
        return "nodes and the speed of disks" if self.disks else "nodes"

    @property
    def unknown(self) -> list[str]:
        """What has no known price."""
        every = (*sorted(self.pools, key=lambda pool: pool.name), *self.disks)
        return list(dict.fromkeys(each.name for each in every if each.per_node is None and each.most))

    @property
    def is_known(self) -> bool:
        """Whether any of it is."""
        return any(pool.per_node is not None for pool in self.pools)

    @property
    def text(self) -> str:
        """What all nodes cost at least and at most, without those whose price is not known."""
        if self.unknown and not self.is_known:
            return "unknown"
        return f"{'at least ' if self.unknown else ''}{range_text(*self.at_least)}"

    @property
    def at_least(self) -> tuple[Decimal, Decimal]:
        """With the fewest and with the most nodes, without what has no known price."""
        every = (*self.pools, *self.disks)
        fewest = sum((each.per_hour_min or Decimal(0) for each in every), Decimal(0))
        return fewest, sum((each.per_hour_max or Decimal(0) for each in every), Decimal(0))


def range_text(*amounts: Decimal | None) -> str:
    """An amount, or one at least and one at most, for people."""
    shown = ["unknown" if amount is None else f"{amount:,.2f}" for amount in amounts]
    return " to ".join(dict.fromkeys(shown))


def cost_of(nodes: Iterable[NodeClass], disks: Iterable[tuple[str, int, int]] = ()) -> Cost:
    """The cost by the catalog's list prices of nodes, and of disks: what each is, its MiB/s and how many there are."""
    nodes = [*nodes]
    regions = {node.labels.get(labels.REGION) for node in nodes}
    region = regions.pop() if len(regions) == 1 else None
    per_mib = list_price(BILLED_BY_SPEED, region) if isinstance(region, str) else None
    speeds = [(what, per_mib * mib if per_mib and mib else None, count, count) for what, mib, count in disks]
    pools = (PoolCost(node.name, price_of(node), node.fewest, node.count) for node in nodes)
    return Cost(tuple(pools), tuple(PoolCost(*speed) for speed in speeds))


def price_of(node: NodeClass) -> Decimal | None:
    """The hourly price of one node, by its annotation or its machine type; None where it is not known."""
    annotated = annotations_of(node.manifest).get(labels.HOURLY_PRICE)
    if declared := annotated or node.labels.get(labels.HOURLY_PRICE):
        try:
            return Decimal(str(declared))
        except InvalidOperation:  # not known yet
            return None
    machine, gpu, region = machine_of(node), node.labels.get(labels.GKE_ACCELERATOR), node.labels.get(labels.REGION)
    if machine is None or not isinstance(region, str) or (gpu is not None and not machine.gpu_counts(gpu)):
        return None
    count = node.labels.get(labels.GKE_ACCELERATOR_COUNT) or gpus(node.allocatable)
    return machine.price(region, gpu, int(count), spot=node.labels.get(labels.GKE_SPOT) == "true")


def over_budget(cost: Cost, monthly_budget: Decimal) -> Finding | None:
    """The finding on a stack whose nodes may cost more in a month than the budget; None where they cannot."""
    most = cost.at_least[1] * HOURS_PER_MONTH
    missing = f"no price is known for {', '.join(cost.unknown)}"
    if most <= monthly_budget:
        if not cost.unknown:
            return None
        message = f"the cost cannot be compared with the budget: {missing}; the others cost {most:.0f} at most"
        remedy = f"Give the price: node_price of the pool, or {labels.HOURLY_PRICE} as a label of its nodes."
        return Finding("monthly-budget", Severity.WARNING, "stack", "monthly_budget", message, remedy)
    dearest = max(cost.pools, key=lambda pool: pool.per_hour_max or Decimal(0))
    message = (
        f"at their most, the {cost.what} cost {'at least ' * bool(cost.unknown)}{most:.0f} {cost.currency} in a month "
        f"of {HOURS_PER_MONTH} h, {most - monthly_budget:.0f} above the budget of {monthly_budget:.0f}"
        f"{f'; {missing}' if cost.unknown else ''}"
    )
    remedy = f'Lower the maximum of the dearest pool "{dearest.name}" ({dearest.most} nodes), or raise the budget.'
    return Finding("monthly-budget", Severity.ERROR, "stack", "monthly_budget", message, remedy)


@dataclass(frozen=True)
class RunCost:
    """What a run costs at most: its nodes of the cheapest pool that takes it, for as long as it may last."""

    pool: str
    nodes: int
    hours: Decimal
    amount: Decimal


def run_cost(demand: Demand, seconds: int) -> RunCost | None:
    """What a run of at most this many seconds costs; None where no price is known."""
    hours = Decimal(seconds) / 3600
    costs = [
        RunCost(place.node.name, nodes, hours, price * nodes * hours)
        for place in demand.places
        if (room := place.room(demand.pod)) and (price := price_of(place.node)) is not None
        for nodes in [min(place.count, -(-demand.count // room))]
    ]
    return min(costs, key=lambda cost: cost.amount, default=None)


def sum_known(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """A sum; None where an amount is not known."""
    every = list(amounts)
    return None if None in every else sum(filter(None, every), Decimal(0))
