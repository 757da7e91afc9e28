"""Free volumes: which claims they satisfy, and whether they go round.

Follows the volume controller and the scheduler's plugin VolumeBinding. A claim gets the smallest free volume of its
class that has its modes, size and labels: at once, wherever the volume is; or, where the class waits for the first
consumer, one that reaches the pod's node. Too few volumes are an error. Who gets one is not known, except where each
reaches one node only: there they are a resource of the node.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ml_foundations.catalog.disks import FILESTORE_CSI
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, milli
from ml_foundations.kubernetes.selectors import REQUIRED, selects, selects_node
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.workloads import Workload

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_SAME = {"volumeMode": "Filesystem", "volumeAttributesClassName": ""}
"""What a claim and its volume have alike, with the defaults."""
_TOPOLOGY_LABELS = {labels.ZONE, labels.REGION, labels.OLD_ZONE, labels.OLD_REGION}


class Need(NamedTuple):
    """Claims that are alike and not bound yet."""

    claim: Manifest
    number: int
    owners: frozenset[str]
    """The workloads whose claims they are."""
    is_shared: bool = False
    """Whether several pods mount the claim."""


class FreeVolumes:
    """The volumes that are kept for no claim, and who may be after them."""

    def __init__(self, volumes: Iterable[Manifest], classes: Mapping[str, Manifest]) -> None:
        self._classes = classes
        free = (v for v in volumes if section(v, "status").get("phase", "Available") == "Available")
        self._volumes = {
            name_of(volume): volume for volume in free if not section(volume, "spec", "claimRef")
        }
        self._needs: list[tuple[Need, frozenset[str]]] = []
        self._of_node: dict[frozenset[str], str] = {}

    def settle(self, needs: Iterable[Need], nodes: Sequence[NodeClass]) -> list[NodeClass]:
        """Learn who competes. What reaches one node each becomes a resource of the node, where nothing else decides."""
        found = list(nodes)
        if not self._volumes:
            return found
        self._needs = [
            (need, volumes) for need in needs if (volumes := self.satisfying(need.claim))
        ]
        for volumes in filter(self._is_interchangeable, {volumes for _, volumes in self._needs}):
            able = [
                [index for index, node in enumerate(nodes) if self._reaches(each, node)]
                for each in volumes
            ]
            if all(sum(nodes[index].count for index in each) <= 1 for each in able):
                self._of_node[volumes] = f"free volumes such as {min(volumes)}"
                for index, count in Counter(index for each in able for index in each).items():
                    offered = {**found[index].allocatable, self._of_node[volumes]: count * WHOLE}
                    found[index] = replace(found[index], allocatable=offered)
        return found

    def _is_interchangeable(self, volumes: frozenset[str]) -> bool:
        """Whether all who are after some volumes can do with any, and get them with their pods' nodes."""
        return not any(
            labels_of(self._volumes[each]).keys() & _TOPOLOGY_LABELS for each in volumes
        ) and all(
            theirs == volumes
            and self.waits(need.claim)
            and not need.is_shared
            and not self.is_made(need.claim)
            for need, theirs in self._needs
            if theirs & volumes
        )

    def requests(self, claims: Iterable[Manifest]) -> Amounts:
        """What claims that are not bound take of the volumes that are resources of nodes."""
        found = (self._of_node.get(self.satisfying(claim)) for claim in claims)
        return {name: count * WHOLE for name, count in Counter(filter(None, found)).items()}

    def shortage(self, claims: Iterable[tuple[Manifest, int]]) -> Iterable[Refusal]:
        """Claims that get no volume for certain, where so many of each kind need one at once."""
        needed: Counter[frozenset[str]] = Counter()
        for claim, count in claims:
            if not self.is_made(claim):
                needed[self.satisfying(claim)] += count
        for volumes in (*needed, frozenset[str]().union(*needed)):
            wanted = sum(count for theirs, count in needed.items() if theirs and theirs <= volumes)
            if wanted > len(volumes):
                yield told(
                    "scarce-volumes", "volumes", wanted=wanted, volumes=names(sorted(volumes))
                )
                return

    def satisfying(self, claim: Manifest) -> frozenset[str]:
        """The free volumes that would satisfy a claim."""
        if not self._volumes or any(unknown_paths(section(claim, "spec"))):
            return frozenset()
        return frozenset(
            name for name, volume in self._volumes.items() if _satisfies(volume, claim)
        )

    def waits(self, claim: Manifest) -> bool:
        """Whether a claim is bound when a pod mounts it."""
        mode = self.class_of(claim).get("volumeBindingMode")
        return mode == "WaitForFirstConsumer" and not section(claim, "spec").get("volumeName")

    def refusals(self, claim: Manifest, workload: Workload, node: NodeClass) -> Iterable[Refusal]:
        """Why no volume is bound to a claim or made for it where a node reaches it, or perhaps none."""
        name, found, waits = name_of(claim), self.satisfying(claim), self.waits(claim)
        is_made = self.is_made(claim, node)
        if is_made and (waits or not found):
            return
        if not waits and sum(count for _, count in self._competing(found, workload)) <= 1:
            sizes = {each: _size(self._volumes[each]) for each in found}
            found = frozenset(each for each in found if sizes[each] == min(sizes.values()))
        here = frozenset(each for each in found if self._reaches(each, node))
        if not here and not is_made:
            message = f"no free volume for claim {name} is reachable from the node"
            if not found and self.is_made(claim):
                in_class = f"storage class {name_of(self.class_of(claim))}"
                message = f"{in_class} makes no volume for claim {name} in the node's topology"
            # A class that does not wait makes the volume before the scheduler looks for a node, and labels of a volume
            # count once it is bound.
            is_open = (
                any(_selects(self._volumes[each], node) for each in found)
                if waits
                else self.is_made(claim)
            )
            yield Refusal("volume-zone", "volumes", message, certain=not is_open)
            return
        is_shared = any(need.is_shared and need.claim is claim for need, _ in self._needs)
        is_near = here == found or (waits and not is_shared)
        if not is_near or not (is_made or found in self._of_node or self._go_round(here, workload)):
            yield told("open-volume", "volumes", certain=False, name=name)

    def class_of(self, claim: Manifest) -> Manifest:
        """The storage class of a claim or a volume; empty where it is not known."""
        return self._classes.get(section(claim, "spec").get("storageClassName") or "", {})

    def is_made(self, claim: Manifest, node: NodeClass | None = None) -> bool:
        """Whether a volume is made for a claim that finds none: anywhere, or for a node."""
        found = self.class_of(claim)
        if (
            not found
            or found.get("provisioner") == _NO_PROVISIONER
            or section(claim, "spec").get("volumeName")
        ):
            return False
        if found.get("provisioner") == FILESTORE_CSI and not self.waits(claim):
            return True  # made before there is a pod, and every zone reaches it: the driver limits no volume to a zone
        terms = items(found, "allowedTopologies")
        return not (node and terms) or any(_in_topology(term, node.labels) for term in terms)

    def _reaches(self, volume: str, node: NodeClass) -> bool:
        return not list(out_of_reach(self._volumes[volume], node, ""))

    def _competing(
        self, volumes: frozenset[str], workload: Workload
    ) -> list[tuple[frozenset[str], int]]:
        """Who may be after some volumes while a workload's claims find theirs; one pod of a Job is enough."""
        return [
            (
                theirs,
                1 if not workload.all_at_once and str(workload) in need.owners else need.number,
            )
            for need, theirs in self._needs
            if theirs & volumes
        ]

    def _go_round(self, volumes: frozenset[str], workload: Workload) -> bool:
        """Whether some volumes are enough for all who may be after them, in any order."""
        competing = sorted(self._competing(volumes, workload), key=lambda each: len(each[0]))
        if sum(count for _, count in competing) <= len(volumes):
            return True
        if len({_reach(self._volumes[each]) for theirs, _ in competing for each in theirs}) > 1:
            return False
        # Claims that are choosier find larger volumes, which the others take last.
        wanted, inner, least = 0, frozenset[str](), 0
        for theirs, count in competing:
            wanted += count
            largest = max((_size(self._volumes[each]) for each in theirs - inner), default=-1)
            if wanted > len(theirs) or not inner <= theirs or (inner and largest >= least):
                return False
            inner, least = theirs, min(_size(self._volumes[each]) for each in theirs)
        return True


