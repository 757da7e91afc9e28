"""The cost of nodes, storage, clusters and networks by the list prices of the catalog."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from ml_foundations.catalog.charges import HOURS_PER_MONTH, STAND_IN, charge
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of
from ml_foundations.planning.model.node_groups import PodGroup
from ml_foundations.planning.model.nodes import BOOT_DISK_GIB, NodeClass, machine_of
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.verdict.findings import Finding, Severity

NOT_COUNTED = "traffic, logs, flow logs, snapshots, the speed of Hyperdisk other than ML, and the credit of GKE's free tier"
"""What a bill has and no price here covers."""


@dataclass(frozen=True)
class PoolCost:
    """The cost per hour of the nodes of one class, or of other pieces that are alike; None if no price is known."""

    name: str
    per_node: Decimal | None
    fewest: int
    most: int
    missing: str = ""
    """The label without which no price is known."""

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
    """The cost of a stack per hour: of its nodes and of what else the catalog has a price for."""

    pools: tuple[PoolCost, ...] = ()
    storage: tuple[PoolCost, ...] = ()
    """Disks that nodes start from, the volumes of claims, and the speed of those that are billed by it."""
    platform: tuple[PoolCost, ...] = ()
    """Clusters, Cloud NAT and addresses."""
    currency: str = "USD"
    region: str | None = None
    """The region of all nodes; None if it is not known, or there are several."""

    @property
    def parts(self) -> dict[str, "Cost"]:
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
        """With the fewest nodes; None where a price is not known."""
        return sum_known(each.per_hour_min for each in self.every)

    @property
    def per_hour_max(self) -> Decimal | None:
        """With the most nodes; None where a price is not known."""
        return sum_known(each.per_hour_max for each in self.every)

    @property
    def what(self) -> str:
        """What is counted, in words."""
        return ", ".join(self.parts) or "nodes"

    @property
    def unknown(self) -> list[str]:
        """What has no known price."""
        every = (*sorted(self.pools, key=lambda pool: pool.name), *self.storage, *self.platform)
        return list(
            dict.fromkeys(each.name for each in every if each.per_node is None and each.most)
        )

    @property
    def unpriced(self) -> list[str]:
        """What has no known price, with the label that is missing."""
        missing = {
            each.name: f" (label {each.missing} is missing)" for each in self.every if each.missing
        }
        return [f"{name}{missing.get(name, '')}" for name in self.unknown]

    @property
    def is_known(self) -> bool:
        """Whether any of it is."""
        return any(each.per_node is not None for each in self.every)

    @property
    def text(self) -> str:
        """The cost at least and at most, without what has no known price."""
        if self.unknown and not self.is_known:
            return "unknown"
        return f"{'at least ' if self.unknown else ''}{range_text(*self.at_least)}"

    @property
    def at_least(self) -> tuple[Decimal, Decimal]:
        """With the fewest and with the most nodes, without what has no known price."""
        fewest = sum((each.per_hour_min or Decimal(0) for each in self.every), Decimal(0))
        return fewest, sum((each.per_hour_max or Decimal(0) for each in self.every), Decimal(0))


def range_text(*amounts: Decimal | None) -> str:
    """An amount, or one at least and one at most, for people."""
    shown = ["unknown" if amount is None else f"{amount:,.2f}" for amount in amounts]
    return " to ".join(dict.fromkeys(shown))


def cost_of(nodes: Iterable[NodeClass], stored: Iterable[Stored] = ()) -> Cost:
    """Return the cost of nodes, and of the volumes of claims, by the catalog's list prices."""
    nodes = [*nodes]
    region = _region_of(nodes)
    pools = (
        PoolCost(node.name, price_of(node), node.fewest, node.count, _missing_label(node))
        for node in nodes
    )
    volumes = (piece(str(each), region, each.billed, each.number, each.number) for each in stored)
    return Cost(tuple(pools), (*_boot_disks(nodes), *volumes), region=region)


def _missing_label(node: NodeClass) -> str:
    needed = () if node.unknown else (labels.INSTANCE_TYPE, labels.REGION)
    return next((name for name in needed if name not in node.labels), "")


