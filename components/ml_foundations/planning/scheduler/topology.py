"""The topology domains of nodes, as Kueue sees them, and what pods may request of them.

Follows pkg/cache/scheduler/tas_topology_tree.go of Kueue v0.19.2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.quantities import Amounts

REQUIRED = "required"
PREFERRED = "preferred"
UNCONSTRAINED = "unconstrained"


class Slices(NamedTuple):
    """A layer of slices: so many pods of a set share a domain of a level."""

    level: str
    size: int


@dataclass(frozen=True)
class TopologyRequest:
    """The topology that a set of pods requests."""

    mode: str
    """REQUIRED, PREFERRED or UNCONSTRAINED."""
    level: str | None = None
    """The label of the level that is required or preferred."""
    slices: tuple[Slices, ...] = ()
    """The layers of slices, the outermost first."""
    group: str | None = None
    """The name of the group that a leader and its workers share."""

    @property
    def named_levels(self) -> list[str]:
        """The levels that it names."""
        return [*filter(None, [self.level]), *(layer.level for layer in self.slices)]


@dataclass(frozen=True)
class TopologyNode:
    """A node as Kueue sees it."""

    name: str
    labels: Mapping[str, str]
    free: Amounts
    """What it offers, without the use by pods outside of the topology, in thousandths."""


@dataclass(frozen=True)
class TopologyPods:
    """Pods of one set that ask for a topology."""

    request: TopologyRequest
    count: int
    requests: Amounts
    """What one pod requests, with one of ``pods``, in thousandths."""


Assignment = list[tuple[tuple[str, ...], int]]
"""Domains by their values, each with its number of pods."""
Usage = dict[tuple[str, ...], Amounts]
"""What pods take of domains, by the domains' values."""


@dataclass(frozen=True)
class Assigned:
    """The domains of workers and of their leader, or why there are none."""

    workers: Assignment = field(default_factory=list[tuple[tuple[str, ...], int]])
    leader: Assignment = field(default_factory=list[tuple[tuple[str, ...], int]])
    failure: str = ""
    """Kueue's message if it finds none."""


@dataclass(eq=False, slots=True)
class Domain:
    """A topology domain, with the pods that it has room for, and later the pods that it gets."""

    values: tuple[str, ...]
    children: "list[Domain]" = field(default_factory=list["Domain"])
    nodes: list[str] = field(default_factory=list[str])
    free: Amounts = field(default_factory=dict[str, int])
    pods: int = 0
    slices: int = 0
    pods_with_leader: int = 0
    slices_with_leader: int = 0
    leaders: int = 0


class Topology:
    """The domains of a flavor's nodes, by the levels of its Topology object.

    Args:
        name: The name of the Topology.
        levels: The labels of its levels, the biggest domains first.
        nodes: The nodes of the flavor that are ready and not cordoned. One that lacks the label of
            a level is in no domain.
    """

    def __init__(self, name: str, levels: Sequence[str], nodes: Iterable[TopologyNode]) -> None:
        self.name = name
        self.levels = list(levels)
        self.is_by_host = levels[-1] == labels.HOSTNAME
        self._by_level: list[dict[tuple[str, ...], Domain]] = [{} for _ in levels]
        for node in nodes:
            if all(level in node.labels for level in levels):
                self._add(node)
        self._leaves = list(self._by_level[-1].values())

    def _add(self, node: TopologyNode) -> None:
        values = tuple(node.labels[level] or "" for level in self.levels)
        child: Domain | None = None
        for depth in range(len(values), 0, -1):
            domains = self._by_level[depth - 1]
            is_new = values[:depth] not in domains
            domain = domains.setdefault(values[:depth], Domain(values[:depth]))
            if child is None:
                domain.nodes.append(node.name)
                _add_amounts(domain.free, node.free)
            else:
                domain.children.append(child)
            if not is_new:
                return
            child = domain

    def size(self) -> int:
        """Return the number of the smallest domains."""
        return len(self._leaves)

    def at(self, depth: int) -> list[Domain]:
        """Return the domains of a level."""
        return list(self._by_level[depth].values())

    def fill(self, fill_leaf: Callable[[Domain], None]) -> None:
        """Reset all domains, and count the pods of the smallest ones."""
        for domains in self._by_level:
            for domain in domains.values():
                domain.pods = domain.slices = domain.leaders = 0
                domain.pods_with_leader = domain.slices_with_leader = 0
        for leaf in self._leaves:
            fill_leaf(leaf)

    def assignment(self, domains: Iterable[Domain], leaders: bool = False) -> Assignment:
        """Return the assignment of domains that have pods, in the order of their values."""
        assignment: Assignment = []
        for domain in sorted(domains, key=attrgetter("values")):
            if count := domain.leaders if leaders else domain.pods:
                assignment.append((self.shown(domain), count))
        return assignment

    def shown(self, leaf: Domain) -> tuple[str, ...]:
        """Return the values by which an assignment names a domain: a host name is enough."""
        return leaf.values[-1:] if self.is_by_host else leaf.values


def add_usage(taken: Usage, assignment: Assignment, requests: Amounts) -> None:
    """Add the requests of assigned pods to what is taken of domains."""
    for values, count in assignment:
        _add_amounts(taken.setdefault(values, {}), requests, count)


def _add_amounts(total: Amounts, more: Amounts, count: int = 1) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount * count
