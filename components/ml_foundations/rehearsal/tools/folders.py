"""Folders of the cache: made once, under a lock, and never used before they are whole."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ml_foundations.rehearsal.progress import console

KEY_LENGTH = 16
"""The hexadecimal digits at the end of a folder's name: a hash of all that decides what is in it."""


@contextmanager
def locked(folder: Path, name: str, message: str) -> Iterator[None]:
    """Hold the lock of a name in a folder; print a message while another process holds it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"waiting: {message}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """A folder that takes the target's place when it is filled without an error; the caller holds the name's lock."""
    name = target.name[: -KEY_LENGTH - 1]
    for leftover in target.parent.glob(f".{name}-{'?' * KEY_LENGTH}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield draft
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
