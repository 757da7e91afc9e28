"""From a case on which planning and the control plane disagree to a small one on which they still do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Object = dict[str, Any]
Path = tuple[Any, ...]
Disagree = Callable[[Sequence[list[Object]]], Sequence[bool]]

KEPT = frozenset(
    {"apiVersion", "kind", "metadata", "name", "namespace", "labels", "nodeSelector", "case"}
    | {"status", "conditions", "capacity"}
)
"""Keys without which a document is none, or a case meets others."""
AT_ONCE = 100
ROUNDS = 6


def shrink(
    documents: list[Object], disagree: Disagree, may: Callable[[list[Object]], bool]
) -> list[Object]:
    """Leave out what can be left out.

    Args:
        documents: The case.
        disagree: Tells of each of some cases whether planning and a control plane disagree on it.
        may: Tells quickly whether a case is worth a try: planning still says what it says.
    """
    for _ in range(ROUNDS):
        paths = [path for path in _paths(documents) if may(without(documents, [path]))][:AT_ONCE]
        found = disagree([without(documents, [path]) for path in paths])
        spare = [path for path, still in zip(paths, found, strict=True) if still]
        if not spare:
            break
        # All that can be left out one by one, or the largest part of it that can be left out together.
        parts = [spare[: len(spare) // share] for share in (1, 2, 4, 8) if len(spare) >= share]
        parts += [spare[len(spare) // 2 :], spare[:1]]
        tries = [smaller for part in parts if may(smaller := without(documents, part))]
        together = disagree(tries)
        documents = min(
            (smaller for smaller, still in zip(tries, together, strict=True) if still),
            key=lambda smaller: len(str(smaller)),
            default=without(documents, spare[:1]),
        )
    return documents


def without(documents: list[Object], paths: Sequence[Path]) -> list[Object]:
    """The documents without what some paths lead to."""
    changed: Any = copy.deepcopy(documents)

    def order(path: Path) -> list[tuple[bool, Any]]:
        return [(isinstance(step, str), step) for step in path]

    for path in sorted(paths, key=order, reverse=True):
        holder = changed
        for step in path[:-1]:
            holder = holder[step] if isinstance(holder, list) else holder.get(step, {})
        if isinstance(holder, list) or path[-1] in holder:
            del holder[path[-1]]
    return changed


def _paths(documents: list[Object]) -> Iterator[Path]:
    """What could be left out: documents first, then ever smaller parts of them."""
    found = sorted(_below(documents, ()), key=len)
    yield from found


def _below(tree: Any, path: Path) -> Iterator[Path]:
    places = enumerate(tree) if isinstance(tree, list) else ()
    for key, value in tree.items() if isinstance(tree, dict) else places:
        if key not in KEPT:
            yield (*path, key)
        yield from _below(value, (*path, key))
