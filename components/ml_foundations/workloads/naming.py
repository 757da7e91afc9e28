"""Names that tell the content of an object."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ml_foundations.kubernetes.merging import overridden


def named_by_content(
    manifest: Mapping[str, Any], name: str, content: str, overrides: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """An object with the user's overrides, under a name that changes with its content and so replaces its pods.

    The object comes without a name, and its ``content`` is the field of that name.
    """
    made = overridden(manifest, overrides)
    digest = hashlib.sha256(json.dumps(made[content], sort_keys=True).encode()).hexdigest()
    made["metadata"].setdefault("name", f"{name}-{digest[:8]}")
    return made
