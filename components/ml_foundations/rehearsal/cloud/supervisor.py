"""The supervisor of the simulated GKE: it runs the controllers, and scales the node pools."""

import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

from ml_foundations.catalog.gke_kinds import missing_drivers
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.planning.input.program import granted_buckets
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object, owners
from ml_foundations.rehearsal.cloud import (
    addons,
    autoscaler,
    dra,
    gateways,
    kubelet,
    load_balancers,
    metrics,
    networks,
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
    is_unschedulable,
)
from ml_foundations.rehearsal.cloud.compute_classes import ComputeClasses
from ml_foundations.rehearsal.cloud.drain import Drain
from ml_foundations.rehearsal.cloud.events import Recorder
from ml_foundations.rehearsal.cloud.failures import (
    BLUE,
    DISRUPTED,
    DRAIN,
    REPLACE,
    NodeFailures,
    is_failed,
)
from ml_foundations.rehearsal.cloud.informer import Informer, attempt
from ml_foundations.rehearsal.cloud.preemption import Preemption, is_over
from ml_foundations.rehearsal.cloud.project_objects import ProjectObjects
from ml_foundations.rehearsal.cloud.provisioning import ProvisioningRequests
from ml_foundations.rehearsal.cloud.ray_dashboard import RayDashboard
from ml_foundations.rehearsal.cloud.store import ASSUMED, Pool, Store
from ml_foundations.rehearsal.layout import Rehearsal

_log = logging.getLogger(__name__)
_NODES = "/api/v1/nodes"
_CSI_DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
_DAEMON_SETS = f"/apis/apps/v1/namespaces/{addons.NAMESPACE}/daemonsets"
_REMOVAL_GRACE_SECONDS = 1.0
_ROUND_SECONDS = 0.5
_POLL_SECONDS = 0.05
_MIN_PAUSE_SECONDS = 0.1
_PAUSE_FACTOR = 9
"""The pause after a round, in multiples of its CPU time: a large replica needs the CPU itself."""
_NODES_AT_ONCE = 48
"""As many requests as hold their own against those of the DaemonSet controller."""
_Busy = Mapping[str, Sequence[Manifest]]
"""By node, the pods that keep it from being removed."""


