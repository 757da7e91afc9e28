"""How two trees of property values differ. Paths are Pulumi property paths, such as ``spec.ports[0].name``."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

_ABSENT = object()
"""The value of an absent key; a null may mean something, as in Helm's values."""
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_STEP = re.compile(r'\["([^"]+)"\]|([^.\[\]]+)')


def changed_paths(
    old: Any,
    new: Any,
    path: str = "",
    *,
    same: Callable[[Any, Any, str], bool] = lambda old, new, _: old == new,
    enter_blocks: bool = False,
) -> Iterator[str]:
    """The paths at which two values differ, as deep as both sides go; ``path`` is where they are.

    ``same`` tells whether two values at a path mean the same. With ``enter_blocks``, an added or removed map counts as
    its entries; an empty one is itself the change.
    """
    if enter_blocks:
        old = {} if old is _ABSENT and isinstance(new, Mapping) and new else old
        new = {} if new is _ABSENT and isinstance(old, Mapping) and old else new
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        pairs = (
            (join(path, str(key)), old.get(key, _ABSENT), new.get(key, _ABSENT))
            for key in sorted({*old, *new})
        )
    elif isinstance(old, list) and isinstance(new, list):
        items = enumerate(zip_longest(old, new, fillvalue=_ABSENT))
        pairs = ((f"{path}[{index}]", before, after) for index, (before, after) in items)
    else:
        if not same(old, new, path):
            yield path
        return
    for below, before, after in pairs:
        yield from changed_paths(before, after, below, same=same, enter_blocks=enter_blocks)


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of the roots, or lies below one."""
    return any(path == root or path.startswith((f"{root}.", f"{root}[")) for root in roots)


def join(path: str, key: str) -> str:
    """The path of a key of the map at a path."""
    if not _NAME.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def value_at(value: Any, path: str) -> Any:
    """The value at a path, or None if there is none."""
    for step in steps(path):
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def steps(path: str) -> list[str]:
    """The keys and indexes of a path."""
    return [quoted or plain for quoted, plain in _STEP.findall(path)]
