"""Arguments of Google Cloud's resources."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def said(arguments: T) -> T:
    """Arguments without those of which nothing was said, at any depth: the SDK would send them as null."""
    if isinstance(arguments, Mapping):
        pairs = cast("Mapping[str, Any]", arguments).items()
        return cast("T", {key: said(value) for key, value in pairs if value is not None})
    if isinstance(arguments, list):
        return cast("T", [said(item) for item in cast("list[Any]", arguments)])
    return arguments
