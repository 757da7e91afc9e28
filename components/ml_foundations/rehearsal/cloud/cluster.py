"""A cluster, and the protocol of the simulated controllers, which share what is known of it."""

import logging
import threading
import time
from collections import defaultdict, deque
from typing import Any

from ml_foundations.catalog.gke_kinds import missing_drivers
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import labels_of, name_of
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import NODES, Api, Object, path_in
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.autoscaler import is_unschedulable
from ml_foundations.rehearsal.cloud.informer import Informer
from ml_foundations.rehearsal.cloud.store import ASSUMED, Pool, Store
from ml_foundations.rehearsal.layout import Rehearsal

_log = logging.getLogger(__name__)
GKE_LABEL = "ml-foundations/gke"
OTHERS = f"!{GKE_LABEL}"
"""Selects all pods except those of GKE's DaemonSets: most pods of a large cluster are theirs."""


class Cluster:
    """The live objects of a replica, and what all controllers know of it in a round."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal = rehearsal
        self.api = Api(Access(rehearsal.kubeconfig))
        self.store = Store(rehearsal)
        self.project = Store(Rehearsal.at(rehearsal.root))
        """The first replica has the project's resources that belong to no cluster."""
        self.changed = threading.Event()
        """Set when a watched object changes."""
        self.informers: dict[tuple[str, str], Informer] = {}
        self.removed_pods: deque[Object] = deque()
        """Pods that were removed since the last round."""
        self.nodes = self.watch(NODES)
        self.daemon_sets = self.watch("/apis/apps/v1/daemonsets")
        self._pods = self.watch("/api/v1/pods", OTHERS, removed=self.removed_pods.append)
        self._csi_drivers = self.watch("/apis/storage.k8s.io/v1/csidrivers")
        self.sizes: dict[str, int] = self.store.get("sizes", {})
        """By pool, the number of nodes that it should have now."""
        self.began = 0.0
        """When this round began, in seconds since the epoch."""
        self.pods: list[Object] = []
        """The pods at the beginning of this round."""
        self.pools: dict[str, Pool] = {}
        """The declared node pools, with what the controllers before this one know of them."""
        self.declared: list[dict[str, Any]] = []
        """The properties of each declared cluster."""
        self.properties: dict[str, Any] = {}
        """Those of the first one; empty if the cluster exists already."""
        self.operator: Operator | None = None
        self.has_dra = False
        """Whether NVIDIA's DRA driver is installed and works."""

    def watch(self, path: str, selector: str = "", **options: Any) -> Informer:
        """Return the live copy of a collection, which all controllers share."""
        if (path, selector) not in self.informers:
            informer = Informer(self.api, path, self.changed, selector=selector, **options)
            self.informers[path, selector] = informer
        return self.informers[path, selector]

    def begin_round(self) -> None:
        """Look at the pods, and at the declared cluster and node pools."""
        self.began = time.time()
        self.pods = self._pods.items()
        self.pools = self.store.pools()
        by_pool = self.nodes_by_pool()
        for name, pool in self.pools.items():
            # In a stockout, a pool keeps its nodes and gets no more.
            existing = sum(nodes.is_current(node, pool) for node in by_pool[name])
            self.pools[name] = self.store.available(pool, existing)
        clusters = self.store.clusters().values()
        self.declared = [cluster.get("inputs") or {} for cluster in clusters]
        self.properties = next(iter(self.declared), {})
        # Without declared pools, the cluster exists already or is Autopilot's.
        has_standard = any(not properties.get("enableAutopilot") for properties in self.declared)
        has_imported = not all(map(nodes.is_simulated, self.nodes.items()))
        if has_standard or has_imported or self.pools.keys() - {ASSUMED.name}:
            if ASSUMED.name in self.pools:
                self.store.delete("node_pools", ASSUMED.name)
        elif not self.pools and any(map(is_unschedulable, self.pods)):
            self.store.save_pool(ASSUMED)

    @property
    def missing_drivers(self) -> set[str]:
        """Return the CSI drivers that are switched off. A cluster that exists has all of GKE's."""
        disabled = set(missing_drivers(self.properties)) if self.properties else set[str]()
        return disabled.difference(map(name_of, self._csi_drivers.items()))

    def nodes_by_pool(self) -> defaultdict[str, list[Object]]:
        """Return the simulated nodes. Copies of a user's nodes have pools that nobody declares."""
        by_pool: defaultdict[str, list[Object]] = defaultdict(list)
        for node in filter(nodes.is_simulated, self.nodes.items()):
            by_pool[labels_of(node).get(labels.GKE_NODE_POOL, "")].append(node)
        return by_pool

    def save_sizes(self, sizes: dict[str, int]) -> None:
        """Save the number of nodes that each pool should have now."""
        if sizes != self.sizes:
            self.store.put("sizes", sizes)
            self.sizes = sizes

    def delete_node(self, node: Object, why: str) -> None:
        """Delete a node, which then exists for no controller."""
        _log.info("node %s %s and goes", name_of(node), why)
        self.api.delete(path_in(NODES, node))
        self.nodes.drop(node)


class Controller:
    """A controller of one cluster. It asks in its constructor for what it watches."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = cluster.api

    def reconcile(self) -> None:
        """Do the work of one round. A failure affects no other controller."""
        raise NotImplementedError
