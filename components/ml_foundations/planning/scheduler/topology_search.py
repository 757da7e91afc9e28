"""Kueue's topology-aware scheduling: the domains in which it places the pods of a workload.

Follows pkg/cache/scheduler/tas_flavor_snapshot.go of Kueue v0.19.2 with its default feature gates.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from ml_foundations.kubernetes.quantities import Amounts
from ml_foundations.planning.scheduler.topology import (
    REQUIRED,
    UNCONSTRAINED,
    Assigned,
    Domain,
    Topology,
    TopologyPods,
    Usage,
)

NOTHING_EXCLUDED: Mapping[str, str] = MappingProxyType({})


def assign(
    topology: Topology,
    workers: TopologyPods,
    leader: TopologyPods | None = None,
    excluded: Mapping[str, str] = NOTHING_EXCLUDED,
    taken: Usage | None = None,
) -> Assigned:
    """Return the domains that Kueue assigns to pods, or why it finds none.

    Args:
        topology: The domains of a flavor's nodes.
        workers: The pods.
        leader: The leader of their group. Kueue applies the workers' conditions to it too.
        excluded: Nodes that refuse the pods, with the reason as Kueue counts it, such as
            ``nodeSelector``. It matters only if the last level is the host name.
        taken: What pods take of domains that Kueue has assigned before.
    """
    return _Search(topology, workers, leader, excluded, taken or {}).result()


class _Level(NamedTuple):
    """Domains of a level that together have room for all pods, or why there are none."""

    depth: int = 0
    domains: Sequence[Domain] = ()
    failure: str = ""


@dataclass
class _Search:
    """One search for domains; the steps have the names and the order of Kueue's."""

    topology: Topology
    workers: TopologyPods
    leader: TopologyPods | None
    excluded: Mapping[str, str]
    taken: Usage

    def __post_init__(self) -> None:
        if not self.topology.is_by_host:
            self.excluded = NOTHING_EXCLUDED
        self.exclusions = Counter[str]()
        self.layers = self.workers.request.slices
        self.size = self.layers[0].size if self.layers else 1
        self.leaders = 0 if self.leader is None else 1
        # Slices without a required or preferred level count as unconstrained.
        self.is_unconstrained = self.workers.request.mode == UNCONSTRAINED
        self.inner_sizes: dict[int, int] = {}
        self.requested = self.slice_level = 0

    def result(self) -> Assigned:
        if failure := self._levels():
            return Assigned(failure=failure)
        self._count_pods()
        level = self._fitting_level(self.requested)
        if level.failure:
            return Assigned(failure=level.failure)
        domains = self._descend(level.depth, level.domains)
        if self.leader is None:
            return Assigned(self.topology.assignment(domains))
        leader = self.topology.assignment(domains, leaders=True)
        return Assigned(self.topology.assignment(domains), leader)

    def _levels(self) -> str:
        """Find the requested level and that of the slices; return why they are invalid."""
        request = self.workers.request
        levels = self.topology.levels
        level = request.level
        if level is None:
            level = levels[0] if self.layers else levels[-1]
        if level not in levels:
            return f"no requested topology level: {level}"
        self.requested = levels.index(level)
        of_slices = self.layers[0].level if self.layers else levels[-1]
        if of_slices not in levels:
            return f"no requested topology level for slices: {of_slices}"
        self.slice_level = levels.index(of_slices)
        if self.requested > self.slice_level:
            return f"podset slice topology {of_slices} is above the podset topology {level}"
        size = self.size
        depth = self.slice_level
        for layer in self.layers[1:]:
            if layer.level not in levels:
                return f"no requested topology level for additional slice layer: {layer.level}"
            inner = levels.index(layer.level)
            if inner <= depth:
                above = f"{layer.level} must be at a lower level than {levels[depth]}"
                return f"additional slice layer topology {above}"
            if size % layer.size:
                division = f"{layer.size} must evenly divide parent layer size {size}"
                return f"additional slice layer size {division}"
            self.inner_sizes |= dict.fromkeys(range(depth + 1, inner + 1), layer.size)
            size = layer.size
            depth = inner
        return ""

    def _count_pods(self) -> None:
        """Count the pods that each domain has room for, from the smallest domains up."""
        self.topology.fill(self._fill_leaf)
        last = len(self.topology.levels) - 1
        for depth in range(last, -1, -1):
            for domain in self.topology.at(depth):
                if depth < last:
                    self._roll_up(domain, depth)
                if depth == self.slice_level:
                    domain.slices = domain.pods // self.size
                    domain.slices_with_leader = domain.pods_with_leader // self.size

    def _fill_leaf(self, leaf: Domain) -> None:
        # With the host name as last level, a leaf is one node.
        if self.excluded and leaf.nodes[0] in self.excluded:
            self.exclusions[self.excluded[leaf.nodes[0]]] += 1
            return
        requests = self.workers.requests
        free = leaf.free
        if self.taken:
            free = _without(free, self.taken.get(self.topology.shown(leaf), {}))
        leaf.pods, limiting = _count_in(requests, free)
        if not leaf.pods:
            self.exclusions[f'resource "{limiting}"'] += 1
        leaf.pods_with_leader = leaf.pods
        if self.leader is not None and _count_in(self.leader.requests, free)[0]:
            leaf.leaders = 1
            remaining = _without(free, self.leader.requests)
            leaf.pods_with_leader, _ = _count_in(requests, remaining)

    def _roll_up(self, domain: Domain, depth: int) -> None:
        size = self.inner_sizes.get(depth + 1, 1)
        pods = slices = leaders = 0
        pod_penalties: list[int] = []
        slice_penalties: list[int] = []
        for child in domain.children:
            # Only whole slices of an inner layer count.
            whole = child.pods // size * size
            pods += whole
            slices += child.slices
            leaders = max(leaders, child.leaders)
            if self.leader is None or child.leaders:
                pod_penalties.append(whole - child.pods_with_leader // size * size)
                slice_penalties.append(child.slices - child.slices_with_leader)
        domain.pods = pods
        domain.slices = slices
        domain.leaders = leaders
        if pod_penalties:
            domain.pods_with_leader = pods - min(pod_penalties)
            domain.slices_with_leader = slices - min(slice_penalties)

    def _fitting_level(self, depth: int) -> _Level:
        """Return the level with domains that have room for all pods."""
        topology = self.topology
        domains = sorted(topology.at(depth), key=self._key_with_leader)
        if not domains:
            return _Level(failure=f"no topology domains at level: {topology.levels[depth]}")
        needed = self.workers.count // self.size
        first = domains[0]
        if self.is_unconstrained:
            for domain in domains:
                if self._holds(domain, needed):
                    return _Level(depth, [domain])
        elif self._holds(first, needed):
            best = _best(domains, needed, self.leaders, _slices(self.leaders))
            return _Level(depth, [best])
        elif self.workers.request.mode == REQUIRED:
            return _Level(failure=self._not_fitting(depth, first.slices, needed))
        elif depth:
            return self._fitting_level(depth - 1)
        return self._several(depth, domains, needed)

    def _holds(self, domain: Domain, needed: int) -> bool:
        return domain.slices_with_leader >= needed and domain.leaders >= self.leaders

    def _several(self, depth: int, domains: Sequence[Domain], needed: int) -> _Level:
        """Return several domains of a level that together have room for all pods."""
        chosen: list[Domain] = []
        slices = needed
        leaders = self.leaders
        index = 0
        domains = self._leader_first(domains, self.workers.count, self.leaders, self.size, True)
        while leaders > 0 and index < len(domains) and domains[index].leaders > 0:
            domain = domains[index]
            if not self.is_unconstrained and domain.slices_with_leader >= slices:
                domain = _best(domains[index:], slices, leaders, _slices(leaders))
            chosen.append(domain)
            leaders -= domain.leaders
            slices -= domain.slices_with_leader
            index += 1
        if leaders > 0:
            return _Level(failure=self._not_fitting(depth, self.leaders - leaders, needed))
        remaining = sorted(domains[index:], key=self._key)
        for index, first in enumerate(remaining):
            if slices <= 0:
                break
            is_last = not self.is_unconstrained and first.slices >= slices
            domain = _best(remaining[index:], slices, 0, _slices(0)) if is_last else first
            chosen.append(domain)
            slices -= domain.slices
        if slices > 0:
            return _Level(failure=self._not_fitting(depth, needed - slices, needed))
        return _Level(depth, chosen)

    def _descend(self, depth: int, domains: Sequence[Domain]) -> list[Domain]:
        """Return the smallest domains with the pods that each gets."""
        last = len(self.topology.levels) - 1
        count = self.workers.count
        domains = self._distributed(domains, count, self.leaders, self.size, True)
        while depth < min(last, self.slice_level):
            children = [child for domain in domains for child in domain.children]
            ordered = sorted(children, key=self._key)
            domains = self._distributed(ordered, count, self.leaders, self.size, True)
            depth += 1
        while depth < last:
            size = self.inner_sizes.get(depth + 1, 1)
            lower: list[Domain] = []
            for domain in domains:
                children = sorted(domain.children, key=self._key)
                for child in children if size > 1 else ():
                    child.slices = child.pods // size
                    child.slices_with_leader = child.pods_with_leader // size
                lower += self._distributed(children, domain.pods, domain.leaders, size, size > 1)
            domains = lower
            depth = depth + 1
        return domains

    def _leader_first(
        self, domains: Sequence[Domain], count: int, leaders: int, size: int, by_slices: bool
    ) -> Sequence[Domain]:
        """Return domains, first one that may have the leader without losing needed capacity."""
        if not leaders or len(domains) < 2:
            return domains
        capacity = _slices(0)
        with_leader = _slices(1)
        if not by_slices:
            capacity = _pods(0)
            with_leader = _pods(1)
        spare = sum(map(capacity, domains)) - (count // size if by_slices else count)
        for index, domain in enumerate(domains):
            penalty = capacity(domain) - with_leader(domain)
            if domain.leaders >= leaders and penalty <= spare:
                return [domain, *domains[:index], *domains[index + 1 :]]
        return domains

    def _distributed(
        self, domains: Sequence[Domain], count: int, leaders: int, size: int, by_slices: bool
    ) -> list[Domain]:
        """Return the first domains that have room for pods, each with the pods that it gets."""
        chosen: list[Domain] = []
        remaining = count // size if by_slices else count
        domains = self._leader_first(domains, count, leaders, size, by_slices)
        capacity_of = _slices if by_slices else _pods
        for index, first in enumerate(domains):
            domain = first
            capacity = capacity_of(leaders)
            has_leaders = first.leaders >= leaders
            if not self.is_unconstrained and has_leaders and capacity(first) >= remaining:
                domain = _best(domains[index:], remaining, leaders, capacity)
            taken = min(capacity(domain), remaining)
            is_last = taken == remaining and domain.leaders >= leaders
            domain.leaders = min(domain.leaders, leaders)
            domain.pods = taken * size if by_slices else taken
            if by_slices:
                domain.slices = taken
            chosen.append(domain)
            if is_last:
                return chosen
            leaders -= domain.leaders
            remaining -= taken
        return []

    def _key(self, domain: Domain) -> tuple[int, int, tuple[str, ...]]:
        sign = 1 if self.is_unconstrained else -1
        return sign * domain.slices, domain.pods, domain.values

    def _key_with_leader(self, domain: Domain) -> tuple[int, int, int, tuple[str, ...]]:
        slices = domain.slices_with_leader * (1 if self.is_unconstrained else -1)
        return -domain.leaders, slices, domain.pods_with_leader, domain.values

    def _not_fitting(self, depth: int, fitting: int, needed: int) -> str:
        name = f'topology "{self.topology.name}"'
        if self.inner_sizes:
            # The slices of each layer that fit in the domain with most slices.
            best = min(self.topology.at(depth), key=lambda domain: (-domain.slices, domain.values))
            message = f"{name} doesn't allow to fit"
            for layer in self.layers:
                target = self.topology.levels.index(layer.level)
                in_layer = _slices_below(best, target - depth, layer.size)
                of_layer = self.workers.count // layer.size
                message += f"; {in_layer}/{of_layer} slice(s) fit on level {layer.level}"
        elif fitting == 0:
            message = f"{name} doesn't allow to fit any of {needed} {self._unit}"
        else:
            message = f"{name} allows to fit only {fitting} out of {needed} {self._unit}"
        if not self.exclusions:
            return message
        reasons = sorted(f"{reason}: {count}" for reason, count in self.exclusions.items())
        return f"{message}. Total nodes: {self.topology.size()}; excluded: {', '.join(reasons)}"

    @property
    def _unit(self) -> str:
        return "pod(s)" if self.size == 1 else "slice(s)"


def _slices_below(domain: Domain, levels: int, size: int) -> int:
    if not levels:
        return domain.pods // size
    return sum(_slices_below(child, levels - 1, size) for child in domain.children)


def _slices(leaders: int) -> Callable[[Domain], int]:
    """Return a function of the slices that a domain has room for, with a leader or without."""
    return attrgetter("slices_with_leader" if leaders else "slices")


def _pods(leaders: int) -> Callable[[Domain], int]:
    """Return a function of the pods that a domain has room for, with a leader or without."""
    return attrgetter("pods_with_leader" if leaders else "pods")


def _best(
    domains: Sequence[Domain], needed: int, leaders: int, capacity: Callable[[Domain], int]
) -> Domain:
    """Return the first domain with the least capacity that is enough; else the first one."""
    fitting: list[Domain] = []
    for domain in domains:
        if domain.leaders >= leaders and capacity(domain) >= needed:
            fitting.append(domain)
    return min(fitting, key=capacity, default=domains[0])


def _without(free: Amounts, taken: Amounts) -> Amounts:
    return free | {name: free.get(name, 0) - amount for name, amount in taken.items()}


def _count_in(requests: Amounts, free: Amounts) -> tuple[int, str]:
    """Return how many pods have room, and the resource that limits them."""
    count = -1
    limiting = ""
    for name, amount in requests.items():
        if not amount:
            continue
        fitting = max(0, free.get(name, 0) // amount)
        if count < 0 or fitting < count or (fitting == count and name < limiting):
            count = fitting
            limiting = name
    return count, limiting
