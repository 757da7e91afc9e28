"""How a rehearsal reads and writes its files: whole, and for the user alone."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


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


def read_json(path: Path, default: Any) -> Any:
    """What a JSON file holds, or the default where it is gone."""
    return json.loads(text) if (text := read_text(path)) else default
