"""Nodes that fail: their kubelets stop, and GKE repairs them by new nodes."""

import time
from collections.abc import Iterable, Mapping

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, labels_of, name_of, section
from ml_foundations.rehearsal.api import Api, Object, pod_path
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.autoscaler import is_finished
from ml_foundations.rehearsal.cloud.events import now
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.store import Pool

DISRUPTED = "rehearsal.ml-foundations/disrupted"
"""The annotation of a node that is to fail or to be drained, and of the pods of a failed node. kwok
plays no kubelet for what has the value ``failure`` (control_plane/kwokctl.yaml)."""
DRAIN, FAILURE = "drain", "failure"
REPLACE, BLUE = "replace", "blue"
"""Values for nodes of an upgrade. A drained node gets its successor first, a replaced node when it
is gone. A blue node has its successor, and waits for its drain."""
_REPAIR_SECONDS = 10
"""GKE waits for about ten minutes (GKE, "Auto-repair nodes"). That is too long for a rehearsal."""


class NodeFailures:
    """Stops the kubelets of failed nodes, and then repairs the nodes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since: dict[str, float] = {}
        """When each failed node was first seen."""

    def reconcile(
        self, all_nodes: Iterable[Object], pods: Iterable[Object], pools: Mapping[str, Pool]
    ) -> list[Object]:
        """Stop the kubelets of failed nodes. Return the nodes whose repair is due."""
        failed = list(filter(is_failed, all_nodes))
        present = time.monotonic()
        self._since = {name_of(node): self._since.get(name_of(node), present) for node in failed}
        repaired: list[Object] = []
        for node in failed:
            if nodes.is_ready(node):
                with attempt(f"the failure of node {name_of(node)}"):
                    self._stop(node, pods)
            is_due = present - self._since[name_of(node)] >= _REPAIR_SECONDS
            if is_due and is_repaired(pools.get(labels_of(node).get(labels.GKE_NODE_POOL, ""))):
                repaired.append(node)
        return repaired

    def _stop(self, node: Object, pods: Iterable[Object]) -> None:
        """Do what the node controller does when a node reports no status any more."""
        for pod in pods:
            if pod["spec"].get("nodeName") == name_of(node) and not is_finished(pod):
                self._api.patch(pod_path(pod), {"metadata": {"annotations": {DISRUPTED: FAILURE}}})
                self._set_ready(pod_path(pod), {"status": "False"})
        message = "Kubelet stopped posting node status."
        unknown = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
        self._set_ready(f"/api/v1/nodes/{name_of(node)}", unknown)

    def _set_ready(self, path: str, state: Mapping[str, str]) -> None:
        # A strategic merge changes no other condition.
        ready = {"type": "Ready", **state, "lastTransitionTime": now()}
        body = {"status": {"conditions": [ready]}}
        content_type = "application/strategic-merge-patch+json"
        self._api.request("PATCH", f"{path}/status", body=body, content_type=content_type)


def is_failed(node: Object) -> bool:
    """Return whether a node is to fail."""
    return annotations_of(node).get(DISRUPTED) == FAILURE


def is_repaired(pool: Pool | None) -> bool:
    """Return whether GKE repairs the nodes of a pool. It does by default."""
    management = section(pool.resource, "inputs", "management") if pool else {}
    return management.get("autoRepair") is not False
