"""The cost of the GPUs of workloads and teams: their part of the price of the nodes that hold them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ml_foundations.catalog.charges import HOURS_PER_MONTH
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.verdict.cost import price_of, sum_known
from ml_foundations.planning.verdict.gpu_limits import GpuLimits


@dataclass(frozen=True)
class GpuCost:
    """The cost of GPUs in US dollars; None if no price is known.

    Attributes:
        gpus: The most that can be in use at once.
        per_hour: Their part of the price of their nodes.
        per_run: The same for as long as a run may last; None if nothing limits it.
        at_least: Whether there may be more pods: of a kind that planning does not know, one of each template counts.
        per_month: The cost in a month of 730 hours of those that stay; None if none stay.
    """

    gpus: int
    per_hour: Decimal | None
    per_run: Decimal | None = None
    at_least: bool = False
    per_month: Decimal | None = None

    @property
    def count(self) -> str:
        """The number of GPUs in words."""
        return f"{'at least ' if self.at_least else ''}{number(self.gpus, 'GPU')}"


class GpuPrices:
    """The price of GPUs for pods: that of the cheapest nodes that accept them, as far as these have GPUs."""

    def __init__(self, cluster: Cluster, quotas: Mapping[str, Sequence[Quota]]) -> None:
        """Take the nodes and queues of a cluster, and the ResourceQuotas of each namespace."""
        self._cluster, self._limits = cluster, GpuLimits(quotas, cluster.queues)

    def of(self, candidate: AdmittedWorkload, *, at_least: bool) -> GpuCost | None:
        """Return the cost of a workload's GPUs, or with ``at_least`` of those that are known; None without GPUs."""
        return self._cost([candidate], at_least=at_least)

    def of_teams(
        self, candidates: Iterable[AdmittedWorkload], foreign: Iterable[object]
    ) -> dict[str, GpuCost]:
        """Return the cost of the GPUs of each namespace; workloads of ``foreign`` kinds may have more pods."""
        teams: dict[str, list[AdmittedWorkload]] = {}
        for candidate in candidates:
            teams.setdefault(str(candidate.workload.namespace), []).append(candidate)
        open_ended = list(foreign)
        costs = {
            team: self._cost(members, at_least=any(each.workload in open_ended for each in members))
            for team, members in sorted(teams.items())
        }
        return {team: cost for team, cost in costs.items() if cost}

    def _cost(self, candidates: list[AdmittedWorkload], *, at_least: bool) -> GpuCost | None:
        if not any(gpus(pod.requests) for candidate in candidates for _, pod in candidate.pod_sets):
            return None
        count, per_hour = self._at_once(candidates)
        if not count:
            return None
        staying = [each for each in candidates if not each.workload.ends]
        kept, kept_per_hour = self._at_once(staying)
        per_month = None if not kept or kept_per_hour is None else kept_per_hour * HOURS_PER_MONTH
        seconds = candidates[0].workload.deadline if len(candidates) == 1 else None
        per_run = None if per_hour is None or seconds is None else per_hour * seconds / 3600
        return GpuCost(count, per_hour, per_run, at_least, per_month)

    def _at_once(self, candidates: Iterable[AdmittedWorkload]) -> tuple[int, Decimal | None]:
        """Return how many GPUs workloads can use at once, and their price per hour: each takes the cheapest left."""
        free = {
            id(place): place.count * gpus(place.node.allocatable) for place in self._cluster.places
        }
        count, prices = 0, list[Decimal | None]()
        for use in self._limits.uses(candidates):
            wanted, offers = use.gpus, self._offers(use.pod)
            for price, place in offers:
                taken = min(wanted, free[id(place)])
                free[id(place)] -= taken
                wanted -= taken
                count += taken
                prices.append(_times(price, taken))
            if wanted and not (offers and use.ends):
                # These pods do not wait for others to end: the stack needs more nodes.
                count += wanted
                prices.append(_times(offers[0][0] if offers else None, wanted))
        return count, sum_known(prices)

    def _offers(self, pod: PodClass) -> list[tuple[Decimal | None, NodeGroup]]:
        """Return the places with GPUs that accept a pod, with the price of a GPU, the cheapest first."""
        offers: list[tuple[Decimal | None, NodeGroup]] = []
        for place in self._cluster.accepting(pod):
            if count := gpus(place.node.allocatable):
                price = price_of(place.node)
                offers.append((None if price is None else price / count, place))
        return sorted(offers, key=lambda offer: (offer[0] is None, offer[0] or 0))


def _times(price: Decimal | None, count: int) -> Decimal | None:
    """Return the price of several GPUs; no GPU costs nothing."""
    if not count:
        return Decimal(0)
    return None if price is None else price * count
