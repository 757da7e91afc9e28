"""The process that plays GKE: it keeps nodes as their pools declare them and scales the pools."""

import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ml_foundations.catalog.gke_kinds import missing_drivers
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, namespace_of
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object, owners
from ml_foundations.rehearsal.cloud import (
    addons,
    autoscaler,
    dra,
    kubelet,
    load_balancers,
    nodes,
    operator,
    volumes,
)
from ml_foundations.rehearsal.cloud.autoscaler import (
    REMOVING_TAINT,
    Plan,
    Unplaced,
    is_busy,
    is_finished,
)
from ml_foundations.rehearsal.cloud.events import Recorder
from ml_foundations.rehearsal.cloud.informer import Informer, attempt
from ml_foundations.rehearsal.cloud.preemption import Preemption
from ml_foundations.rehearsal.cloud.provisioning import Requests
from ml_foundations.rehearsal.cloud.store import ASSUMED, SCALE_DOWN_SECONDS, Pool, Store
from ml_foundations.rehearsal.layout import Rehearsal

_log = logging.getLogger(__name__)
_NODES = "/api/v1/nodes"
_DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
_REMOVAL_GRACE_SECONDS = 1.0
_TICK_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_QUIET_SECONDS = 0.1
_REST = 9
"""After a round comes this many times its CPU time without one: at size, the replica needs the processor more."""
_NODES_AT_ONCE = 48
"""As many as hold their own beside the pods of DaemonSets, which come by the hundred."""
_Busy = Mapping[str, Sequence[Manifest]]
"""By node, the pods that keep it from being removed."""


