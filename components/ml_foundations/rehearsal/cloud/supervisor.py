"""The process that plays GKE: it keeps nodes as their pools declare them and scales the pools."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import labels_of
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud import addons, autoscaler, daemonsets, dra, load_balancers, nodes, operator, volumes
from ml_foundations.rehearsal.cloud.attempts import attempt
from ml_foundations.rehearsal.cloud.autoscaler import REMOVING_TAINT, is_busy, is_finished
from ml_foundations.rehearsal.cloud.history import History
from ml_foundations.rehearsal.cloud.informer import Informer
from ml_foundations.rehearsal.cloud.store import SCALE_DOWN_SECONDS, Pool, Store, settings_file
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal

_log = logging.getLogger(__name__)

_NODES = "/api/v1/nodes"

_REMOVAL_GRACE_SECONDS = 1.0
_TICK_SECONDS = 0.5
_QUIET_SECONDS = 0.1


class Supervisor:
    """Reconciles the declared node pools with the nodes of the replica."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._store = Store(rehearsal)
        self._history = History(self._store, self._pool_of)
        self._api = Api(Access(rehearsal.kubeconfig))
        self._changed = threading.Event()
        self._operator: operator.Operator | None = None
        self._refused: set[str] = set()
        """The pools that did not get their nodes in the last round: pods are not to wait for these."""
        self._idle_since: dict[str, float] = {}
        self._settled: dict[str, tuple[tuple[Pool, operator.Operator | None], dict[str, Object]]] = {}
        """By pool: what its nodes were last compared with, and the nodes that were found to be so."""

        def follow(path: str, **options: Any) -> Informer:
            return Informer(self._api, path, self._changed, **options)

        self._nodes = follow(_NODES)
        self._pods = follow("/api/v1/pods", removed=self._history.add)
        self._daemon_sets = follow("/apis/apps/v1/daemonsets")
        self._jobs = follow("/apis/batch/v1/jobs")
        self._releases = follow("/api/v1/secrets", selector=operator.HELM_SECRETS, read=operator.read_release)
        claims = follow(volumes.CLAIMS)
        disks = follow(volumes.VOLUMES)
        classes = follow(volumes.CLASSES)
        slices, device_claims = follow(dra.SLICES), follow(dra.CLAIMS)
        services, ingresses = follow(load_balancers.SERVICES), follow(load_balancers.INGRESSES)
        self._addons = addons.Addons(self._api)
        self._disks = volumes.Disks(self._api, claims, disks, classes)
        self._dra = dra.Driver(self._api, slices, device_claims)
        self._load_balancers = load_balancers.LoadBalancers(self._api, services, ingresses)
        self._informers = (self._nodes, self._pods, self._daemon_sets, self._jobs, self._releases)
        self._informers += (claims, disks, classes, slices, device_claims, services, ingresses)

    def sync(self, timeout: float) -> bool:
        """Start following the API; whether everything was read within the time."""
        for informer in self._informers:
            informer.start()
        deadline = time.monotonic() + timeout
        return all(informer.synced.wait(max(0.0, deadline - time.monotonic())) for informer in self._informers)

    def run(self) -> None:
        """Reconcile for as long as the rehearsal is there."""
        while self._rehearsal.root.exists():
            self._changed.wait(_TICK_SECONDS)
            self._changed.clear()
            if not all(informer.synced.is_set() for informer in self._informers):
                continue
            with attempt("a round"):
                self.reconcile()
            # Let changes gather: one round for a burst of pods, not one for each.
            time.sleep(_QUIET_SECONDS)

    def reconcile(self) -> None:
        """One round: DaemonSets, scaling, nodes, disks, addresses, history; each has its turn, whatever else fails."""
        pools, clusters = self._store.pools(), self._store.clusters()
        if clusters or pools:
            with attempt("GKE's own DaemonSets"):
                self._run_daemon_sets(next(iter(clusters.values()), {}).get("inputs") or {})
            with attempt("GKE's add-ons"):
                self._addons.reconcile()
        with attempt("the GPU Operator"):
            self._operator = self._find_operator()
        has_dra = operator.released(dra.CHART, self._rehearsal, self._releases.items()) is not None
        pods = self._pods.items()
        with attempt("scaling"):
            self._scale(pools, pods, has_dra)
        with attempt("devices"):
            self._dra.reconcile(has_dra, pools, self._nodes_by_pool())
        with attempt("disks"):
            self._disks.reconcile(self._nodes.items(), pods)
        with attempt("load balancers"):
            self._load_balancers.reconcile()
        with attempt("history"):
            self._keep_history(pods)

    def _scale(self, pools: Mapping[str, Pool], pods: list[Object], has_dra: bool) -> None:
        """Bring the nodes of each pool to the number that it should have now, and to what it declares."""
        by_pool, sizes, templates = self._nodes_by_pool(), self._sizes(pools), self._templates(pools)
        for name in by_pool.keys() - pools.keys():
            self._drain(by_pool[name], pods)
        known = {name: pools[name] for name in templates}
        growing = [pool for name, pool in known.items() if name not in self._refused]
        plan = autoscaler.Plan()
        # Nodes on their way count: pods are planned for once each pool has the nodes that it should have already.
        if all(len(by_pool[pool.name]) >= sizes[pool.name] for pool in growing):
            with attempt("the autoscaler's plan"):
                plan = self._plan(pods, growing, by_pool)
            with attempt("nodes for claimed devices"):
                plan.new_nodes.update(self._dra.growth(has_dra, pods, growing, by_pool))
        for (pool, _), count in plan.new_nodes.items():
            sizes[pool] += count
            _log.info("pool %s grows by %d to %d nodes", pool, count, sizes[pool])
        sizes -= Counter(self._scale_down(known, by_pool, sizes, pods, plan.needed))
        by_pool = self._nodes_by_pool()
        self._store_sizes(Counter({name: sizes[name] for name in pools}))
        for name, pool in known.items():
            self._refused.add(name)
            with attempt(f"the number of nodes of pool {name}"):
                self._fill(pool, by_pool[name], sizes[name], plan.new_nodes, pods)
                self._refused.discard(name)
            self._update(pool, by_pool[name], templates[name])

    def _templates(self, pools: Mapping[str, Pool]) -> dict[str, dict[str, Object]]:
        """By pool and zone, what a node is. A pool of which that cannot be told is left out, its nodes left alone."""
        templates: dict[str, dict[str, Object]] = {}
        for name, pool in pools.items():
            with attempt(f"pool {name}"):
                templates[name] = {zone: nodes.node_template(pool, zone, self._operator) for zone in pool.zones}
        return templates

    def _find_operator(self) -> operator.Operator | None:
        found = operator.find(self._rehearsal, self._releases.items())
        return found and found.beside(self._daemon_sets.items())

    def _keep_history(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            if is_finished(pod):
                self._history.add(pod)
        self._history.flush({job["metadata"]["uid"] for job in self._jobs.items()})

    def _run_daemon_sets(self, cluster: Mapping[str, Any]) -> None:
        running = {item["metadata"]["name"] for item in self._daemon_sets.items() if _in_system_namespace(item)}
        for manifest in daemonsets.manifests(cluster):
            if manifest["metadata"]["name"] not in running:
                self._api.ensure(f"/apis/apps/v1/namespaces/{daemonsets.NAMESPACE}/daemonsets", manifest)

    def _nodes_by_pool(self) -> defaultdict[str, list[Object]]:
        """The nodes that were made here. Those of one's own cluster have pools as well, which nothing here declares."""
        by_pool: defaultdict[str, list[Object]] = defaultdict(list)
        for node in filter(nodes.is_simulated, self._nodes.items()):
            by_pool[_label(node, labels.GKE_NODE_POOL)].append(node)
        return by_pool

    def _sizes(self, pools: Mapping[str, Pool]) -> Counter[str]:
        known = self._store.sizes()
        return Counter(
            {
                name: min(max(known.get(name, pool.initial_nodes), pool.min_nodes), pool.max_nodes)
                for name, pool in pools.items()
            }
        )

    def _store_sizes(self, sizes: Counter[str]) -> None:
        if dict(sizes) != self._store.sizes():
            self._store.save_sizes(sizes)

    def _plan(self, pods: list[Object], pools: Iterable[Pool], by_pool: Mapping[str, list[Object]]) -> autoscaler.Plan:
        if not any(autoscaler.is_unschedulable(pod) for pod in pods):
            return autoscaler.Plan()
        existing = [node for group in by_pool.values() for node in group]
        return autoscaler.plan(pods, existing, self._daemon_sets.items(), pools, self._operator, self._disks.zones)

    def _fill(
        self,
        pool: Pool,
        existing: list[Object],
        size: int,
        planned: Counter[tuple[str, str]],
        pods: list[Object],
    ) -> None:
        """Create the missing nodes, where they were planned or else in the emptiest zone; drain surplus ones."""
        current = [node for node in existing if _is_current(node, pool)]
        self._drain([node for node in existing if not _is_current(node, pool)], pods)
        in_zone = Counter(_label(node, labels.ZONE) for node in current)
        wanted = [zone for (name, zone), count in planned.items() if name == pool.name for _ in range(count)]
        for index in range(size - len(current)):
            zone = wanted[index] if index < len(wanted) else min(pool.zones, key=lambda zone: in_zone[zone])
            in_zone[zone] += 1
            self._nodes.put(self._api.create(_NODES, nodes.new_node(pool, zone, self._operator)))
        if len(current) > size:
            busy = {pod["spec"]["nodeName"] for pod in pods if is_busy(pod)}
            # Those that are on their way out already, then those that run nothing.
            current.sort(key=lambda node: (not node["spec"].get("unschedulable"), _name(node) in busy))
            self._drain(current[: len(current) - size], pods)

    def _update(self, pool: Pool, existing: Iterable[Object], templates: Mapping[str, Object]) -> None:
        """Bring labels, taints and resources of nodes to what their pool now has."""
        settled, wanted = self._settled.get(pool.name), (pool, self._operator)
        known = settled[1] if settled and settled[0] == wanted else {}
        for node in existing:
            if not _is_current(node, pool) or known.get(_name(node)) is node:
                continue
            with attempt(f"an update of node {_name(node)}"):
                if not self._change(node, templates[_label(node, labels.ZONE)]):
                    known[_name(node)] = node
        names = set(map(_name, existing))
        self._settled[pool.name] = (wanted, {name: node for name, node in known.items() if name in names})

    def _change(self, node: Object, wanted: Object) -> bool:
        """Bring a node to what is wanted; whether anything was to be changed."""
        patch, status = nodes.changes(node, wanted)
        if patch:
            self._api.patch(f"{_NODES}/{_name(node)}", patch)
        if status:
            self._api.patch(f"{_NODES}/{_name(node)}/status", {"status": status})
        return bool(patch or status)

    def _drain(self, leaving: Iterable[Object], pods: Iterable[Object]) -> None:
        """Cordon nodes, end what runs on them and, once nothing does, remove them; over several rounds."""
        leaving = list(leaving)
        if not leaving:
            return
        running: defaultdict[str, list[Object]] = defaultdict(list)
        for pod in pods:
            if is_busy(pod):
                running[pod["spec"]["nodeName"]].append(pod)
        for node in leaving:
            with attempt(f"the drain of node {_name(node)}"):
                self._drain_node(node, running[_name(node)])

    def _drain_node(self, node: Object, running: Iterable[Object]) -> None:
        if not node["spec"].get("unschedulable"):
            self._api.patch(f"{_NODES}/{_name(node)}", {"spec": {"unschedulable": True}})
        elif not running:
            _log.info("node %s is drained and goes", _name(node))
            self._delete_node(node)
        for pod in running:
            if not pod["metadata"].get("deletionTimestamp"):
                meta = pod["metadata"]
                self._api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")

    def _scale_down(
        self,
        pools: Mapping[str, Pool],
        by_pool: Mapping[str, list[Object]],
        sizes: Counter[str],
        pods: Iterable[Object],
        needed: frozenset[str],
    ) -> list[str]:
        """Mark and then remove nodes that have been idle for long enough; the pools that lost a node."""
        now, patience = time.monotonic(), self._scale_down_seconds()
        busy = {pod["spec"]["nodeName"] for pod in pods if is_busy(pod)} | needed
        self._idle_since = {
            _name(node): self._idle_since.get(_name(node), now)
            for group in by_pool.values()
            for node in group
            if _name(node) not in busy
        }
        lost: list[str] = []
        for name, pool in pools.items():
            if not pool.autoscaled:
                continue
            for node in by_pool.get(name, []):
                spare = sizes[name] - lost.count(name) - pool.min_nodes
                with attempt(f"the removal of node {_name(node)}"):
                    if _is_removing(node):
                        lost += self._finish_removal(node, name, busy, spare > 0)
                    elif now - self._idle_since.get(_name(node), now) >= patience and spare > _removing(by_pool[name]):
                        self._mark(node)
                        break
        return lost

    def _mark(self, node: Object) -> None:
        taint = {"key": REMOVING_TAINT, "value": str(int(time.time())), "effect": "NoSchedule"}
        self._api.patch(f"{_NODES}/{_name(node)}", {"spec": {"taints": [*(node["spec"].get("taints") or []), taint]}})

    def _finish_removal(self, node: Object, pool: str, busy: set[str], spare: bool) -> list[str]:
        """Remove a marked node, or keep it if a pod came first; the pool's name where it lost the node."""
        marked = next(taint for taint in node["spec"]["taints"] if taint["key"] == REMOVING_TAINT)
        if time.time() - float(marked["value"]) < _REMOVAL_GRACE_SECONDS:
            return []
        # The scheduler may have been faster than the taint: ask the API, not the copy.
        on_node = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={_name(node)}")["items"]
        if not spare or _name(node) in busy or any(map(is_busy, on_node)):
            kept = [taint for taint in node["spec"]["taints"] if taint["key"] != REMOVING_TAINT]
            self._api.patch(f"{_NODES}/{_name(node)}", {"spec": {"taints": kept}})
            return []
        for pod in on_node:
            self._history.add(pod)
        _log.info("pool %s loses the idle node %s", pool, _name(node))
        self._delete_node(node)
        return [pool]

    def _delete_node(self, node: Object) -> None:
        self._api.delete(f"{_NODES}/{_name(node)}")
        self._nodes.drop(node)

    def _pool_of(self, name: str) -> str:
        return next((_label(n, labels.GKE_NODE_POOL) for n in self._nodes.items() if _name(n) == name), "")

    def _scale_down_seconds(self) -> float:
        settings = read_json(settings_file(self._store.root), {})
        return settings.get("scale_down_seconds", SCALE_DOWN_SECONDS)


def _name(item: Mapping[str, Any]) -> str:
    return item["metadata"]["name"]


def _label(node: Mapping[str, Any], key: str) -> str:
    return labels_of(node).get(key, "")


def _in_system_namespace(item: Mapping[str, Any]) -> bool:
    return item["metadata"]["namespace"] == daemonsets.NAMESPACE


def _is_current(node: Mapping[str, Any], pool: Pool) -> bool:
    """Whether a node has its pool's machine type and is in one of its zones; otherwise it is replaced."""
    return _label(node, labels.INSTANCE_TYPE) == pool.machine_type and _label(node, labels.ZONE) in pool.zones


def _is_removing(node: Mapping[str, Any]) -> bool:
    return any(taint["key"] == REMOVING_TAINT for taint in node["spec"].get("taints") or [])


def _removing(group: Iterable[Mapping[str, Any]]) -> int:
    return sum(map(_is_removing, group))
