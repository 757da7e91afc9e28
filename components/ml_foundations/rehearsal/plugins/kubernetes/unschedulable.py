"""The early end of a wait: no node can ever take the pods, and no running call can change that."""

import math
import time

from ml_foundations.kubernetes.labels import KUEUE_QUEUE
from ml_foundations.kubernetes.objects import labels_of
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.kubernetes.readiness import pods_of

_SETTLE_SECONDS = 20
"""The time that all calls must be idle: by then, the nodes have all their GPUs."""
_CHECK_SECONDS = 2
_DEPENDENT_KINDS = {"Service", "Ingress.networking.k8s.io"}
"""Kinds that wait for pods of other objects, and change no node."""


class UnschedulableCheck:
    """A repeated check whether the pods can never run. If in doubt, the wait goes on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._idle_since = math.inf
        """The time since when all running calls only wait for pods that no node can take."""
        self._next_check = 0.0

    def reason(self, live: Object) -> str:
        """Return why the pods of an object can never run; empty if that is not certain."""
        if time.monotonic() < self._next_check:
            return ""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        try:
            return self._check(live)
        except Exception:
            # The API server may come back, and a wait must end in a state.
            self._idle_since = math.inf
            return ""

    def _check(self, live: Object) -> str:
        stores = map(Store, Rehearsal.of_this_process().replicas)
        candidates = [self._common_reason(live, store.get("hopeless", {})) for store in stores]
        round_started, reason = max(candidates, default=(0.0, ""))
        running_calls.mark_idle(bool(reason) or group_kind(live) in _DEPENDENT_KINDS)
        if not reason or not running_calls.are_all_idle():
            self._idle_since = math.inf
            return ""
        self._idle_since = min(self._idle_since, time.time())
        # An earlier round of the autoscaler may not know the latest nodes.
        return reason if round_started - self._idle_since >= _SETTLE_SECONDS else ""

    def _common_reason(self, live: Object, unplaceable: Object) -> tuple[float, str]:
        """Return when the autoscaler's round began that rejects all pending pods, and why."""
        reasons = unplaceable.get("pods", {})
        # Kueue may bring nodes for its queues.
        if not reasons or KUEUE_QUEUE in labels_of(live):
            return 0.0, ""
        pods = [pod for pod in pods_of(self._client, live) if not pod["spec"].get("nodeName")]
        of_pods = [reasons.get(pod["metadata"]["uid"]) for pod in pods]
        return (unplaceable["began"], of_pods[0]) if of_pods and all(of_pods) else (0.0, "")
