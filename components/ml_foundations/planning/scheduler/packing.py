"""Pods of a few classes on nodes where only room and neighbours on the same node decide: exact, without the order.

Then every arrangement can come about, whatever the order of arrival. So all pods fit for certain when no arrangement
of fewer pods blocks every node for one that is left, and they can fit when some arrangement has room for all.
Both are found node by node, over how many pods of each class are placed.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from math import prod

from ml_foundations.planning.model.node_groups import HOSTNAME, NodeGroup, PodClass, PodGroup
from ml_foundations.planning.scheduler.exhaustive_search import Outcome

_Counts = tuple[int, ...]
"""How many pods of each class."""

_MOST_LOADS = 5_000
"""Loads of one node that are told apart."""
_MOST_STEPS = 300_000
"""Sums of counts that are looked at before the search gives up."""


class _TooManyError(Exception):
    pass


def arrangements(demands: Sequence[PodGroup]) -> Outcome | None:
    """What the arrangements of pods lead to in all; None where more than the nodes decides, or there are too many."""
    if any(not _is_local(demand.pod) for demand in demands):
        return None
    classes, counts = [demand.pod for demand in demands], tuple(demand.count for demand in demands)
    places = list({id(place): place for demand in demands for place in demand.places}.values())
    welcome = [{id(place) for place in demand.places} for demand in demands]
    try:
        loads = [
            _Loads(classes, counts, place, [id(place) in mine for mine in welcome])
            for place in places
        ]
        complete = counts in _sums(((each.most(), each.nodes) for each in loads), counts, _capped)
        stuck = any(
            _is_blocked(index, loads, counts) for index in range(len(counts)) if counts[index]
        )
    except _TooManyError:
        return None
    return Outcome(complete, stuck)


def _is_local(pod: PodClass) -> bool:
    """Whether only the node itself decides about a pod."""
    elsewhere = pod.affinity or pod.spread or pod.exclusive_claims
    return not elsewhere and all(term.key == HOSTNAME for term in pod.anti_affinity)


class _Loads:
    """What one node of a place may carry."""

    def __init__(
        self,
        classes: Sequence[PodClass],
        counts: _Counts,
        place: NodeGroup,
        welcome: Sequence[bool],
    ) -> None:
        self._classes = classes
        self._place = place
        self.nodes = min(place.count, sum(counts) + 1)
        given = zip(classes, counts, welcome, strict=True)
        self._limits = [min(count, place.room(pod)) if mine else 0 for pod, count, mine in given]
        if prod(limit + 1 for limit in self._limits) > _MOST_LOADS:
            raise _TooManyError
        loads = itertools.product(*(range(limit + 1) for limit in self._limits))
        self._possible = {load for load in loads if self._fits(load)}

    def _fits(self, load: _Counts) -> bool:
        present = [pod for pod, count in zip(self._classes, load, strict=True) if count]
        if any(one.excludes_on_node(other) for one, other in itertools.combinations(present, 2)):
            return False
        names = {name for pod in present for name in pod.requests}
        return all(
            sum(
                pod.requests.get(name, 0) * count
                for pod, count in zip(self._classes, load, strict=True)
            )
            <= self._place.free.get(name, 0)
            for name in names
        )

    def most(self) -> list[_Counts]:
        """The loads to which nothing can be added."""
        return _largest(self._possible)

    def blocking(self, index: int) -> list[_Counts]:
        """The smallest loads beside which a pod of a class finds no room."""
        if not self._limits[index]:
            return [(0,) * len(self._limits)]
        most = self._place.room(self._classes[index])
        return _smallest(
            {
                load
                for load in self._possible
                if load[index] == most or not self._fits(_one_more(load, index))
            }
        )


def _is_blocked(index: int, loads: Sequence[_Loads], counts: _Counts) -> bool:
    """Whether pods, without the last one of a class, can block every node for it."""
    left = _one_more(counts, index, -1)
    return bool(_sums(((each.blocking(index), each.nodes) for each in loads), left, _within))


def _sums(
    choices: Iterable[tuple[list[_Counts], int]],
    limit: _Counts,
    keep: Callable[[set[_Counts], _Counts], list[_Counts]],
) -> list[_Counts]:
    """The sums of one load for each node that are worth keeping."""
    sums: list[_Counts] = [(0,) * len(limit)]
    steps = 0
    for loads, nodes in choices:
        for _ in range(nodes):
            steps += len(sums) * len(loads)
            if steps > _MOST_STEPS:
                raise _TooManyError
            reached = keep(
                {tuple(map(int.__add__, one, load)) for one in sums for load in loads}, limit
            )
            if reached == sums:
                break
            sums = reached
    return sums


def _capped(sums: set[_Counts], limit: _Counts) -> list[_Counts]:
    """The largest sums, as far as there are pods."""
    return _largest({tuple(map(min, one, limit)) for one in sums})


def _within(sums: set[_Counts], limit: _Counts) -> list[_Counts]:
    """The smallest sums for which there are pods enough."""
    return _smallest({one for one in sums if all(map(int.__le__, one, limit))})


def _smallest(found: set[_Counts]) -> list[_Counts]:
    """The counts that are nowhere above another."""
    kept: list[_Counts] = []
    for one in sorted(found, key=lambda counts: (sum(counts), counts)):
        if not any(all(map(int.__le__, other, one)) for other in kept):
            kept.append(one)
    return kept


def _largest(found: set[_Counts]) -> list[_Counts]:
    """The counts that are nowhere below another."""
    negative = _smallest({tuple(-count for count in one) for one in found})
    return [tuple(-count for count in one) for one in negative]


def _one_more(counts: _Counts, index: int, added: int = 1) -> _Counts:
    return (*counts[:index], counts[index] + added, *counts[index + 1 :])
