"""Counting the identical pods that find a place, without trying the ways to place them.

The pods compete only with each other. A node takes as many as its free resources allow. Topology
spread constraints, anti-affinity and affinity among the pods also limit each topology domain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    NodeGroup,
    PodClass,
    SpreadConstraint,
)

_Rooms = Sequence[tuple[NodeGroup, int]]
"""Node groups, each with the number of pods that one of its nodes takes."""


@dataclass(frozen=True)
class Capacity:
    """The number of pods of a class that find a place."""

    least: int
    """So many always do, in every order of arrival and by every choice of the scheduler."""
    most: int
    """No more ever do."""
    limited_by: str = ""
    """The rule that makes ``most`` smaller than the nodes' room, such as ``topology-spread``."""


def capacity(pod: PodClass, rooms: _Rooms, all_groups: Sequence[NodeGroup]) -> Capacity:
    """Return how many pods of a class find a place in the groups that accept them.

    Pods that run on any of all groups, and their empty domains, count for affinity and spreading.
    """
    # Without running pods nothing repels, and all pairs of groups would be compared for nothing.
    if any(group.running for group in all_groups):
        rooms = [(group, room) for group, room in rooms if not is_repelled(pod, group, all_groups)]
    limits = [_spread(pod, constraint, rooms, all_groups) for constraint in pod.spread]
    repelling = {term.key for term in pod.anti_affinity if term.matches(pod)}
    for key in repelling - {HOSTNAME}:
        limits.append(_one_per_domain(key, rooms))
    if pod.affinity:
        limits.append(_affinity(pod, rooms, all_groups))
    if pod.exclusive_claims:
        # One pod in the whole cluster can use such a claim (ReadWriteOncePod).
        running = chain.from_iterable(group.running for group in all_groups)
        is_used = any(pod.exclusive_claims & holder.exclusive_claims for holder in running)
        size = 0 if is_used else min(1, _all_of(rooms).most)
        limits.append(Capacity(size, size, "volume-access"))
    if not limits:
        return _all_of(rooms)
    lowest = min(limits, key=lambda limit: limit.most)
    # Several limits may get into each other's way: then only the most is known.
    return lowest if len(limits) == 1 else Capacity(0, lowest.most, lowest.limited_by)


def _all_of(rooms: _Rooms, limited_by: str = "") -> Capacity:
    size = sum(group.count * room for group, room in rooms)
    return Capacity(size, size, limited_by)


def is_repelled(pod: PodClass, group: NodeGroup, all_groups: Iterable[NodeGroup]) -> bool:
    """Return whether anti-affinity keeps a pod off a group: its own, or that of running pods."""
    for occupied in all_groups:
        for running in occupied.running:
            for term in pod.anti_affinity:
                if term.matches(running) and _same_domain(term.key, group, occupied):
                    return True
            for term in running.anti_affinity:
                if term.matches(pod) and _same_domain(term.key, group, occupied):
                    return True
    return False


def _one_per_domain(key: str, rooms: _Rooms) -> Capacity:
    """Return the limit of anti-affinity: one pod in each topology domain."""
    outside = 0
    domains = set[object]()
    for group, room in rooms:
        # Nodes without the label of the topology key are in no domain, and take what they have room
        # for.
        if (domain := group.node.domain(key)) is None:
            outside += group.count * room
        elif group.count * room:
            domains.add(domain)
    return Capacity(outside + len(domains), outside + len(domains), "pod-anti-affinity")


