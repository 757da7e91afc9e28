"""The decisions of the cluster autoscaler, without I/O: which pools grow for which pods."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from itertools import chain, repeat

from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, section
from ml_foundations.kubernetes.words import listed, verb
from ml_foundations.planning.model.decisions import Shortage
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, carrying, pod_of, take
from ml_foundations.planning.model.nodes import EXPENDABLE_BELOW, node_class
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.scheduler.placement import placeable
from ml_foundations.planning.verdict import shortage
from ml_foundations.rehearsal.api import condition
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.store import Pool

REMOVING_TAINT = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that the cluster autoscaler removes. Its value is the time."""


@dataclass
class _PendingPods:
    """Pending pods that the scheduler treats alike."""

    pod: PodClass
    zones: frozenset[str] | None
    """The zones in which they reach their disks, or None for all zones."""
    manifests: list[Manifest] = field(default_factory=list[Manifest])

    @property
    def size(self) -> tuple[int, ...]:
        requests = self.pod.requests
        return tuple(requests.get(name, 0) for name in (labels.GPU_RESOURCE, "cpu", "memory"))

    def reaches(self, node: NodeGroup) -> bool:
        return self.zones is None or _pool_and_zone(node.node.manifest)[1] in self.zones

    def put_on(self, node: NodeGroup, count: int) -> int:
        """Put pods on a node, as many of ``count`` as fit at once, and return their number."""
        count = min(count, node.room(self.pod)) if self.pod.is_simple else 1
        take(node.free, self.pod, count)
        node.running += (self.pod,) * count
        return count


@dataclass(frozen=True)
class Unplaced:
    """A pending pod for which no pool gets a new node."""

    pod: Manifest
    reason: str
    is_hopeless: bool
    """Whether neither an empty node nor a new node of any pool can run it."""


@dataclass(frozen=True)
class Plan:
    """The new nodes by pool and zone, the nodes that pending pods will use, and the other pods."""

    new_nodes: Counter[tuple[str, str]] = field(default_factory=Counter)
    needed: frozenset[str] = frozenset()
    unplaced: tuple[Unplaced, ...] = ()


def is_finished(pod: Manifest) -> bool:
    """Return whether a pod has ended and uses no resources any more."""
    return section(pod, "status").get("phase") in ("Succeeded", "Failed")


def is_of_daemon_set(pod: Manifest) -> bool:
    """Return whether a pod belongs to a DaemonSet."""
    return any(owner["kind"] == "DaemonSet" for owner in items(pod["metadata"], "ownerReferences"))


def is_unschedulable(pod: Manifest) -> bool:
    """Return whether the scheduler has reported that no node fits a pod."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    return condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def is_busy(pod: Manifest) -> bool:
    """Return whether a pod keeps its node from being removed."""
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod) and not is_of_daemon_set(pod)


def busy_by_node(pods: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return by node the pods that keep it from being removed."""
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
    imported: Sequence[Manifest] = (),
) -> Plan:
    """Plan nodes for the unschedulable pods: existing ones first, then few and cheap new ones.

    Args:
        pods: All pods of the cluster.
        existing: The nodes of the pools.
        daemon_sets: The DaemonSets. Their pods use resources of every node.
        pools: The node pools.
        operator: The GPU Operator, if it is installed.
        zones_of_disks: Returns the zones in which a pod reaches its disks, or None for all zones.
        queued: Whether the pods are those of a ProvisioningRequest. They get only new nodes, of
            queued pools, which do not grow for other pods.
        imported: Copies of the nodes of the user's cluster. They have no pool.
    """
    pending = sorted(_pending(pods, zones_of_disks), key=lambda group: group.size, reverse=True)
    if not pending:
        return Plan()
    planner = _Planner(pods, existing, daemon_sets, pools, operator, queued, imported)
    for group in pending:
        planner.place(group)
    return Plan(planner.new, frozenset(planner.needed - {""}), tuple(planner.unplaced))


