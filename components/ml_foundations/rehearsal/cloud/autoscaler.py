"""The cluster autoscaler's decisions, without any I/O: which pools grow for which pods."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from ml_foundations.catalog.machine_types import machine_type
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.quantities import Amounts, millis
from ml_foundations.planning.model.resources import scheduled_requests
from ml_foundations.planning.scheduler.one_pod import refusals_on_node
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.operator import Operator
from ml_foundations.rehearsal.cloud.store import Pool

Manifest = Mapping[str, Any]

_BEYOND_THE_FILTERS = re.compile(r"anti-affinity rules|topology spread constraints|free ports")
"""Reasons that planning's filters do not model: then only the scheduler knows which nodes fit."""

_NOT_FOR_WANT_OF_NODES = re.compile(r"persistentvolumeclaim|resourceclaim|allocate all claims", re.IGNORECASE)
"""Reasons that no new node would remove."""

REMOVING_TAINT = "ToBeDeletedByClusterAutoscaler"
"""The taint with which the cluster autoscaler marks a node that it removes; its value is the time."""

_YOUNG_SECONDS = 5
"""A node this new may not have been considered by the scheduler yet."""


@dataclass
class _Place:
    """A node, there or yet to come, with the room that is left on it."""

    node: Manifest
    free: Amounts
    young: bool = True
    taken: bool = False
    pool: Pool | None = None

    def copy(self) -> _Place:
        """The same node, with room of its own."""
        return replace(self, free=dict(self.free))

    def fits(self, requests: Amounts) -> bool:
        """Whether one pod of a kind fits."""
        return all(self.free.get(name, 0) >= amount for name, amount in requests.items())

    def take(self, requests: Amounts, most: int) -> int:
        """Place as many pods of one kind as fit, up to a number of them."""
        count = min([most, *(self.free.get(name, 0) // amount for name, amount in requests.items())])
        if count <= 0:
            return 0
        for name, amount in requests.items():
            self.free[name] -= amount * count
        self.taken = True
        return count


@dataclass
class _Kind:
    """Pending pods that the scheduler treats alike."""

    pod: Manifest
    requests: Amounts
    zones: frozenset[str] | None
    """The zones of their disks; None where any zone will do."""
    count: int = 0
    beyond_filters: bool = False

    def at_once(self, left: int) -> int:
        """How many of those left may go to one node, as far as is known."""
        return 1 if self.beyond_filters else left

    def may_use(self, node: Manifest) -> bool:
        """Whether a node refuses none of the pods, whatever room it has."""
        in_reach = self.zones is None or _pool_and_zone(node)[1] in self.zones
        return in_reach and not refusals_on_node(self.pod, node)

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.requests.get(name, 0) for name in (labels.GPU_RESOURCE, "cpu", "memory"))


@dataclass(frozen=True)
class Plan:
    """What the autoscaler found: nodes to add, by pool and zone, and nodes that pending pods will use."""

    new_nodes: Counter[tuple[str, str]] = field(default_factory=Counter)
    needed: frozenset[str] = frozenset()


def is_finished(pod: Manifest) -> bool:
    """Whether a pod has ended and takes no resources any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_of_daemon_set(pod: Manifest) -> bool:
    """Whether a pod belongs to a DaemonSet."""
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or [])


def is_unschedulable(pod: Manifest) -> bool:
    """Whether the scheduler has said that no node fits a pod."""
    return (
        not pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and _scheduling_message(pod) is not None
    )


def is_busy(pod: Manifest) -> bool:
    """Whether a pod keeps its node from being removed."""
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod) and not is_of_daemon_set(pod)


def plan(
    pods: Iterable[Manifest],
    existing: Iterable[Manifest],
    daemon_sets: Iterable[Manifest],
    pools: Iterable[Pool],
    operator: Operator | None,
    now: float,
    zones_of_disks: Callable[[Manifest], frozenset[str] | None],
) -> Plan:
    """Fit the unschedulable pods on the nodes there are, then on as few and cheap new ones as possible."""
    pods, existing = list(pods), list(existing)
    templates = [_template(ds) for ds in daemon_sets]
    sizes = Counter(map(_pool_and_zone, existing))
    fresh = [
        place for pool in pools if pool.autoscaled and not pool.queued for place in _fresh(pool, operator, templates)
    ]
    places = _existing_places(pods, existing, templates, now)
    new: Counter[tuple[str, str]] = Counter()
    for kind in sorted(_kinds(pods, zones_of_disks), key=lambda kind: kind.size, reverse=True):
        left = kind.count
        for place in places:
            if left and (place.young or not kind.beyond_filters) and kind.may_use(place.node):
                left -= place.take(kind.requests, kind.at_once(left))
        suitable = [place for place in fresh if kind.may_use(place.node) and place.fits(kind.requests)]
        while left:
            growing = [place for place in suitable if _may_grow(place.pool, _pool_and_zone(place.node)[1], sizes)]
            if not growing:
                break
            place = min(growing, key=lambda place: _cost(place, kind, left, sizes)).copy()
            left -= place.take(kind.requests, kind.at_once(left))
            places.append(place)
            new[_pool_and_zone(place.node)] += 1
            sizes[_pool_and_zone(place.node)] += 1
    needed = frozenset(place.node["metadata"].get("name", "") for place in places if place.taken)
    return Plan(new, needed - {""})


def _scheduling_message(pod: Manifest) -> str | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return condition.get("message") or ""
    return None


def _kinds(pods: Iterable[Manifest], zones_of_disks: Callable[[Manifest], frozenset[str] | None]) -> Iterable[_Kind]:
    kinds: dict[str, _Kind] = {}
    for pod in pods:
        if not is_unschedulable(pod) or _NOT_FOR_WANT_OF_NODES.search(_scheduling_message(pod) or ""):
            continue
        spec = pod["spec"]
        same = {key: spec.get(key) for key in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")}
        requests, zones = scheduled_requests(spec), zones_of_disks(pod)
        key = json.dumps([pod["metadata"]["namespace"], same, sorted(requests.items()), zones and sorted(zones)])
        kind = kinds.setdefault(key, _Kind(pod, requests, zones))
        kind.count += 1
        kind.beyond_filters |= bool(_BEYOND_THE_FILTERS.search(_scheduling_message(pod) or ""))
    return kinds.values()


def _template(daemon_set: Manifest) -> Manifest:
    template = daemon_set["spec"]["template"]
    return {"metadata": template.get("metadata") or {}, "spec": template["spec"]}


def _existing_places(
    pods: Iterable[Manifest], existing: Iterable[Manifest], daemon_sets: list[Manifest], now: float
) -> list[_Place]:
    on_node: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if is_busy(pod):
            on_node[pod["spec"]["nodeName"]].append(pod)
    places: list[_Place] = []
    for node in existing:
        if (node.get("spec") or {}).get("unschedulable"):
            continue
        node_soon = _ready(node)
        place = _Place(node_soon, _room(node_soon, daemon_sets), young=now - node["created"] < _YOUNG_SECONDS)
        for pod in on_node[node["metadata"]["name"]]:
            _subtract(place.free, scheduled_requests(pod["spec"]))
        places.append(place)
    return places


def _ready(node: Manifest) -> Manifest:
    """The node as it will be soon, without the taints of its start or of a removal that can be undone."""
    spec = node.get("spec") or {}
    kept = [
        taint
        for taint in spec.get("taints") or []
        if not taint["key"].startswith("node.kubernetes.io/") and taint["key"] != REMOVING_TAINT
    ]
    return {**node, "spec": {**spec, "taints": kept}}


def _room(node: Manifest, daemon_sets: Iterable[Manifest]) -> Amounts:
    """What a node leaves to pods that do not belong to a DaemonSet."""
    free = millis(node["status"].get("allocatable") or {})
    for template in daemon_sets:
        if not refusals_on_node(template, node):
            _subtract(free, scheduled_requests(template["spec"]))
    return free


def _subtract(free: Amounts, requests: Amounts) -> None:
    for name, amount in requests.items():
        free[name] = free.get(name, 0) - amount


def _pool_and_zone(node: Manifest) -> tuple[str, str]:
    found = node["metadata"].get("labels") or {}
    return found.get(labels.GKE_NODE_POOL, ""), found.get(labels.ZONE, "")


def _fresh(pool: Pool, operator: Operator | None, daemon_sets: Iterable[Manifest]) -> Iterable[_Place]:
    """An empty node of a pool in each of its zones."""
    for zone in pool.zones:
        node = nodes.node_template(pool, zone, operator)
        yield _Place(node, _room(node, daemon_sets), pool=pool)


def _may_grow(pool: Pool | None, zone: str, sizes: Counter[tuple[str, str]]) -> bool:
    if pool is None or sum(count for (name, _), count in sizes.items() if name == pool.name) >= pool.max_nodes:
        return False
    return pool.max_nodes_per_zone is None or sizes[pool.name, zone] < pool.max_nodes_per_zone


def _cost(place: _Place, kind: _Kind, left: int, sizes: Counter[tuple[str, str]]) -> tuple[Decimal, int, str, str]:
    """Price per pod placed, then the emptiest zone if zones are to be alike; unknown prices come last."""
    pool, (name, zone) = place.pool, _pool_and_zone(place.node)
    price = _price(pool) if pool else None
    placed = place.copy().take(kind.requests, kind.at_once(left))
    crowd = sizes[name, zone] if pool is None or pool.location_policy == "BALANCED" else 0
    return (price / placed if price is not None else Decimal("Infinity"), crowd, name, zone)


def _price(pool: Pool) -> Decimal | None:
    gpu, count = (pool.gpu.type, pool.gpu.count) if pool.gpu else (None, 0)
    return machine_type(pool.machine_type).price(gpu, count, spot=pool.spot)
