"""Waits until an object is ready, or gone, or until time runs out or the user interrupts."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ml_foundations.rehearsal.api import ApiError, Object
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.kubernetes.objects import title
from ml_foundations.rehearsal.plugins.kubernetes.readiness import NotReady, missing, reasons
from ml_foundations.rehearsal.plugins.kubernetes.unschedulable import UnschedulableCheck
from ml_foundations.rehearsal.progress import RehearsalError

_SECONDS = 600
_SECONDS_OF_KINDS = {"PersistentVolumeClaim": 300, "Secret": 5}
"""The default waits of some kinds: awaiters.go of pulumi-kubernetes, provider/pkg/await."""
_POLL_SECONDS = 0.25


def until_ready(
    client: Client,
    live: Object,
    timeout: float,
    cancelled: threading.Event,
    show: Callable[[str], None],
) -> tuple[Object, list[str]]:
    """Return the object at the end of the wait, and the reasons why it is not ready, if any.

    ``timeout`` is in seconds, 0 if the user sets none; ``show`` gets each change of what it lacks.
    A RehearsalError means that it was deleted meanwhile.
    """
    default = _SECONDS_OF_KINDS.get(group_kind(live), _SECONDS)
    deadline = time.monotonic() + seconds(live, timeout, default)
    shown: NotReady | None = None
    check = UnschedulableCheck(client)
    while True:
        # No error may end the wait: the object exists, so it must get into the state.
        try:
            latest = client.get(live)
            lack = missing(client, latest) if latest else None
        except ApiError as error:
            # The API server may come back.
            latest = live
            lack = NotReady(str(error))
        except Exception as error:
            latest = live
            lack = NotReady(f"it cannot be awaited: {error}", is_final=True)
        if latest is None:
            raise RehearsalError(f"{title(live)} was deleted by somebody else while it was awaited")
        live = latest
        if lack is None:
            return live, []
        if reason := check.reason([live]):
            return live, [f"{title(live)}: {reason}"]
        if lack.is_final or time.monotonic() > deadline or cancelled.is_set():
            reason = "interrupted" if cancelled.is_set() else lack.reason
            # The reasons only explain a failure, which must be reported in any case.
            with suppress(Exception):
                return live, [f"{title(live)}: {reason}", *reasons(client, live)]
            return live, [f"{title(live)}: {reason}"]
        if lack != shown:
            shown = lack
            show(lack.reason)
        cancelled.wait(_POLL_SECONDS)


def until_gone(client: Client, obj: Object, timeout: float, cancelled: threading.Event) -> None:
    """Wait until an object is deleted; raise a RehearsalError after the timeout or an interrupt."""
    deadline = time.monotonic() + seconds(obj, timeout)
    first = client.get(obj)
    uid = first["metadata"]["uid"] if first else ""  # A new object of this name does not count.
    while (live := client.get(obj)) is not None and live["metadata"]["uid"] == uid:
        if time.monotonic() > deadline or cancelled.is_set():
            holders = ", ".join(live["metadata"].get("finalizers") or []) or "its pods"
            raise RehearsalError(f"{title(live)} is still being deleted; it is held by {holders}")
        cancelled.wait(_POLL_SECONDS)


def seconds(obj: Object, timeout: float, default: float = _SECONDS) -> float:
    """Return how long to wait: by customTimeouts, by annotation, or by default."""
    return timeout or annotations.timeout(obj) or default
