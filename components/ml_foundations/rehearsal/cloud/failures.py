"""Nodes that fail: their kubelets stop, and GKE repairs them by new nodes."""

import time

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import labels_of, name_of, section
from ml_foundations.rehearsal.api import NODES, Object, path_in, pod_path
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.autoscaler import is_finished
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.events import now
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.store import Pool

_REPAIR_SECONDS = 10
"""GKE waits for about ten minutes (GKE, "Auto-repair nodes"). That is too long for a rehearsal."""


class NodeRepair(Controller):
    """Stops the kubelets of failed nodes, and then repairs the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._since: dict[str, float] = {}
        """When each failed node was first seen."""

    def reconcile(self) -> None:
        """Stop the kubelets of failed nodes, and delete the nodes whose repair is due."""
        all_nodes = self.cluster.nodes.items()
        failed = [node for node in all_nodes if nodes.disruption_of(node) == nodes.FAILURE]
        present = time.monotonic()
        self._since = {name_of(node): self._since.get(name_of(node), present) for node in failed}
        for node in failed:
            if nodes.is_ready(node):
                with attempt(f"the failure of node {name_of(node)}"):
                    self._stop(node)
            is_due = present - self._since[name_of(node)] >= _REPAIR_SECONDS
            pool = self.cluster.pools.get(labels_of(node).get(labels.GKE_NODE_POOL, ""))
            if is_due and is_repaired(pool):
                self.cluster.delete_node(node, "is repaired")

    def _stop(self, node: Object) -> None:
        """Do what the node controller does when a node reports no status any more."""
        changed_at = now()
        for pod in self.cluster.pods:
            if pod["spec"].get("nodeName") == name_of(node) and not is_finished(pod):
                annotations = {nodes.DISRUPTED: nodes.FAILURE}
                self.api.patch(pod_path(pod), {"metadata": {"annotations": annotations}})
                self.api.set_condition(
                    pod_path(pod), "Ready", "False", lastTransitionTime=changed_at
                )
        self.api.set_condition(
            path_in(NODES, node),
            "Ready",
            "Unknown",
            reason="NodeStatusUnknown",
            message="Kubelet stopped posting node status.",
            lastTransitionTime=changed_at,
        )


def is_repaired(pool: Pool | None) -> bool:
    """Return whether GKE repairs the nodes of a pool. It does by default."""
    management = section(pool.resource, "inputs", "management") if pool else {}
    return management.get("autoRepair") is not False
