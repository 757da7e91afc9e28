"""Manifests as plain trees, with a mark for values that are not known yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

Manifest = Mapping[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
"""Pulumi's type of a Helm release: what it makes are no manifests of the program."""


class Unknown:
    """The type of ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: object) -> Unknown:
        return self  # There is but one: it is told by its identity.


UNKNOWN: Final = Unknown()
"""Stands anywhere in a manifest for a value that is not known yet, such as a Pulumi output at preview."""


def section(manifest: Manifest, *keys: str) -> Manifest:
    """The mapping below some keys; empty where there is none, or it is not known."""
    for key in keys:
        found = manifest.get(key)
        manifest = {} if found is UNKNOWN else found or {}
    return manifest


def items(manifest: Manifest, key: str) -> list[Manifest]:
    """The list below a key; empty where there is none."""
    return manifest.get(key) or []


def name_of(manifest: Manifest) -> str:
    """The object's name, or nothing."""
    return section(manifest, "metadata").get("name", "")


def namespace_of(manifest: Manifest) -> str:
    """The object's namespace, ``default`` where it names none."""
    return section(manifest, "metadata").get("namespace") or "default"


def labels_of(manifest: Manifest) -> Mapping[str, Any]:
    """The object's labels."""
    return section(manifest, "metadata", "labels")


def annotations_of(manifest: Manifest) -> Mapping[str, Any]:
    """The object's annotations."""
    return section(manifest, "metadata", "annotations")


def unknown_paths(tree: Any, path: str = "") -> Iterable[str]:
    """Where a tree holds ``UNKNOWN``, as field paths."""
    if tree is UNKNOWN:
        yield path
    elif isinstance(tree, Mapping):
        for key, value in tree.items():  # pyright: ignore[reportUnknownVariableType]
            yield from unknown_paths(value, f"{path}.{key}".lstrip("."))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from unknown_paths(value, f"{path}[{index}]")
