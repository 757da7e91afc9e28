"""Names that tell the content of an object."""

import hashlib
import json
from typing import Any


def named_by_content(name: str, content: Any) -> str:
    """A name that changes with the content, so that pods that use it are replaced when it changes."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{name}-{digest[:8]}"