def claim_of(volume: Manifest) -> tuple[str, str] | None:
    """Namespace and name of the claim that a volume is kept for; one that is released is kept for none, nor free."""
    owner = section(volume, "spec", "claimRef")
    phase = section(volume, "status").get("phase", "Released" if owner.get("uid") else "Available")
    return (
        (owner.get("namespace", "default"), owner.get("name", ""))
        if owner and phase != "Released"
        else None
    )


def access_modes(claim_or_volume: Manifest) -> list[str]:
    """The access modes of a claim or a volume."""
    return section(claim_or_volume, "spec").get("accessModes") or []


def is_large_enough(volume: Manifest, claim: Manifest) -> bool:
    """Whether a volume has the size and the modes that a claim asks for."""
    theirs, wanted = section(volume, "spec"), section(claim, "spec")
    return (
        _size(volume) >= milli(section(wanted, "resources", "requests").get("storage"))
        and set(access_modes(claim)) <= set(access_modes(volume))
        and all(
            (theirs.get(key) or default) == (wanted.get(key) or default)
            for key, default in _SAME.items()
        )
    )


def out_of_reach(volume: Manifest, node: NodeClass, claim: str) -> Iterable[Refusal]:
    """Why a node does not reach a volume."""
    if not _selects(volume, node):
        yield told("volume-out-of-reach", "volumes", volume=name_of(volume), claim=claim)
    if _TOPOLOGY_LABELS.isdisjoint(node.labels):
        return
    for key, value in labels_of(volume).items():
        if key in _TOPOLOGY_LABELS and node.labels.get(key) not in str(value).split("__"):
            at = node.labels.get(key, f"no {key}")
            yield Refusal(
                "volume-zone",
                "volumes",
                f"the volume of claim {claim} is in {value}, the node in {at}",
            )