class Supervisor:
    """Reconciles the declared node pools with the nodes of the replica."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._store = Store(rehearsal)
        self._removed_pods: deque[Object] = deque()
        """Pods that were removed since the last round."""
        self._job_nodes: Mapping[str, Mapping[str, str]] = self._store.get("ran_on", {})
        self._api = Api(Access(rehearsal.kubeconfig))
        self._changed = threading.Event()
        self._store_version = self._store.version()
        self._operator: operator.Operator | None = None
        self._failed_pools: set[str] = set()
        """The pools that did not get their nodes in the last round. They get no pods."""
        self._idle_since: dict[str, float] = {}
        self._known_sizes: dict[str, int] = self._store.get("sizes", {})
        self._known_ready: dict[str, int] | None = None
        self._had_hopeless = True
        self._known_unplaced: dict[str, str] = self._store.get("unplaced", {})
        self._informers: list[Informer] = []
        self._up_to_date: dict[
            str, tuple[tuple[Pool, operator.Operator | None], dict[str, Object]]
        ] = {}
        """By pool: what its nodes were last compared with, and the nodes that need no change."""

        def follow(path: str, **options: Any) -> Informer:
            self._informers.append(Informer(self._api, path, self._changed, **options))
            return self._informers[-1]

        self._nodes = follow(_NODES)
        self._pods = follow(
            "/api/v1/pods", selector=addons.OTHERS, removed=self._removed_pods.append
        )
        self._daemon_sets = follow("/apis/apps/v1/daemonsets")
        self._jobs = follow("/apis/batch/v1/jobs")
        self._releases = follow(
            "/api/v1/secrets", selector=operator.HELM_SECRETS, read=operator.read_release
        )
        self._addons = addons.Addons(self._api)
        self._networks = networks.NetworkController(self._api)
        self._project = Store(Rehearsal.at(rehearsal.root))
        """The first replica has the project's resources that belong to no cluster."""
        persistent_volumes = follow(volumes.VOLUMES)
        self._volume_provisioner = volumes.VolumeProvisioner(
            self._api, follow(volumes.CLAIMS), persistent_volumes, follow(volumes.CLASSES)
        )
        self._kubelet = kubelet.Kubelet(
            self._api,
            persistent_volumes,
            follow(kubelet.CONFIG_MAPS, read=kubelet.keys_only),
            follow(kubelet.SECRETS, read=kubelet.keys_only),
        )
        self._csi_drivers = follow(_CSI_DRIVERS)
        self._dra = dra.DraDriver(self._api, follow(dra.SLICES), follow(dra.CLAIMS))
        self._requests = ProvisioningRequests(self._api)
        self._compute_classes = ComputeClasses(self._api)
        self._recorder = Recorder(self._api, "cluster-autoscaler")
        self._preemption = Preemption(self._api)
        self._failures = NodeFailures(self._api)
        self._drains = Drain(self._api)
        self._ray_dashboard = RayDashboard(rehearsal)
        self._metrics = metrics.MetricsServer(rehearsal, self._api, follow(metrics.APIS))
        made = ProjectObjects(self._api, self._project)
        self._gateways = gateways.GatewayController(self._api, made)
        self._load_balancers = load_balancers.LoadBalancerController(
            self._api,
            made,
            follow(load_balancers.SERVICES),
            follow(load_balancers.INGRESSES),
            follow(load_balancers.CLASSES),
        )

    def sync(self, timeout: float) -> bool:
        """Start the informers. Return whether all of them were synced within the timeout."""
        for informer in self._informers:
            informer.start()
        deadline = time.monotonic() + timeout
        return all(
            informer.synced.wait(max(0.0, deadline - time.monotonic()))
            for informer in self._informers
        )

    def run(self) -> None:
        """Reconcile for as long as the replica exists."""
        while self._rehearsal.replica_dir.exists():
            self._wait_for_change()
            if not all(informer.synced.is_set() for informer in self._informers):
                continue
            before = time.thread_time()
            with attempt("a round"):
                self.reconcile()
            # A pause lets changes gather: one round for a burst of pods, not one for each pod.
            cpu_seconds = time.thread_time() - before
            self._pause(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * cpu_seconds))

    def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until a pool or cluster changes: a user waits for its nodes."""
        end = time.monotonic() + seconds
        while self._store.version() == self._store_version and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def _wait_for_change(self) -> None:
        """Wait for a change in the API server or the store, or until the next round is due."""
        end = time.monotonic() + _ROUND_SECONDS
        while self._store.version() == self._store_version and time.monotonic() < end:
            if self._changed.wait(_POLL_SECONDS):
                break
        self._store_version = self._store.version()
        self._changed.clear()

    def reconcile(self) -> None:
        """Run each controller once. A failure of one affects no other controller."""
        began = time.time()
        pools, clusters = self._available_pools(), self._store.clusters()
        properties = [cluster.get("inputs") or {} for cluster in clusters.values()]
        # If a program declares no pools, its cluster exists already or is Autopilot's.
        is_autopilot = all(item.get("enableAutopilot") for item in properties)
        if pools.keys() <= {ASSUMED.name} and is_autopilot:
            self._assume_nodes(pools)
        elif ASSUMED.name in pools:
            self._store.delete("node_pools", ASSUMED.name)
        cluster = next(iter(properties), {})
        if clusters or pools:
            self._reconcile_addons(cluster)
        if networks.has_networks(pools.values(), cluster):
            with attempt("networks"):
                recorded = self._project.recorded()
                google = networks.GoogleNetworks(recorded, pools.values(), cluster)
                self._networks.reconcile(google)
            for name, pool in pools.items():
                by_ip_only = self._store.switch("networks_by_ip_only")
                pools[name] = networks.in_networks(pool, self._networks.ready, by_ip_only)
        with attempt("ComputeClasses"):
            pools = self._compute_classes.applied(pools)
        with attempt("the GPU Operator"):
            found = operator.find(self._rehearsal, self._releases.items())
            self._operator = found and found.on(properties).with_daemon_sets(
                self._daemon_sets.items()
            )
        dra_release = operator.find_release(dra.CHART, self._rehearsal, self._releases.items())
        breaks_networking = self._operator is not None and self._operator.breaks_networking
        has_dra = dra_release is not None and not breaks_networking
        pods = self._pods.items()
        with attempt("preemptions"):
            for node in self._preemption.reconcile(self._nodes.items(), pods, pools):
                self._delete_node(node, "is taken back by Google")
                self._shrink(node, pools)
        with attempt("repairs"):
            for node in self._failures.reconcile(self._nodes.items(), pods, pools):
                self._delete_node(node, "is repaired")
        with attempt("scaling"):
            self._scale(pools, pods, has_dra, began)
        with attempt("devices"):
            self._dra.reconcile(has_dra, pools, self._nodes_by_pool())
        # A cluster that exists already has all of GKE's drivers.
        disabled = set(missing_drivers(cluster)) if cluster else set[str]()
        missing = disabled.difference(map(name_of, self._csi_drivers.items()))
        with attempt("disks"):
            self._volume_provisioner.reconcile(self._nodes.items(), pods, missing)
        with attempt("snapshots"):
            self._volume_provisioner.take_snapshots()
        with attempt("the start of pods"):
            # If the program has no cluster, a role may be granted elsewhere.
            recorded = [
                (each["type"], section(each, "inputs")) for each in self._project.recorded()
            ]
            granted = {*granted_buckets(recorded), *(() if cluster else (None,))}
            self._kubelet.reconcile(pods, missing, granted)
        with attempt("load balancers"):
            self._load_balancers.reconcile(networks.cluster_network(cluster))
        if gateways.has_gateways(cluster):
            with attempt("gateways"):
                self._gateways.reconcile(pods, self._project.recorded(), cluster)
        with attempt("Ray's dashboards"):
            self._ray_dashboard.reconcile()
        with attempt("metrics"):
            self._metrics.reconcile(cluster)
        with attempt("history"):
            removed = [self._removed_pods.popleft() for _ in range(len(self._removed_pods))]
            jobs = {job["metadata"]["uid"] for job in self._jobs.items()}
            self._record_job_nodes([*pods, *removed], jobs)

    def _available_pools(self) -> dict[str, Pool]:
        """Return the declared node pools. In a stockout they keep their nodes and get no more."""
        pools, by_pool = self._store.pools(), self._nodes_by_pool()
        for name, pool in pools.items():
            existing = sum(_is_current(node, pool) for node in by_pool[name])
            pools[name] = self._store.available(pool, existing)
        return pools

    def _reconcile_addons(self, cluster: Mapping[str, Any]) -> None:
        with attempt("GKE's add-ons"):
            self._addons.reconcile(cluster)
        existing: set[str] = set()
        for item in self._daemon_sets.items():
            if namespace_of(item) == addons.NAMESPACE:
                existing.add(name_of(item))
        for manifest in addons.daemon_sets(cluster):
            with attempt(f"GKE's own DaemonSet {name_of(manifest)}"):
                if name_of(manifest) not in existing:
                    self._api.ensure(_DAEMON_SETS, manifest)

    def _assume_nodes(self, pools: Mapping[str, Pool]) -> None:
        """Add assumed nodes if the program declares none and none were imported."""
        has_imported = not all(map(nodes.is_simulated, self._nodes.items()))
        if pools and has_imported:
            self._store.delete("node_pools", ASSUMED.name)
        elif not (pools or has_imported) and any(map(is_unschedulable, self._pods.items())):
            self._store.save_pool(ASSUMED)

    def _scale(
        self, pools: Mapping[str, Pool], pods: list[Object], has_dra: bool, began: float
    ) -> None:
        """Bring the nodes of each pool to the number and the state that they should have now."""
        by_pool, sizes = self._nodes_by_pool(), self._sizes(pools)
        self._report_ready({name: by_pool.get(name, []) for name in pools})
        templates = self._templates(pools)
        busy = autoscaler.busy_by_node(pods)
        for name in by_pool.keys() - pools.keys():
            self._drain(by_pool[name], busy)
        known = {name: pools[name] for name in templates}
        growing = [pool for name, pool in known.items() if name not in self._failed_pools]
        plan = Plan()
        # Pods are planned for only when no nodes are on their way: these will run some of the pods.
        if all(len(by_pool[pool.name]) >= sizes[pool.name] for pool in growing):
            with attempt("the autoscaler's plan"):
                plan = self._plan(pods, growing, _all_nodes(by_pool))
            with attempt("nodes for claimed devices"):
                dra_plan = self._dra.plan(has_dra, pods, growing, by_pool)
                plan.new_nodes.update(dra_plan.new_nodes)
                plan = replace(plan, unplaced=(*plan.unplaced, *dra_plan.unplaced))
        with attempt("the pods without a node"):
            # Nothing is certain about a pool that failed, or about assumed nodes.
            is_certain = len(growing) == len(pools) > 0 and ASSUMED.name not in pools
            self._report_unplaced(plan.unplaced, is_certain, began)
        if any(pool.queued for pool in known.values()):
            with attempt("ProvisioningRequests"):
                self._grant_requests(known, by_pool, sizes)
        for (pool, _), count in plan.new_nodes.items():
            sizes[pool] += count
            _log.info("pool %s grows by %d to %d nodes", pool, count, sizes[pool])
        self._scale_down(known, by_pool, sizes, busy.keys() | plan.needed)
        by_pool = self._nodes_by_pool()
        if (wanted := {name: sizes[name] for name in pools}) != self._known_sizes:
            self._store.put("sizes", wanted)
            self._known_sizes = wanted
        for name, pool in known.items():
            self._failed_pools.add(name)
            with attempt(f"the number of nodes of pool {name}"):
                self._resize(pool, by_pool[name], sizes[name], plan.new_nodes, busy)
                self._failed_pools.discard(name)
            self._update(pool, by_pool[name], templates[name])

    def _report_ready(self, by_pool: Mapping[str, list[Object]]) -> None:
        """Report how many nodes of each pool are ready, for those who wait for them."""
        ready = {name: sum(map(nodes.is_ready, members)) for name, members in by_pool.items()}
        if ready != self._known_ready:
            self._store.put("ready", ready)
            self._known_ready = ready

    def _templates(self, pools: Mapping[str, Pool]) -> dict[str, dict[str, Object]]:
        """Return the node of each pool and zone. A pool that fails keeps its nodes."""
        templates: dict[str, dict[str, Object]] = {}
        for name, pool in pools.items():
            with attempt(f"pool {name}"):
                templates[name] = {
                    zone: nodes.node_template(pool, zone, self._operator) for zone in pool.zones
                }
        return templates

    def _nodes_by_pool(self) -> defaultdict[str, list[Object]]:
        """Return the simulated nodes. Copies of a user's nodes have pools that nobody declares."""
        by_pool: defaultdict[str, list[Object]] = defaultdict(list)
        for node in filter(nodes.is_simulated, self._nodes.items()):
            by_pool[labels_of(node).get(labels.GKE_NODE_POOL, "")].append(node)
        return by_pool

    def _sizes(self, pools: Mapping[str, Pool]) -> Counter[str]:
        """Return the size of each pool: as before, within its present limits."""
        sizes: Counter[str] = Counter()
        for name, pool in pools.items():
            size = self._known_sizes.get(name, pool.initial_nodes)
            sizes[name] = min(max(size, pool.min_nodes), pool.max_nodes)
        return sizes

    def _plan(
        self,
        pods: list[Object],
        pools: Iterable[Pool],
        existing: list[Object],
        queued: bool = False,
    ) -> Plan:
        return autoscaler.plan(
            pods,
            existing,
            self._daemon_sets.items(),
            pools,
            self._operator,
            self._volume_provisioner.zones,
            queued=queued,
            imported=[node for node in self._nodes.items() if not nodes.is_simulated(node)],
        )

    def _report_unplaced(
        self, unplaced: Sequence[Unplaced], is_certain: bool, began: float
    ) -> None:
        """Report the pods that get no node. In a certain round, some can never have one."""
        reasons: dict[str, str] = {}
        hopeless: dict[str, str] = {}
        for item in unplaced:
            uid = item.pod["metadata"]["uid"]
            reasons[uid] = item.reason
            if item.is_hopeless and is_certain:
                hopeless[uid] = item.reason
        if hopeless or self._had_hopeless:
            self._store.put("hopeless", {"began": began, "pods": hopeless})
        self._had_hopeless = bool(hopeless)
        if reasons != self._known_unplaced:
            self._store.put("unplaced", reasons)
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
            for pool, zone in granted.new_nodes.elements():
                place = next(nodes.free_places(pools[pool], zone, existing))
                existing.append(self._create_node(pools[pool], zone, place, request))
                sizes[pool] += 1

    def _resize(
        self,
        pool: Pool,
        existing: list[Object],
        size: int,
        planned: Counter[tuple[str, str]],
        busy: _Busy,
    ) -> None:
        """Create missing nodes in planned or else the smallest zones, and drain surplus ones."""
        current, outdated = list[Object](), list[Object]()
        for node in existing:
            (current if _is_current(node, pool) else outdated).append(node)
        self._drain((node for node in outdated if _way(node) != BLUE), busy)
        kept_places = sum(_way(node) == REPLACE for node in outdated)
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
            key=lambda node: (not node["spec"].get("unschedulable"), name_of(node) in busy)
        )
        self._drain(current[: max(0, len(current) - size)], busy)

    def _create_node(
        self, pool: Pool, zone: str, place: Mapping[str, str], request: str = ""
    ) -> Object:
        node = nodes.new_node(pool, zone, self._operator, request, place)
        node = self._api.create(_NODES, node)
        self._nodes.put(node)
        return node

    def _update(
        self, pool: Pool, existing: Iterable[Object], templates: Mapping[str, Object]
    ) -> None:
        """Patch the nodes of a pool that differ from its template.

        Informers keep an object until it changes. A node that is the same object as in the last
        round, with the same template, is not compared again.
        """
        wanted = (pool, self._operator)
        last_wanted, last_nodes = self._up_to_date.get(pool.name, (None, {}))
        unchanged = last_nodes if last_wanted == wanted else {}
        up_to_date: dict[str, Object] = {}
        self._up_to_date[pool.name] = (wanted, up_to_date)
        for node in existing:
            if not _is_current(node, pool) or is_failed(node):
                continue
            with attempt(f"an update of node {name_of(node)}"):
                patch, status = {}, {}
                if unchanged.get(name_of(node)) is not node:
                    template = templates[labels_of(node).get(labels.ZONE, "")]
                    patch, status = nodes.changes(node, template)
                if patch:
                    self._api.patch(_path(node), patch)
                if status:
                    self._api.patch(f"{_path(node)}/status", {"status": status})
                if not patch and not status:
                    up_to_date[name_of(node)] = node

    def _drain(self, leaving: Iterable[Object], busy: _Busy) -> None:
        """Drain nodes, and then remove them; over several rounds."""
        for node in leaving:
            with attempt(f"the drain of node {name_of(node)}"):
                if self._drains.finished(node, busy.get(name_of(node), ())):
                    self._delete_node(node, "is drained")

    def _scale_down(
        self,
        pools: Mapping[str, Pool],
        by_pool: Mapping[str, list[Object]],
        sizes: Counter[str],
        busy: Set[str],
    ) -> None:
        """Mark and then remove nodes that are idle for long enough, and lower the pools' sizes."""
        now = time.monotonic()
        idle_seconds = self._store.switch("scale_down_seconds")
        idle = {name_of(node) for node in _all_nodes(by_pool)} - busy
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        for pool in pools.values():
            group = by_pool.get(pool.name, []) if pool.autoscaled else []
            marked = sum(bool(_removal_time(node)) for node in group)
            for node in group:
                spare = sizes[pool.name] - pool.min_nodes
                idle_for = now - self._idle_since.get(name_of(node), now)
                with attempt(f"the removal of node {name_of(node)}"):
                    if _removal_time(node):
                        is_needed = name_of(node) in busy or spare <= 0
                        sizes[pool.name] -= self._finish_removal(node, is_needed)
                    elif idle_for >= idle_seconds and spare > marked:
                        taint = {"key": REMOVING_TAINT, "value": str(int(time.time()))}
                        taints = [*items(node["spec"], "taints"), taint | {"effect": "NoSchedule"}]
                        self._api.patch(_path(node), {"spec": {"taints": taints}})
                        break

    def _finish_removal(self, node: Object, is_needed: bool) -> bool:
        """Remove a marked node after a while, or unmark it for a pod. Return whether it is gone."""
        if time.time() - float(_removal_time(node)) < _REMOVAL_GRACE_SECONDS:
            return False
        # The scheduler may have been faster than the taint. The informer may not know its pod yet.
        selector = f"spec.nodeName={name_of(node)}"
        on_node = self._api.get("/api/v1/pods", fieldSelector=selector)["items"]
        if is_needed or any(map(is_busy, on_node)):
            kept = [taint for taint in node["spec"]["taints"] if taint["key"] != REMOVING_TAINT]
            self._api.patch(_path(node), {"spec": {"taints": kept}})
            return False
        self._delete_node(node, "was idle")
        return True

    def _shrink(self, node: Object, pools: Mapping[str, Pool]) -> None:
        """Lower the size of a pool by a node whose run time is over. Pods make it grow again."""
        name = labels_of(node).get(labels.GKE_NODE_POOL, "")
        if is_over(node) and name in pools and pools[name].autoscaled:
            self._known_sizes[name] -= 1
            self._store.put("sizes", self._known_sizes)

    def _delete_node(self, node: Object, why: str) -> None:
        _log.info("node %s %s and goes", name_of(node), why)
        self._api.delete(_path(node))
        self._nodes.drop(node)

    def _record_job_nodes(self, pods: Iterable[Object], jobs: Set[str]) -> None:
        """Record where the pods of these Jobs ended: a pod is deleted with its node."""
        pools: dict[str, str] = {}
        for node in self._nodes.items():
            pools[name_of(node)] = labels_of(node).get(labels.GKE_NODE_POOL, "")
        job_nodes = {uid: dict(self._job_nodes.get(uid, {})) for uid in jobs}
        for pod in filter(is_finished, pods):
            if node := pod["spec"].get("nodeName"):
                for uid in owners(pod) & jobs:
                    job_nodes[uid].setdefault(node, pools.get(node, ""))
        if job_nodes != self._job_nodes:
            self._store.put("ran_on", job_nodes)
            self._job_nodes = job_nodes


def _all_nodes(by_pool: Mapping[str, list[Object]]) -> list[Object]:
    return [*chain.from_iterable(by_pool.values())]


def _is_current(node: Manifest, pool: Pool) -> bool:
    """Return whether a node has its pool's machine type and zone. Other nodes are replaced.

    A node that is to be drained is replaced as in an upgrade.
    """
    node_labels = labels_of(node)
    if _way(node) in (DRAIN, REPLACE, BLUE):
        return False
    is_of_type = node_labels.get(labels.INSTANCE_TYPE) == pool.machine_type
    return is_of_type and node_labels.get(labels.ZONE) in pool.zones


def _way(node: Manifest) -> str:
    """Return how ``disrupt`` takes a node away, or nothing."""
    return annotations_of(node).get(DISRUPTED, "")


def _removal_time(node: Manifest) -> str:
    """Return when a node was marked for removal, in seconds since the epoch, or nothing."""
    for taint in items(node["spec"], "taints"):
        if taint["key"] == REMOVING_TAINT:
            return taint["value"]
    return ""


def _path(node: Manifest) -> str:
    return f"{_NODES}/{name_of(node)}"
