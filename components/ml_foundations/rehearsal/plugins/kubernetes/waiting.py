"""Waits until an object is ready, or gone, or until time runs out or the user interrupts."""

import threading
import time
from collections.abc import Callable

from ml_foundations.rehearsal.api import ApiError, Object
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.kubernetes.objects import title
from ml_foundations.rehearsal.plugins.kubernetes.readiness import Failure, missing, reasons
from ml_foundations.rehearsal.plugins.kubernetes.unschedulable import UnschedulableCheck
from ml_foundations.rehearsal.progress import RehearsalError

_SECONDS = 600
_USUAL = {"PersistentVolumeClaim": 300, "Secret": 5}
"""The seconds of some kinds: awaiters.go of pulumi-kubernetes, provider/pkg/await."""
_POLL_SECONDS = 0.25


def until_ready(
    client: Client,
    live: Object,
    allowed: float,
    cancelled: threading.Event,
    say: Callable[[str], None],
) -> tuple[Object, list[str]]:
    """The object at the end of the wait, and the reasons why it is not ready, if any.

    The user allows some seconds (0: says nothing), and may interrupt. What is waited for is said whenever it changes.

    Raises:
        RehearsalError: it was deleted meanwhile.
    """
    deadline, said = (
        time.monotonic() + seconds(live, allowed, _USUAL.get(group_kind(live), _SECONDS)),
        "",
    )
    vain = UnschedulableCheck(client)
    while True:
        latest, lack = _look(client, live)
        if latest is None:
            raise RehearsalError(f"{title(live)} was deleted by somebody else while it was awaited")
        live = latest
        if not lack:
            return live, []
        if hopeless := vain.reason(live):
            return live, [f"{title(live)}: no node can ever take its pods: {hopeless}"]
        if isinstance(lack, Failure) or time.monotonic() > deadline or cancelled.is_set():
            return live, [
                f"{title(live)}: {'interrupted' if cancelled.is_set() else lack}",
                *_reasons(client, live),
            ]
        if lack != said:
            said = lack
            say(said)
        cancelled.wait(_POLL_SECONDS)


def until_gone(client: Client, obj: Object, allowed: float, cancelled: threading.Event) -> None:
    """Wait until the object of that name that is there now is deleted.

    Raises:
        RehearsalError: it is not, after the time allowed or when the user interrupts.
    """
    deadline = time.monotonic() + seconds(obj, allowed)
    first = client.get(obj)
    uid = first["metadata"]["uid"] if first else ""
    while (live := client.get(obj)) is not None and live["metadata"]["uid"] == uid:
        if time.monotonic() > deadline or cancelled.is_set():
            held = ", ".join(live["metadata"].get("finalizers") or []) or "its pods"
            raise RehearsalError(f"{title(live)} is still being deleted; it is held by {held}")
        cancelled.wait(_POLL_SECONDS)


def seconds(obj: Object, allowed: float, usual: float = _SECONDS) -> float:
    """How long to wait: by customTimeouts, by annotation, or as usual."""
    return allowed or annotations.timeout(obj) or usual


def _look(client: Client, live: Object) -> tuple[Object | None, str]:
    """The object as it is now, or None if it is gone, and what it lacks.

    Nothing is raised: the object is there, so it must get into the state whatever happens.
    """
    try:
        latest = client.get(live)
        return latest, missing(client, latest) if latest else ""
    except ApiError as error:
        # The API server may come back.
        return live, str(error)
    except Exception as error:
        return live, Failure(f"it cannot be awaited: {error}")


def _reasons(client: Client, live: Object) -> list[str]:
    try:
        return reasons(client, live)
    except Exception:
        # They only explain a failure, which must be reported in any case.
        return []
