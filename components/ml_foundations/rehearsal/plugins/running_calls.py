"""The calls to the embedded plugins that are under way, as files of the rehearsal.

Each plugin is a process of its own. A wait for pods may end early only if no call of any plugin can still change what
nodes there are.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from ml_foundations.rehearsal.files import read_text
from ml_foundations.rehearsal.layout import Rehearsal

FOLDER = "running-calls"
_IDLE = "idle"


@contextmanager
def running() -> Iterator[None]:
    """Note that this thread answers a call, until it has."""
    file = _file()
    file.parent.mkdir(exist_ok=True)
    file.touch()
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def mark_idle(is_idle: bool) -> None:
    """Note whether this thread's call changes nothing any more, and only waits for pods that no node takes."""
    _file().write_text(_IDLE if is_idle else "")


def are_all_idle() -> bool:
    """Return whether every call under way is noted as idle, and pulumi could make further ones.

    Pulumi makes 4 calls at once for each processor, or as many as ``--parallel`` allows. If the idle ones are as many,
    others may be kept waiting that would make nodes.
    """
    texts = list(map(read_text, _file().parent.glob("*")))
    is_limited = any(
        arg.startswith(("-p", "--parallel")) for arg in psutil.Process(os.getppid()).cmdline()
    )
    return (
        all(text == _IDLE for text in texts)
        and len(texts) < 4 * (os.cpu_count() or 1)
        and not is_limited
    )


def _file() -> Path:
    return Rehearsal.of_this_process().root / FOLDER / f"{os.getpid()}-{threading.get_ident()}"
