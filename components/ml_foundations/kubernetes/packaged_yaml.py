"""YAML of the files of this package, without bounds: libyaml reads it in a tenth of the time."""

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged_yaml(text: str) -> Any:
    """Return the only document of a file of this package."""
    return yaml.load(text, Loader=_LOADER)


def packaged_documents(text: str) -> list[Any]:
    """Return the documents of a file of this package."""
    return list(yaml.load_all(text, Loader=_LOADER))
