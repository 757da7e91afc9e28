"""How many identical pods find a place, counted without trying: exact where the order of arrival does not matter.

Pods of one class compete with nobody but themselves here. What one node takes is a division; a topology spread
constraint, anti-affinity or affinity of the pods to each other limits what each topology domain takes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    NodeGroup,
    PodClass,
    SpreadConstraint,
)

_Rooms = Sequence[tuple[NodeGroup, int]]
"""Places, with how many pods one node of each takes."""


@dataclass(frozen=True)
class Capacity:
    """How many pods of a class find a place.

    Attributes:
        least: So many always do, whatever the order and the scheduler's choices.
        most: No more ever do.
        limited_by: What makes ``most`` smaller than the nodes' room: ``topology-spread``, ``pod-affinity``,
            ``pod-anti-affinity``, ``volume-access`` or nothing.
    """

    least: int
    most: int
    limited_by: str = ""


def capacity(pod: PodClass, rooms: _Rooms, every_place: Sequence[NodeGroup]) -> Capacity:
    """How many pods of a class find a place among nodes that accept them, each with its room.

    Of all places, pods that run elsewhere, and empty domains, count for affinity and spreading.
    """
    limits: list[Capacity] = []
    if any(place.running for place in every_place):
        rooms = [
            (place, 0 if is_repelled(pod, place, every_place) else room) for place, room in rooms
        ]
    limits += [_spread(pod, constraint, rooms, every_place) for constraint in pod.spread]
    repelling = {
        term.key for term in pod.anti_affinity if term.key != HOSTNAME and term.matches(pod)
    }
    limits += [_one_per_domain(key, rooms) for key in repelling]
    if pod.affinity:
        limits.append(_affinity(pod, rooms, every_place))
    if pod.exclusive_claims:
        running = (other for place in every_place for other in place.running)
        is_taken = any(pod.exclusive_claims & other.exclusive_claims for other in running)
        free = 0 if is_taken else min(1, _sum(rooms))
        limits.append(Capacity(free, free, "volume-access"))
    if not limits:
        return Capacity(_sum(rooms), _sum(rooms))
    lowest = min(limits, key=lambda limit: limit.most)
    # Several limits may get into each other's way: then only the most is known.
    return lowest if len(limits) == 1 else Capacity(0, lowest.most, lowest.limited_by)


def _sum(rooms: _Rooms) -> int:
    return sum(place.count * room for place, room in rooms)


def is_repelled(pod: PodClass, place: NodeGroup, every_place: Iterable[NodeGroup]) -> bool:
    """Whether anti-affinity of pods that run already, or against them, keeps the pods from a place."""
    for other in every_place:
        for running in other.running:
            keys = [term.key for term in pod.anti_affinity if term.matches(running)]
            keys += [term.key for term in running.anti_affinity if term.matches(pod)]
            if any(_same_domain(key, place, other) for key in keys):
                return True
    return False


def _one_per_domain(key: str, rooms: _Rooms) -> Capacity:
    """One pod in each topology domain; as many as there is room for on nodes without the label."""
    free = _sum([each for each in rooms if each[0].node.domain(key) is None])
    most = free + len(
        {place.node.domain(key) for place, room in rooms if place.count * room} - {None}
    )
    return Capacity(most, most, "pod-anti-affinity")


def _affinity(pod: PodClass, rooms: _Rooms, every_place: Sequence[NodeGroup]) -> Capacity:
    """Affinity to pods that run limits the domains; affinity to the pods themselves makes the first one's the only."""
    running = [
        (place, other)
        for place in every_place
        if any(
            term.key == HOSTNAME or place.node.domain(term.key) is not None for term in pod.affinity
        )
        for other in place.running
        if all(term.matches(other) for term in pod.affinity)
    ]
    if running:
        allowed = [
            (place, room)
            for place, room in rooms
            if all(
                any(_same_domain(term.key, place, at) for at, _ in running) for term in pod.affinity
            )
        ]
        return Capacity(_sum(allowed), _sum(allowed), "pod-affinity")
    if not all(term.matches(pod) for term in pod.affinity):
        return Capacity(0, 0, "pod-affinity")
    keys = [term.key for term in pod.affinity]
    domains: dict[tuple[object, ...], int] = {}
    for place, room in rooms:
        values = tuple(id(place) if key == HOSTNAME else place.node.domain(key) for key in keys)
        if room and None not in values:
            size = room if HOSTNAME in keys else room * place.count
            domains[values] = (
                max(size, domains.get(values, 0))
                if HOSTNAME in keys
                else size + domains.get(values, 0)
            )
    return Capacity(
        min(domains.values(), default=0), max(domains.values(), default=0), "pod-affinity"
    )


def _same_domain(key: str, one: NodeGroup, other: NodeGroup) -> bool:
    domain = one.node.domain(key)
    return (
        one is other if key == HOSTNAME else domain is not None and domain == other.node.domain(key)
    )


def _spread(
    pod: PodClass, constraint: SpreadConstraint, rooms: _Rooms, every_place: Sequence[NodeGroup]
) -> Capacity:
    """What the domains take when each is kept within the skew of the emptiest.

    The emptiest domain takes pods until it is full, so in the end every domain has as many as the smallest one holds,
    and ``max_skew`` more where there is room: a count that no order changes.
    """
    domains = _domains(pod, constraint, rooms, every_place)
    if not domains:
        return Capacity(0, 0, "topology-spread")
    enough = sum(domain.copies for domain in domains) >= constraint.min_domains
    skew, itself = constraint.max_skew, constraint.counts_itself(pod)
    if not itself or constraint.is_empty:
        lowest = min(domain.existing for domain in domains) if enough else 0
        own = 1 if itself else 0
        size = sum(
            domain.copies * domain.room
            for domain in domains
            if domain.existing + own - lowest <= skew
        )
    else:
        lowest = min(domain.existing + domain.room for domain in domains) if enough else 0
        size = sum(
            domain.copies * max(0, min(domain.room, lowest + skew - domain.existing))
            for domain in domains
        )
    return Capacity(size, size, "topology-spread")


@dataclass
class _Domain:
    copies: int
    """Domains that are alike: the nodes of a class, where each is its own."""
    room: int = 0
    existing: int = 0


def _domains(
    pod: PodClass, constraint: SpreadConstraint, rooms: _Rooms, every_place: Sequence[NodeGroup]
) -> list[_Domain]:
    room_of = {id(place): room for place, room in rooms}
    found: dict[object, _Domain] = {}
    for place in every_place:
        if not pod.is_eligible(constraint, place.node):
            continue
        per_node = constraint.key == HOSTNAME
        key = id(place) if per_node else place.node.domain(constraint.key)
        domain = found.setdefault(key, _Domain(place.count if per_node else 1))
        nodes = 1 if per_node else place.count
        domain.room += room_of.get(id(place), 0) * nodes
        domain.existing += (
            sum(1 for other in place.running if constraint.counts(pod, other)) * nodes
        )
    return list(found.values())
