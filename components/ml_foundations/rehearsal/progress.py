"""Progress on the terminal: each long step says what it does, for how long, and how it ended."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from rich.console import Console

_LINE_SECONDS = 15
"""The pause between the lines of a step in a log, so that a long wait is not silent."""
_FREE, _ALLOW = (
    "Free some space",
    "Make it writable, or set XDG_CACHE_HOME and TMPDIR to folders that are",
)
_WAYS_OUT = {errno.ENOSPC: _FREE, errno.EDQUOT: _FREE, errno.EROFS: _ALLOW, errno.EACCES: _ALLOW}
"""What to do about errors of the machine, by number."""


class RehearsalError(Exception):
    """An error written for the user: what went wrong first, then the way out. Shown without a traceback."""


@cache
def console() -> Console:
    """Where progress goes: standard error, so that what a command prints stays clean. Colours respect NO_COLOR."""
    return _console(stderr=True, soft_wrap=True)


def output() -> Console:
    """Standard output, wide where it is not a terminal, so that a log keeps its lines whole."""
    found = _console()
    return found if found.is_terminal else _console(width=160)


def _console(**options: Any) -> Console:
    """A console whose reader may leave, as ``head`` does: the work goes on."""
    from rich.console import Console  # here: the plugins and the language host print nothing

    class _Patient(Console):
        @override
        def on_broken_pipe(self) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    return _Patient(highlight=False, emoji=False, **options)


class Step:
    """A step of the work, to use in a ``with`` statement; its ``detail`` says how far it is."""

    def __init__(self, title: str, *, is_live: bool = True) -> None:
        self.title = title
        self._status = console().status(title) if is_live and console().is_terminal else None
        self._started = time.monotonic()
        self._detail = ""
        self._ended = threading.Event()

    def detail(self, text: str) -> None:
        """Report how far the step is: live on a terminal, every 15 seconds in a log or if other lines are printed."""
        self._detail = f": {text}"
        if self._status is not None:
            self._status.update(f"{self.title}{self._detail} [dim]({self._elapsed:.0f} s)[/]")

    def _repeat(self) -> None:
        while not self._ended.wait(_LINE_SECONDS):
            console().print(f"  … {self.title}{self._detail} ({self._elapsed:.0f} s)")

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def __enter__(self) -> Step:
        if self._status is not None:
            self._status.start()
        else:
            threading.Thread(target=self._repeat, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        if self._status is not None:
            self._status.stop()
        mark, style = ("✓", "green") if kind is None else ("✗", "red")
        console().print(f"[{style}]{mark}[/] {self.title} [dim]({self._elapsed:.1f} s)[/]")


@contextmanager
def user_errors(status: int = 1) -> Iterator[None]:
    """End the process with a status and a clear text, without a traceback, on an error meant for the user."""
    try:
        yield
    except (RehearsalError, OSError) as error:
        way_out = _WAYS_OUT.get((error.errno or 0) if isinstance(error, OSError) else 0)
        if isinstance(error, OSError) and not way_out:
            raise
        console().quiet = False
        more = f". {way_out}, then run the same command again" if way_out else ""
        console().print("[bold red]error:[/] ", end="")
        console().print(f"{error}{more}", markup=False)
        sys.exit(status)
    except KeyboardInterrupt:
        console().print("[bold red]interrupted:[/] run the same command again to continue")
        sys.exit(130)
