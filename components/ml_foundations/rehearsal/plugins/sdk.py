"""What both stock SDKs say of themselves, in the same generated form: the types that they register."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

ANY = {"$ref": "pulumi.json#/Any"}
"""The schema of a property whose type is not looked at."""


def folder(package: str) -> Path:
    """Where the modules of an installed SDK are."""
    sdk = importlib.util.find_spec(package)
    return Path(sdk.origin).parent if sdk and sdk.origin else Path()


def modules(package: str) -> list[dict[str, Any]]:
    """The modules of an SDK, each with its name as ``fqn`` and the ``classes`` of its resource types, by token."""
    source = (folder(package) / "__init__.py").read_text()
    return json.loads(source.partition('resource_modules="""')[2].partition('"""')[0])