def _selects(volume: Manifest, node: NodeClass) -> bool:
    """Whether a volume's node affinity selects a node."""
    required = section(volume, "spec", "nodeAffinity").get("required")
    return selects_node({"affinity": {"nodeAffinity": {REQUIRED: required}}}, node.manifest)


def _satisfies(volume: Manifest, claim: Manifest) -> bool:
    """Whether a free volume satisfies a claim; a claim that names its volume needs no labels of it."""
    theirs, wanted = section(volume, "spec"), section(claim, "spec")
    name, selector = wanted.get("volumeName"), wanted.get("selector")
    return (
        (theirs.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and is_large_enough(volume, claim)
        and (
            name == name_of(volume)
            if name
            else selector is None or selects(selector, labels_of(volume))
        )
    )


def _size(volume: Manifest) -> int:
    return milli(section(volume, "spec", "capacity").get("storage", 0))


def _reach(volume: Manifest) -> str:
    """What decides which nodes reach a volume."""
    topology = {key: value for key, value in labels_of(volume).items() if key in _TOPOLOGY_LABELS}
    return json.dumps(
        [section(volume, "spec", "nodeAffinity"), topology], sort_keys=True, default=str
    )


def _in_topology(term: Manifest, node_labels: Mapping[str, Any]) -> bool:
    return all(
        node_labels.get(expression["key"]) in (expression.get("values") or [])
        for expression in items(term, "matchLabelExpressions")
    )
