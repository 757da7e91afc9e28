"""Tells that a part of the replica died, while a command waits for what that part should do."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError, console

_SECONDS = 2


@contextmanager
def watched(parts: Sequence[Process], again: str) -> Iterator[None]:
    """Name a part that dies within seconds, and interrupt Pulumi, which would wait in vain.

    Raises:
        RehearsalError: One of them died; whatever else went wrong followed from it. ``again`` starts it again.
    """
    done, dead = threading.Event(), list[Process]()

    def watch() -> None:
        while not dead and not done.wait(_SECONDS):
            dead.extend(part for part in parts if part.has_ended)
        for part in dead:
            console.print(f"[red]{part.name} died[/]; its log: {part.log}")
        if dead:
            _interrupt_pulumi()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except RehearsalError:
        if not dead:
            raise
    finally:
        done.set()
        thread.join()
    if dead:
        names = " and ".join(part.name for part in dead)
        raise RehearsalError(f"{names} died, and the update was interrupted. Start the replica again: {again}")


def _interrupt_pulumi() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == "pulumi":
                child.send_signal(signal.SIGINT)
