"""Packing a few classes of pods if only each node itself decides: exact, without orders of arrival.

Only free resources and pods on the same node count here, so every arrangement can come about. All
pods can fit if some arrangement has room for all. They always fit if no arrangement of the other
pods blocks every node for the last pod of a class. Both are computed node by node, over the number
of pods of each class that are placed.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from math import prod

from ml_foundations.planning.model.node_groups import HOSTNAME, Demand, NodeGroup, PodClass, take
from ml_foundations.planning.scheduler.budget import spend
from ml_foundations.planning.scheduler.exhaustive_search import SearchResult, is_within, with_added

_Counts = tuple[int, ...]
"""A number of pods for each class."""

_MOST_LOADS = 5_000
"""Loads of one node, at most: beyond that, the search gives up."""
_MOST_STEPS = 300_000
"""Sums of counts that are compared before the search gives up."""


class _TooManyError(Exception):
    pass


def _require_budget(steps: int) -> None:
    if not spend(steps):
        raise _TooManyError


def arrangements(demands: Sequence[Demand]) -> SearchResult | None:
    """Return whether all pods can fit, and whether some arrangement leaves a pod without a node.

    None if more than the nodes themselves decides, or there are too many arrangements.
    """
    node_groups: dict[NodeGroup, None] = {}
    for demand in demands:
        pod = demand.pod
        has_wider_domains = any(term.key != HOSTNAME for term in pod.anti_affinity)
        if has_wider_domains or pod.affinity or pod.spread or pod.exclusive_claims:
            return None
        node_groups.update(dict.fromkeys(demand.node_groups))
    counts = tuple(demand.count for demand in demands)
    try:
        nodes = [_NodeLoads(group, demands) for group in node_groups]
        fullest = _sums(((node.fullest(), node.count) for node in nodes), counts, _capped)
        is_stuck = _is_any_blocked(nodes, counts)
    except _TooManyError:
        return None
    return SearchResult(complete=counts in fullest, stuck=is_stuck)


class _NodeLoads:
    """The loads that one node of a group can carry.

    Attributes:
        count: The number of such nodes, at most one more than all pods: others would be empty too.
    """

    def __init__(self, group: NodeGroup, demands: Sequence[Demand]) -> None:
        self._group = group
        self._classes = [demand.pod for demand in demands]
        self.count = min(group.count, sum(demand.count for demand in demands) + 1)
        self._most: list[int] = []
        """The most pods of each class on one node."""
        for demand in demands:
            is_accepted = group in demand.node_groups
            self._most.append(min(demand.count, group.room(demand.pod)) if is_accepted else 0)
        numbers = [range(most + 1) for most in self._most]
        if (loads := prod(map(len, numbers))) > _MOST_LOADS:
            raise _TooManyError
        _require_budget(2 * loads)
        self._possible = set(filter(self._fits, itertools.product(*numbers)))

    def _fits(self, load: _Counts) -> bool:
        present: list[PodClass] = []
        free = dict(self._group.free)
        for pod, number in zip(self._classes, load, strict=True):
            if number:
                present.append(pod)
                take(free, pod, number)
        for first, second in itertools.combinations(present, 2):
            if first.excludes_on_node(second):
                return False
        return not any(free[name] < 0 for pod in present for name in pod.requests)

    def fullest(self) -> list[_Counts]:
        """Return the loads to which no pod can be added."""
        return _largest(self._possible)

    def blocking(self, index: int) -> list[_Counts]:
        """Return the smallest loads next to which a pod of a class finds no room."""
        if not self._most[index]:
            return [(0,) * len(self._most)]
        room = self._group.room(self._classes[index])
        _require_budget(2 * len(self._possible))
        blocking: set[_Counts] = set()
        for load in self._possible:
            if load[index] == room or not self._fits(with_added(load, index, 1)):
                blocking.add(load)
        return _smallest(blocking)


def _is_any_blocked(nodes: Sequence[_NodeLoads], counts: _Counts) -> bool:
    """Return whether the other pods can block every node for the last pod of some class."""
    for index, count in enumerate(counts):
        if count:
            without_last = with_added(counts, index, -1)
            blocking = ((node.blocking(index), node.count) for node in nodes)
            if _sums(blocking, without_last, _within):
                return True
    return False


def _sums(
    choices: Iterable[tuple[list[_Counts], int]],
    limit: _Counts,
    keep: Callable[[set[_Counts], _Counts], list[_Counts]],
) -> list[_Counts]:
    """Return the sums of one load for each node, without those that ``keep`` drops on the way.

    The choices are loads of alike nodes, with the number of these nodes. The limit is the pods that
    exist: ``keep`` returns the sums that matter then.
    """
    sums: list[_Counts] = [(0,) * len(limit)]
    steps = 0
    for loads, nodes in choices:
        for _ in range(nodes):
            steps += len(sums) * len(loads)
            _require_budget(len(sums) * len(loads))
            if steps > _MOST_STEPS:
                raise _TooManyError
            reached: set[_Counts] = set()
            for counts, load in itertools.product(sums, loads):
                reached.add(tuple(map(int.__add__, counts, load)))
            kept = keep(reached, limit)
            if kept == sums:
                break  # and so it stays with every further node
            sums = kept
    return sums


def _capped(sums: set[_Counts], limit: _Counts) -> list[_Counts]:
    """Return the largest sums; no class has more pods than exist."""
    return _largest({tuple(map(min, counts, limit)) for counts in sums})


def _within(sums: set[_Counts], limit: _Counts) -> list[_Counts]:
    """Return the smallest sums that the existing pods are enough for."""
    return _smallest({counts for counts in sums if is_within(counts, limit)})


def _smallest(candidates: set[_Counts]) -> list[_Counts]:
    """Return the counts that are not at least as large as others in every class."""
    kept: list[_Counts] = []
    for counts in sorted(candidates, key=lambda counts: (sum(counts), counts)):
        _require_budget(len(kept))
        if not any(is_within(smaller, counts) for smaller in kept):
            kept.append(counts)
    return kept


def _largest(candidates: set[_Counts]) -> list[_Counts]:
    """Return the counts that are not at most as large as others in every class."""
    return list(map(_negated, _smallest(set(map(_negated, candidates)))))


def _negated(counts: _Counts) -> _Counts:
    return tuple(map(int.__neg__, counts))
