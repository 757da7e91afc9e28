"""Pods of several workloads that compete for the same nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.quantities import Amounts, times, total
from ml_foundations.planning.model.decisions import Shortfall, Verdict
from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    NodeGroup,
    PodClass,
    PodGroup,
    carrying,
    take,
)
from ml_foundations.planning.scheduler.capacity import is_repelled
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.packing import arrangements

_SHARE = 10**9
"""One whole node, in the units in which shares of nodes are counted."""
_MOST_SHARES = 4000
"""Pairs of demand and place that are compared one by one; beyond that, only sums are."""


def groups(demands: Iterable[PodGroup]) -> list[list[PodGroup]]:
    """Demands in groups that do not touch each other: by common places, or by affinity, spreading and claims."""
    found: list[tuple[set[int], list[PodGroup]]] = []
    tied: list[PodGroup] = []
    for demand in demands:
        if not demand.pod.is_simple:
            tied.append(demand)
        touched = {id(place) for place in demand.places}
        members = [demand]
        apart: list[tuple[set[int], list[PodGroup]]] = []
        for ids, others in found:
            if ids & touched:
                touched |= ids
                members = others + members
            else:
                apart.append((ids, others))
        found = [*apart, (touched, members)]
    return _joined([members for _, members in found], tied)


def _joined(groups: list[list[PodGroup]], tied: Sequence[PodGroup]) -> list[list[PodGroup]]:
    """Groups whose pods look at each other across nodes become one."""
    if not tied:
        return groups
    group_of = {id(demand): index for index, group in enumerate(groups) for demand in group}
    joined_to = list(range(len(groups)))
    everyone = [demand for group in groups for demand in group]
    known: defaultdict[Hashable, list[PodGroup]] = defaultdict(list)
    for demand in everyone:
        for mark in (*demand.pod.labels.items(), *demand.pod.exclusive_claims):
            known[mark].append(demand)
    for demand in tied:
        marks = list(_marks(demand.pod))
        for other in (
            everyone
            if None in marks
            else (other for mark in marks for other in known.get(mark, ()))
        ):
            mine, theirs = joined_to[group_of[id(demand)]], joined_to[group_of[id(other)]]
            if mine != theirs and _looks_at(demand.pod, other.pod):
                joined_to = [mine if each == theirs else each for each in joined_to]
    joined: dict[int, list[PodGroup]] = {}
    for group, number in zip(groups, joined_to, strict=True):
        joined.setdefault(number, []).extend(group)
    return list(joined.values())


def _marks(pod: PodClass) -> Iterable[Hashable]:
    """A label or a claim of every pod that a pod may look at; None where any pod may be meant."""
    for one in (*pod.affinity, *pod.anti_affinity, *pod.spread):
        yield next(iter(section(one.selector or {}, "matchLabels").items()), None)
    yield from pod.exclusive_claims


def _looks_at(pod: PodClass, other: PodClass) -> bool:
    return (
        any(term.matches(other) for term in (*pod.affinity, *pod.anti_affinity))
        or any(constraint.counts(pod, other) for constraint in pod.spread)
        or bool(pod.exclusive_claims & other.exclusive_claims)
    )


def judge_together(
    demands: Sequence[PodGroup], places: Sequence[NodeGroup]
) -> tuple[Verdict, Shortfall | None]:
    """Whether demands, which must run at once, find their place together, and what is missing for certain."""
    if _always_room(demands, places):
        return Verdict.FITS, None
    certain = not _may_evict(demands, (pod for place in places for pod in place.running))
    if certain and (shortfall := _shortfall(demands)):
        return Verdict.CANNOT_FIT, shortfall
    cannot = Verdict.CANNOT_FIT if certain else Verdict.UNDETERMINED
    arranged = arrangements([_unrepelled(demand, places) for demand in demands])
    if arranged and not arranged.stuck:
        return Verdict.FITS, None
    if arranged and not arranged.complete:
        return cannot, None
    if arranged and not _may_evict(demands, (demand.pod for demand in demands)):
        return Verdict.UNDETERMINED, None
    outcome = search(demands, places)
    if outcome is None or not outcome.exhausted or outcome.complete == outcome.stuck:
        return Verdict.UNDETERMINED, None
    return Verdict.FITS if outcome.complete else cannot, None


def _unrepelled(demand: PodGroup, places: Sequence[NodeGroup]) -> PodGroup:
    """A demand without the places that pods which run already keep it from."""
    return replace(
        demand,
        places=[place for place in demand.places if not is_repelled(demand.pod, place, places)],
    )


def _may_evict(demands: Iterable[PodGroup], others: Iterable[PodClass]) -> bool:
    """Whether some pod may take the place of another."""
    lowest = min((pod.priority for pod in others), default=None)
    return lowest is not None and any(
        demand.pod.preempts and demand.pod.priority > lowest for demand in demands
    )


def _shortfall(demands: Sequence[PodGroup]) -> Shortfall | None:
    """The resources that demands need more of than all nodes that take any of them have."""
    for competing in _competing_sets(demands):
        places = {id(place): place for demand in competing for place in demand.places}
        needed = total(times(demand.pod.requests, demand.count) for demand in competing)
        free: Amounts = {}
        for place in places.values():
            for name in needed:
                free[name] = free.get(name, 0) + max(0, place.free.get(name, 0)) * place.count
        short = [name for name, amount in needed.items() if amount > free.get(name, 0)]
        if short:
            names = sorted({place.node.name for place in places.values()})
            return Shortfall(
                {n: needed[n] for n in short}, {n: free.get(n, 0) for n in short}, names
            )
    return None


def _competing_sets(demands: Sequence[PodGroup]) -> Iterable[Sequence[PodGroup]]:
    """For each set of places that some demand is limited to: the demands that are limited to a part of it."""
    by_places: dict[frozenset[int], list[PodGroup]] = {}
    for demand in demands:
        by_places.setdefault(frozenset(id(place) for place in demand.places), []).append(demand)
    union = frozenset[int]().union(*by_places)
    for ids in dict.fromkeys((*by_places, union)):
        yield [demand for part, inside in by_places.items() if part <= ids for demand in inside]


def _always_room(demands: Sequence[PodGroup], places: Sequence[NodeGroup]) -> bool:
    """Whether no order of arrival can fill the nodes so that some pod finds none: a sufficient condition.

    A node refuses a pod only once others have taken so much of one resource that the pod's request is not left.
    Each other pod brings a node a share of the way there; where all shares add up to less than the nodes,
    some node has room.
    """
    # Other pods decide in which topology domains the pods may be, spreading apart.
    pods = [demand.pod for demand in demands]
    apart = any(term.key != HOSTNAME for pod in pods for term in pod.anti_affinity)
    if apart or any(pod.affinity or pod.exclusive_claims for pod in pods):
        return False
    daemons = [demand for demand in demands if demand.everywhere]
    if not all(
        _is_left_alone(daemon, place, demands) for daemon in daemons for place in daemon.places
    ):
        return False
    occupied = {id(place): _with_daemons(place, daemons) for place in places}
    others = [
        replace(
            demand, places=[occupied[id(place)] for place in _unrepelled(demand, places).places]
        )
        for demand in demands
        if not demand.everywhere
    ]
    shares = _Shares(others, list(occupied.values()))
    return all(shares.leave_room_for(demand) for demand in others)


def _is_left_alone(daemon: PodGroup, place: NodeGroup, demands: Sequence[PodGroup]) -> bool:
    """Whether the others cannot keep a DaemonSet's pod from a node of a place, or give way to it."""
    free = dict(place.free)
    if place.room(daemon.pod) == 0 or daemon.pod.spread:
        return False
    for other in demands:
        if other is daemon or not any(place is mine for mine in other.places):
            continue
        gives_way = (
            other.pod.priority < daemon.pod.priority
            and other.pod.recreated
            and not other.everywhere
        )
        if daemon.pod.preempts and gives_way:
            continue
        if other.pod.excludes_on_node(daemon.pod):
            return False
        take(free, other.pod, 1 if other.everywhere else min(other.count, place.room(other.pod)))
    return all(free.get(name, 0) >= amount for name, amount in daemon.pod.requests.items())


