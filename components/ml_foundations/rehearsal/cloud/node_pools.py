"""The nodes of the declared pools: they come for pods, follow their pool, and go when idle."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.versions import DRA_DRIVER
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of
from ml_foundations.rehearsal.api import NODES, Object, path_in
from ml_foundations.rehearsal.cloud import autoscaler, nodes, operator
from ml_foundations.rehearsal.cloud.autoscaler import REMOVING_TAINT, Plan, Unplaced, is_busy
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.drain import Drain
from ml_foundations.rehearsal.cloud.events import Recorder
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.nodes import BLUE, FAILURE, REPLACE, disruption_of, is_current
from ml_foundations.rehearsal.cloud.provisioning import ProvisioningRequests
from ml_foundations.rehearsal.cloud.store import ASSUMED, Pool

_log = logging.getLogger(__name__)
_REMOVAL_GRACE_SECONDS = 1.0
_NODES_AT_ONCE = 48
"""As many requests as hold their own against those of the DaemonSet controller."""


class NodePoolController(Controller):
    """Brings the nodes of each pool to the number and the state that they should have now."""

    def __init__(
        self,
        cluster: Cluster,
        disk_zones: Callable[[Manifest], frozenset[str] | None],
        plan_devices: Callable[[Sequence[Pool]], Plan],
    ) -> None:
        """Ask other controllers where pods reach their disks, and which nodes have devices."""
        super().__init__(cluster)
        read = operator.read_release
        self._releases = cluster.watch("/api/v1/secrets", operator.HELM_SECRETS, read=read)
        self._disk_zones = disk_zones
        self._plan_devices = plan_devices
        self._requests = ProvisioningRequests(cluster.api)
        self._recorder = Recorder(cluster.api, "cluster-autoscaler")
        self._drains = Drain(cluster.api)
        self._busy: Mapping[str, Sequence[Manifest]] = {}
        """By node, the pods that keep it from being removed."""
        self._failed_pools: set[str] = set()
        """The pools that did not get their nodes in the last round. They get no pods."""
        self._idle_since: dict[str, float] = {}
        self._known_ready: dict[str, int] | None = None
        self._had_hopeless = True
        self._known_unplaced: dict[str, str] = cluster.store.get("unplaced", {})
        self._up_to_date: dict[str, tuple[tuple[Pool, Operator | None], dict[str, Object]]] = {}
        """By pool: what its nodes were last compared with, and the nodes that need no change."""

    def reconcile(self) -> None:
        """Plan nodes for the pending pods, then bring each pool to its size."""
        with attempt("the GPU Operator"):
            self._find_drivers()
        pools = self.cluster.pools
        by_pool = self.cluster.nodes_by_pool()
        self._busy = autoscaler.busy_by_node(self.cluster.pods)
        ready = {name: sum(map(nodes.is_ready, by_pool[name])) for name in pools}
        if ready != self._known_ready:
            self.cluster.store.put("ready", ready)
            self._known_ready = ready
        sizes: Counter[str] = Counter()
        for name, pool in pools.items():
            size = self.cluster.sizes.get(name, pool.initial_nodes)
            sizes[name] = min(max(size, pool.min_nodes), pool.max_nodes)
        templates: dict[str, dict[str, Object]] = {}
        for name, pool in pools.items():
            # A pool that fails keeps its nodes.
            with attempt(f"pool {name}"):
                templates[name] = {
                    zone: nodes.node_template(pool, zone, self.cluster.operator)
                    for zone in pool.zones
                }
        for name in by_pool.keys() - pools.keys():
            self._drain(by_pool[name])
        known = {name: pools[name] for name in templates}
        plan = self._planned_growth(known, by_pool, sizes)
        if any(pool.queued for pool in known.values()):
            with attempt("ProvisioningRequests"):
                self._grant_requests(known, by_pool, sizes)
        for (name, _), count in plan.new_nodes.items():
            sizes[name] += count
            _log.info("pool %s grows by %d to %d nodes", name, count, sizes[name])
        self._scale_down(known, by_pool, sizes, self._busy.keys() | plan.needed)
        self.cluster.save_sizes({name: sizes[name] for name in pools})
        by_pool = self.cluster.nodes_by_pool()
        for name, pool in known.items():
            self._failed_pools.add(name)
            with attempt(f"the number of nodes of pool {name}"):
                self._resize(pool, by_pool[name], sizes[name], plan.new_nodes)
                self._failed_pools.discard(name)
            self._update(pool, by_pool[name], templates[name])

    def _find_drivers(self) -> None:
        """Find the Helm releases that install drivers on nodes."""
        cluster = self.cluster
        releases = self._releases.items()
        release = operator.find(cluster.rehearsal, releases)
        daemon_sets = cluster.daemon_sets.items()
        cluster.operator = release and release.on(cluster.declared).with_daemon_sets(daemon_sets)
        dra_release = operator.find_release(DRA_DRIVER.name, cluster.rehearsal, releases)
        breaks_networking = cluster.operator is not None and cluster.operator.breaks_networking
        cluster.has_dra = dra_release is not None and not breaks_networking

    def _planned_growth(
        self,
        pools: Mapping[str, Pool],
        by_pool: Mapping[str, list[Object]],
        sizes: Mapping[str, int],
    ) -> Plan:
        """Return the new nodes for pending pods, and report the pods that get none."""
        growing = [pool for name, pool in pools.items() if name not in self._failed_pools]
        plan = Plan()
        # Pods are planned for only when no nodes are on their way: these will run some of the pods.
        if all(len(by_pool.get(pool.name, ())) >= sizes[pool.name] for pool in growing):
            with attempt("the autoscaler's plan"):
                plan = self._plan(self.cluster.pods, growing, _all_nodes(by_pool))
            with attempt("nodes for claimed devices"):
                for_devices = self._plan_devices(growing)
                plan.new_nodes.update(for_devices.new_nodes)
                plan = replace(plan, unplaced=(*plan.unplaced, *for_devices.unplaced))
        with attempt("the pods without a node"):
            # Nothing is certain about a pool that failed, or about assumed nodes.
            count = len(self.cluster.pools)
            is_certain = len(growing) == count > 0 and ASSUMED.name not in self.cluster.pools
            self._report_unplaced(plan.unplaced, is_certain)
        return plan

    def _plan(
        self,
        pods: list[Object],
        pools: Iterable[Pool],
        existing: list[Object],
        queued: bool = False,
    ) -> Plan:
        everywhere = self.cluster.nodes.items()
        return autoscaler.plan(
            pods,
            existing,
            self.cluster.daemon_sets.items(),
            pools,
            self.cluster.operator,
            self._disk_zones,
            queued=queued,
            imported=[node for node in everywhere if not nodes.is_simulated(node)],
        )

    def _report_unplaced(self, unplaced: Sequence[Unplaced], is_certain: bool) -> None:
        """Report the pods that get no node. In a certain round, some can never have one."""
        reasons: dict[str, str] = {}
        hopeless: dict[str, str] = {}
        for item in unplaced:
            uid = item.pod["metadata"]["uid"]
            reasons[uid] = item.reason
            if item.is_hopeless and is_certain:
                hopeless[uid] = item.reason
        if hopeless or self._had_hopeless:
            began = self.cluster.began
            self.cluster.store.put("hopeless", {"began": began, "pods": hopeless})
        self._had_hopeless = bool(hopeless)
        if reasons != self._known_unplaced:
            self.cluster.store.put("unplaced", reasons)
            self._known_unplaced = reasons
        for item in unplaced:
            message = f"pod didn't trigger scale-up: {item.reason}"
            self._recorder.report(item.pod, "Pod", "NotTriggerScaleUp", message)

    def _grant_requests(
        self, pools: Mapping[str, Pool], by_pool: Mapping[str, list[Object]], sizes: Counter[str]
    ) -> None:
        """Create the nodes of ProvisioningRequests: new ones for each request."""
        existing = _all_nodes(by_pool)

        def plan(pods: list[Object]) -> Plan:
            return self._plan(pods, pools.values(), existing, queued=True)

        for request, granted in self._requests.granted(plan):
            for name, zone in granted.new_nodes.elements():
                place = next(nodes.free_places(pools[name], zone, existing))
                existing.append(self._create_node(pools[name], zone, place, request))
                sizes[name] += 1

    def _resize(
        self, pool: Pool, existing: list[Object], size: int, planned: Counter[tuple[str, str]]
    ) -> None:
        """Create missing nodes in planned or else the smallest zones, and drain surplus ones."""
        current = [node for node in existing if is_current(node, pool)]
        # A node may have gone since the round began: in a stockout, it does not come back.
        size = min(size, self.cluster.store.available(pool, len(current)).max_nodes)
        outdated = [node for node in existing if not is_current(node, pool)]
        self._drain(node for node in outdated if disruption_of(node) != BLUE)
        kept_places = sum(disruption_of(node) == REPLACE for node in outdated)
        in_zone = Counter(labels_of(node).get(labels.ZONE, "") for node in current)
        planned_zones = [zone for name, zone in planned.elements() if name == pool.name]
        places = {zone: nodes.free_places(pool, zone, existing) for zone in pool.zones}
        new: list[tuple[str, dict[str, str]]] = []
        for index in range(size - len(current) - kept_places):
            if index < len(planned_zones):
                zone = planned_zones[index]
            else:
                zone = min(pool.zones, key=lambda zone: in_zone[zone])
            new.append((zone, next(places[zone])))
            in_zone[zone] += 1
        with ThreadPoolExecutor(_NODES_AT_ONCE) as threads:
            list(threads.map(lambda place: self._create_node(pool, *place), new))
        # First the nodes that are draining already, then those that are not busy.
        current.sort(
            key=lambda node: (not node["spec"].get("unschedulable"), name_of(node) in self._busy)
        )
        self._drain(current[: max(0, len(current) - size)])

    def _create_node(
        self, pool: Pool, zone: str, place: Mapping[str, str], request: str = ""
    ) -> Object:
        node = nodes.new_node(pool, zone, self.cluster.operator, request, place)
        node = self.api.create(NODES, node)
        self.cluster.nodes.put(node)
        return node

    def _update(
        self, pool: Pool, existing: Iterable[Object], templates: Mapping[str, Object]
    ) -> None:
        """Patch the nodes of a pool that differ from its template.

        Informers keep an object until it changes. A node that is the same object as in the last
        round, with the same template, is not compared again.
        """
        basis = (pool, self.cluster.operator)
        last_basis, last_nodes = self._up_to_date.get(pool.name, (None, {}))
        unchanged = last_nodes if last_basis == basis else {}
        up_to_date: dict[str, Object] = {}
        self._up_to_date[pool.name] = (basis, up_to_date)
        for node in existing:
            if not is_current(node, pool) or disruption_of(node) == FAILURE:
                continue
            with attempt(f"an update of node {name_of(node)}"):
                changes = nodes.NodeChanges({}, {})
                if unchanged.get(name_of(node)) is not node:
                    template = templates[labels_of(node).get(labels.ZONE, "")]
                    changes = nodes.changes(node, template)
                if changes.node:
                    self.api.patch(path_in(NODES, node), changes.node)
                if changes.status:
                    path = f"{path_in(NODES, node)}/status"
                    self.api.patch(path, {"status": changes.status})
                if not any(changes):
                    up_to_date[name_of(node)] = node

    def _drain(self, leaving: Iterable[Object]) -> None:
        """Drain nodes, and then remove them; over several rounds."""
        for node in leaving:
            with attempt(f"the drain of node {name_of(node)}"):
                if self._drains.finished(node, self._busy.get(name_of(node), ())):
                    self.cluster.delete_node(node, "is drained")

    def _scale_down(
        self,
        pools: Mapping[str, Pool],
        by_pool: Mapping[str, list[Object]],
        sizes: Counter[str],
        needed: Set[str],
    ) -> None:
        """Mark and then remove nodes that are idle for long enough, and lower the pools' sizes."""
        now = time.monotonic()
        idle_seconds = self.cluster.store.switch("scale_down_seconds")
        idle = {name_of(node) for node in _all_nodes(by_pool)} - needed
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        for pool in pools.values():
            group = by_pool.get(pool.name, []) if pool.autoscaled else []
            marked = sum(bool(_removal_time(node)) for node in group)
            for node in group:
                spare = sizes[pool.name] - pool.min_nodes
                idle_for = now - self._idle_since.get(name_of(node), now)
                with attempt(f"the removal of node {name_of(node)}"):
                    if _removal_time(node):
                        is_needed = name_of(node) in needed or spare <= 0
                        sizes[pool.name] -= self._finish_removal(node, is_needed)
                    elif idle_for >= idle_seconds and spare > marked:
                        taint = {"key": REMOVING_TAINT, "value": str(int(time.time()))}
                        taints = [*items(node["spec"], "taints"), taint | {"effect": "NoSchedule"}]
                        self.api.patch(path_in(NODES, node), {"spec": {"taints": taints}})
                        break

    def _finish_removal(self, node: Object, is_needed: bool) -> bool:
        """Remove a marked node after a while, or unmark it for a pod. Return whether it is gone."""
        if time.time() - float(_removal_time(node)) < _REMOVAL_GRACE_SECONDS:
            return False
        # The scheduler may have been faster than the taint. The informer may not know its pod yet.
        selector = f"spec.nodeName={name_of(node)}"
        on_node = self.api.get("/api/v1/pods", fieldSelector=selector)["items"]
        if is_needed or any(map(is_busy, on_node)):
            kept = [taint for taint in node["spec"]["taints"] if taint["key"] != REMOVING_TAINT]
            self.api.patch(path_in(NODES, node), {"spec": {"taints": kept}})
            return False
        self.cluster.delete_node(node, "was idle")
        return True


def _all_nodes(by_pool: Mapping[str, list[Object]]) -> list[Object]:
    return [*chain.from_iterable(by_pool.values())]


def _removal_time(node: Manifest) -> str:
    """Return when a node was marked for removal, in seconds since the epoch, or nothing."""
    for taint in items(node["spec"], "taints"):
        if taint["key"] == REMOVING_TAINT:
            return taint["value"]
    return ""
