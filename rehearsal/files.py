"""How a rehearsal writes its files: whole, and for the user alone."""

from __future__ import annotations

import tempfile
from pathlib import Path


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file whole: a reader sees the old text or the new, and a killed writer leaves the old."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        draft.write(text)
    Path(draft.name).chmod(mode)
    Path(draft.name).replace(path)
