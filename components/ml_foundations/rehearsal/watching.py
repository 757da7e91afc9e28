"""Threads that work while a command waits: one watches the replica, one keeps the page fresh."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import psutil

from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError, console

_SECONDS = 2
_PATIENCE_SECONDS = 30
"""How long to wait before Pulumi is interrupted again. The second time, it ends at once."""


@contextmanager
def watched(parts: Callable[[], Iterable[Process]], again: str) -> Iterator[None]:
    """Watch processes during the block. If one dies, name it and interrupt Pulumi.

    Raises:
        RehearsalError: a process died. Other errors follow from that. ``again`` is the command that
            starts it again.
    """
    dead = list[Process]()

    def watch(done: threading.Event) -> None:
        while not dead and not done.wait(_SECONDS):
            # The processes of a cluster that is deleted at this moment are not parts any more.
            ended = [part for part in parts() if part.has_ended]
            dead.extend(part for part in parts() if part in ended)
        for part in dead:
            console().print(f"[red]{part.name} died[/]; its log: {part.log}")
        while dead and not done.is_set():
            _interrupt_pulumi()
            done.wait(_PATIENCE_SECONDS)

    try:
        with _in_background(watch):
            yield
    except RehearsalError:
        if not dead:
            raise
    if dead:
        names = " and ".join(part.name for part in dead)
        raise RehearsalError(
            f"{names} died, and the update was interrupted. Start the replica again: {again}"
        )


def repeated(action: Callable[[], None], seconds: float) -> AbstractContextManager[None]:
    """Return a context in which an action is repeated after pauses. Errors are ignored."""

    def repeat(done: threading.Event) -> None:
        took = 0.0
        # A long action slows the replica down. A longer pause follows a longer action.
        while not done.wait(max(seconds, 2 * took)):
            began = time.monotonic()
            with suppress(Exception):  # objects change while they are read
                action()
            took = time.monotonic() - began

    return _in_background(repeat)


@contextmanager
def _in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function in a thread during the block, whose end sets an event."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _interrupt_pulumi() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == "pulumi":
                child.send_signal(signal.SIGINT)
