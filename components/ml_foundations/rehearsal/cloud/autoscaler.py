"""The cluster autoscaler's decisions, without any I/O: which pools grow for which pods."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, partial
from itertools import chain, repeat, starmap

from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, section
from ml_foundations.planning.model.decisions import Shortage
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, carrying, pod_of, take
from ml_foundations.planning.model.nodes import EXPENDABLE_BELOW, node_class
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.scheduler.placement import placeable
from ml_foundations.planning.verdict import shortage
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.store import Pool

REMOVING_TAINT = "ToBeDeletedByClusterAutoscaler"
"""The taint with which the cluster autoscaler marks a node that it removes; its value is the time."""


@dataclass
class _Kind:
    pod: PodClass
    """Pending pods that the scheduler treats alike."""
    zones: frozenset[str] | None
    """The zones of their disks; None where any zone will do."""
    pending: list[Manifest] = field(default_factory=list[Manifest])

    def reaches(self, place: NodeGroup) -> bool:
        return self.zones is None or _pool_and_zone(place.node.manifest)[1] in self.zones

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(
            self.pod.requests.get(name, 0) for name in (labels.GPU_RESOURCE, "cpu", "memory")
        )

    def put(self, place: NodeGroup, left: int) -> int:
        """NodeGroup as many of those left as may go there at once; how many."""
        count = min(left, place.room(self.pod)) if self.pod.is_simple else 1
        take(place.free, self.pod, count)
        place.running += (self.pod,) * count
        return count


@dataclass(frozen=True)
class Unplaced:
    """A pending pod for which no more nodes may come."""

    pod: Manifest
    reason: str
    is_hopeless: bool
    """Whether no node takes it, even an empty one or a new one of any pool."""


@dataclass(frozen=True)
class Plan:
    """What the autoscaler found: nodes to add, by pool and zone, and nodes that pending pods will use."""

    new_nodes: Counter[tuple[str, str]] = field(default_factory=Counter)
    needed: frozenset[str] = frozenset()
    unplaced: tuple[Unplaced, ...] = ()


def is_finished(pod: Manifest) -> bool:
    """Whether a pod has ended and takes no resources any more."""
    return section(pod, "status").get("phase") in ("Succeeded", "Failed")


def is_of_daemon_set(pod: Manifest) -> bool:
    """Whether a pod belongs to a DaemonSet."""
    return any(owner["kind"] == "DaemonSet" for owner in items(pod["metadata"], "ownerReferences"))


def is_unschedulable(pod: Manifest) -> bool:
    """Whether the scheduler has said that no node fits a pod."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = items(section(pod, "status"), "conditions")
    return any(
        c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions
    )


def is_busy(pod: Manifest) -> bool:
    """Whether a pod keeps its node from being removed."""
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod) and not is_of_daemon_set(pod)


