"""Kubernetes objects as plain trees, which are called manifests: how they are read and made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ml_foundations.kubernetes.trees import is_mapping

Manifest = Mapping[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
"""Pulumi's type of a Helm release: what it makes are no manifests of the program."""
_LISTS: Any = (list, tuple)


def api_object(api_version: str, kind: str, metadata: Manifest, **fields: Any) -> dict[str, Any]:
    """A Kubernetes object with fields, such as its spec."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def section(manifest: Manifest, *keys: str) -> Manifest:
    """The mapping below some keys; empty where there is none, or it is not known."""
    for key in keys:
        found: Any = manifest.get(key)
        manifest = found if found.__class__ is dict or (found and is_mapping(found)) else {}
    return manifest


def items(manifest: Manifest, key: str) -> list[Manifest]:
    """The list below a key; empty where there is none, or it is not known."""
    found: Any = manifest.get(key)
    return found if isinstance(found, _LISTS) else []


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
