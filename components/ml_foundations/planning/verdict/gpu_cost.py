"""What the GPUs of workloads and teams cost: their part of the price of the nodes that hold them."""

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal

from ml_foundations.catalog.charges import HOURS_PER_MONTH
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import Candidate
from ml_foundations.planning.model.places import PodClass
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.verdict.cost import price_of, sum_known


@dataclass(frozen=True)
class GpuCost:
    """What GPUs cost in US dollars; None where no price is known.

    Attributes:
        gpus: How many, while all pods run.
        per_hour: Their part of the price of their nodes.
        per_run: The same for as long as a run may last; None where nothing limits it.
        at_least: Whether there may be more pods: of a kind that planning does not know, one of each template counts.
    """

    gpus: int
    per_hour: Decimal | None
    per_run: Decimal | None = None
    at_least: bool = False

    @property
    def count(self) -> str:
        """How many, in words."""
        return f"{'at least ' if self.at_least else ''}{self.gpus} GPU{'' if self.gpus == 1 else 's'}"

    @property
    def per_month(self) -> Decimal | None:
        """What they cost if they are taken for all of a month of 730 hours."""
        return None if self.per_hour is None else self.per_hour * HOURS_PER_MONTH


class GpuPrices:
    """The price of a GPU for pods: that of the cheapest node which takes them, by the GPUs that it offers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[Hashable, Decimal | None] = {}

    def of(self, candidate: Candidate, *, at_least: bool) -> GpuCost | None:
        """What the GPUs of a workload cost, or with ``at_least`` those that are known; None where it requests none."""
        counts = [(pod_set.count * gpus(pod.requests), pod) for pod_set, pod in candidate.sets]
        found = [(count, self._price(pod)) for count, pod in counts if count]
        if not found:
            return None
        per_hour = sum_known(None if price is None else price * count for count, price in found)
        seconds = candidate.workload.deadline
        per_run = None if per_hour is None or seconds is None else per_hour * seconds / 3600
        return GpuCost(sum(count for count, _ in found), per_hour, per_run, at_least)

    def _price(self, pod: PodClass) -> Decimal | None:
        key = pod.node_key if pod.volume_refusals is None else (pod.name, pod.node_key)
        if key not in self._known:
            nodes = [(place.node, gpus(place.node.allocatable)) for place in self._cluster.accepting(pod)]
            prices = (price / count for node, count in nodes if count and (price := price_of(node)) is not None)
            self._known[key] = min(prices, default=None)
        return self._known[key]
