"""What goes on while a command waits: it is told of a part of the replica that dies, and a page is kept fresh."""

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
"""Pulumi may start only now, or not end when it is interrupted: asked a second time, it ends at once."""


@contextmanager
def watched(parts: Callable[[], Iterable[Process]], again: str) -> Iterator[None]:
    """Name a part that dies within seconds, and interrupt Pulumi, which would wait in vain.

    Raises:
        RehearsalError: One of them died; whatever else went wrong followed from it. ``again`` starts it again.
    """
    dead = list[Process]()

    def watch(done: threading.Event) -> None:
        while not dead and not done.wait(_SECONDS):
            # A cluster may come and go: what ends with it is none of the parts any more.
            ended = [part for part in parts() if part.has_ended]
            dead.extend(part for part in parts() if part in ended)
        for part in dead:
            console().print(f"[red]{part.name} died[/]; its log: {part.log}")
        while dead and not done.is_set():
            _interrupt_pulumi()
            done.wait(_PATIENCE_SECONDS)

    try:
        with _beside(watch):
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
    """Do something again and again until the block ends, with seconds in between; what fails is tried again."""

    def repeat(done: threading.Event) -> None:
        took = 0.0
        # What takes long takes from the replica what it needs: the longer, the less often.
        while not done.wait(max(seconds, 2 * took)):
            began = time.monotonic()
            with suppress(Exception):  # things change while they are read
                action()
            took = time.monotonic() - began

    return _beside(repeat)


@contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """A thread beside the block, whose end it is told by an event."""
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