def _region_of(nodes: Iterable[NodeClass]) -> str | None:
    regions = {node.labels.get(labels.REGION) for node in nodes if not node.unknown}
    region = regions.pop() if len(regions) == 1 else None
    return region if isinstance(region, str) else None


def piece(
    name: str, region: str | None, billed: Mapping[str, int], fewest: int = 1, most: int = 1
) -> PoolCost:
    """Return the cost of pieces that are alike: each is so much of some rows of ``charges.csv``."""
    found = [(charge(row, region) if region else None, amount) for row, amount in billed.items()]
    known = [(*price, amount) for price, amount in found if price]
    if not billed or len(known) < len(found):
        return PoolCost(name, None, fewest, most)
    marked = (
        f"{name}, at the price of {STAND_IN}" if any(is_other for _, is_other, _ in known) else name
    )
    return PoolCost(
        marked, sum((price * amount for price, _, amount in known), Decimal(0)), fewest, most
    )


def _boot_disks(nodes: Iterable[NodeClass]) -> Iterator[PoolCost]:
    """Yield the cost of the disks that nodes of pools start from: the price of a machine does not hold them."""
    for node in nodes:
        gib, kind = (
            annotations_of(node.manifest).get(BOOT_DISK_GIB),
            node.labels.get(labels.GKE_BOOT_DISK),
        )
        if gib is not None and isinstance(kind, str):
            name = f"boot disks of {node.name} ({gib} GiB of {kind})"
            yield piece(name, _region_of([node]), {kind: int(gib)}, node.fewest, node.count)


def price_of(node: NodeClass) -> Decimal | None:
    """The hourly price of one node, by its annotation or its machine type; None where it is not known."""
    annotated = annotations_of(node.manifest).get(labels.HOURLY_PRICE)
    if declared := annotated or node.labels.get(labels.HOURLY_PRICE):
        try:
            return Decimal(str(declared))
        except InvalidOperation:  # not known yet
            return None
    machine, gpu, region = (
        machine_of(node),
        node.labels.get(labels.GKE_ACCELERATOR),
        node.labels.get(labels.REGION),
    )
    if (
        machine is None
        or not isinstance(region, str)
        or (gpu is not None and not machine.gpu_counts(gpu))
    ):
        return None
    count = node.labels.get(labels.GKE_ACCELERATOR_COUNT) or gpus(node.allocatable)
    return machine.price(region, gpu, int(count), spot=node.labels.get(labels.GKE_SPOT) == "true")


def over_budget(cost: Cost, monthly_budget: Decimal) -> Finding | None:
    """Return the finding on a stack that may cost more in a month than the budget; None if it cannot."""
    most = cost.at_least[1] * HOURS_PER_MONTH
    missing = f"no price is known for {', '.join(cost.unknown)}"
    if most <= monthly_budget:
        if not cost.unknown:
            return None
        message = f"the cost cannot be compared with the budget: {missing}; the others cost {most:.0f} at most"
        remedy = f"Give the price: node_price of the pool, or {labels.HOURLY_PRICE} as a label of its nodes."
        return Finding(
            "monthly-budget", Severity.WARNING, "stack", "monthly_budget", message, remedy
        )
    dearest = max(cost.every, key=lambda each: each.per_hour_max or Decimal(0))
    message = (
        f"at their most, the {cost.what} cost {'at least ' * bool(cost.unknown)}{most:.0f} {cost.currency} in a month "
        f"of {HOURS_PER_MONTH} h, {most - monthly_budget:.0f} above the budget of {monthly_budget:.0f}"
        f"{f'; {missing}' if cost.unknown else ''}"
    )
    what = f'the dearest pool "{dearest.name}" ({dearest.most} nodes)'
    what = f"the maximum of {what}" if dearest in cost.pools else f"the size of {dearest.name}"
    remedy = f"Lower {what}, or raise the budget."
    return Finding("monthly-budget", Severity.ERROR, "stack", "monthly_budget", message, remedy)


@dataclass(frozen=True)
class RunCost:
    """What a run costs at most: its nodes of the cheapest pool that takes it, for as long as it may last."""

    pool: str
    nodes: int
    hours: Decimal
    amount: Decimal


def run_cost(demand: PodGroup, seconds: int) -> RunCost | None:
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
