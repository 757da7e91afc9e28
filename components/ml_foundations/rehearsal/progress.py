"""Progress on the terminal: each long step shows its title, its time and its result."""

from __future__ import annotations

import errno
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from ml_foundations.kubernetes import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LINE_SECONDS = 15
"""The interval between the lines of a step in a log."""
_ALLOW = "Make it writable, or set XDG_CACHE_HOME and TMPDIR to folders that are"
_FIXES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space"),
    **dict.fromkeys((errno.EROFS, errno.EACCES), _ALLOW),
    errno.ENOTDIR: "A file is in the place of a folder: move it, or choose another folder",
}
"""How to fix errors of the machine, by number."""


class RehearsalError(Exception):
    """An error for the user: what is wrong, then how to fix it. Shown without a traceback."""


@cache
def console() -> Console:
    """Return standard error, where progress is shown. NO_COLOR switches its colours off."""
    return _console(stderr=True, soft_wrap=True)


def output() -> Console:
    """Return standard output. It is wide in a log, so that lines stay whole."""
    terminal = _console()
    return terminal if terminal.is_terminal else _console(width=160)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return texts that have no mark-up. A tuple is a text and its style."""
    from rich.text import Text

    pairs = (part if isinstance(part, tuple) else (part, "") for part in parts)
    return Text.assemble(*((printable.text(text), style) for text, style in pairs))


def wrapped(text: str, terminal: Console) -> str:
    """Return a text wrapped between words to fit a terminal. In a log, its lines stay whole."""
    text = printable.text(text)
    if not terminal.is_terminal:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        fill = textwrap.TextWrapper(
            terminal.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines += fill.wrap(line) or [""]
    return "\n".join(lines)


def _console(**options: Any) -> Console:
    """Return a console without mark-up. Its reader may end, as ``head`` does."""
    # Imported here, as it takes 0.2 s, and plugins and the language host print nothing.
    from rich.console import Console

    class _PatientConsole(Console):
        @override
        def on_broken_pipe(self) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

        @override
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable.text(text), **options)

    return _PatientConsole(highlight=False, emoji=False, markup=False, **options)


class Step:
    """A step of the work, for a ``with`` statement. ``detail`` shows its progress."""

    def __init__(self, title: str, *, is_live: bool = True) -> None:
        self.title = printable.line(title)
        is_shown = is_live and console().is_terminal
        self._status = console().status(styled(self.title)) if is_shown else None
        self._started = time.monotonic()
        self._detail = ""
        self._ended = threading.Event()

    def detail(self, text: str) -> None:
        """Set the progress. A terminal shows it at once, a log every 15 seconds."""
        self._detail = f": {printable.line(text)}"
        if self._status is not None:
            seconds = (f" ({self._elapsed:.0f} s)", "dim")
            self._status.update(styled(self.title, self._detail, seconds))

    def _repeat(self) -> None:
        while not self._ended.wait(_LINE_SECONDS):
            console().print(styled(f"  … {self.title}{self._detail} ({self._elapsed:.0f} s)"))

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
        seconds = (f" ({self._elapsed:.1f} s)", "dim")
        console().print(styled((mark, style), f" {self.title}", seconds))


@contextmanager
def user_errors(status: int = 1) -> Iterator[None]:
    """On an error for the user, print it without a traceback and end with a status."""
    try:
        yield
    except (RehearsalError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError):
            fix = _FIXES.get(error.errno or 0)
            if not fix:
                raise
            message += f". {fix}, then run the same command again"
        console().quiet = False
        text = wrapped(f"error: {message}", console())
        console().print(styled(("error:", "bold red"), text.removeprefix("error:")))
        sys.exit(status)
    except KeyboardInterrupt as error:
        fix = " run the same command again to continue"
        console().print(styled(("interrupted:", "bold red"), fix))
        # The shell's status of a command that a signal ended.
        sys.exit(128 + (error.args[0] if error.args else signal.SIGINT))
