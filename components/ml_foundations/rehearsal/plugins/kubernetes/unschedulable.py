"""Waits that are in vain: no node can ever take the pods, and nothing under way can change that."""

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

_SECONDS = 20
"""How long nothing must be under way: by then what was made last, such as GPUs of an operator, is on the nodes."""
_LOOK_SECONDS = 2
_FOLLOWING = {"Service", "Ingress.networking.k8s.io"}
"""Kinds that wait for pods of others, and change no node."""


class UnschedulableCheck:
    """Finds out during a wait whether it is in vain. Every doubt lets the wait go on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._since = math.inf
        """Since when everything that is under way only waits for pods that no node takes."""
        self._next = 0.0

    def reason(self, live: Object) -> str:
        """Return why the pods of an object can never run; empty if they can, or if that is not certain."""
        if time.monotonic() < self._next:
            return ""
        self._next = time.monotonic() + _LOOK_SECONDS
        try:
            return self._look(live)
        except Exception:
            # The API server may come back, and a wait must end in a state.
            self._since = math.inf
            return ""

    def _look(self, live: Object) -> str:
        notes = [
            Store(replica).get("hopeless", {}) for replica in Rehearsal.of_this_process().replicas
        ]
        began, reason = max((self._hopeless(live, note) for note in notes), default=(0.0, ""))
        running_calls.mark_idle(bool(reason) or group_kind(live) in _FOLLOWING)
        if not reason or not running_calls.are_all_idle():
            self._since = math.inf
            return ""
        self._since = min(self._since, time.time())
        # A round of the autoscaler that began before may not know what was made last.
        return reason if began - self._since >= _SECONDS else ""

    def _hopeless(self, live: Object, note: Object) -> tuple[float, str]:
        """Return when a round of the autoscaler began that found all pending pods hopeless, and why they are."""
        reasons = note.get("pods", {})
        if not reasons or KUEUE_QUEUE in labels_of(live):
            return 0.0, ""
        pending = [pod for pod in pods_of(self._client, live) if not pod["spec"].get("nodeName")]
        found = [reasons.get(pod["metadata"]["uid"], "") for pod in pending]
        return (note["began"], found[0]) if found and all(found) else (0.0, "")
