"""The mark of a value that is not known yet, such as an output at preview, and where a tree holds it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ml_foundations.kubernetes.manifests import is_mapping


class Unknown:
    """The type of ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __str__(self) -> str:
        return "(not known yet)"

    def __deepcopy__(self, memo: object) -> Unknown:
        return self  # There is but one: it is told by its identity.


UNKNOWN: Final = Unknown()
"""Stands anywhere in a manifest for a value that is not known yet, such as a Pulumi output at preview."""


def unknown_paths(tree: Any, path: str = "") -> Iterable[str]:
    """Where a tree holds ``UNKNOWN``, as field paths; the tree itself is "."."""
    if tree is UNKNOWN:
        yield path or "."
    elif is_mapping(tree):
        for key, value in tree.items():
            yield from unknown_paths(value, f"{path}.{key}".lstrip("."))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from unknown_paths(value, f"{path}[{index}]")
