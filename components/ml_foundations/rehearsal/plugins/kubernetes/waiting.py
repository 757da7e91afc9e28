"""Waits until an object is ready, or gone, or until time runs out or the user interrupts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ml_foundations.rehearsal.api import ApiError, Object
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.kubernetes.objects import title
from ml_foundations.rehearsal.plugins.kubernetes.readiness import Progress, progress, reasons
from ml_foundations.rehearsal.progress import RehearsalError

_SECONDS = 600
_CLAIM_SECONDS = 300
_POLL_SECONDS = 0.25


def until_ready(
    client: Client, live: Object, allowed: float, cancelled: threading.Event, say: Callable[[str], None]
) -> tuple[Object, list[str]]:
    """The object as it is in the end, and why it is not ready: no reasons if it is.

    Args:
        client: The cluster.
        live: The object as it was applied.
        allowed: The seconds that the user allows, or 0.
        cancelled: Set when the user interrupts the update.
        say: Told what is waited for, whenever that changes.

    Raises:
        RehearsalError: it was deleted meanwhile.
    """
    deadline, message = time.monotonic() + _seconds(live, allowed), ""
    while True:
        latest, found = _look(client, live)
        if latest is None:
            raise RehearsalError(f"{title(live)} was deleted by somebody else while it was awaited")
        live = latest
        if found.done:
            return live, []
        if found.failed or time.monotonic() > deadline or cancelled.is_set():
            reason = "interrupted" if cancelled.is_set() else found.message
            return live, [f"{title(live)}: {reason}", *_reasons(client, live)]
        if found.message != message:
            message = found.message
            say(message)
        cancelled.wait(_POLL_SECONDS)


def until_gone(client: Client, obj: Object, allowed: float, cancelled: threading.Event) -> None:
    """Wait until the object of that name that is there now is deleted.

    Raises:
        RehearsalError: it is not, after the time allowed or when the user interrupts.
    """
    deadline = time.monotonic() + deletion_seconds(obj, allowed)
    first = client.get(obj)
    uid = first["metadata"]["uid"] if first else ""
    while (live := client.get(obj)) is not None and live["metadata"]["uid"] == uid:
        if time.monotonic() > deadline or cancelled.is_set():
            held = ", ".join(live["metadata"].get("finalizers") or []) or "its pods"
            raise RehearsalError(f"{title(live)} is still being deleted; it is held by {held}")
        cancelled.wait(_POLL_SECONDS)


def deletion_seconds(obj: Object, allowed: float) -> float:
    """How long to wait until it is gone: by customTimeouts, by annotation, or as for any kind."""
    return allowed or annotations.timeout(obj) or _SECONDS


def _seconds(obj: Object, allowed: float) -> float:
    """How long to wait until it is ready: by customTimeouts, by annotation, or by kind."""
    usual = _CLAIM_SECONDS if group_kind(obj) == "PersistentVolumeClaim" else _SECONDS
    return allowed or annotations.timeout(obj) or usual


def _look(client: Client, live: Object) -> tuple[Object | None, Progress]:
    """The object as it is now, or None if it is gone, and how far it is.

    Nothing is raised: the object is there, so it must get into the state whatever happens.
    """
    try:
        latest = client.get(live)
        return latest, progress(client, latest) if latest else Progress(False)
    except ApiError as error:
        # The API server may come back.
        return live, Progress(False, message=error.message)
    except Exception as error:
        return live, Progress(False, failed=True, message=f"it cannot be awaited: {error}")


def _reasons(client: Client, live: Object) -> list[str]:
    try:
        return reasons(client, live)
    except Exception:
        # They only explain a failure, which must be reported in any case.
        return []