class _Planner:
    """Simulates the nodes of a cluster as they fill and grow."""

    def __init__(
        self,
        pods: Sequence[Manifest],
        existing: Sequence[Manifest],
        daemon_sets: Iterable[Manifest],
        pools: Iterable[Pool],
        operator: Operator | None,
        queued: bool,
        imported: Sequence[Manifest],
    ) -> None:
        # A pod template has the fields of a pod that `pod_of` reads.
        self._daemons = [pod_of(daemon_set["spec"]["template"]) for daemon_set in daemon_sets]
        self._pools = {pool.name: pool for pool in pools}
        self._operator = operator
        self._queued = queued
        self._all_nodes = (*existing, *imported)
        self._sizes = Counter(map(_pool_and_zone, existing))
        self._nodes: list[NodeGroup] = []
        busy = busy_by_node(pods)
        for node in existing if not queued else ():
            if not section(node, "spec").get("unschedulable"):
                running = map(pod_of, busy.get(name_of(node), ()))
                self._nodes.append(self._with_daemons(_ready(node), running))
        # Each new node is a copy: computing labels and capacity again for each would be slow.
        self._new_node = cache(self._make_node)
        self.new: Counter[tuple[str, str]] = Counter()
        self.needed: set[str] = set()
        self.unplaced: list[Unplaced] = []

    def place(self, pending: _PendingPods) -> None:
        """Put pending pods on nodes, new ones if necessary."""
        left = len(pending.manifests)
        repelling = any(pod.anti_affinity for node in self._nodes for pod in node.running)
        is_independent = pending.pod.is_simple and not repelling
        suitable = self._suitable(pending, is_independent)
        while left:
            node = next(suitable) or self._grow(pending, left, is_independent)
            if node is None:
                reason = self._reason(pending)
                candidates = chain(self._new_nodes, self._emptied_nodes)
                is_hopeless = not any(_can_run(node, pending.pod) for node in candidates)
                for pod in pending.manifests[-left:]:
                    self.unplaced.append(Unplaced(pod, reason, is_hopeless))
                return
            self.needed.add(node.node.name)
            left -= pending.put_on(node, left)

    def _suitable(self, pending: _PendingPods, is_independent: bool) -> Iterator[NodeGroup | None]:
        """Yield a node for the next pods, or None if no node can run more of them."""
        if is_independent:
            # Pods on one node do not affect the others, so each node is filled once.
            nodes_with_room = placeable(pending.pod, self._nodes)
            yield from chain(filter(pending.reaches, nodes_with_room), repeat(None))
        while True:
            yield next(filter(pending.reaches, placeable(pending.pod, self._nodes)), None)

    def _grow(self, pending: _PendingPods, left: int, is_independent: bool) -> NodeGroup | None:
        """Add the new node with the lowest price per pod, if any pool may grow.

        Of the pools of a ComputeClass, those of the first priority with a node come first.
        With balanced locations, nodes of the same price are added in the zone with the fewest.
        """
        existing = [] if is_independent else self._nodes
        best: tuple[tuple[int, Decimal, int, str, str], NodeGroup] | None = None
        for name, zone in self._growing():
            node = self._new_node(name, zone)
            if not pending.reaches(node) or node not in placeable(pending.pod, [*existing, node]):
                continue
            pool = self._pools[name]
            size = self._sizes[name, zone] if pool.location_policy == "BALANCED" else 0
            per_pod = price(pool) / min(left, node.room(pending.pod))
            rank = (pool.priority, per_pod, size, name, zone)
            if best is None or rank < best[0]:
                best = (rank, node)
        if best is None:
            return None
        node = replace(best[1], free=dict(best[1].free))
        self._nodes.append(node)
        pool_and_zone = _pool_and_zone(node.node.manifest)
        self.new[pool_and_zone] += 1
        self._sizes[pool_and_zone] += 1
        return node

    def _growing(self) -> Iterator[tuple[str, str]]:
        """Yield each pool that may get one more node, with each zone in which it may."""
        for pool in self._pools.values():
            if not (pool.autoscaled and pool.grows) or pool.queued is not self._queued:
                continue
            size = sum(count for (name, _), count in self._sizes.items() if name == pool.name)
            limit = pool.max_nodes if pool.max_nodes_per_zone is None else pool.max_nodes_per_zone
            for zone in pool.zones if size < pool.max_nodes else ():
                if self._sizes[pool.name, zone] < limit:
                    yield pool.name, zone

    def _make_node(self, pool: str, zone: str) -> NodeGroup:
        template = nodes.node_template(self._pools[pool], zone, self._operator)
        return self._with_daemons(template)

    def _with_daemons(self, node: Manifest, running: Iterable[PodClass] = ()) -> NodeGroup:
        """Return a node with pods, including those that DaemonSets have or will have on it."""
        node_ = node_class(node)
        daemons = [daemon for daemon in self._daemons if not refusals(daemon, node_)]
        return carrying(node_, [*daemons, *running])

    @cached_property
    def _new_nodes(self) -> list[NodeGroup]:
        """Return a new node of each pool and zone, whether or not the pool may grow."""
        return [
            self._new_node(pool.name, zone) for pool in self._pools.values() for zone in pool.zones
        ]

    @cached_property
    def _emptied_nodes(self) -> list[NodeGroup]:
        """Return all nodes as they may become: ready, not cordoned and without pods."""
        emptied: list[NodeGroup] = []
        for node in map(_ready, self._all_nodes):
            spec = {**node["spec"], "unschedulable": False}
            emptied.append(self._with_daemons({**node, "spec": spec}))
        return emptied

    def _reason(self, pending: _PendingPods) -> str:
        """Return why no pool gets a new node for a pod: what is missing, or why none may grow."""
        candidates: list[NodeGroup] = []
        for node in filter(pending.reaches, self._new_nodes):
            pool = _pool_and_zone(node.node.manifest)[0]
            candidates.append(NodeGroup(replace(node.node, name=pool), node.free, node.running))
        if pending.zones is not None and not candidates:
            return "no node pool is in a zone where it reaches all of its disks"
        able = [node for node in candidates if _can_run(node, pending.pod)]
        # Nodes of queued pools are only for ProvisioningRequests.
        unqueued = [node for node in able if self._queued or not self._pools[node.node.name].queued]
        names = shortage.names(dict.fromkeys(f'"{node.node.name}"' for node in unqueued or able))
        growing = set(self._growing())
        if any(_pool_and_zone(node.node.manifest) in growing for node in able):
            return (
                f"on a new node of {names} its affinity, anti-affinity or topology spread "
                "would not hold"
            )
        if unqueued:
            pools = {node.node.name: self._pools[node.node.name] for node in unqueued}
            return f"a node of {names} has the room, {why_no_more(pools.values())}"
        if able:
            return (
                f"a node of {names} has the room, "
                "and nodes come there only for a ProvisioningRequest"
            )
        pods = PodSet({}, pending.pod.spec, pending.pod.labels, 1, "spec", "replicas")
        refusal = shortage.explained(Shortage(pods, pending.pod, candidates, 0, 0, "", 1))
        return f"{refusal.message}. {refusal.remedy}"


