"""Every way in which the scheduler may place a few pods on a few nodes: exact, within a budget."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    NodeGroup,
    PodClass,
    PodGroup,
    SpreadConstraint,
)

_Load = tuple[int, ...]
"""How many pods of each class a node carries."""
_State = tuple[_Load, ...]
"""The load of each node."""

_MOST_NODES = 24
_MOST_PODS = 48
_MOST_STEPS = 60_000
"""Placements that are tried before the search gives up; about a second."""


@dataclass
class Outcome:
    """What becomes of the pods, over every order of arrival and every choice of the scheduler.

    Attributes:
        complete: Whether all pods may find their place.
        stuck: Whether some pods may find none.
        exhausted: Whether every way was tried.
        least: How many pods of each class find a place at least.
        most: How many at most.
    """

    complete: bool = False
    stuck: bool = False
    exhausted: bool = True
    least: list[int] = field(default_factory=list[int])
    most: list[int] = field(default_factory=list[int])


def search(
    demands: Sequence[PodGroup], places: Sequence[NodeGroup], *, each: bool = False
) -> Outcome | None:
    """Try every way of placing pods; None where there are too many nodes or pods.

    With ``each`` it goes on when the set as a whole is decided, to learn what becomes of each class.
    """
    total = sum(demand.count for demand in demands)
    nodes = sum(_nodes_that_matter(place, total) for place in places)
    if total > _MOST_PODS or nodes > _MOST_NODES:
        return None
    return _Board(demands, places, total).run(each)


def takers(demand: PodGroup, places: Sequence[NodeGroup]) -> list[NodeGroup]:
    """The places that take one more pod of a demand as they are."""
    board = _Board([demand], places, 1)
    empty: _State = tuple((0,) for _ in board.slots)
    return list(
        {
            id(slot.place): slot.place for slot in board.slots if board.is_placeable(0, slot, empty)
        }.values()
    )


def _nodes_that_matter(place: NodeGroup, pods: int) -> int:
    """Nodes of a place that may differ: with more nodes than pods, one stands for all that stay empty."""
    return place.count if place.running else min(place.count, pods + 1)


@dataclass(eq=False)
class _Slot:
    """One node."""

    place: NodeGroup
    group: int
    """Nodes of the same group are alike."""
    index: int

    def domain(self, key: str) -> object:
        return self.index if key == HOSTNAME else self.place.node.labels.get(key)


class _Board:
    """The nodes and classes of one search; a state is what the nodes carry of the classes that are placed."""

    def __init__(
        self, demands: Sequence[PodGroup], places: Sequence[NodeGroup], total: int
    ) -> None:
        self.pending = [demand.pod for demand in demands]
        self.counts = [demand.count for demand in demands]
        self.running = list({id(pod): pod for place in places for pod in place.running}.values())
        self.classes = [*self.pending, *self.running]
        groups = [
            (group, place)
            for group, place in enumerate(places)
            for _ in range(_nodes_that_matter(place, total))
        ]
        self.slots = [_Slot(place, group, index) for index, (group, place) in enumerate(groups)]
        self.fixed = [
            tuple(slot.place.running.count(pod) for pod in self.running) for slot in self.slots
        ]
        self._room: dict[tuple[int, _Load], list[bool]] = {}
        welcome = [{id(place.node) for place in demand.places} for demand in demands]
        self.accepted = [[id(slot.place.node) in nodes for nodes in welcome] for slot in self.slots]
        self.rules = [_Rules(self, index) for index in range(len(self.pending))]

    def run(self, each: bool) -> Outcome:
        outcome = Outcome(least=list(self.counts), most=[0] * len(self.counts))
        start: _State = tuple((0,) * len(self.pending) for _ in self.slots)
        seen, open_states, steps = {start}, [start], 0
        while open_states:
            state = open_states.pop()
            placed = [sum(load[index] for load in state) for index in range(len(self.pending))]
            followers = list(self._placements(state, placed))
            if not followers and placed != self.counts:
                followers = (
                    [] if self._loses_for_good(placed) else list(self._preemptions(state, placed))
                )
            steps += len(followers) + 1
            if not followers:
                _note(outcome, placed, self.counts)
            if outcome.complete and outcome.stuck and not each:
                return outcome
            if steps > _MOST_STEPS:
                outcome.exhausted = False
                return outcome
            for follower in followers:
                if follower not in seen:
                    seen.add(follower)
                    open_states.append(follower)
        return outcome

    def _placements(self, state: _State, placed: Sequence[int]) -> Iterator[_State]:
        for index, count in enumerate(self.counts):
            if placed[index] < count:
                tried: set[tuple[int, _Load]] = set()
                for slot in self.slots:
                    alike = (slot.group, state[slot.index])
                    if alike not in tried and self.is_placeable(index, slot, state):
                        yield self._with(state, slot, index, 1)
                    tried.add(alike)

    def is_placeable(self, index: int, slot: _Slot, state: _State) -> bool:
        """Whether the scheduler may put a pod of a class on a node."""
        return (
            self.accepted[slot.index][index]
            and self._has_room(index, slot, state[slot.index])
            and self.rules[index].allow(slot, state)
        )

    def _has_room(self, index: int, slot: _Slot, load: _Load) -> bool:
        key = (slot.group, load)
        if key not in self._room:
            self._room[key] = [self._fits(pod, slot, load) for pod in self.pending]
        return self._room[key][index]

    def _fits(self, pod: PodClass, slot: _Slot, load: _Load) -> bool:
        present = [other for other, count in zip(self.pending, load, strict=True) if count]
        if any(pod.excludes_on_node(other) for other in (*present, *slot.place.running)):
            return False
        free = slot.place.free
        return all(
            amount
            <= free.get(name, 0)
            - sum(
                other.requests.get(name, 0) * count
                for other, count in zip(self.pending, load, strict=True)
            )
            for name, amount in pod.requests.items()
        )

    def _preemptions(self, state: _State, placed: Sequence[int]) -> Iterator[_State]:
        """A pod that fits nowhere takes the place of pods with a lower priority, as few as will do."""
        for index, pod in enumerate(self.pending):
            if placed[index] == self.counts[index] or not pod.preempts:
                continue
            lower = [other.priority < pod.priority for other in self.pending]
            for slot in self.slots:
                load = state[slot.index]
                stay = tuple(0 if low else count for count, low in zip(load, lower, strict=True))
                # The scheduler looks first whether the node would do without any of them.
                if not self.is_placeable(
                    index, slot, (*state[: slot.index], stay, *state[slot.index + 1 :])
                ):
                    continue
                ranges = [
                    range(count + 1) if low else range(1)
                    for count, low in zip(load, lower, strict=True)
                ]
                enough: list[_Load] = []
                for victims in sorted(itertools.product(*ranges), key=sum):
                    if any(all(map(int.__ge__, victims, fewer)) for fewer in enough):
                        continue
                    left = tuple(count - gone for count, gone in zip(load, victims, strict=True))
                    without = (*state[: slot.index], left, *state[slot.index + 1 :])
                    if self.is_placeable(index, slot, without):
                        enough.append(victims)
                        yield self._with(without, slot, index, 1)

    def _loses_for_good(self, placed: Sequence[int]) -> bool:
        """Whether a pod may be evicted that no controller replaces, or whose claims keep their volumes."""
        return any(
            victim.priority < pod.priority
            and pod.preempts
            and (victim.volumes or not victim.recreated)
            for pod, count, now in zip(self.pending, self.counts, placed, strict=True)
            if now < count
            for victim, present in zip(self.pending, placed, strict=True)
            if present
        )

    def _with(self, state: _State, slot: _Slot, index: int, added: int) -> _State:
        """The state with a pod more; loads of nodes that are alike stand in order, so that states compare."""
        load = state[slot.index]
        grown = (*load[:index], load[index] + added, *load[index + 1 :])
        changed = [*state[: slot.index], grown, *state[slot.index + 1 :]]
        members = [other.index for other in self.slots if other.group == slot.group]
        for member, ordered in zip(
            members, sorted(changed[member] for member in members), strict=True
        ):
            changed[member] = ordered
        return tuple(changed)

    def carried(self, slot: _Slot, state: _State, classes: Iterable[int]) -> int:
        """How many pods of some classes a node carries, those that ran before included."""
        loads = (*state[slot.index], *self.fixed[slot.index])
        return sum(loads[index] for index in classes)


def _note(outcome: Outcome, placed: list[int], counts: list[int]) -> None:
    outcome.complete |= placed == counts
    outcome.stuck |= placed != counts
    outcome.least = list(map(min, outcome.least, placed))
    outcome.most = list(map(max, outcome.most, placed))


class _Rules:
    """What the pods of one class ask of, and suffer from, pods in the same topology domain."""

    def __init__(self, board: _Board, index: int) -> None:
        self._board = board
        self._pod = board.pending[index]
        classes = list(enumerate(board.classes))
        self._repelled_by = [
            (term.key, [number for number, other in classes if term.matches(other)])
            for term in self._pod.anti_affinity
        ] + [
            (term.key, [number])
            for number, other in classes
            for term in other.anti_affinity
            if term.matches(self._pod)
        ]
        self._attracted_by = [
            number
            for number, other in classes
            if all(term.matches(other) for term in self._pod.affinity)
        ]
        self._attracts_itself = all(term.matches(self._pod) for term in self._pod.affinity)
        self._sharing = [
            number
            for number, other in classes
            if self._pod.exclusive_claims & other.exclusive_claims
        ]
        self._spread = [
            (
                each,
                [number for number, other in classes if each.counts(self._pod, other)],
                [slot for slot in board.slots if self._pod.is_eligible(each, slot.place.node)],
            )
            for each in self._pod.spread
        ]

    def allow(self, slot: _Slot, state: _State) -> bool:
        """Whether a node's domains take one more."""
        return (
            not any(
                self._is_repelled(key, classes, slot, state) for key, classes in self._repelled_by
            )
            and (not self._pod.affinity or self._is_attracted(slot, state))
            and all(self._keeps_skew(*each, slot, state) for each in self._spread)
            and not any(
                self._board.carried(other, state, self._sharing)
                for other in (self._board.slots if self._sharing else ())
            )
        )

    def _is_repelled(self, key: str, classes: Sequence[int], slot: _Slot, state: _State) -> bool:
        if (value := slot.domain(key)) is None:
            return False
        alike = (other for other in self._board.slots if other.domain(key) == value)
        return any(self._board.carried(other, state, classes) for other in alike)

    def _is_attracted(self, slot: _Slot, state: _State) -> bool:
        keys = [term.key for term in self._pod.affinity]
        if any(slot.domain(key) is None for key in keys):
            return False
        if all(self._is_repelled(key, self._attracted_by, slot, state) for key in keys):
            return True
        anywhere = any(
            self._board.carried(other, state, self._attracted_by)
            for other in self._board.slots
            if any(other.domain(key) is not None for key in keys)
        )
        return self._attracts_itself and not anywhere

    def _keeps_skew(
        self,
        constraint: SpreadConstraint,
        counted: Sequence[int],
        eligible: Sequence[_Slot],
        slot: _Slot,
        state: _State,
    ) -> bool:
        value = slot.domain(constraint.key)
        if value is None:
            return False
        totals: dict[object, int] = {}
        # The node affinity of a DaemonSet's pod leaves it its own node alone.
        bound = self._pod.one_per_node and constraint.honor_affinity
        for other in [slot] if bound else eligible:
            domain = other.domain(constraint.key)
            totals[domain] = totals.get(domain, 0) + self._board.carried(other, state, counted)
        lowest = min(totals.values(), default=2**31) if len(totals) >= constraint.min_domains else 0
        own = int(constraint.counts_itself(self._pod))
        return totals.get(value, 0) + own - lowest <= constraint.max_skew