def _with_daemons(place: NodeGroup, daemons: Sequence[PodGroup]) -> NodeGroup:
    mine = [daemon.pod for daemon in daemons if any(place is other for other in daemon.places)]
    return carrying(place.node, (*place.running, *mine))


@dataclass
class _Load:
    """Pods that may come to some places: how many, how many of them keep others off a node, and what they request."""

    count: int = 0
    exclusive: int = 0
    requests: Amounts = field(default_factory=dict[str, int])

    def add(self, other: _Load) -> None:
        self.count += other.count
        self.exclusive += other.exclusive
        self.requests = total((self.requests, other.requests))


class _Shares:
    """How far demands fill the nodes of each place, for a pod that must still find room there."""

    def __init__(self, demands: Sequence[PodGroup], places: Sequence[NodeGroup]) -> None:
        self._demands = demands
        self._places = places
        self._crowds: dict[frozenset[int], _Load] = {}
        for demand in demands:
            requests = times(demand.pod.requests, demand.count)
            exclusive = demand.count if demand.pod.is_exclusive else 0
            crowd = self._crowds.setdefault(frozenset(map(id, demand.places)), _Load())
            crowd.add(_Load(demand.count, exclusive, requests))
        self._around: dict[frozenset[int], _Load] = {}

    def leave_room_for(self, demand: PodGroup) -> bool:
        """Whether there is room for a pod of a demand once all others are placed, wherever they are."""
        return all(self._some_room(demand, domain) for domain in self._domains(demand))

    def _domains(self, demand: PodGroup) -> Iterable[Sequence[NodeGroup]]:
        """The sets of places in each of which there must be room: one, or each domain of spread constraints."""
        if not demand.pod.spread:
            return [demand.places]
        constraint = demand.pod.spread[0]
        if len(demand.pod.spread) > 1 or constraint.key == HOSTNAME:
            return [()]
        domains: dict[object, list[NodeGroup]] = {
            place.node.domain(constraint.key): []
            for place in self._places
            if demand.pod.is_eligible(constraint, place.node)
        }
        for place in demand.places:
            if place.node.domain(constraint.key) in domains:
                domains[place.node.domain(constraint.key)].append(place)
        return domains.values() if len(domains) >= constraint.min_domains else [()]

    def _some_room(self, demand: PodGroup, places: Sequence[NodeGroup]) -> bool:
        """Whether the others cannot fill all nodes of some places: all taken together, or those of one alone."""
        able = [place for place in places if place.room(demand.pod)]
        choices = [able, *([place] for place in able)] if len(able) > 1 else [able]
        if any(self._is_roomy(demand, choice) for choice in choices):
            return True
        exact = len(self._demands) * len(able) <= _MOST_SHARES
        return exact and any(
            self._share_of_others(demand, choice) < sum(place.count for place in choice) * _SHARE
            for choice in choices
        )

    def _is_roomy(self, demand: PodGroup, places: Sequence[NodeGroup]) -> bool:
        """Whether sums over all pods show already that they cannot fill all nodes of some places."""
        if not places:
            return False
        crowd, nodes = (
            self._crowd_around(frozenset(map(id, places))),
            sum(place.count for place in places),
        )
        if crowd.count - 1 < nodes:
            return True
        if demand.pod.is_exclusive:
            return False
        filled = crowd.exclusive * _SHARE
        for name, wanted in demand.pod.requests.items():
            enough = min(place.free.get(name, 0) for place in places) - wanted + 1
            filled += -(-crowd.requests.get(name, 0) * _SHARE // enough)
        return filled < nodes * _SHARE

    def _crowd_around(self, places: frozenset[int]) -> _Load:
        if places not in self._around:
            around = self._around[places] = _Load()
            for theirs, crowd in self._crowds.items():
                if theirs & places:
                    around.add(crowd)
        return self._around[places]

    def _share_of_others(self, demand: PodGroup, places: Sequence[NodeGroup]) -> int:
        """What all other pods may fill of some places, at most, as a pod of the demand sees it."""
        filled = 0
        for other in self._demands:
            count = other.count - 1 if other is demand else other.count
            common = [place for place in places if any(place is mine for mine in other.places)]
            if count and common:
                filled += count * max(_share(other.pod, place, demand.pod) for place in common)
        return filled


def _share(pod: PodClass, place: NodeGroup, newcomer: PodClass) -> int:
    """The share of a node that one pod fills, for a newcomer that needs its requests to be left there."""
    if newcomer.excludes_on_node(pod):
        return _SHARE
    share = 0
    for name, wanted in newcomer.requests.items():
        enough = place.free.get(name, 0) - wanted + 1
        if enough <= 0:
            return _SHARE
        share = max(share, -(-pod.requests.get(name, 0) * _SHARE // enough))
    return min(share, _SHARE)