def why_no_more(pools: Iterable[Pool]) -> str:
    """Return that pools get no more nodes for a pod, and which of them are sold out."""
    sold_out = [f'"{pool.name}"' for pool in pools if pool.is_sold_out]
    limit = "and no more nodes may come there for it"
    are = verb(len(sold_out), "is", "are")
    return f"{limit}: {listed(sold_out)} {are} sold out in the stockout" if sold_out else limit


def _can_run(node: NodeGroup, pod: PodClass) -> bool:
    """Return whether a node can run a pod, whatever other pods there are."""
    return node.room(pod) > 0 and not any(refusal.certain for refusal in refusals(pod, node.node))


def _pending(
    pods: Iterable[Manifest], zones_of_disks: Callable[[Manifest], frozenset[str] | None]
) -> Iterable[_PendingPods]:
    """Return the pods that may get new nodes, in groups that the scheduler treats alike.

    Pods that claim devices get their nodes from ``dra``. Pods of DaemonSets need existing nodes.
    """
    groups: dict[str, _PendingPods] = {}
    for pod in filter(is_unschedulable, pods):
        spec = pod["spec"]
        is_expendable = spec.get("priority", 0) < EXPENDABLE_BELOW
        if is_expendable or spec.get("resourceClaims") or is_of_daemon_set(pod):
            continue
        class_ = pod_of(pod)
        zones = zones_of_disks(pod)
        key = json.dumps(
            [
                class_.namespace,
                str(class_.node_key),
                spec.get("affinity"),
                spec.get("topologySpreadConstraints"),
                sorted(class_.requests.items()),
                sorted(class_.ports),
                None if zones is None else sorted(zones),
            ]
        )
        groups.setdefault(key, _PendingPods(class_, zones)).manifests.append(pod)
    return groups.values()


def _ready(node: Manifest) -> Manifest:
    """Return a node without the taints of its start, and of a removal that can be undone."""
    spec = section(node, "spec")
    passing = ("node.kubernetes.io/", REMOVING_TAINT)
    kept = [taint for taint in items(spec, "taints") if not taint["key"].startswith(passing)]
    return {**node, "spec": {**spec, "taints": kept}}


def _pool_and_zone(node: Manifest) -> tuple[str, str]:
    node_labels = labels_of(node)
    return node_labels.get(labels.GKE_NODE_POOL, ""), node_labels.get(labels.ZONE, "")


def price(pool: Pool) -> Decimal:
    """Return the price of a node of a pool per hour; infinite if it is not known."""
    gpu, count = (pool.gpu.type, pool.gpu.count) if pool.gpu else (None, 0)
    region = pool.zones[0].rpartition("-")[0]
    amount = pool.machine.price(region, gpu, count, spot=pool.spot)
    return Decimal("Infinity") if amount is None else amount
