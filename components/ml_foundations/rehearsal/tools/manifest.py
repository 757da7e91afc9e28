"""The manifest of a finished folder of tools: the SHA-256 of each of its files."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from ml_foundations.rehearsal.files import stamp, write, write_json


def write_manifest(folder: Path) -> None:
    """Write the manifest of a complete folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {str(path.relative_to(folder)): fingerprint(path) for path in files}
    write_json(folder / "manifest.json", manifest)


def is_verified(folder: Path) -> bool:
    """Return whether a folder contains exactly what its manifest lists.

    The SHA-256 of a file is checked again only after its size or times have changed. Hashing half a
    gigabyte at every start would take seconds.
    """
    manifest_path = folder / "manifest.json"
    stamp_path = folder / "verified.json"
    try:
        manifest: dict[str, str] = json.loads(manifest_path.read_text())
        stamps = {name: stamp(folder / name) for name in manifest}
    except (OSError, ValueError):
        return False
    if stamp_path.exists() and stamp_path.read_text() == json.dumps(stamps):
        return True
    if any(fingerprint(folder / name) != expected for name, expected in manifest.items()):
        return False
    with suppress(OSError):  # Without the stamps, the next check takes longer.
        write(stamp_path, json.dumps(stamps))
    return True


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
