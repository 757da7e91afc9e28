"""Files that others may control: regular ones in the folders that the user names, up to a size."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ml_foundations.kubernetes.reading import ReadError

MOST_BYTES = 128 * 1024**2
"""The most bytes of a file and of standard input."""
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def read(path: Path, within: Path | None = None) -> str:
    """Return the text of a regular file. Links are followed only inside of a folder.

    Args:
        path: The file.
        within: The folder; by default the one that the user names by the path: the current folder,
            as many parents of it as the path begins with, or the parent of an absolute path.

    Raises:
        ReadError: It leads out of the folder, is not a regular file, is too large or is not UTF-8.
    """
    try:
        target = resolved(path, within)
        # Opened without waiting for the other end of a pipe; what is opened may be another file.
        _require_regular(Path(target).stat().st_mode)
        handle = os.open(target, os.O_RDONLY | _FLAGS)
        with os.fdopen(handle, "rb") as stream:
            _require_regular(os.fstat(handle).st_mode)
            return text_of(stream)
    except OSError as error:
        raise ReadError(error.strerror or str(error)) from None
    except ValueError as error:  # a null character in the path
        raise ReadError(str(error)) from None


def resolved(path: Path, within: Path | None = None) -> str:
    """Return the path without links.

    Raises:
        ReadError: It leads out of the folder, see ``read``.
        OSError: There is no such file, or its links lead nowhere.
    """
    folder = within
    if folder is None:
        parents = [part for part in path.parts if part == ".."]
        folder = path.parent if path.is_absolute() else Path(*parents)
    target = os.path.realpath(path, strict=True)
    if not Path(target).is_relative_to(os.path.realpath(folder)):
        where = "the current folder" if folder == Path() else folder
        fix = ". Name what it leads to instead" if within is None else ""
        raise ReadError(f"it leads out of {where}{fix}")
    return target


def below(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files with some suffixes below a folder in the order of their paths.

    Like ``kubectl apply --recursive``, it follows no links to folders.

    Raises:
        ReadError: The folder leads out of what the user names, see ``read``, or cannot be listed.
    """

    def fail(error: OSError) -> None:
        raise ReadError(f"{error.filename}: {error.strerror}")

    try:
        resolved(folder)
    except OSError as error:
        fail(error)
    files: list[Path] = []
    for parent, _, names in os.walk(folder, onerror=fail):
        files += [Path(parent, name) for name in names if Path(name).suffix in suffixes]
    return sorted(files)


def text_of(stream: BinaryIO) -> str:
    """Return the text of a stream of at most ``MOST_BYTES``.

    Raises:
        ReadError: It is too large or not UTF-8.
    """
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ReadError(f"it has more than {MOST_BYTES // 1024**2} MiB. Judge it in parts")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ReadError(str(error)) from None


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise ReadError(f"it is {kind}, and must be a regular file")
