"""The tree of Kueue's ClusterQueues and Cohorts: what a queue has and may borrow.

Follows pkg/cache/scheduler/resource_node.go of Kueue v0.19.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import milli
from ml_foundations.kubernetes.trees import Unknown, unknown_paths
from ml_foundations.planning.input.field_catalog import wrong_quantity

Taken = Mapping[tuple[str, str, str], int]
"""The use of ClusterQueues by their name, the flavor and the resource, in thousandths."""
NOTHING: Taken = MappingProxyType({})
_MOST_LEVELS = 100
"""Levels of Cohorts that are followed: beyond, what a queue may borrow is not known."""


class Quota(NamedTuple):
    """The quota of a ClusterQueue or a Cohort for a resource, in thousandths.

    Without a limit, all of it may be borrowed or lent.
    """

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


@dataclass(eq=False)
class _Node:
    """A ClusterQueue or a Cohort; a Cohort that is not declared has no quotas."""

    manifest: Manifest
    parent: "_Node | None" = None
    children: "list[_Node]" = field(default_factory=list["_Node"])

    @property
    def root(self) -> "_Node":
        root = self
        while root.parent:
            root = root.parent
        return root

    @property
    def is_too_deep(self) -> bool:
        ancestor = self
        for _ in range(_MOST_LEVELS):
            if ancestor.parent is None:
                return False
            ancestor = ancestor.parent
        return True

    @cached_property
    def is_unknown(self) -> bool:
        return self.manifest.get("kind") == "Cohort" and any(unknown_paths(self.manifest))


class Cohorts:
    """The ClusterQueues and the Cohorts that they are in."""

    def __init__(self, queues: Iterable[Manifest], cohorts: Iterable[Manifest]) -> None:
        self._queues = {name_of(queue): _Node(queue) for queue in queues}
        self._cohorts = {name_of(cohort): _Node(cohort) for cohort in cohorts}
        self._unused: dict[tuple[str, str], _Resource] = {}
        declared = [*self._cohorts.values()]
        # A Cohort without a known name and parent, or with itself above it, may lend to any queue.
        self._is_open = not all([self._join(node) for node in [*self._queues.values(), *declared]])
        everyone = (*self._queues.values(), *self._cohorts.values())
        if any(node.is_too_deep for node in everyone):
            self._is_open = True
            for node in everyone:
                node.parent = None
                node.children = []
        self._unknown = {node.root for node in declared if node.is_unknown}

    def _join(self, node: _Node) -> bool:
        """Put a node below its parent, and return whether that was possible."""
        if Unknown in map(type, (name_of(node.manifest), node.manifest.get("spec"))):
            return False
        spec = section(node.manifest, "spec")
        # The field of a ClusterQueue and that of a Cohort, each with its earlier name.
        names = map(spec.get, ("cohortName", "cohort", "parentName", "parent"))
        name = next(filter(None, names), None)
        if name is None:
            return True
        parent = self._cohorts.setdefault(name, _Node({})) if isinstance(name, str) else node
        if parent.root is node:
            return False
        node.parent = parent
        parent.children.append(node)
        return True

    def is_unknown(self, queue: Manifest) -> bool:
        """Return whether what others lend to a queue is not known."""
        return self._is_open or self._queues[name_of(queue)].root in self._unknown

    def available(self, queue: Manifest, flavor: str, resource: str, taken: Taken = NOTHING) -> int:
        """Return how much of a resource in a flavor a queue may still use, in thousandths."""
        node = self._queues[name_of(queue)]
        if taken:
            return max(0, _Resource(flavor, resource, taken).available(node))
        # Adding up a Cohort again for each of its queues would take the square of their number.
        if (flavor, resource) not in self._unused:
            self._unused[flavor, resource] = _Resource(flavor, resource, NOTHING)
        return max(0, self._unused[flavor, resource].available(node))


class _Resource:
    """A resource in a flavor, and what queues use of it."""

    def __init__(self, flavor: str, name: str, taken: Taken) -> None:
        self.flavor = flavor
        self.name = name
        self.taken = taken
        # Cohorts that lend to each other ask twice for each: kept, not two to the power of levels.
        self._quota = cache(self._find_quota)
        self._subtree = cache(self._find_subtree)
        self._used = cache(self._find_used)

    def available(self, node: _Node) -> int:
        subtree = self._subtree(node)
        local = self._local(node)
        used = self._used(node)
        if node.parent is None:
            return subtree - used
        shared = self.available(node.parent)
        borrowing = self._quota(node).borrowing
        if borrowing is not None:
            shared = min(shared, subtree - local - max(0, used - local) + borrowing)
        return max(0, local - used) + shared

    def _find_quota(self, node: _Node) -> Quota:
        for _, flavor in [] if node.is_unknown else flavors_of(node.manifest):
            if flavor.get("name") == self.flavor:
                return quota_of(flavor, self.name)
        return Quota()

    def _find_subtree(self, node: _Node) -> int:
        """Return the quota of a node, with what its children lend."""
        lent = sum(self._subtree(child) - self._local(child) for child in node.children)
        return self._quota(node).nominal + lent

    def _local(self, node: _Node) -> int:
        """Return the quota that a node keeps for itself."""
        lending = self._quota(node).lending
        return 0 if lending is None else max(0, self._subtree(node) - lending)

    def _find_used(self, node: _Node) -> int:
        """Return what is used of a node's quota; its children use what they do not keep."""
        if node.manifest.get("kind") == "ClusterQueue":
            return self.taken.get((name_of(node.manifest), self.flavor, self.name), 0)
        return sum(max(0, self._used(child) - self._local(child)) for child in node.children)


def flavors_of(queue: Manifest) -> list[tuple[Manifest, Manifest]]:
    """Return the named flavors of a ClusterQueue or a Cohort, each with its resource group."""
    flavors: list[tuple[Manifest, Manifest]] = []
    for group in items(section(queue, "spec"), "resourceGroups"):
        for flavor in items(group, "flavors"):
            if "name" in flavor:
                flavors.append((group, flavor))
    return flavors


def quota_of(flavor: Manifest, resource: str) -> Quota:
    """Return the quota of a resource in one flavor."""
    for quota in items(flavor, "resources"):
        if quota.get("name") == resource:
            borrowing = _amount(quota, "borrowingLimit")
            lending = _amount(quota, "lendingLimit")
            return Quota(_amount(quota, "nominalQuota") or 0, borrowing, lending)
    return Quota()


def _amount(quota: Manifest, key: str) -> int | None:
    value: Any = quota.get(key)
    is_valid = isinstance(value, str | int | float) and not wrong_quantity(value)
    return milli(value) if is_valid else None
