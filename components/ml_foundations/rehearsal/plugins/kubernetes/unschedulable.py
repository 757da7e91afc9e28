"""The early end of a wait: no node can ever take the pods, or the API server refuses them.

No running call can change that.
"""

import math
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

from ml_foundations.kubernetes.labels import KUEUE_QUEUE
from ml_foundations.kubernetes.objects import labels_of
from ml_foundations.rehearsal.api import Object, is_about
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.kubernetes.readiness import pods_of

_SETTLE_SECONDS = 20
"""The time that all calls must be idle: by then, the nodes have all their GPUs."""
_CHECK_SECONDS = 2
_REFUSALS = "type=Warning,reason=FailedCreate"
"""Selects the events of controllers whose pods the API server refuses."""
_DEPENDENT_KINDS = {"Service", "Ingress.networking.k8s.io"}
"""Kinds that wait for pods of other objects, and change no node."""


class UnschedulableCheck:
    """A repeated check whether the pods can never run. If in doubt, the wait goes on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._idle_since = math.inf
        """The time since when all running calls only wait for pods that no node can take."""
        self._next_check = 0.0

    def reason(self, objects: Iterable[Object]) -> str:
        """Return why pods of one of the objects can never run; empty if that is not certain."""
        if time.monotonic() < self._next_check:
            return ""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        try:
            return self._check([*objects])
        except Exception:
            # The API server may come back, and a wait must end in a state.
            self._idle_since = math.inf
            return ""

    def _check(self, objects: Sequence[Object]) -> str:
        candidates = [(0.0, ""), *map(self._refusal, objects)]
        for store in map(Store, Rehearsal.of_this_process().replicas):
            unplaceable = store.get("hopeless", {})
            candidates += [self._common_reason(live, unplaceable) for live in objects]
        seen, reason = max(candidates)
        is_dependent = {*map(group_kind, objects)} <= _DEPENDENT_KINDS
        running_calls.mark_idle(bool(reason) or is_dependent)
        if not reason or not running_calls.are_all_idle():
            self._idle_since = math.inf
            return ""
        self._idle_since = min(self._idle_since, time.time())
        # An earlier round of the autoscaler may not know the latest nodes.
        return reason if seen - self._idle_since >= _SETTLE_SECONDS else ""

    def _refusal(self, live: Object) -> tuple[float, str]:
        """Return until when the API server has refused pods of an object, and the message.

        A controller tries again and again. What it was refused while all calls were idle stays
        refused, unless pods that end release a quota, or old pods of a rollout do.
        """
        status = live.get("status", {})
        namespace = live["metadata"]["namespace"]
        if status.get("updatedReplicas", 0) != status.get("replicas", 0):
            return 0.0, ""
        last = 0.0
        message = ""
        for event in self._client.list("v1", "Event", namespace, fieldSelector=_REFUSALS):
            at = datetime.fromisoformat(event["lastTimestamp"] or event["eventTime"]).timestamp()
            if is_about(event["involvedObject"], live) and at > last:
                last = at
                message = event["message"]
        if not message:
            return 0.0, ""
        for pod in self._client.list("v1", "Pod", namespace):
            is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if pod["spec"].get("restartPolicy") != "Always" and not is_over:
                return 0.0, ""  # It ends by itself.
        until = time.time() if last >= self._idle_since else 0.0
        return until, f"the API server refuses its pods: {message}"

    def _common_reason(self, live: Object, unplaceable: Object) -> tuple[float, str]:
        """Return when the autoscaler's round began that rejects all pending pods, and why."""
        reasons = unplaceable.get("pods", {})
        # Kueue may bring nodes for its queues.
        if not reasons or KUEUE_QUEUE in labels_of(live):
            return 0.0, ""
        pods = [pod for pod in pods_of(self._client, live) if not pod["spec"].get("nodeName")]
        of_pods = [reasons.get(pod["metadata"]["uid"]) for pod in pods]
        if not of_pods or not all(of_pods):
            return 0.0, ""
        return unplaceable["began"], f"no node can ever take its pods: {of_pods[0]}"
