"""Trying every way in which the scheduler may place a few pods on a few nodes, in a budget."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    Demand,
    NodeGroup,
    PodClass,
    SpreadConstraint,
    take,
)
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.scheduler.budget import spend

_Load = tuple[int, ...]
"""The number of pods of each class on a node."""
_State = tuple[_Load, ...]
"""The load of each node."""

_MOST_NODES = 24
MOST_PODS = 48
_MOST_STEPS = 60_000
"""Placements that are tried before the search gives up; about a second."""


@dataclass
class SearchResult:
    """The ends that pods may come to, over every order of arrival and choice of the scheduler."""

    complete: bool = False
    """Whether all pods may find their place."""
    stuck: bool = False
    """Whether some pods may find none."""
    exhausted: bool = True
    """Whether every way was tried."""
    least: list[int] = field(default_factory=list[int])
    """The fewest pods of each class that find a place."""
    most: list[int] = field(default_factory=list[int])
    """The most."""


def search(
    demands: Sequence[Demand], node_groups: Sequence[NodeGroup], *, count_each: bool = False
) -> SearchResult | None:
    """Try every way to place pods, and return what becomes of them; None if there are too many.

    With ``count_each``, the search goes on once it is known that the pods may all fit and may get
    stuck, to count those of each class.
    """
    pods = sum(demand.count for demand in demands)
    nodes = sum(_differing_nodes(group, pods) for group in node_groups)
    if pods > MOST_PODS or nodes > _MOST_NODES:
        return None
    return _SearchSpace(demands, node_groups, pods).explore(count_each)


def placeable_nodes(demand: Demand, node_groups: Sequence[NodeGroup]) -> list[NodeGroup]:
    """Return the groups with a node that can take one more pod as they are."""
    space = _SearchSpace([demand], node_groups, 1)
    empty: _State = tuple((0,) for _ in space.nodes)
    placeable: dict[NodeGroup, None] = {}
    for node in space.nodes:
        if space.is_placeable(0, node, empty):
            placeable[node.group] = None
    return list(placeable)


def _differing_nodes(group: NodeGroup, pods: int) -> int:
    # With more nodes than pods, one represents all that stay empty.
    return group.count if group.running else min(group.count, pods + 1)


@dataclass(eq=False)
class _Node:
    """One node; those with the same ``group_index`` are alike."""

    group: NodeGroup
    group_index: int
    index: int

    def domain(self, key: str) -> object:
        return self.index if key == HOSTNAME else self.group.node.labels.get(key)


class _SearchSpace:
    """The nodes and pod classes of a search, and the steps from one state to the next.

    Attributes:
        nodes: The nodes.
        pending: The classes of the pods to place.
        classes: These, then the classes of the pods that run already.
    """

    def __init__(
        self, demands: Sequence[Demand], node_groups: Sequence[NodeGroup], pods: int
    ) -> None:
        self.pending = [demand.pod for demand in demands]
        self._counts = [demand.count for demand in demands]
        running: dict[PodClass, None] = {}
        for group in node_groups:
            running.update(dict.fromkeys(group.running))
        self.classes = [*self.pending, *running]
        self.nodes: list[_Node] = []
        self._alike: list[slice] = []
        """The nodes of each group."""
        for group_index, group in enumerate(node_groups):
            first = len(self.nodes)
            for index in range(first, first + _differing_nodes(group, pods)):
                self.nodes.append(_Node(group, group_index, index))
            self._alike.append(slice(first, len(self.nodes)))
        self._running: list[_Load] = []
        """The pods that each node carries already, by their classes."""
        self._accepted: list[list[bool]] = []
        """For each node, whether it accepts the pods of each class."""
        accepting: list[set[NodeClass]] = []
        for demand in demands:
            accepting.append({group.node for group in demand.node_groups})
        for node in self.nodes:
            self._running.append(tuple(map(node.group.running.count, running)))
            self._accepted.append([node.group.node in classes for classes in accepting])
        self._room: dict[tuple[int, _Load], list[bool]] = {}
        """Whether a node of a group with a load has room for a pod of each class."""
        self._rules = [_DomainRules(self, pod) for pod in self.pending]

    def explore(self, count_each: bool) -> SearchResult:
        """Visit all states that can be reached, and return what they end in."""
        outcome = SearchResult(least=list(self._counts), most=[0] * len(self._counts))
        start: _State = tuple((0,) * len(self.pending) for _ in self.nodes)
        seen = {start}
        open_states = [start]
        steps = 0
        while open_states:
            state = open_states.pop()
            placed = list(map(sum, zip(*state, strict=True))) or [0] * len(self.pending)
            next_states = list(self._placements(state, placed))
            if not next_states and placed != self._counts and not self._may_lose_a_pod(placed):
                next_states = list(self._preemptions(state, placed))
            steps += len(next_states) + 1
            if steps > _MOST_STEPS or not spend(len(self.nodes)):
                outcome.exhausted = False
                return outcome
            if not next_states:
                outcome.complete |= placed == self._counts
                outcome.stuck |= placed != self._counts
                outcome.least = list(map(min, outcome.least, placed))
                outcome.most = list(map(max, outcome.most, placed))
            if outcome.complete and outcome.stuck and not count_each:
                return outcome
            for next_state in next_states:
                if next_state not in seen:
                    seen.add(next_state)
                    open_states.append(next_state)
        return outcome

    def _placements(self, state: _State, placed: Sequence[int]) -> Iterator[_State]:
        for index, count in enumerate(self._counts):
            if placed[index] == count:
                continue
            tried: set[tuple[int, _Load]] = set()
            for node in self.nodes:
                # Alike nodes with the same load lead to the same state.
                likeness = (node.group_index, state[node.index])
                if likeness not in tried and self.is_placeable(index, node, state):
                    yield self._with_pod(state, node, index)
                tried.add(likeness)

    def is_placeable(self, index: int, node: _Node, state: _State) -> bool:
        """Return whether the scheduler may put a pod of a class on a node."""
        return (
            spend(1)
            and self._accepted[node.index][index]
            and self._has_room(index, node, state[node.index])
            and self._rules[index].allow(node, state)
        )

    def _has_room(self, index: int, node: _Node, load: _Load) -> bool:
        # Computed once for each load: states share most of their loads.
        key = (node.group_index, load)
        if key not in self._room:
            self._room[key] = [self._fits(pod, node.group, load) for pod in self.pending]
        return self._room[key][index]

    def _fits(self, pod: PodClass, group: NodeGroup, load: _Load) -> bool:
        if any(map(pod.excludes_on_node, group.running)):
            return False
        spend(len(load))
        free = dict(group.free)
        for loaded, count in zip(self.pending, load, strict=True):
            if not count:
                continue
            if pod.excludes_on_node(loaded):
                return False
            take(free, loaded, count)
        return all(amount <= free.get(name, 0) for name, amount in pod.requests.items())

    def _preemptions(self, state: _State, placed: Sequence[int]) -> Iterator[_State]:
        """Yield the states after a pod that fits nowhere has evicted pods of a lower priority."""
        for index, pod in enumerate(self.pending):
            if placed[index] < self._counts[index] and pod.preempts:
                is_lower = [victim.priority < pod.priority for victim in self.pending]
                for node in self.nodes:
                    yield from self._evictions(index, node, state, is_lower)

    def _evictions(
        self, index: int, node: _Node, state: _State, is_lower: Sequence[bool]
    ) -> Iterator[_State]:
        """Yield the states after as few evictions from a node as make it accept a pod."""
        load = state[node.index]
        staying = tuple(0 if low else count for count, low in zip(load, is_lower, strict=True))
        # Like the scheduler: without any of the lower ones first.
        if not self.is_placeable(index, node, _with_load(state, node, staying)):
            return
        numbers = [range(most + 1) for most in map(int.__sub__, load, staying)]
        enough: list[_Load] = []
        for victims in sorted(itertools.product(*numbers), key=sum):
            # As few as make the pod fit: not these with others besides.
            if any(is_within(fewer, victims) for fewer in enough):
                continue
            evicted = _with_load(state, node, tuple(map(int.__sub__, load, victims)))
            if self.is_placeable(index, node, evicted):
                enough.append(victims)
                yield self._with_pod(evicted, node, index)

    def _may_lose_a_pod(self, placed: Sequence[int]) -> bool:
        """Return whether a pod may be evicted for good."""
        highest: int | None = None
        for pod, number, most in zip(self.pending, placed, self._counts, strict=True):
            if number < most and pod.preempts:
                highest = pod.priority if highest is None else max(highest, pod.priority)
        if highest is None:
            return False
        for victim, number in zip(self.pending, placed, strict=True):
            # Either no controller replaces it, or its claims keep their volumes, which are on one
            # node.
            is_replaced = victim.recreated and not victim.volumes
            if number and not is_replaced and victim.priority < highest:
                return True
        return False

    def _with_pod(self, state: _State, node: _Node, index: int) -> _State:
        grown = list(_with_load(state, node, with_added(state[node.index], index, 1)))
        # The loads of alike nodes are sorted: states that differ only in which of them carries what
        # are equal then.
        alike = self._alike[node.group_index]
        grown[alike] = sorted(grown[alike])
        return tuple(grown)

    def carried(self, node: _Node, state: _State, classes: Sequence[int]) -> int:
        """Return how many pods of some classes a node carries, running ones included."""
        loads = state[node.index] + self._running[node.index]
        return sum(map(loads.__getitem__, classes))

    def classes_that(self, is_meant: Callable[[PodClass], bool]) -> list[int]:
        """Return the indexes of the classes for which a condition is true."""
        return [index for index, pod in enumerate(self.classes) if is_meant(pod)]


def _with_load(state: _State, node: _Node, load: _Load) -> _State:
    return (*state[: node.index], load, *state[node.index + 1 :])


def is_within(counts: tuple[int, ...], limit: tuple[int, ...]) -> bool:
    """Return whether no count is above its limit."""
    return all(map(int.__le__, counts, limit))


def with_added(counts: tuple[int, ...], index: int, added: int) -> tuple[int, ...]:
    """Return counts with a number added to one of them."""
    return (*counts[:index], counts[index] + added, *counts[index + 1 :])


@dataclass(eq=False)
class _Spreading:
    """A topology spread constraint, the classes that count, and the nodes that take part."""

    constraint: SpreadConstraint
    counted: Sequence[int]
    nodes: Sequence[_Node]


class _DomainRules:
    """The rules of one pod class about the other pods of a topology domain."""

    def __init__(self, space: _SearchSpace, pod: PodClass) -> None:
        self._space = space
        self._pod = pod
        self._repelling: list[tuple[str, list[int]]] = []
        """Topology keys, and the classes that may not be in the same domain."""
        for term in pod.anti_affinity:
            self._repelling.append((term.key, space.classes_that(term.matches)))
        for index, neighbor in enumerate(space.classes):
            for term in neighbor.anti_affinity:
                if term.matches(pod):
                    self._repelling.append((term.key, [index]))
        self._attracting = space.classes_that(pod.has_affinity_to)
        self._sharing_claims = space.classes_that(
            lambda neighbor: bool(pod.exclusive_claims & neighbor.exclusive_claims)
        )
        self._spreadings: list[_Spreading] = []
        for constraint in pod.spread:
            counted = space.classes_that(partial(constraint.counts, pod))
            nodes = [n for n in space.nodes if pod.is_eligible(constraint, n.group.node)]
            self._spreadings.append(_Spreading(constraint, counted, nodes))

    def allow(self, node: _Node, state: _State) -> bool:
        """Return whether the domains of a node take one more pod of the class."""
        for key, classes in self._repelling:
            if self._shares_domain(key, classes, node, state):
                return False
        if self._pod.affinity and not self._is_attracted(node, state):
            return False
        for spreading in self._spreadings:
            if not self._keeps_skew(spreading, node, state):
                return False
        for holder in self._space.nodes:
            if self._space.carried(holder, state, self._sharing_claims):
                return False
        return True

    def _shares_domain(self, key: str, classes: Sequence[int], node: _Node, state: _State) -> bool:
        domain = node.domain(key)
        if domain is None or not spend(len(self._space.nodes)):
            return False
        for member in self._space.nodes:
            if member.domain(key) == domain and self._space.carried(member, state, classes):
                return True
        return False

    def _is_attracted(self, node: _Node, state: _State) -> bool:
        """Return whether the pod's affinity is met: by other pods, or by itself as the first."""
        keys = [term.key for term in self._pod.affinity]
        if any(node.domain(key) is None for key in keys):
            return False
        if all(self._shares_domain(key, self._attracting, node, state) for key in keys):
            return True
        if not self._pod.has_affinity_to(self._pod):
            return False
        for candidate in self._space.nodes:
            has_domain = any(candidate.domain(key) is not None for key in keys)
            if has_domain and self._space.carried(candidate, state, self._attracting):
                return False
        return True

    def _keeps_skew(self, spreading: _Spreading, node: _Node, state: _State) -> bool:
        constraint = spreading.constraint
        own_domain = node.domain(constraint.key)
        if own_domain is None or not spend(2 * len(spreading.nodes)):
            return False
        # The node affinity of a DaemonSet's pod leaves it its own node alone.
        is_bound = self._pod.one_per_node and constraint.honor_affinity
        totals: dict[object, int] = {}
        for counted_node in [node] if is_bound else spreading.nodes:
            domain = counted_node.domain(constraint.key)
            carried = self._space.carried(counted_node, state, spreading.counted)
            totals[domain] = totals.get(domain, 0) + carried
        fewest = 0
        if len(totals) >= constraint.min_domains:
            fewest = min(totals.values(), default=2**31)
        pods = totals.get(own_domain, 0) + constraint.counts_itself(self._pod)
        return pods - fewest <= constraint.max_skew