def busy_by_node(pods: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """By node, the pods that keep it from being removed."""
    running: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in filter(is_busy, pods):
        running[pod["spec"]["nodeName"]].append(pod)
    return dict(running)


def plan(
    pods: Sequence[Manifest],
    existing: Sequence[Manifest],
    daemon_sets: Iterable[Manifest],
    pools: Iterable[Pool],
    operator: Operator | None,
    zones_of_disks: Callable[[Manifest], frozenset[str] | None],
    *,
    queued: bool = False,
    brought: Sequence[Manifest] = (),
) -> Plan:
    """Fit the unschedulable of all pods on existing nodes, then on as few and as cheap new ones as possible.

    DaemonSets take part of each node. A pod reaches its disks in some zones; None where any will do. Queued is what is
    for a ProvisioningRequest: it gets new nodes only, of queued pools, which grow for no other. Brought nodes have no
    pool.
    """
    kinds = sorted(_kinds(pods, zones_of_disks), key=lambda kind: kind.size, reverse=True)
    if not kinds:
        return Plan()
    # A pod template has the two keys of a pod that are looked at.
    daemons = [pod_of(item["spec"]["template"]) for item in daemon_sets]
    declared = {pool.name: pool for pool in pools}
    growing = {
        name: pool for name, pool in declared.items() if pool.autoscaled and pool.queued is queued
    }
    busy = busy_by_node(pods)
    usable = (
        ()
        if queued
        else (node for node in existing if not section(node, "spec").get("unschedulable"))
    )
    places = [
        _place(_ready(node), daemons, map(pod_of, busy.get(name_of(node), ()))) for node in usable
    ]
    blank = cache(
        lambda pool, zone: _place(nodes.node_template(declared[pool], zone, operator), daemons)
    )
    empty = cache(lambda: [_place(_emptied(node), daemons) for node in (*existing, *brought)])
    sizes = Counter(map(_pool_and_zone, existing))
    new: Counter[tuple[str, str]] = Counter()
    needed: set[str] = set()
    unplaced: list[Unplaced] = []
    for kind in kinds:
        left, repels = (
            len(kind.pending),
            any(pod.anti_affinity for place in places for pod in place.running),
        )
        is_alone = kind.pod.is_simple and not repels
        taking = _taking(kind, places, is_alone)
        while left:
            place = next(taking)
            if place is None:
                fresh = starmap(blank, _may_grow(growing.values(), sizes))
                chosen = _cheapest(kind, left, fresh, [] if is_alone else places, sizes, growing)
                if chosen is None:
                    blanks = [
                        blank(pool.name, zone) for pool in declared.values() for zone in pool.zones
                    ]
                    of_requests = {
                        pool.name for pool in declared.values() if pool.queued and not queued
                    }
                    reason = _reason(
                        kind, blanks, set(_may_grow(growing.values(), sizes)), of_requests
                    )
                    is_able = partial(_is_able, kind.pod)
                    is_hopeless = not any(map(is_able, blanks)) and not any(map(is_able, empty()))
                    unplaced += [Unplaced(pod, reason, is_hopeless) for pod in kind.pending[-left:]]
                    break
                place = replace(chosen, free=dict(chosen.free))
                places.append(place)
                new[_pool_and_zone(place.node.manifest)] += 1
                sizes[_pool_and_zone(place.node.manifest)] += 1
            needed.add(place.node.name)
            left -= kind.put(place, left)
    return Plan(new, frozenset(needed - {""}), tuple(unplaced))


def _reason(
    kind: _Kind,
    blanks: Iterable[NodeGroup],
    growing: Set[tuple[str, str]],
    of_requests: Collection[str],
) -> str:
    """Return why no pool gets a new node for a pod: what the nearest pool lacks, or what keeps one from growing.

    Nodes of the pools ``of_requests`` come only for a ProvisioningRequest.
    """
    places = [
        NodeGroup(
            replace(place.node, name=_pool_and_zone(place.node.manifest)[0]),
            place.free,
            place.running,
        )
        for place in blanks
        if kind.reaches(place)
    ]
    if kind.zones is not None and not places:
        return "no node pool is in a zone where it reaches all of its disks"
    able = [place for place in places if _is_able(kind.pod, place)]
    others = [place for place in able if place.node.name not in of_requests]
    names = shortage.names(dict.fromkeys(f'"{place.node.name}"' for place in others or able))
    if any(_pool_and_zone(place.node.manifest) in growing for place in able):
        return f"on a new node of {names} its affinity, anti-affinity or topology spread would not hold"
    if others:
        return f"a node of {names} has the room, and no more nodes may come there for it"
    if able:
        return (
            f"a node of {names} has the room, and nodes come there only for a ProvisioningRequest"
        )
    pods = PodSet({}, kind.pod.spec, kind.pod.labels, 1, "spec", "replicas")
    refusal = shortage.words(Shortage(pods, kind.pod, places, 0, 0, "", 1))
    return f"{refusal.message}. {refusal.remedy}"


def _is_able(pod: PodClass, place: NodeGroup) -> bool:
    """Return whether a place takes a pod, whatever other pods there are."""
    return place.room(pod) > 0 and not any(refusal.certain for refusal in refusals(pod, place.node))


def _taking(kind: _Kind, places: list[NodeGroup], is_alone: bool) -> Iterator[NodeGroup | None]:
    """The place for the next pods of a kind, each time that it is asked for; None where no place takes more."""
    if is_alone:
        # What they take of one place changes no other: each is filled once.
        yield from chain(filter(kind.reaches, placeable(kind.pod, places)), repeat(None))
    while True:
        yield next(filter(kind.reaches, placeable(kind.pod, places)), None)


def _kinds(
    pods: Iterable[Manifest], zones_of_disks: Callable[[Manifest], frozenset[str] | None]
) -> Iterable[_Kind]:
    kinds: dict[str, _Kind] = {}
    for pod in pods:
        # Pods that claim devices get their nodes from dra.Driver; a DaemonSet's pod is for a node that exists.
        is_expendable = pod["spec"].get("priority", 0) < EXPENDABLE_BELOW
        is_other = pod["spec"].get("resourceClaims") or is_of_daemon_set(pod)
        if not is_unschedulable(pod) or is_other or is_expendable:
            continue
        found, zones = pod_of(pod), zones_of_disks(pod)
        same = [pod["spec"].get(key) for key in ("affinity", "topologySpreadConstraints")]
        amounts, ports = sorted(found.requests.items()), sorted(found.ports)
        where = None if zones is None else sorted(zones)
        key = json.dumps([found.namespace, str(found.node_key), same, amounts, ports, where])
        kinds.setdefault(key, _Kind(found, zones)).pending.append(pod)
    return kinds.values()


def _place(
    node: Manifest, daemons: Iterable[PodClass], running: Iterable[PodClass] = ()
) -> NodeGroup:
    """A node with the pods on it, those of DaemonSets included, whether or not they are there yet."""
    found = node_class(node)
    return carrying(
        found, [*(daemon for daemon in daemons if not refusals(daemon, found)), *running]
    )


def _ready(node: Manifest) -> Manifest:
    """The node as it will be soon, without the taints of its start or of a removal that can be undone."""
    spec = section(node, "spec")
    passing = ("node.kubernetes.io/", REMOVING_TAINT)
    kept = [taint for taint in items(spec, "taints") if not taint["key"].startswith(passing)]
    return {**node, "spec": {**spec, "taints": kept}}


def _emptied(node: Manifest) -> Manifest:
    """Return the node as it may become: ready, not cordoned and without pods."""
    node = _ready(node)
    return {**node, "spec": {**node["spec"], "unschedulable": False}}


def _pool_and_zone(node: Manifest) -> tuple[str, str]:
    found = labels_of(node)
    return found.get(labels.GKE_NODE_POOL, ""), found.get(labels.ZONE, "")


def _may_grow(pools: Iterable[Pool], sizes: Counter[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """The pools that may have one more node, with each zone where they may."""
    for pool in pools:
        most = pool.max_nodes if pool.max_nodes_per_zone is None else pool.max_nodes_per_zone
        if sum(count for (name, _), count in sizes.items() if name == pool.name) < pool.max_nodes:
            yield from ((pool.name, zone) for zone in pool.zones if sizes[pool.name, zone] < most)


def _cheapest(
    kind: _Kind,
    left: int,
    fresh: Iterable[NodeGroup],
    places: Sequence[NodeGroup],
    sizes: Counter[tuple[str, str]],
    pools: Mapping[str, Pool],
) -> NodeGroup | None:
    """The new node with the lowest price per pod, in the emptiest zone if zones are to be alike."""

    def cost(place: NodeGroup) -> tuple[Decimal, int, str, str]:
        name, zone = _pool_and_zone(place.node.manifest)
        crowd = sizes[name, zone] if pools[name].location_policy == "BALANCED" else 0
        return price(pools[name]) / min(left, place.room(kind.pod)), crowd, name, zone

    suitable = [
        place
        for place in fresh
        if kind.reaches(place) and place in placeable(kind.pod, [*places, place])
    ]
    return min(suitable, key=cost, default=None)


def price(pool: Pool) -> Decimal:
    """The price of a node of a pool, per hour; infinite where it is not known."""
    gpu, count = (pool.gpu.type, pool.gpu.count) if pool.gpu else (None, 0)
    region = pool.zones[0].rpartition("-")[0]
    found = pool.machine.price(region, gpu, count, spot=pool.spot)
    return Decimal("Infinity") if found is None else found
