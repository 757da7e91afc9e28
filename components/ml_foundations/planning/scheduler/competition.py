"""Judging pods of several workloads that compete for the same nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, section, texts
from ml_foundations.kubernetes.quantities import Amounts, times, total
from ml_foundations.planning.model.decisions import Shortfall, Verdict
from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    Demand,
    NodeGroup,
    PodClass,
    carrying,
    take,
)
from ml_foundations.planning.scheduler.budget import spend
from ml_foundations.planning.scheduler.capacity import is_repelled
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.packing import arrangements

_WHOLE_NODE = 10**9
"""One node, in the units that shares of nodes are counted in: integers are exact and fast."""
_MOST_SHARES = 4000
"""Pairs of pods and node groups that are compared one by one; beyond that, only sums are."""
_ANY_POD = None
"""The index key of a pod that may interact with any other."""
_ANY_VALUE = object()
"""The value in the index key of a pod that may interact with any that has a label."""


def independent_sets(demands: Iterable[Demand]) -> list[list[Demand]]:
    """Return pods in sets that affect each other by no node, affinity, spreading or claim."""
    sets: list[tuple[set[NodeGroup], list[Demand]]] = []
    interacting: list[Demand] = []
    for demand in demands:
        if not demand.pod.is_simple:
            interacting.append(demand)
        nodes = set(demand.node_groups)
        members = [demand]
        separate: list[tuple[set[NodeGroup], list[Demand]]] = []
        for other_nodes, other_members in sets:
            if other_nodes.isdisjoint(nodes):
                separate.append((other_nodes, other_members))
            else:
                nodes |= other_nodes
                members = other_members + members
        sets = [*separate, (nodes, members)]
    return _joined(list(map(itemgetter(1), sets)), interacting)


def _joined(sets: list[list[Demand]], interacting: Sequence[Demand]) -> list[list[Demand]]:
    """Return the sets, with those joined whose pods interact across nodes."""
    if not interacting:
        return sets
    set_of: dict[Demand, int] = {}
    index: defaultdict[Hashable, list[Demand]] = defaultdict(list)
    for number, members in enumerate(sets):
        for demand in members:
            set_of[demand] = number
            for key in (*label_keys(demand.pod.labels), *demand.pod.exclusive_claims):
                index[key].append(demand)
    # Without the index, thousands of workloads with affinity are compared with all others.
    joined_to = {number: number for number in range(len(sets))}
    for demand in interacting:
        # All pods that this one may interact with have one of these keys in the index.
        rules = (*demand.pod.affinity, *demand.pod.anti_affinity, *demand.pod.spread)
        keys = [required_label(rule.selector) for rule in rules]
        keys += demand.pod.exclusive_claims
        for key in [_ANY_POD] if _ANY_POD in keys else keys:
            for candidate in index[key]:
                number = joined_to[set_of[demand]]
                old = joined_to[set_of[candidate]]
                if number != old and _interacts_with(demand.pod, candidate.pod):
                    for joined_set, target in joined_to.items():
                        if target == old:
                            joined_to[joined_set] = number
    joined: dict[int, list[Demand]] = {}
    for members, number in zip(sets, joined_to.values(), strict=True):
        joined.setdefault(number, []).extend(members)
    return list(joined.values())


def label_keys(labels: Manifest) -> Iterable[Hashable]:
    """Yield what ``required_label`` returns for selectors that may select pods with some labels."""
    return (*labels.items(), *((key, _ANY_VALUE) for key in labels), _ANY_POD)


def required_label(selector: Manifest | None) -> Hashable:
    """Return one of the labels that a selector requires, with its value if it requires one."""
    for label in section(selector or {}, "matchLabels").items():
        return label
    for requirement in items(selector or {}, "matchExpressions"):
        operator = requirement.get("operator")
        values = texts(requirement, "values")
        if operator == "In" and len(values) == 1:
            return requirement.get("key"), values[0]
        if operator in ("In", "Exists"):
            return requirement.get("key"), _ANY_VALUE
    return _ANY_POD


def _interacts_with(pod: PodClass, neighbor: PodClass) -> bool:
    for term in (*pod.affinity, *pod.anti_affinity):
        if term.matches(neighbor):
            return True
    for constraint in pod.spread:
        if constraint.counts(pod, neighbor):
            return True
    return bool(pod.exclusive_claims & neighbor.exclusive_claims)


class JointVerdict(NamedTuple):
    """The verdict on pods that must run at once."""

    verdict: Verdict
    shortfall: Shortfall | None = None
    """What is missing for certain, if that is known."""


def judge_together(demands: Sequence[Demand], node_groups: Sequence[NodeGroup]) -> JointVerdict:
    """Return whether pods that must run at once fit together."""
    # The cheap conditions go first: one that is sufficient, then one that is necessary. The others
    # try the ways to place the pods.
    if _always_fit(demands, node_groups):
        return JointVerdict(Verdict.FITS)
    running: list[PodClass] = []
    for group in node_groups:
        running += group.running
    may_evict_running = _may_evict(demands, running)
    if not may_evict_running and (shortfall := _shortfall(demands)):
        return JointVerdict(Verdict.CANNOT_FIT, shortfall)
    cannot_fit = Verdict.UNDETERMINED if may_evict_running else Verdict.CANNOT_FIT
    packed = arrangements([_without_repelling_nodes(demand, node_groups) for demand in demands])
    if packed and not packed.stuck:
        return JointVerdict(Verdict.FITS)
    if packed and not packed.complete:
        return JointVerdict(cannot_fit)
    if packed and not _may_evict(demands, [demand.pod for demand in demands]):
        return JointVerdict(Verdict.UNDETERMINED)
    outcome = search(demands, node_groups)
    if outcome is None or not outcome.exhausted or outcome.complete == outcome.stuck:
        return JointVerdict(Verdict.UNDETERMINED)
    return JointVerdict(Verdict.FITS if outcome.complete else cannot_fit)


def _without_repelling_nodes(demand: Demand, node_groups: Sequence[NodeGroup]) -> Demand:
    """Return pods without the nodes that anti-affinity with running pods keeps them off."""
    accepting: list[NodeGroup] = []
    for group in demand.node_groups:
        if not is_repelled(demand.pod, group, node_groups):
            accepting.append(group)
    return replace(demand, node_groups=accepting)


def _may_evict(demands: Iterable[Demand], victims: Iterable[PodClass]) -> bool:
    """Return whether some pod has a higher priority than a victim, and may preempt it."""
    lowest = min((victim.priority for victim in victims), default=None)
    if lowest is None:
        return False
    return any(demand.pod.preempts and demand.pod.priority > lowest for demand in demands)


def _shortfall(demands: Sequence[Demand]) -> Shortfall | None:
    """Return the resources that pods need more of than all nodes have that accept any of them."""
    for competing in _competing_sets(demands):
        node_groups: dict[NodeGroup, None] = {}
        for demand in competing:
            node_groups.update(dict.fromkeys(demand.node_groups))
        needed = total(times(demand.pod.requests, demand.count) for demand in competing)
        free = dict.fromkeys(needed, 0)
        for group in node_groups:
            for name in needed:
                free[name] += max(0, group.free.get(name, 0)) * group.count
        short_needed = dict[str, int]()
        short_free = dict[str, int]()
        for name, amount in needed.items():
            if amount > free[name]:
                short_needed[name] = amount
                short_free[name] = free[name]
        if short_needed:
            able = [group for group in node_groups if any(map(group.free.get, short_needed))]
            names = sorted({group.node.name for group in able})
            return Shortfall(short_needed, short_free, names)
    return None


def _competing_sets(demands: Sequence[Demand]) -> Iterator[Sequence[Demand]]:
    """Yield for each set of nodes the pods that are limited to it: they must all run there."""
    limited_to: dict[frozenset[NodeGroup], list[Demand]] = {}
    for demand in demands:
        limited_to.setdefault(frozenset(demand.node_groups), []).append(demand)
    # Example: A is limited to pool 1, B to pools 1 and 2. Then A must fit into pool 1, and A and B
    # together into both pools.
    everywhere = frozenset[NodeGroup]().union(*limited_to)
    for nodes in dict.fromkeys((*limited_to, everywhere)):
        competing: list[Demand] = []
        for part, members in limited_to.items():
            if part <= nodes:
                competing += members
        yield competing


def _always_fit(demands: Sequence[Demand], node_groups: Sequence[NodeGroup]) -> bool:
    """Return whether every pod finds a node in each order of arrival: a sufficient condition.

    A node rejects a pod only after other pods have taken so much of one resource that the pod's
    request is not left. Each other pod fills a share of a node on the way there. If all shares
    together are less than the number of nodes, they cannot fill every node.

    Example: on nodes of 8 GPUs, a pod of 1 GPU is rejected once all 8 are taken, so another pod of
    1 GPU fills an eighth of a node. Next to 15 such pods, two nodes always have a GPU left.
    """
    for demand in demands:
        # Then the other pods decide in which topology domains these may be.
        if demand.pod.affinity or demand.pod.exclusive_claims:
            return False
        for term in demand.pod.anti_affinity:
            if term.key != HOSTNAME:
                return False
    daemons = [demand for demand in demands if demand.everywhere]
    for daemon in daemons:
        for group in daemon.node_groups:
            if not _is_undisturbed(daemon, group, demands):
                return False
    with_daemons: dict[NodeGroup, NodeGroup] = {}
    for group in node_groups:
        added = [daemon.pod for daemon in daemons if group in daemon.node_groups]
        with_daemons[group] = carrying(group.node, (*group.running, *added))
    placed: list[Demand] = []
    for demand in demands:
        if not demand.everywhere:
            groups = _without_repelling_nodes(demand, node_groups).node_groups
            placed.append(replace(demand, node_groups=[with_daemons[group] for group in groups]))
    shares = _Shares(placed, list(with_daemons.values()))
    return all(shares.leave_room_for(demand) for demand in placed)


def _is_undisturbed(daemon: Demand, group: NodeGroup, demands: Sequence[Demand]) -> bool:
    """Return whether a DaemonSet's pod gets onto each node of a group, whatever comes before it."""
    if group.room(daemon.pod) == 0 or daemon.pod.spread:
        return False
    free = dict(group.free)
    for competing in demands:
        if competing is daemon or group not in competing.node_groups:
            continue
        is_evictable = competing.pod.recreated and competing.pod.priority < daemon.pod.priority
        if daemon.pod.preempts and is_evictable and not competing.everywhere:
            continue
        if competing.pod.excludes_on_node(daemon.pod):
            return False
        is_daemon = competing.everywhere
        count = 1 if is_daemon else min(competing.count, group.room(competing.pod))
        take(free, competing.pod, count)
    return all(free.get(name, 0) >= amount for name, amount in daemon.pod.requests.items())


