"""The changes for which the official plugin replaces an object, and the values that mean the same.

The official plugin makes all other changes in place, and the API server refuses those that it
cannot make.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.plugins.property_paths import is_below

IDENTITY = ("metadata.name", "metadata.namespace")
"""The paths that identify an object of a kind."""

_QUANTITIES = re.compile(
    r"\b(requests|limits|capacity|hard|default|defaultRequest|max|min|overhead|sizeLimit)\b"
)
"""The places in a manifest where a string is a quantity."""
_TEXTS = re.compile(r"^(data|stringData|parameters)\b|\bmetadata\b|\b(env|args|command)\[")
"""The places where a string is not a quantity, whatever its key."""

_DATA = Path(__file__).with_name("replaced_for.json")
_REPLACED_FOR: Mapping[str, list[str]] = read_json(_DATA, {})
"""Fields for which the official plugin replaces, by kind, and those of containers.

From forceNewProperties of pulumi-kubernetes, provider/pkg/provider/diff.go.
"""
_CONTAINER = re.compile(r"spec\.(containers|initContainers)(?:\[(\d+)\](?:\.(\w+).*)?)?$")

_CONTENT = {"ConfigMap": ("binaryData", "data"), "Secret": ("data", "stringData")}
"""Fields for which it replaces too, unless the provider makes the kind mutable."""


def group_kind(obj: Mapping[str, Any]) -> str:
    """Return ``Job.batch`` or ``Pod``: kinds of the same name in other groups have other rules."""
    group, slash, _ = obj["apiVersion"].rpartition("/")
    return f"{obj['kind']}.{group}" if slash else obj["kind"]


def replaced_paths(
    changed: list[str], new: Mapping[str, Any], mutable: Collection[str] = ()
) -> list[str]:
    """Return the changed paths that replace an object; mutable kinds' content does not."""
    kind = group_kind(new)
    fields = [*IDENTITY, *_REPLACED_FOR.get(kind, ())]
    if kind not in mutable or new.get("immutable"):
        fields += _CONTENT.get(kind, ())
    replaced = [path for path in changed if is_below(path, fields)]
    if kind == "Pod":
        replaced += [path for path in changed if _replaces_container(path, new)]
    return replaced


def _replaces_container(path: str, pod: Mapping[str, Any]) -> bool:
    """Return whether a change in its containers replaces a Pod; a removed container does not."""
    match = _CONTAINER.match(path)
    if match is None:
        return False
    containers, index, field = match.groups()
    if field:
        return field in _REPLACED_FOR["Container"]
    return index is None or int(index) < len(pod["spec"][containers])


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch from the old inputs to the new ones (JSON Merge Patch, RFC 7386)."""
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if nested := merge_patch(before, value):
                patch[key] = nested
        elif value != before:
            patch[key] = value
    return patch


def same(old: Any, new: Any, path: str) -> bool:
    """Return whether two values mean the same, as the quantities 2048Mi and 2Gi do."""
    if old == new:
        return True
    if old is None or new is None or _TEXTS.search(path) or not _QUANTITIES.search(path):
        return False
    try:
        return parse_quantity(old) == parse_quantity(new)
    except (ValueError, TypeError):
        return False
