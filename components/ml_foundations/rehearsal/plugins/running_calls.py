"""The calls that the embedded plugins answer at the moment, as files in the rehearsal's folder.

Each plugin is a separate process. A wait for pods may end early only if no call of any plugin can
still change the nodes of the cluster.
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
_CALLS_PER_PROCESSOR = 4
"""The calls that Pulumi makes at once for each processor, without ``--parallel``."""


@contextmanager
def running() -> Iterator[None]:
    """Record this thread's call as running, for the duration of the block."""
    file = _file()
    file.parent.mkdir(exist_ok=True)
    file.touch()
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def mark_idle(is_idle: bool) -> None:
    """Record whether this thread's call only waits for pods that no node can take."""
    _file().write_text(_IDLE if is_idle else "")


def are_all_idle() -> bool:
    """Return whether every running call is idle and Pulumi is free to make further calls."""
    states = list(map(read_text, _file().parent.glob("*")))
    engine_arguments = psutil.Process(os.getppid()).cmdline()
    is_limited = any(word.startswith(("-p", "--parallel")) for word in engine_arguments)
    # As many calls as Pulumi makes at once may keep it from the call that creates their nodes.
    is_full = len(states) >= _CALLS_PER_PROCESSOR * (os.cpu_count() or 1)
    return all(state == _IDLE for state in states) and not is_full and not is_limited


def _file() -> Path:
    return Rehearsal.of_this_process().root / FOLDER / f"{os.getpid()}-{threading.get_ident()}"
