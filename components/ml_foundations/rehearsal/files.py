"""How a rehearsal reads and writes files and folders: whole, and for the user alone."""

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

import yaml
from yaml.error import MarkedYAMLError

from ml_foundations.planning.input.streams import problem, require_bounded
from ml_foundations.rehearsal.progress import RehearsalError, console

_REMOVAL_SECONDS = 10
KEY_LENGTH = 16
"""The hexadecimal digits at the end of a cached folder's name: a hash of all that decides what is in it."""


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file whole: a reader sees the old text or the new, and a killed writer leaves the old."""
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
    """Replace a JSON file whole."""
    write(path, json.dumps(data, indent=1))


def read_text(path: Path) -> str:
    """What a file holds; nothing where it is gone."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key stands once: of two, the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        first = {key.value: key for key in reversed(names)}
        for key in names:
            if first[key.value] is not key:
                line = first[key.value].start_mark.line + 1
                raise MarkedYAMLError(
                    None, None, f'"{key.value}" stands on line {line} already', key.start_mark
                )
        return super().construct_mapping(node, deep)


def read_map(document: str | Path, title: str) -> dict[str, Any]:
    """The mapping that a YAML document holds, given as text or by its path.

    Raises:
        RehearsalError: it cannot be read, or holds something else; the message calls it by its title.
    """
    try:
        text = (
            document
            if isinstance(document, str)
            else document.expanduser().read_text(encoding="utf-8")
        )
        require_bounded(text)
        found = yaml.load(text, Loader=_UniqueKeys) or {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RehearsalError(f"{title} cannot be read: {problem(error)}") from None
    if not isinstance(found, dict):
        raise RehearsalError(f"{title} is not a mapping")
    return found


def read_json(path: Path, default: Any) -> Any:
    """What a JSON file holds, or the default where it is gone."""
    return json.loads(text) if (text := read_text(path)) else default


def stamp(path: Path) -> list[int]:
    """What changes whenever a file does."""
    status = path.lstat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def stamps(*roots: Path) -> dict[str, list[int]]:
    """The stamp of each file in folders, but for hidden folders and those that tools fill."""
    found: dict[str, list[int]] = {}
    for folder, folders, names in (walked for root in roots for walked in os.walk(root)):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__", "node_modules", "venv"))
        ]
        found |= {f"{folder}/{name}": stamp(Path(folder, name)) for name in names}
    return found


def require_free_space(folder: Path, needed: int, why: str) -> None:
    """Refuse to begin where a disk has fewer bytes free than are needed; ``why`` ends in what the user can do.

    Raises:
        RehearsalError: as much is not free.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if (free := shutil.disk_usage(existing).free) < needed:
        raise RehearsalError(
            f"the disk of {folder} has {free / 1024**3:.1f} GB free, and {needed / 1024**3:.1f} GB are needed {why}"
        )


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, also where a process that is about to end still writes there.

    Raises:
        RehearsalError: it goes on writing.
    """
    end = time.monotonic() + _REMOVAL_SECONDS
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > end:
            raise RehearsalError(
                f"{folder} cannot be removed: a process writes into it. End it, then try again"
            )


def lock(path: Path) -> bool:
    """Lock a file or folder until this process ends; whether no other process holds it."""
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(folder: Path, name: str, message: str = "") -> Iterator[None]:
    """Hold the lock of a name in a folder; print a message while another thread or process holds it."""
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
    """A folder that takes the target's place when it is filled without an error; the caller holds the name's lock."""
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
