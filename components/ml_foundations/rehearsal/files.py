"""How a rehearsal writes its files: whole, and for the user alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file whole: a reader sees the old text or the new, and a killed writer leaves the old."""
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
