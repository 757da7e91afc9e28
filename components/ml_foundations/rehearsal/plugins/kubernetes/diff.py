"""What a change of inputs means: which paths change, and for which of them the official plugin replaces an object.

It updates in place for all others, and the API server refuses what it cannot change: here as in the cloud.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.rehearsal.plugins.property_paths import is_below

IDENTITY = ("metadata.name", "metadata.namespace")
"""The paths that say which object it is."""

_QUANTITIES = re.compile(
    r"\b(requests|limits|capacity|hard|default|defaultRequest|max|min|overhead|sizeLimit)\b"
)
"""The places in a manifest where a string is an amount."""
_PLAIN = re.compile(r"^(data|stringData|parameters)\b|\bmetadata\b|\b(env|args|command)\[")
"""The places where a string is only a string, whatever its key is called."""

_REPLACED_FOR: Mapping[str, list[str]] = json.loads(
    Path(__file__).with_name("replaced_for.json").read_text()
)
"""Fields for which the official plugin replaces, by kind and group, and those of a Pod's containers: no others.

From forceNewProperties of pulumi-kubernetes, provider/pkg/provider/diff.go.
"""
_CONTAINER = re.compile(r"spec\.(containers|initContainers)(?:\[(\d+)\](?:\.(\w+).*)?)?$")

_CONTENT: Mapping[str, tuple[str, ...]] = {
    "ConfigMap": ("binaryData", "data"),
    "Secret": ("data", "stringData"),
}
"""Fields for which it replaces too, unless it is told that the kind is mutable."""


def group_kind(obj: Mapping[str, Any]) -> str:
    """``Job.batch`` or ``Pod``: other groups have kinds of the same name, and other rules."""
    group, slash, _ = obj["apiVersion"].rpartition("/")
    return f"{obj['kind']}.{group}" if slash else obj["kind"]


def replaced_paths(
    changed: list[str], new: Mapping[str, Any], mutable: Collection[str] = ()
) -> list[str]:
    """The changed paths for which an object must be replaced; the content of mutable kinds may change."""
    kind = group_kind(new)
    fields = (*IDENTITY, *_REPLACED_FOR.get(kind, ()))
    if kind not in mutable or new.get("immutable"):
        fields = (*fields, *_CONTENT.get(kind, ()))
    return [
        path
        for path in changed
        if is_below(path, fields) or (kind == "Pod" and _replaces_container(path, new))
    ]


def _replaces_container(path: str, pod: Mapping[str, Any]) -> bool:
    """Whether a Pod is replaced for a change in its containers; the removal of one is none."""
    if not (found := _CONTAINER.match(path)):
        return False
    containers, index, field = found.groups()
    if field:
        return field in _REPLACED_FOR["Container"]
    return index is None or int(index) < len(pod["spec"][containers])


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What changes an object from the old inputs to the new ones (JSON Merge Patch, RFC 7386)."""
    patch: dict[str, Any] = {key: None for key in old.keys() - new.keys()}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            patch |= {key: below} if (below := merge_patch(before, value)) else {}
        elif value != before:
            patch[key] = value
    return patch


def same(old: Any, new: Any, path: str) -> bool:
    """Whether two values mean the same, as the amounts 2048Mi and 2Gi do."""
    if old == new:
        return True
    if old is None or new is None or _PLAIN.search(path) or not _QUANTITIES.search(path):
        return False
    try:
        return parse_quantity(old) == parse_quantity(new)
    except (ValueError, TypeError):
        return False
