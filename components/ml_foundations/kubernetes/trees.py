"""Plain trees of mappings and lists, and the mark of a value in them that is not known yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeGuard, cast

_INDEX = re.compile(r"\[\d+\]")
_KEYS = re.compile(r"\[\]|(?<=\[)[^\]]+|[^.\[\]]+")


class Unknown:
    """The type of ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __str__(self) -> str:
        return "(not known yet)"

    def __deepcopy__(self, memo: object) -> Unknown:
        return self  # There is but one: it is told by its identity.


UNKNOWN: Final = Unknown()
"""Stands anywhere in a manifest for a value that is not known yet, such as a Pulumi output at
preview."""


_NO_MAPPINGS = (str, int, list, type(None))
_PLAIN = (str, int, float, type(None))
"""The types of most values. They hold no other values, so a search need not visit them."""


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a mapping."""
    # To ask whether it is a Mapping takes ten times as long.
    if isinstance(value, dict):
        return True
    return not isinstance(value, _NO_MAPPINGS) and isinstance(value, Mapping)


def as_key(value: Any) -> Hashable:
    """Return a key that equal values share, also if they are mappings or lists."""
    if is_mapping(value):
        return frozenset((key, as_key(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(as_key, cast("list[Any]", value)))
    return value


def joined(key: str, path: str) -> str:
    """Return the path of a field below a key."""
    return f"{key}{path}" if path[:1] in "[" else f"{key}.{path}"


@cache
def path_keys(path: str) -> tuple[str, ...]:
    """Return the keys of a path: ``a[].b`` is a, [] and b, and ``a[b.c/d]`` is a and b.c/d."""
    return tuple(_KEYS.findall(path))


def of_any_item(path: str) -> str:
    """Return a path for any item of its lists: ``rules[].action`` of ``rules[1].action``."""
    return _INDEX.sub("[]", path)


def map_leaves(tree: Any, of: Callable[[Any], Any]) -> Any:
    """Return a tree with each value that is neither a mapping nor a list replaced by ``of``."""
    if is_mapping(tree):
        return {key: map_leaves(value, of) for key, value in tree.items()}
    if isinstance(tree, list):
        return [map_leaves(value, of) for value in cast("list[Any]", tree)]
    return of(tree)


def leaves(tree: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """Yield each value that is neither a mapping nor a list, with its path, such as "a.b[0]"."""
    if is_mapping(tree):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}".lstrip("."))
    elif isinstance(tree, list):
        for index, value in enumerate(cast("list[Any]", tree)):
            yield from leaves(value, f"{path}[{index}]")
    else:
        yield path, tree


def unknown_paths(tree: Any, path: str = "") -> Iterable[str]:
    """Yield the field paths of ``UNKNOWN`` in a tree. The tree itself is "."."""
    if tree is UNKNOWN:
        yield path or "."
    elif is_mapping(tree):
        for key, value in tree.items():
            if not isinstance(value, _PLAIN):
                yield from unknown_paths(value, f"{path}.{key}".lstrip("."))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(cast("Sequence[Any]", tree)):
            if not isinstance(value, _PLAIN):
                yield from unknown_paths(value, f"{path}[{index}]")
