"""What earlier versions deployed: by version, each stack's settings and its exported state, of a rehearsal."""

import gzip
import importlib.metadata
import json
from pathlib import Path
from typing import Any

STACKS = ("dev", "staging", "prod")
VERSION = importlib.metadata.version("ml-foundations")
_HERE = Path(__file__).parent


def versions() -> list[str]:
    """The versions of which something is kept."""
    return sorted(path.name for path in _HERE.iterdir() if path.name[0].isdigit())


def files(version: str, stack: str) -> tuple[Path, Path]:
    """Where the settings and the state of a version's stack lie."""
    return _HERE / version / f"Pulumi.{stack}.yaml", _HERE / version / f"{stack}.json.gz"


def write(state: Path, exported: str) -> None:
    """Keep an exported state, without what it tells of the machine: the lines of code that declared something."""
    kept = json.loads(exported)
    for resource in kept["deployment"]["resources"]:
        for place in ("sourcePosition", "stackTrace"):
            resource.pop(place, None)
    state.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


def read(state: Path) -> dict[str, Any]:
    """A state that is kept. Its secrets stand in plain text, as no cluster is left that they would open."""
    return json.loads(gzip.decompress(state.read_bytes()))
