"""Drains: the pods of a node that goes are evicted, so that PodDisruptionBudgets count."""

import time
from collections.abc import Iterable

from ml_foundations.kubernetes.objects import Manifest, name_of
from ml_foundations.rehearsal.api import DISRUPTION_BUDGET, NODES, Api, ApiError, path_in, pod_path
from ml_foundations.rehearsal.cloud.events import Recorder

BLOCKED = "EvictionBlocked"
"""The reason of the event about a pod that a PodDisruptionBudget keeps."""
_EVICTION_SECONDS = 3600
"""How long GKE respects PodDisruptionBudgets. Then it deletes the pods (GKE, "Node upgrade
strategies")."""


class Drain:
    """Cordons nodes and evicts their pods, over several rounds."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._recorder = Recorder(api, "gke")
        self._since: dict[str, float] = {}
        """When the drain of each node began."""

    def finished(self, node: Manifest, running: Iterable[Manifest]) -> bool:
        """Go on with the drain of a node. Return whether no pod keeps it any more."""
        if not node["spec"].get("unschedulable"):
            self._api.patch(path_in(NODES, node), {"spec": {"unschedulable": True}})
            return False
        began = self._since.setdefault(name_of(node), time.monotonic())
        is_over = time.monotonic() - began >= _EVICTION_SECONDS
        staying = list(running)
        for pod in staying:
            if pod["metadata"].get("deletionTimestamp"):
                continue
            if is_over:
                self._api.delete(pod_path(pod))
                continue
            try:
                self._api.evict(pod)
            except ApiError as error:
                if DISRUPTION_BUDGET not in error.causes:
                    raise
                self._recorder.warn(pod, "Pod", BLOCKED, error.message)
        if not staying:
            del self._since[name_of(node)]
        return not staying
