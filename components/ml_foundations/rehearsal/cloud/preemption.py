"""Nodes that Google takes back: their pods end within a grace period, and then the nodes.

GKE taints a Spot node that is preempted. In a rehearsal ``ml-foundations disrupt`` does so, or you:
``kubectl taint node NAME cloud.google.com/impending-node-termination=:NoSchedule``. A node of a
pool with a maximum run duration has an annotation with its end.
"""

import time
from datetime import UTC, datetime

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, labels_of, name_of
from ml_foundations.rehearsal.api import NODES, Api, Object, path_in, pod_path
from ml_foundations.rehearsal.cloud.autoscaler import is_finished
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.store import Pool

TAINT = "cloud.google.com/impending-node-termination"
_DEFAULT_GRACE = 30
_TERMINATED = {
    "phase": "Failed",
    "reason": "Terminated",
    "message": "Pod was terminated in response to imminent node shutdown.",
}
"""The status of a pod that a kubelet ends with its node (Kubernetes, pkg/kubelet/nodeshutdown)."""


class Preemption(Controller):
    """Ends the pods of nodes that are taken back, and then the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._since: dict[str, float] = {}
        """When each preempted node was first seen with its taint."""

    def reconcile(self) -> None:
        """End the pods whose time is over, and delete the nodes whose time is over."""
        preempted: list[Object] = []
        for node in self.cluster.nodes.items():
            is_spot = labels_of(node).get(labels.GKE_SPOT) == "true"
            is_tainted = any(taint["key"] == TAINT for taint in items(node["spec"], "taints"))
            if is_tainted and (is_spot or _is_over(node)):
                preempted.append(node)
            elif _is_over(node):
                with attempt(f"the end of node {name_of(node)}"):
                    preempt(self.api, node)
        now = time.monotonic()
        self._since = {name_of(node): self._since.get(name_of(node), now) for node in preempted}
        for node in preempted:
            pool = self.cluster.pools.get(labels_of(node).get(labels.GKE_NODE_POOL, ""))
            node_grace = pool.shutdown_grace if pool else Pool.shutdown_grace
            elapsed = now - self._since[name_of(node)]
            for pod in self.cluster.pods:
                if pod["spec"].get("nodeName") == name_of(node) and not is_finished(pod):
                    grace = pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
                    if elapsed >= min(grace, node_grace):
                        with attempt(f"the end of pod {name_of(pod)}"):
                            self.api.patch(f"{pod_path(pod)}/status", {"status": _TERMINATED})
            if elapsed >= node_grace:
                self.cluster.delete_node(node, "is taken back by Google")
                # A pool shrinks by a node whose run time is over. Pods make it grow again.
                if pool and pool.autoscaled and _is_over(node):
                    sizes = self.cluster.sizes
                    self.cluster.save_sizes({**sizes, pool.name: sizes[pool.name] - 1})


def preempt(api: Api, node: Object) -> None:
    """Taint a node as GKE does before it ends."""
    taint = {"key": TAINT, "value": "", "effect": "NoSchedule"}
    taints = [*items(node["spec"], "taints"), taint]
    api.patch(path_in(NODES, node), {"spec": {"taints": taints}})


def _is_over(node: Object) -> bool:
    """Return whether a node is at the end of its maximum run duration."""
    end = annotations_of(node).get(labels.GKE_TERMINATION_TIME)
    return bool(end) and datetime.fromisoformat(end) <= datetime.now(UTC)
