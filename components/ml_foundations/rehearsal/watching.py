"""Interruptions of a command, and threads that work while it waits.

One thread watches the replica, one keeps the page fresh.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn

from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError

_SECONDS = 0.5
_JOIN_SECONDS = 3
"""A read of a replica that does not answer holds up the end of a command no longer than this."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_signals() -> None:
    """Let each of these signals interrupt the main thread, as Ctrl-C does.

    By default, Python ends at once on SIGTERM and SIGHUP, without its children. If a script started
    it in the background, it ignores SIGINT.
    """

    def interrupt(number: int, _: Any) -> NoReturn:
        raise KeyboardInterrupt(number)

    for number in _INTERRUPTS:
        # nohup ignores SIGHUP, so that the command outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextmanager
def watched(parts: Callable[[], Iterable[Process]], again: str) -> Iterator[None]:
    """Watch processes during the block, which is the main thread's. If one dies, interrupt it.

    Raises:
        RehearsalError: a process died. Other errors follow from that. ``again`` is the command that
            starts it again.
    """
    dead = list[Process]()
    main_thread = threading.get_ident()

    def watch(done: threading.Event) -> None:
        before: list[Process] = []
        while not dead and not done.wait(_SECONDS):
            ended = _ended(parts())
            # One that is stopped on purpose has ended for a moment, until its record is removed.
            dead.extend(part for part in ended if part in before)
            before = ended
        if dead and not done.is_set():
            signal.pthread_kill(main_thread, signal.SIGINT)

    try:
        with _in_background(watch):
            yield
    except KeyboardInterrupt:
        if not dead:
            raise
    except RehearsalError:
        # The block may fail by a death before the thread sees it.
        dead = dead or _ended(parts())
        if not dead:
            raise
    if dead:
        names = " and ".join(part.name for part in dead)
        logs = " and ".join(os.path.relpath(part.log) for part in dead)
        raise RehearsalError(f"{names} died: see {logs}. Start the replica again: {again}")


def _ended(parts: Iterable[Process]) -> list[Process]:
    return [part for part in parts if part.has_ended]


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
        thread.join(_JOIN_SECONDS)
