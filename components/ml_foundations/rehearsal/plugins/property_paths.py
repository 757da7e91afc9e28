"""Pulumi's property paths, such as ``spec.ports[0].name``, and the differences of values."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

_ABSENT = object()
"""The value of an absent key. A null is not absent: in Helm's values it removes a default."""
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$]*")
_STEP = re.compile(r'\["([^"]+)"\]|([^.\[\]]+)')


def changed_paths(
    old: Any,
    new: Any,
    path: str = "",
    *,
    same: Callable[[Any, Any, str], bool] = lambda old, new, path: old == new,
    enter_blocks: bool = False,
) -> Iterator[str]:
    """Yield the paths at which two values differ, as deep as both have maps or lists.

    ``same`` returns whether two values at a path mean the same. With ``enter_blocks``, an added or
    removed map counts as its entries, unless it is empty.
    """
    if enter_blocks:
        old = {} if old is _ABSENT and isinstance(new, Mapping) and new else old
        new = {} if new is _ABSENT and isinstance(old, Mapping) and old else new
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            before = old.get(key, _ABSENT)
            after = new.get(key, _ABSENT)
            below = join(path, str(key))
            yield from changed_paths(before, after, below, same=same, enter_blocks=enter_blocks)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip_longest(old, new, fillvalue=_ABSENT)):
            below = f"{path}[{index}]"
            yield from changed_paths(before, after, below, same=same, enter_blocks=enter_blocks)
    elif not same(old, new, path):
        yield path


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is one of the roots or below one."""
    return any(path == root or path.startswith((f"{root}.", f"{root}[")) for root in roots)


def join(path: str, key: str) -> str:
    """Return the path of a key of the map at a path."""
    if not _PLAIN_KEY.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path, or None if there is none."""
    for step in steps(path):
        if isinstance(value, list):
            value = value[int(step)] if step.isdecimal() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def steps(path: str) -> list[str]:
    """Return the keys and indexes of a path."""
    return [quoted or plain for quoted, plain in _STEP.findall(path)]
