"""Kubernetes objects as plain trees, which are called manifests: how they are read and made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ml_foundations.kubernetes.trees import is_mapping

Manifest = Mapping[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
"""Pulumi's type of a Helm release: it creates objects that the program does not declare."""
_LISTS: Any = (list, tuple)


def api_object(api_version: str, kind: str, metadata: Manifest, **fields: Any) -> dict[str, Any]:
    """Return a Kubernetes object with fields, such as its spec."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def section(manifest: Manifest, *keys: str) -> Manifest:
    """Return the mapping below some keys; empty if there is none, or it is unknown."""
    try:
        for key in keys:
            value: Any = manifest.get(key)
            manifest = value if value.__class__ is dict or (value and is_mapping(value)) else {}
    except AttributeError:  # an item of a list that should be a mapping
        return {}
    return manifest


def items(manifest: Manifest, key: str) -> list[Manifest]:
    """Return the mappings in the list below a key, empty ones for what is unknown or invalid.

    Each has its index. Without a list, there are none.
    """
    values = _list(manifest, key)
    for item in values:
        if item.__class__ is not dict:
            return [item if is_mapping(item) else {} for item in values]
    return values


def mappings(manifest: Manifest, key: str) -> list[Manifest]:
    """Return the mappings in the list below a key, without what is unknown or invalid."""
    return [item for item in _list(manifest, key) if is_mapping(item)]


def texts(manifest: Manifest, key: str) -> list[str]:
    """Return the strings in the list below a key, without what is unknown or invalid."""
    return [item for item in _list(manifest, key) if isinstance(item, str)]


def text_of(manifest: Manifest, key: str) -> str:
    """Return the string below a key; empty if there is none, or it is unknown or invalid."""
    value: Any = manifest.get(key)
    return value if isinstance(value, str) else ""


def _list(manifest: Manifest, key: str) -> list[Any]:
    try:
        value: Any = manifest.get(key)
    except AttributeError:  # an item of a list that should be a mapping
        return []
    return value if isinstance(value, _LISTS) else []


def name_of(manifest: Manifest) -> str:
    """Return the object's name, or nothing."""
    return section(manifest, "metadata").get("name", "")


def plural(kind: str) -> str:
    """Return the name of a kind's resource, such as networkpolicies."""
    name = re.sub("(?<![aeiou])y$", "ie", kind.lower())
    return name if name == "endpoints" else f"{name}{'es' if name.endswith('s') else 's'}"


def namespace_of(manifest: Manifest) -> str:
    """Return the object's namespace, ``default`` if it names none."""
    return section(manifest, "metadata").get("namespace") or "default"


def labels_of(manifest: Manifest) -> Mapping[str, Any]:
    """Return the object's labels."""
    return section(manifest, "metadata", "labels")


def annotations_of(manifest: Manifest) -> Mapping[str, Any]:
    """Return the object's annotations."""
    return section(manifest, "metadata", "annotations")
