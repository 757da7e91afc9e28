"""What nodes cost, by the list prices of the catalog."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import annotations_of
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.places import Demand
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.verdict.findings import Finding, Severity

HOURS_PER_MONTH = 730
"""A year's hours by twelve, as cloud price lists count a month."""


@dataclass(frozen=True)
class PoolCost:
    """What the nodes of one class cost per hour; None where the price is not known."""

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
    """What all nodes cost per hour.

    Attributes:
        per_hour_min: With the fewest nodes; None where a price is not known.
        per_hour_max: With the most nodes; None where a price is not known.
        pools: The cost of each class of nodes.
        currency: The currency of all amounts.
        unpriced: What is billed beside them and has no known price: disks by their speed.
    """

    per_hour_min: Decimal | None
    per_hour_max: Decimal | None
    pools: tuple[PoolCost, ...] = ()
    currency: str = "USD"
    unpriced: tuple[str, ...] = ()

    @property
    def unknown(self) -> list[str]:
        """What has no known price: pools, and what is billed beside them."""
        return [*sorted({pool.name for pool in self.pools if pool.per_node is None and pool.most}), *self.unpriced]

    @property
    def at_least(self) -> tuple[Decimal, Decimal]:
        """With the fewest and with the most nodes, without those whose price is not known."""
        fewest = sum((pool.per_hour_min or Decimal(0) for pool in self.pools), Decimal(0))
        return fewest, sum((pool.per_hour_max or Decimal(0) for pool in self.pools), Decimal(0))


def cost_of(nodes: Iterable[NodeClass], unpriced: Iterable[str] = ()) -> Cost:
    """The cost of nodes by the catalog's list prices; not known with what has no price."""
    pools, others = tuple(PoolCost(node.name, price_of(node), node.fewest, node.count) for node in nodes), (*unpriced,)
    unknown = [None for _ in others]
    fewest = sum_known([*(pool.per_hour_min for pool in pools), *unknown])
    return Cost(fewest, sum_known([*(pool.per_hour_max for pool in pools), *unknown]), pools, unpriced=others)


def _amount(declared: object) -> Decimal | None:
    """A declared price; None where it is none, or not known yet."""
    try:
        return Decimal(str(declared))
    except InvalidOperation:
        return None


def price_of(node: NodeClass) -> Decimal | None:
    """The hourly price of one node, by its annotation or its machine type; None where it is not known."""
    annotated = annotations_of(node.manifest).get(labels.HOURLY_PRICE)
    if declared := annotated or node.labels.get(labels.HOURLY_PRICE):
        return _amount(declared)
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
        f"at their most, the nodes cost {'at least ' if cost.unknown else ''}{most:.0f} {cost.currency} in a month of "
        f"{HOURS_PER_MONTH} h, {most - monthly_budget:.0f} above the budget of {monthly_budget:.0f}"
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
    total = Decimal(0)
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