class Supervisor:
    """Reconciles the declared node pools with the nodes of the replica."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._store = Store(rehearsal)
        self._gone: deque[Object] = deque()
        """Pods that went away since the last round."""
        self._ran_on: Mapping[str, Mapping[str, str]] = self._store.get("ran_on", {})
        self._api = Api(Access(rehearsal.kubeconfig))
        self._changed = threading.Event()
        self._declared = self._store.version()
        self._operator: operator.Operator | None = None
        self._refused: set[str] = set()
        """The pools that did not get their nodes in the last round: no pod is to wait for them."""
        self._idle_since: dict[str, float] = {}
        self._known_sizes: dict[str, int] = self._store.get("sizes", {})
        self._had_hopeless = True
        self._known_unplaced: dict[str, str] = self._store.get("unplaced", {})
        self._informers: list[Informer] = []
        self._settled: dict[
            str, tuple[tuple[Pool, operator.Operator | None], dict[str, Object]]
        ] = {}
        """By pool: what its nodes were last compared with, and the nodes that were found to be so."""

        def follow(path: str, **options: Any) -> Informer:
            self._informers.append(Informer(self._api, path, self._changed, **options))
            return self._informers[-1]

        self._nodes = follow(_NODES)
        self._pods = follow("/api/v1/pods", selector=addons.OTHERS, removed=self._gone.append)
        self._daemon_sets = follow("/apis/apps/v1/daemonsets")
        self._jobs = follow("/apis/batch/v1/jobs")
        self._releases = follow(
            "/api/v1/secrets", selector=operator.HELM_SECRETS, read=operator.read_release
        )
        self._addons = addons.Addons(self._api)
        claims, made, classes = map(follow, (volumes.CLAIMS, volumes.VOLUMES, volumes.CLASSES))
        self._disks = volumes.Disks(self._api, claims, made, classes)
        kept = (
            follow(path, read=kubelet.keys_only) for path in (kubelet.CONFIG_MAPS, kubelet.SECRETS)
        )
        self._kubelet = kubelet.Kubelet(self._api, made, *kept)
        self._drivers = follow(_DRIVERS)
        self._dra = dra.Driver(self._api, follow(dra.SLICES), follow(dra.CLAIMS))
        self._requests = Requests(self._api)
        self._recorder = Recorder(self._api, "cluster-autoscaler")
        self._preemption = Preemption(self._api)
        balanced = map(
            follow, (load_balancers.SERVICES, load_balancers.INGRESSES, load_balancers.CLASSES)
        )
        self._load_balancers = load_balancers.LoadBalancers(self._api, *balanced)

    def sync(self, timeout: float) -> bool:
        """Start following the API; whether everything was read within the time."""
        for informer in self._informers:
            informer.start()
        deadline = time.monotonic() + timeout
        return all(
            informer.synced.wait(max(0.0, deadline - time.monotonic()))
            for informer in self._informers
        )

    def run(self) -> None:
        """Reconcile for as long as the replica is there."""
        while self._rehearsal.replica_dir.exists():
            self._await_change()
            if not all(informer.synced.is_set() for informer in self._informers):
                continue
            before = time.thread_time()
            with attempt("a round"):
                self.reconcile()
            # Let changes gather: one round for a burst of pods, not one for each.
            time.sleep(max(_QUIET_SECONDS, _REST * (time.thread_time() - before)))

    def _await_change(self) -> None:
        """Wait until the API server or the program has changed something, or for a tick: nodes idle by time alone."""
        end, seen = time.monotonic() + _TICK_SECONDS, self._declared
        while (
            self._declared == seen
            and time.monotonic() < end
            and not self._changed.wait(_LOOK_SECONDS)
        ):
            self._declared = self._store.version()
        self._changed.clear()

    def reconcile(self) -> None:
        """One round: DaemonSets, scaling, nodes, disks, addresses, history; each has its turn, whatever else fails."""
        began = time.time()
        pools, clusters = self._store.available_pools(), self._store.clusters()
        # Nodes that a program leaves to others: its cluster exists already, or is Autopilot's.
        inputs = [cluster.get("inputs") or {} for cluster in clusters.values()]
        if pools.keys() <= {ASSUMED.name} and all(each.get("enableAutopilot") for each in inputs):
            self._assume_nodes(pools)
        elif ASSUMED.name in pools:
            self._store.delete("node_pools", ASSUMED.name)
        cluster = next(iter(inputs), {})
        if clusters or pools:
            with attempt("GKE's add-ons"):
                self._addons.reconcile(cluster)
            running = {
                name_of(item)
                for item in self._daemon_sets.items()
                if namespace_of(item) == addons.NAMESPACE
            }
            for manifest in addons.daemon_sets(cluster):
                with attempt(f"GKE's own DaemonSet {name_of(manifest)}"):
                    if name_of(manifest) not in running:
                        self._api.ensure(
                            f"/apis/apps/v1/namespaces/{addons.NAMESPACE}/daemonsets", manifest
                        )
        with attempt("the GPU Operator"):
            found = operator.find(self._rehearsal, self._releases.items())
            self._operator = found and found.on(inputs).beside(self._daemon_sets.items())
        has_dra = operator.released(dra.CHART, self._rehearsal, self._releases.items()) is not None
        has_dra = has_dra and not (self._operator and self._operator.breaks_networking)
        pods = self._pods.items()
        with attempt("preemptions"):
            for node in self._preemption.reconcile(self._nodes.items(), pods, pools):
                self._delete_node(node, "is taken back by Google")
        with attempt("scaling"):
            self._scale(pools, pods, has_dra, began)
        with attempt("devices"):
            self._dra.reconcile(has_dra, pools, self._nodes_by_pool())
        # A cluster that exists already has all of GKE's drivers.
        lacks = set(missing_drivers(cluster) if cluster else ()).difference(
            map(name_of, self._drivers.items())
        )
        with attempt("disks"):
            self._disks.reconcile(self._nodes.items(), pods, lacks)
        with attempt("the start of pods"):
            self._kubelet.start(pods, lacks)
        with attempt("load balancers"):
            self._load_balancers.reconcile()
        with attempt("history"):
            gone = [self._gone.popleft() for _ in range(len(self._gone))]
            self._remember([*pods, *gone], {job["metadata"]["uid"] for job in self._jobs.items()})

    def _assume_nodes(self, pools: Mapping[str, Pool]) -> None:
        """Give nodes to the pods of a program that declares none, unless copies of a cluster's nodes are there."""
        are_brought = not all(map(nodes.is_simulated, self._nodes.items()))
        if pools and are_brought:
            self._store.delete("node_pools", ASSUMED.name)
        elif (
            not pools
            and not are_brought
            and any(map(autoscaler.is_unschedulable, self._pods.items()))
        ):
            self._store.save_pool(ASSUMED)

    def _scale(
        self, pools: Mapping[str, Pool], pods: list[Object], has_dra: bool, began: float
    ) -> None:
        """Bring the nodes of each pool to the number that it should have now, and to what it declares."""
        by_pool, sizes, templates = (
            self._nodes_by_pool(),
            self._sizes(pools),
            self._templates(pools),
        )
        busy = autoscaler.busy_by_node(pods)
        for name in by_pool.keys() - pools.keys():
            self._drain(by_pool[name], busy)
        known = {name: pools[name] for name in templates}
        growing = [pool for name, pool in known.items() if name not in self._refused]
        plan = Plan()
        # Nodes on their way count: pods are planned for once each pool has the nodes that it should have already.
        if all(len(by_pool[pool.name]) >= sizes[pool.name] for pool in growing):
            with attempt("the autoscaler's plan"):
                plan = self._plan(
                    pods, growing, [node for group in by_pool.values() for node in group]
                )
            with attempt("nodes for claimed devices"):
                of_claims = self._dra.growth(has_dra, pods, growing, by_pool)
                plan.new_nodes.update(of_claims.new_nodes)
                plan = replace(plan, unplaced=(*plan.unplaced, *of_claims.unplaced))
        with attempt("the pods without a node"):
            # Of a pool that is not known nothing is certain, nor of nodes that are only assumed.
            is_certain = len(growing) == len(pools) > 0 and ASSUMED.name not in pools
            self._decline(plan.unplaced, is_certain, began)
        if any(pool.queued for pool in known.values()):
            with attempt("ProvisioningRequests"):
                self._grant(known, by_pool, sizes)
        for (pool, _), count in plan.new_nodes.items():
            sizes[pool] += count
            _log.info("pool %s grows by %d to %d nodes", pool, count, sizes[pool])
        self._scale_down(known, by_pool, sizes, busy.keys() | plan.needed)
        by_pool = self._nodes_by_pool()
        if (wanted := {name: sizes[name] for name in pools}) != self._known_sizes:
            self._store.put("sizes", wanted)
            self._known_sizes = wanted
        for name, pool in known.items():
            self._refused.add(name)
            with attempt(f"the number of nodes of pool {name}"):
                self._fill(pool, by_pool[name], sizes[name], plan.new_nodes, busy)
                self._refused.discard(name)
            self._update(pool, by_pool[name], templates[name])

    def _templates(self, pools: Mapping[str, Pool]) -> dict[str, dict[str, Object]]:
        """What a node is, by pool and zone. A pool for which that fails is left out, and its nodes stay as they are."""
        templates: dict[str, dict[str, Object]] = {}
        for name, pool in pools.items():
            with attempt(f"pool {name}"):
                templates[name] = {
                    zone: nodes.node_template(pool, zone, self._operator) for zone in pool.zones
                }
        return templates

    def _nodes_by_pool(self) -> defaultdict[str, list[Object]]:
        """The nodes that were made here: copies of a user's own nodes have pools too, which nothing declares."""
        by_pool: defaultdict[str, list[Object]] = defaultdict(list)
        for node in filter(nodes.is_simulated, self._nodes.items()):
            by_pool[labels_of(node).get(labels.GKE_NODE_POOL, "")].append(node)
        return by_pool

    def _sizes(self, pools: Mapping[str, Pool]) -> Counter[str]:
        """How many nodes each pool should have: as many as before, within its limits of now."""
        known = {
            name: self._known_sizes.get(name, pool.initial_nodes) for name, pool in pools.items()
        }
        return Counter(
            {
                name: min(max(known[name], pool.min_nodes), pool.max_nodes)
                for name, pool in pools.items()
            }
        )

    def _plan(
        self, pods: list[Object], pools: Iterable[Pool], there: list[Object], queued: bool = False
    ) -> Plan:
        known = self._daemon_sets.items(), pools, self._operator, self._disks.zones
        brought = [node for node in self._nodes.items() if not nodes.is_simulated(node)]
        return autoscaler.plan(pods, there, *known, queued=queued, brought=brought)

    def _decline(self, unplaced: Sequence[Unplaced], is_certain: bool, began: float) -> None:
        """Report the pods for which no node is made, and why; of a certain round also those that can never have one."""
        hopeless = {
            each.pod["metadata"]["uid"]: each.reason
            for each in unplaced
            if each.is_hopeless and is_certain
        }
        if hopeless or self._had_hopeless:
            self._store.put("hopeless", {"began": began, "pods": hopeless})
        self._had_hopeless = bool(hopeless)
        found = {each.pod["metadata"]["uid"]: each.reason for each in unplaced}
        if found != self._known_unplaced:
            self._store.put("unplaced", found)
            self._known_unplaced = found
        for each in unplaced:
            said = f"pod didn't trigger scale-up: {each.reason}"
            self._recorder.note(each.pod, "Pod", "NotTriggerScaleUp", said)

    def _grant(
        self, pools: Mapping[str, Pool], by_pool: Mapping[str, list[Object]], sizes: Counter[str]
    ) -> None:
        """Make the nodes of ProvisioningRequests: new ones for each, whatever is there."""
        there = [node for group in by_pool.values() for node in group]
        for request, found in self._requests.granted(
            lambda pods: self._plan(pods, pools.values(), there, queued=True)
        ):
            for pool, zone in found.new_nodes.elements():
                there.append(self._make_node(pools[pool], zone, request))
                sizes[pool] += 1

    def _fill(
        self,
        pool: Pool,
        existing: list[Object],
        size: int,
        planned: Counter[tuple[str, str]],
        busy: _Busy,
    ) -> None:
        """Create the missing nodes, where they were planned or else in the emptiest zone; drain surplus ones."""
        current = [node for node in existing if _is_current(node, pool)]
        self._drain([node for node in existing if not _is_current(node, pool)], busy)
        in_zone = Counter(labels_of(node).get(labels.ZONE, "") for node in current)
        wanted = [
            zone
            for (name, zone), count in planned.items()
            if name == pool.name
            for _ in range(count)
        ]
        zones: list[str] = []
        for index in range(size - len(current)):
            zones.append(
                wanted[index]
                if index < len(wanted)
                else min(pool.zones, key=lambda zone: in_zone[zone])
            )
            in_zone[zones[-1]] += 1
        with ThreadPoolExecutor(_NODES_AT_ONCE) as threads:
            list(threads.map(lambda zone: self._make_node(pool, zone), zones))
        # Those that are on their way out already, then those that run nothing.
        current.sort(
            key=lambda node: (not node["spec"].get("unschedulable"), name_of(node) in busy)
        )
        self._drain(current[: max(0, len(current) - size)], busy)

    def _make_node(self, pool: Pool, zone: str, request: str = "") -> Object:
        made = self._api.create(_NODES, nodes.new_node(pool, zone, self._operator, request))
        self._nodes.put(made)
        return made

    def _update(
        self, pool: Pool, existing: Iterable[Object], templates: Mapping[str, Object]
    ) -> None:
        settled, wanted = self._settled.get(pool.name), (pool, self._operator)
        known = settled[1] if settled and settled[0] == wanted else {}
        self._settled[pool.name] = (wanted, {})
        for node in existing:
            if not _is_current(node, pool):
                continue
            with attempt(f"an update of node {name_of(node)}"):
                is_known, template = (
                    known.get(name_of(node)) is node,
                    templates[labels_of(node).get(labels.ZONE, "")],
                )
                patch, status = ({}, {}) if is_known else nodes.changes(node, template)
                if patch:
                    self._api.patch(_path(node), patch)
                if status:
                    self._api.patch(f"{_path(node)}/status", {"status": status})
                if not patch and not status:
                    self._settled[pool.name][1][name_of(node)] = node

    def _drain(self, leaving: Iterable[Object], busy: _Busy) -> None:
        """Cordon nodes, end what runs on them and, once nothing does, remove them; over several rounds."""
        for node in leaving:
            running = busy.get(name_of(node), ())
            with attempt(f"the drain of node {name_of(node)}"):
                if not node["spec"].get("unschedulable"):
                    self._api.patch(_path(node), {"spec": {"unschedulable": True}})
                elif not running:
                    self._delete_node(node, "is drained")
                for pod in running:
                    if not pod["metadata"].get("deletionTimestamp"):
                        self._api.delete(
                            f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
                        )

    def _scale_down(
        self,
        pools: Mapping[str, Pool],
        by_pool: Mapping[str, list[Object]],
        sizes: Counter[str],
        busy: Set[str],
    ) -> None:
        """Mark and then remove nodes that have been idle for long enough, and lower the sizes of their pools."""
        now, patience = (
            time.monotonic(),
            self._store.get("scale_down_seconds", SCALE_DOWN_SECONDS),
        )
        names = {name_of(node) for group in by_pool.values() for node in group}
        self._idle_since = {name: self._idle_since.get(name, now) for name in names - busy}
        for pool in pools.values():
            group = by_pool.get(pool.name, []) if pool.autoscaled else []
            marked = sum(bool(_removal(node)) for node in group)
            for node in group:
                spare = sizes[pool.name] - pool.min_nodes
                idle = now - self._idle_since.get(name_of(node), now)
                with attempt(f"the removal of node {name_of(node)}"):
                    if _removal(node):
                        sizes[pool.name] -= self._finish_removal(
                            node, name_of(node) in busy or spare <= 0
                        )
                    elif idle >= patience and spare > marked:
                        taint = {
                            "key": REMOVING_TAINT,
                            "value": str(int(time.time())),
                            "effect": "NoSchedule",
                        }
                        self._api.patch(
                            _path(node),
                            {"spec": {"taints": [*items(node["spec"], "taints"), taint]}},
                        )
                        break

    def _finish_removal(self, node: Object, is_needed: bool) -> bool:
        """Remove a marked node after a while, or keep it if a pod came first; whether it is gone."""
        if time.time() - float(_removal(node)) < _REMOVAL_GRACE_SECONDS:
            return False
        # The scheduler may have been faster than the taint: ask the API, not the copy.
        on_node = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name_of(node)}")[
            "items"
        ]
        if is_needed or any(map(is_busy, on_node)):
            kept = [taint for taint in node["spec"]["taints"] if taint["key"] != REMOVING_TAINT]
            self._api.patch(_path(node), {"spec": {"taints": kept}})
            return False
        self._delete_node(node, "was idle")
        return True

    def _delete_node(self, node: Object, why: str) -> None:
        _log.info("node %s %s and goes", name_of(node), why)
        self._api.delete(_path(node))
        self._nodes.drop(node)

    def _remember(self, pods: Iterable[Object], jobs: Set[str]) -> None:
        """Note where the pods of these Jobs have ended: the pods go with their nodes."""
        pools = {
            name_of(node): labels_of(node).get(labels.GKE_NODE_POOL, "")
            for node in self._nodes.items()
        }
        found = {uid: dict(self._ran_on.get(uid, {})) for uid in jobs}
        for pod in filter(is_finished, pods):
            if node := pod["spec"].get("nodeName"):
                for uid in owners(pod) & jobs:
                    found[uid].setdefault(node, pools.get(node, ""))
        if found != self._ran_on:
            self._store.put("ran_on", found)
            self._ran_on = found


def _is_current(node: Manifest, pool: Pool) -> bool:
    """Whether a node has its pool's machine type and is in one of its zones; otherwise it is replaced."""
    found = labels_of(node)
    return (
        found.get(labels.INSTANCE_TYPE) == pool.machine_type
        and found.get(labels.ZONE) in pool.zones
    )


def _removal(node: Manifest) -> str:
    """When a node was marked for removal, in seconds since the epoch; empty where it is not."""
    return next(
        (
            taint["value"]
            for taint in items(node["spec"], "taints")
            if taint["key"] == REMOVING_TAINT
        ),
        "",
    )


def _path(node: Manifest) -> str:
    return f"{_NODES}/{name_of(node)}"
