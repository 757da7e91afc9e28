"""Arguments of Google Cloud's resources."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def without_nulls(arguments: T) -> T:
    """Drop keys whose value is None, at any depth: the SDK would send them as null."""
    if isinstance(arguments, Mapping):
        pairs = cast("Mapping[str, Any]", arguments).items()
        return cast("T", {key: without_nulls(value) for key, value in pairs if value is not None})
    if isinstance(arguments, list):
        return cast("T", [without_nulls(item) for item in cast("list[Any]", arguments)])
    return arguments