@dataclass
class _Load:
    """Pods together: their number, those of them that may keep others off a node, and requests."""

    count: int = 0
    exclusive: int = 0
    requests: Amounts = field(default_factory=dict[str, int])

    def add(self, load: _Load) -> None:
        self.count += load.count
        self.exclusive += load.exclusive
        self.requests = total((self.requests, load.requests))


class _Shares:
    """The shares of nodes that pods fill, for a pod that must still find room there."""

    def __init__(self, demands: Sequence[Demand], node_groups: Sequence[NodeGroup]) -> None:
        self._demands = demands
        self._node_groups = node_groups
        self._loads: dict[frozenset[NodeGroup], _Load] = {}
        """The pods that the same node groups accept."""
        self._loads_on: dict[frozenset[NodeGroup], _Load] = {}
        """The pods that may come to some of these node groups."""
        for demand in demands:
            load = self._loads.setdefault(frozenset(demand.node_groups), _Load())
            exclusive = demand.count if demand.pod.is_exclusive else 0
            load.add(_Load(demand.count, exclusive, times(demand.pod.requests, demand.count)))

    def leave_room_for(self, demand: Demand) -> bool:
        """Return whether the last pod of a group finds room, wherever all other pods are."""
        return all(self._leave_room_in(domain, demand) for domain in self._domains(demand))

    def _domains(self, demand: Demand) -> Iterable[Sequence[NodeGroup]]:
        """Return the sets of nodes that must each have room: all, or each domain of spreading."""
        if not demand.pod.spread:
            return [demand.node_groups]
        constraint = demand.pod.spread[0]
        if len(demand.pod.spread) > 1 or constraint.key == HOSTNAME:
            # One without nodes, which has no room, if no set of nodes is enough to be sure.
            return [()]
        domains: dict[object, list[NodeGroup]] = {}
        for group in self._node_groups:
            if demand.pod.is_eligible(constraint, group.node):
                domains[group.node.domain(constraint.key)] = []
        for group in demand.node_groups:
            if (domain := group.node.domain(constraint.key)) in domains:
                domains[domain].append(group)
        return domains.values() if len(domains) >= constraint.min_domains else [()]

    def _leave_room_in(self, node_groups: Sequence[NodeGroup], demand: Demand) -> bool:
        """Return whether the other pods cannot fill all nodes of some groups."""
        able = [group for group in node_groups if group.room(demand.pod)]
        choices = [able, *([group] for group in able)] if len(able) > 1 else [able]
        # They cannot if they cannot fill those of one group alone. Sums over all pods are tried
        # first: pod by pod it is exact, and slow with many pods.
        for choice in choices:
            if self._sums_leave_room(choice, demand):
                return True
        shares = len(self._demands) * len(able)
        if shares > _MOST_SHARES or not spend(len(choices) * len(self._demands)):
            return False
        return any(self._filled_by_others(choice, demand) < _size(choice) for choice in choices)

    def _sums_leave_room(self, node_groups: Sequence[NodeGroup], demand: Demand) -> bool:
        """Return whether sums over all pods show that they cannot fill all nodes of some groups.

        A pod that keeps others off its node fills it. For each resource, what all pods request
        together is divided by what fills the node with the least of it. Adding the shares of all
        resources counts too much, never too little.
        """
        if not node_groups:
            return False
        nodes = frozenset(node_groups)
        if (load := self._loads_on.get(nodes)) is None:
            load = self._loads_on[nodes] = _Load()
            for accepting, accepted in self._loads.items():
                if not accepting.isdisjoint(nodes):
                    load.add(accepted)
        number_of_others = load.count - 1
        if number_of_others * _WHOLE_NODE < _size(node_groups):
            return True  # some node stays without another pod
        if demand.pod.is_exclusive:
            return False
        filled = load.exclusive * _WHOLE_NODE
        for name, request in demand.pod.requests.items():
            least_free = min(group.free.get(name, 0) for group in node_groups)
            filled += _share(load.requests.get(name, 0), least_free, request)
        return filled < _size(node_groups)

    def _filled_by_others(self, node_groups: Sequence[NodeGroup], demand: Demand) -> int:
        """Return the shares of some nodes that the other pods fill at most, as a pod sees it."""
        filled = 0
        for competing in self._demands:
            count = competing.count - 1 if competing is demand else competing.count
            if not count:
                continue
            most = 0
            for group in node_groups:
                if group in competing.node_groups:
                    most = max(most, _share_of_pod(competing.pod, group, demand.pod))
            filled += count * most
        return filled


def _size(node_groups: Sequence[NodeGroup]) -> int:
    return sum(group.count for group in node_groups) * _WHOLE_NODE


def _share(taken: int, free: int, request: int) -> int:
    """Return the share of a node that taking an amount fills, for a pod with a request."""
    # The node has no room for the pod once so much is taken that less than the request is left.
    # Example: of 8 free GPUs, taking 6 leaves too little for a request of 3. So taking 2 fills a
    # third of the node.
    filling = free - request + 1
    # Rounded up: a sum of shares that is too small would not be a proof.
    return (taken * _WHOLE_NODE + filling - 1) // filling


def _share_of_pod(pod: PodClass, group: NodeGroup, newcomer: PodClass) -> int:
    """Return the share of a node that one pod fills for a newcomer: of the scarcest resource."""
    if newcomer.excludes_on_node(pod):
        return _WHOLE_NODE
    share = 0
    for name, request in newcomer.requests.items():
        free = group.free.get(name, 0)
        if free < request:
            return _WHOLE_NODE
        share = max(share, _share(pod.requests.get(name, 0), free, request))
    return min(share, _WHOLE_NODE)
