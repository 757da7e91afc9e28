"""Preemption of Spot nodes: a node with GKE's taint ends, and its pods within Spot's grace period.

GKE taints a node that Google takes back. In a rehearsal you do so: ``kubectl taint node NAME
cloud.google.com/impending-node-termination=:NoSchedule``.
"""

import time
from collections.abc import Iterable, Mapping

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, labels_of, name_of
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


class SpotPreemption:
    """Ends the pods of Spot nodes that are taken back, and then the nodes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since: dict[str, float] = {}
        """When each preempted node was first seen with its taint."""

    def reconcile(
        self, nodes: Iterable[Object], pods: Iterable[Object], pools: Mapping[str, Pool]
    ) -> list[Object]:
        """End the pods whose time is over. Return the nodes whose time is over, too."""
        preempted = list(filter(_is_preempted, nodes))
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


def _is_preempted(node: Object) -> bool:
    is_spot = labels_of(node).get(labels.GKE_SPOT) == "true"
    return is_spot and any(taint["key"] == TAINT for taint in items(node["spec"], "taints"))
