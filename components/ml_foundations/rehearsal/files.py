"""Files and folders of a rehearsal: replaced atomically, and private to the user."""

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes import reading, regular_files
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.rehearsal.progress import RehearsalError, console

_REMOVAL_SECONDS = 10
KEY_LENGTH = 16
"""The number of digits of the hash of its inputs that ends the name of a cached folder."""


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file atomically. A reader sees the old or the new text, even after a kill."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Replace a JSON file atomically."""
    write(path, json.dumps(data, indent=1))


def read_text(path: Path) -> str:
    """Return the text of a file; empty if it does not exist."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def read_map(document: str | Path, title: str) -> dict[str, Any]:
    """Return the mapping in a YAML document, which is a text or a path.

    Raises:
        RehearsalError: it cannot be read, or is not a mapping. The message begins with the title.
    """
    try:
        if isinstance(document, Path):
            document = regular_files.read(document.expanduser())
        mapping, *more = reading.documents(document, unique_keys=True) or [{}]
    except ReadError as error:
        raise RehearsalError(f"{title} cannot be read: {error}") from None
    if more or not isinstance(mapping, dict | None):
        raise RehearsalError(f"{title} is not a mapping")
    return mapping or {}


def read_json(path: Path, default: Any) -> Any:
    """Return the content of a JSON file, or the default if it does not exist.

    Raises:
        RehearsalError: it cannot be read.
    """
    try:
        return reading.json_value(text) if (text := read_text(path)) else default
    except ReadError as error:
        raise RehearsalError(f"{path} cannot be read: {error}") from None


def stamp(path: Path) -> list[int]:
    """Return a value that changes whenever a file does."""
    status = path.lstat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def stamps(*roots: Path) -> dict[str, list[int]]:
    """Return the stamp of each file below some folders, except in folders that tools fill."""
    result: dict[str, list[int]] = {}
    ignored = (".", "__pycache__", "node_modules", "venv")
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(ignored)]
            for name in names:
                result[f"{folder}/{name}"] = stamp(Path(folder, name))
    return result


def require_free_space(folder: Path, needed: int, why: str) -> None:
    """Raise an error if a disk has fewer bytes free than needed. ``why`` ends with the fix.

    Raises:
        RehearsalError: the free space is too small.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if (free := shutil.disk_usage(existing).free) < needed:
        raise RehearsalError(
            f"the disk of {folder} has {free / 1024**3:.1f} GB free, "
            f"and {needed / 1024**3:.1f} GB are needed {why}"
        )


def remove(folder: Path) -> None:
    """Remove a folder, even if a process that is about to end still writes into it.

    Raises:
        RehearsalError: the process goes on writing.
    """
    end = time.monotonic() + _REMOVAL_SECONDS
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > end:
            raise RehearsalError(
                f"{folder} cannot be removed: a process writes into it. End it, then try again"
            )


def lock(path: Path) -> bool:
    """Lock a file or folder until this process ends. Return whether no other process holds it."""
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(folder: Path, name: str, message: str = "") -> Iterator[None]:
    """Hold a named lock in a folder. Print a message if another thread or process holds it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if message:
                console().print(f"waiting: {message}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """Yield a folder that replaces the target if no error occurs. The caller holds the lock."""
    name = target.name[: -KEY_LENGTH - 1]
    for leftover in target.parent.glob(f".{name}-{'?' * KEY_LENGTH}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
    ) as draft:
        yield Path(draft)
        if target.exists():
            shutil.rmtree(target)
        Path(draft).replace(target)
