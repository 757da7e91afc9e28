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
        round_started, reason = 0.0, ""
        for replica in Rehearsal.of_this_process().replicas:
            unplaceable = Store(replica).get("hopeless", {})
            round_started, reason = max(
                (round_started, reason), self._common_reason(live, unplaceable)
            )
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
        first_reason = ""
        for pod in pods_of(self._client, live):
            if pod["spec"].get("nodeName"):
                continue
            reason = reasons.get(pod["metadata"]["uid"], "")
            if not reason:
                return 0.0, ""
            first_reason = first_reason or reason
        return (unplaceable["began"], first_reason) if first_reason else (0.0, "")
