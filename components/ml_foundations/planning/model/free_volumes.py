"""Free volumes: the claims that compete for them, and whether there are enough.

This follows the volume controller and the scheduler's plugin VolumeBinding. A claim gets the
smallest free volume of its class that has its modes, size and labels. It gets it at once, wherever
the volume is. If the class waits for the first consumer, it gets one that reaches the pod's node.
Too few volumes are an error. Which claim gets one is not known, except if each volume reaches a
single node: then the volumes are a resource of the nodes.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from operator import itemgetter
from typing import NamedTuple

from ml_foundations.kinds.kind import at
from ml_foundations.kubernetes.objects import Manifest, labels_of, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, Amounts
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.model import storage
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.performance import IdentityMap, fingerprint
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.storage import TOPOLOGY_LABELS, StorageClasses, size_of
from ml_foundations.planning.model.workloads import Workload

_Names = frozenset[str]
"""The names of volumes."""


class Need(NamedTuple):
    """Claims that are alike and not bound yet."""

    claim: Manifest
    number: int
    owners: frozenset[str]
    """The workloads whose claims they are."""
    is_shared: bool = False
    """Whether several pods mount the claim."""


class FreeVolumes:
    """The volumes that are kept for no claim, and the claims that compete for them."""

    def __init__(self, volumes: Iterable[Manifest], classes: StorageClasses) -> None:
        self._classes = classes
        self._all = list(volumes)
        self._volumes = {name_of(volume): volume for volume in self._all if storage.is_free(volume)}
        self._needs: dict[_Names, list[Need]] = {}
        """The claims by the volumes that satisfy them: thousands have the same."""
        self._of_owner = defaultdict[str, list[tuple[_Names, Need]]](list)
        self._shared: IdentityMap[Manifest, bool] = IdentityMap()
        """The claims by the workloads whose they are, and those that several pods mount."""
        self._of_class = defaultdict[str, list[str]](list)
        for name, volume in self._volumes.items():
            self._of_class[storage.class_name(volume)].append(name)
        self._satisfying: dict[bytes | None, _Names] = {}
        self._reached = cache(self._find_reached)
        self._reaches = cache(self._find_reaches)
        self._resources: dict[_Names, str] = {}
        """The volumes that are a resource of nodes, with the name of the resource."""

    def settle(self, needs: Iterable[Need], nodes: Sequence[NodeClass]) -> list[NodeClass]:
        """Note the competing claims, and return the nodes with their volumes as a resource."""
        settled = list(nodes)
        if not self._volumes:
            return settled
        for need in needs:
            if candidates := self.satisfying(need.claim):
                self._needs.setdefault(candidates, []).append(need)
                self._shared[need.claim] = need.is_shared
                for owner in need.owners:
                    self._of_owner[owner].append((candidates, need))
        # Volumes are a resource if each reaches one node, and every claim for them accepts any.
        for volumes in self._needs:
            holders = self._holders(volumes, nodes) if self._is_interchangeable(volumes) else None
            if holders is None:
                continue
            resource = self._resources[volumes] = f"free volumes such as {min(volumes)}"
            for index, count in holders.items():
                node = settled[index]
                allocatable = {**node.allocatable, resource: count * WHOLE}
                settled[index] = replace(node, allocatable=allocatable)
        return settled

    def _holders(self, volumes: _Names, nodes: Sequence[NodeClass]) -> Counter[int] | None:
        """Return how many volumes reach each node, by its index; None if one reaches several."""
        holders = Counter[int]()
        for name in volumes:
            holding_nodes = 0
            for index, node in enumerate(nodes):
                if storage.is_reached(self._volumes[name], node):
                    holding_nodes += node.count
                    holders[index] += 1
            if holding_nodes > 1:
                return None
        return holders

    def _is_interchangeable(self, volumes: _Names) -> bool:
        """Return whether every claim for some volumes accepts any, and gets it with its node."""
        for name in volumes:
            if labels_of(self._volumes[name]).keys() & TOPOLOGY_LABELS:
                return False
        for candidates, need in self._needs_of(volumes):
            waits = self._classes.waits(need.claim)
            if candidates != volumes or need.is_shared or not waits:
                return False
            if self._classes.makes_volume(need.claim):
                return False
        return True

    def requests(self, claims: Iterable[Manifest]) -> Amounts:
        """Return what unbound claims take of the volumes that are resources of nodes."""
        requests: Amounts = {}
        for claim in claims:
            if resource := self._resources.get(self.satisfying(claim)):
                requests[resource] = requests.get(resource, 0) + WHOLE
        return requests

    def shortage(self, claims: Iterable[tuple[Manifest, int]]) -> Iterable[Refusal]:
        """Yield the refusal of claims if there are too few volumes for certain."""
        # All these claims need a volume at the same time, each as often as its number.
        needed: Counter[_Names] = Counter()
        for claim, count in claims:
            if not self._classes.makes_volume(claim):
                needed[self.satisfying(claim)] += count
        for volumes in (*needed, frozenset[str]().union(*needed)):
            required = sum(n for part, n in needed.items() if part and part <= volumes)
            if required > len(volumes):
                free = names(sorted(volumes))
                message = f"{required} claims need one of the free volumes {free} each"
                remedy = "Declare a PersistentVolume for each claim."
                yield Refusal("volume-binding", "volumes", message, remedy, only_refuses=True)
                return

    def satisfying(self, claim: Manifest) -> _Names:
        """Return the free volumes that can be bound to a claim."""
        spec = section(claim, "spec")
        if not self._volumes or any(unknown_paths(spec)):
            return frozenset()
        key = fingerprint(spec)
        satisfying = self._satisfying.get(key) if key else None
        if satisfying is None:
            names_of_class = self._of_class.get(storage.class_name(claim), ())
            satisfying = frozenset(
                name for name in names_of_class if storage.satisfies(self._volumes[name], claim)
            )
            self._satisfying[key] = satisfying
        return satisfying

    def _find_reached(self, volumes: _Names, node: NodeClass) -> _Names:
        """Return those of some volumes that a node reaches."""
        return frozenset(n for n in volumes if storage.is_reached(self._volumes[n], node))

    def _find_reaches(self, volumes: _Names) -> frozenset[str]:
        """Return what decides which nodes reach each of some volumes."""
        reaches: set[str] = set()
        for volume in (self._volumes[name] for name in volumes):
            labelled = labels_of(volume).items()
            topology = {key: value for key, value in labelled if key in TOPOLOGY_LABELS}
            affinity = section(volume, "spec", "nodeAffinity")
            reaches.add(json.dumps([affinity, topology], sort_keys=True, default=str))
        return frozenset(reaches)

    def refusals(self, claim: Manifest, workload: Workload, node: NodeClass) -> Iterable[Refusal]:
        """Yield why a claim gets no volume that a node reaches, or perhaps none."""
        candidates = self.satisfying(claim)
        waits = self._classes.waits(claim)
        is_made = self._classes.makes_volume(claim, node)
        if is_made and (waits or not candidates):
            return
        if not waits and sum(map(itemgetter(1), self._competing(candidates, workload))) <= 1:
            least = min(self._sizes(candidates), default=0)
            candidates = frozenset(n for n in candidates if size_of(self._volumes[n]) == least)
        reached = self._reached(candidates, node)
        if not reached and not is_made:
            yield self._out_of_reach(claim, candidates, node)
            return
        is_shared = self._shared.get(claim, False)
        gets_a_reached_one = reached == candidates or (waits and not is_shared)
        has_enough = is_made or candidates in self._resources or self._are_enough(reached, workload)
        if not gets_a_reached_one or not has_enough:
            name = name_of(claim)
            message = f"claim {name} may get a volume that the node reaches, or not"
            remedy = f"Keep a volume for {name}: name the claim in its claimRef."
            yield doubt("volume-binding", "volumes", message, remedy, only_refuses=True)

    def _sizes(self, volumes: _Names) -> list[int]:
        return [size_of(self._volumes[name]) for name in volumes]

    def _out_of_reach(self, claim: Manifest, candidates: _Names, node: NodeClass) -> Refusal:
        """Return the refusal of a node that reaches no volume that the claim may get."""
        name = name_of(claim)
        may_be_made = self._classes.makes_volume(claim)
        if not candidates and not may_be_made:
            return self._none_matches(claim)
        message = f"no free volume for claim {name} is reachable from the node"
        if not candidates and may_be_made:
            storage_class = name_of(self._classes.of(claim))
            made = f"storage class {storage_class} makes no volume for claim {name}"
            message = f"{made} in the node's topology"
        # A class that does not wait makes the volume before the scheduler looks for a node. The
        # labels of a volume count only after it is bound.
        may_come = may_be_made
        if self._classes.waits(claim):
            may_come = any(storage.is_selected(node, self._volumes[n]) for n in candidates)
        return Refusal("volume-zone", "volumes", message, certain=not may_come)

    def _none_matches(self, claim: Manifest) -> Refusal:
        """Return the refusal of a claim that no volume can be bound to, by the nearest volume."""
        volume_name = section(claim, "spec").get("volumeName")
        nearest = next((v for v in self._all if volume_name and name_of(v) == volume_name), None)
        nearest = nearest or self._first_of_class.get(storage.class_name(claim))
        nearest = nearest or next(iter(self._all), None)
        why = "none is declared"
        remedy = "Declare one, or let a class make it."
        if nearest is not None:
            why = storage.mismatch(nearest, claim)
            remedy = "Delete it, or declare another volume."
            if section(nearest, "spec", "claimRef"):
                remedy = "Correct its claimRef."
            elif storage.is_free(nearest):
                is_able = storage.is_large_enough(nearest, claim)
                named = ", or name the claim in its claimRef" if is_able else ""
                remedy = f"Change one of both{named}."
        message = f"no PersistentVolume can be bound to claim {name_of(claim)}: {why}"
        return Refusal("volume-binding", "volumes", message, remedy, self._has_known_sizes)

    @cached_property
    def _has_known_sizes(self) -> bool:
        return all(at(volume, "spec.capacity.storage") is not UNKNOWN for volume in self._all)

    @cached_property
    def _first_of_class(self) -> Mapping[str, Manifest]:
        return {storage.class_name(volume): volume for volume in reversed(self._all)}

    def _competing(self, volumes: _Names, workload: Workload) -> list[tuple[_Names, int]]:
        """Return the claims that may take some volumes: what satisfies them, and their number."""
        competing: dict[_Names, int] = {}
        for candidates, number in self._numbers.items():
            if not candidates.isdisjoint(volumes):
                competing[candidates] = number
        # Of a workload whose pods need not run at once, one pod is enough.
        for candidates, need in () if workload.all_at_once else self._of_owner[str(workload)]:
            if candidates in competing:
                competing[candidates] += 1 - need.number
        return list(competing.items())

    @cached_property
    def _numbers(self) -> Mapping[_Names, int]:
        """The number of claims for each set of volumes."""
        numbers = Counter[_Names]()
        for volumes, needs in self._needs.items():
            numbers[volumes] += sum(need.number for need in needs)
        return numbers

    def _needs_of(self, volumes: _Names) -> Iterator[tuple[_Names, Need]]:
        """Yield the claims that may take some volumes, each with all that it may take."""
        for candidates, needs in self._needs.items():
            if not candidates.isdisjoint(volumes):
                yield from ((candidates, need) for need in needs)

    def _are_enough(self, volumes: _Names, workload: Workload) -> bool:
        """Return whether some volumes are enough for all claims that may take them, in any order.

        They are if there are as many volumes as claims. Otherwise, all must reach the same nodes,
        and claims with less choice must ask for larger volumes. Each claim gets the smallest volume
        that is left, so claims with more choice leave the larger ones to those with less choice.
        Example: volumes of 1, 1 and 5 GiB are enough for a claim of 1 GiB and one of 5 GiB.
        """
        competing = sorted(self._competing(volumes, workload), key=lambda claims: len(claims[0]))
        if sum(map(itemgetter(1), competing)) <= len(volumes):
            return True
        contested = frozenset[str]().union(*map(itemgetter(0), competing))
        if len(self._reaches(contested)) > 1:
            return False
        claims = 0
        narrower = frozenset[str]()
        smallest_narrower = 0
        for candidates, number in competing:
            claims += number
            if claims > len(candidates) or not narrower <= candidates:
                return False
            largest_other = max(self._sizes(candidates - narrower), default=-1)
            if narrower and largest_other >= smallest_narrower:
                return False
            narrower = candidates
            smallest_narrower = min(self._sizes(candidates))
        return True