def _affinity(pod: PodClass, rooms: _Rooms, all_groups: Sequence[NodeGroup]) -> Capacity:
    keys = [term.key for term in pod.affinity]
    attracting: list[NodeGroup] = []
    for group in all_groups:
        has_domain = any(key == HOSTNAME or group.node.domain(key) is not None for key in keys)
        if has_domain and any(map(pod.has_affinity_to, group.running)):
            attracting.append(group)
    if attracting:
        allowed: list[tuple[NodeGroup, int]] = []
        for group, room in rooms:
            if _shares_domains(pod, group, attracting):
                allowed.append((group, room))
        return _all_of(allowed, "pod-affinity")
    # If pods that match it run already, their domains are the allowed ones. Otherwise the pods must
    # match it themselves: all go to the domain of the first one.
    if not pod.has_affinity_to(pod):
        return Capacity(0, 0, "pod-affinity")
    # A domain has the same values of all keys. It is one node if one of them is the host name.
    sizes: dict[tuple[object, ...], int] = {}
    for group, room in rooms:
        domain = tuple(group if key == HOSTNAME else group.node.domain(key) for key in keys)
        if room and None not in domain:
            nodes = 1 if HOSTNAME in keys else group.count
            sizes[domain] = sizes.get(domain, 0) + room * nodes
    least = min(sizes.values(), default=0)
    return Capacity(least, max(sizes.values(), default=0), "pod-affinity")


def _shares_domains(pod: PodClass, group: NodeGroup, attracting: Sequence[NodeGroup]) -> bool:
    """Return whether a group is, for each term of affinity, in the domain of an attracting one."""
    for term in pod.affinity:
        if not any(_same_domain(term.key, group, attractor) for attractor in attracting):
            return False
    return True


def _same_domain(key: str, first: NodeGroup, second: NodeGroup) -> bool:
    if key == HOSTNAME:
        return first is second
    domain = first.node.domain(key)
    return domain is not None and domain == second.node.domain(key)


@dataclass
class _Domain:
    copies: int
    """The domains that are alike: the nodes of a group, if each is its own domain."""
    room: int = 0
    existing: int = 0


def _spread(
    pod: PodClass, constraint: SpreadConstraint, rooms: _Rooms, all_groups: Sequence[NodeGroup]
) -> Capacity:
    """Return the limit of a topology spread constraint.

    A domain may have at most ``max_skew`` pods more than the one with the fewest. That one takes
    pods until it is full, so its size decides what other domains take, in every order of arrival.
    Example: with room for 1, 4 and 4 pods and a skew of 1, they take 1 + 2 + 2 pods.
    """
    domains = _domains(pod, constraint, rooms, all_groups)
    if not domains:
        return Capacity(0, 0, "topology-spread")
    # With fewer domains than minDomains, the scheduler takes zero for the fewest pods.
    has_min_domains = sum(domain.copies for domain in domains) >= constraint.min_domains
    counts_itself = constraint.counts_itself(pod)
    grows = counts_itself and not constraint.is_empty
    fewest = 0
    if has_min_domains:
        fewest = min(domain.existing + grows * domain.room for domain in domains)
    size = 0
    for domain in domains:
        left = fewest + constraint.max_skew - domain.existing
        if grows:
            size += domain.copies * max(0, min(domain.room, left))
        elif counts_itself <= left:
            # New pods do not change the counts: a domain takes none, or all that it has room for.
            size += domain.copies * domain.room
    return Capacity(size, size, "topology-spread")


def _domains(
    pod: PodClass, constraint: SpreadConstraint, rooms: _Rooms, all_groups: Sequence[NodeGroup]
) -> list[_Domain]:
    """Return the domains that take part in the skew, with their room and the pods that count."""
    room_of = dict(rooms)
    domains: dict[object, _Domain] = {}
    for group in all_groups:
        if not pod.is_eligible(constraint, group.node):
            continue
        is_per_node = constraint.key == HOSTNAME
        key = group if is_per_node else group.node.domain(constraint.key)
        domain = domains.setdefault(key, _Domain(group.count if is_per_node else 1))
        nodes = 1 if is_per_node else group.count
        domain.room += room_of.get(group, 0) * nodes
        for running in group.running:
            domain.existing += nodes * constraint.counts(pod, running)
    return list(domains.values())
