"""The last word of the user on objects that a component makes."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ml_foundations.component.resources import merged


def overridden(manifest: Mapping[str, Any], overrides: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A manifest with the overrides of its kind: maps join, lists are replaced, null takes a field away."""
    return _without_null(merged(manifest, overrides.get(manifest["kind"], {})))


def unknown_kinds(overrides: Mapping[str, Mapping[str, Any]], kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Overrides of kinds that the component does not make: the field, and why."""
    for kind in sorted(overrides.keys() - set(kinds)):
        yield f"overrides.{kind}", f"no such object is made, as the other arguments are. Made are: {', '.join(kinds)}"


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _without_null(item) for key, item in items if item is not None}
    return value
