"""Manifests as plain trees: how they are read and made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

Manifest = Mapping[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
"""Pulumi's type of a Helm release: what it makes are no manifests of the program."""


def api_object(api_version: str, kind: str, metadata: Manifest, **fields: Any) -> dict[str, Any]:
    """A Kubernetes object with fields, such as its spec."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def is_mapping(value: Any) -> TypeGuard[Manifest]:
    """Whether a value is a mapping."""
    # To ask whether it is a Mapping takes ten times as long.
    return isinstance(value, dict) or (not isinstance(value, (str, int, list)) and isinstance(value, Mapping))


def joined(key: str, path: str) -> str:
    """The path of a field below a key."""
    return f"{key}{path}" if path[:1] in "[" else f"{key}.{path}"


def section(manifest: Manifest, *keys: str) -> Manifest:
    """The mapping below some keys; empty where there is none, or it is not known."""
    for key in keys:
        found = manifest.get(key)
        manifest = cast("Manifest", found) if type(found) is dict or is_mapping(found) else {}
    return manifest


def items(manifest: Manifest, key: str) -> list[Manifest]:
    """The list below a key; empty where there is none, or it is not known."""
    found = manifest.get(key)
    return cast("list[Manifest]", found) if isinstance(found, (list, tuple)) else []


def name_of(manifest: Manifest) -> str:
    """The object's name, or nothing."""
    return section(manifest, "metadata").get("name", "")


def plural(kind: str) -> str:
    """The name of a kind's resource, such as networkpolicies."""
    name = re.sub("(?<![aeiou])y$", "ie", kind.lower())
    return name if name == "endpoints" else f"{name}{'es' if name.endswith('s') else 's'}"


def namespace_of(manifest: Manifest) -> str:
    """The object's namespace, ``default`` where it names none."""
    return section(manifest, "metadata").get("namespace") or "default"


def labels_of(manifest: Manifest) -> Mapping[str, Any]:
    """The object's labels."""
    return section(manifest, "metadata", "labels")


def annotations_of(manifest: Manifest) -> Mapping[str, Any]:
    """The object's annotations."""
    return section(manifest, "metadata", "annotations")


def mapped(tree: Any, of: Callable[[Any], Any]) -> Any:
    """A tree with what a function makes of each value in it that is neither a mapping nor a list."""
    if is_mapping(tree):
        return {key: mapped(value, of) for key, value in tree.items()}
    return [mapped(value, of) for value in cast("list[Any]", tree)] if isinstance(tree, list) else of(tree)
