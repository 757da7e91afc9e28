"""Nodes that Google takes back: their pods end within a grace period, and then the nodes.

GKE taints a Spot node that is preempted. In a rehearsal ``ml-foundations disrupt`` does so, or you:
``kubectl taint node NAME cloud.google.com/impending-node-termination=:NoSchedule``. A node of a
pool with a maximum run duration has an annotation with its end.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, labels_of, name_of
from ml_foundations.rehearsal.api import Api, Object, pod_path
from ml_foundations.rehearsal.cloud.autoscaler import is_finished
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


class Preemption:
    """Ends the pods of nodes that are taken back, and then the nodes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since: dict[str, float] = {}
        """When each preempted node was first seen with its taint."""

    def reconcile(
        self, nodes: Iterable[Object], pods: Iterable[Object], pools: Mapping[str, Pool]
    ) -> list[Object]:
        """End the pods whose time is over. Return the nodes whose time is over, too."""
        preempted: list[Object] = []
        for node in nodes:
            if _is_tainted(node) and (_is_spot(node) or is_over(node)):
                preempted.append(node)
            elif is_over(node):
                with attempt(f"the end of node {name_of(node)}"):
                    preempt(self._api, node)
        now = time.monotonic()
        self._since = {name_of(node): self._since.get(name_of(node), now) for node in preempted}
        ended: list[Object] = []
        for node in preempted:
            pool = pools.get(labels_of(node).get(labels.GKE_NODE_POOL, ""))
            node_grace = pool.shutdown_grace if pool else Pool.shutdown_grace
            elapsed = now - self._since[name_of(node)]
            for pod in pods:
                if pod["spec"].get("nodeName") == name_of(node) and not is_finished(pod):
                    grace = pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
                    if elapsed >= min(grace, node_grace):
                        with attempt(f"the end of pod {name_of(pod)}"):
                            self._api.patch(f"{pod_path(pod)}/status", {"status": _TERMINATED})
            if elapsed >= node_grace:
                ended.append(node)
        return ended


def preempt(api: Api, node: Object) -> None:
    """Taint a node as GKE does before it ends."""
    taint = {"key": TAINT, "value": "", "effect": "NoSchedule"}
    taints = [*items(node["spec"], "taints"), taint]
    api.patch(f"/api/v1/nodes/{name_of(node)}", {"spec": {"taints": taints}})


def is_over(node: Object) -> bool:
    """Return whether a node is at the end of its maximum run duration."""
    end = annotations_of(node).get(labels.GKE_TERMINATION_TIME)
    return bool(end) and datetime.fromisoformat(end) <= datetime.now(UTC)


def _is_tainted(node: Object) -> bool:
    return any(taint["key"] == TAINT for taint in items(node["spec"], "taints"))


def _is_spot(node: Object) -> bool:
    return labels_of(node).get(labels.GKE_SPOT) == "true"
