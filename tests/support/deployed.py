"""A project in a folder, and the state of its stack as if resources were deployed."""

import json
from pathlib import Path
from typing import Any

from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.layout import Rehearsal


def shop(folder: Path, *resources: dict[str, Any]) -> Rehearsal:
    """The rehearsal of the project shop, whose stack has these resources."""
    (folder / "Pulumi.yaml").write_text("{name: shop, runtime: python}")
    rehearsal = Rehearsal.of("dev", folder)
    if resources:
        file = stack.state_file(rehearsal)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    return rehearsal
