"""Merging: how the user's overrides and Helm values join what a component makes."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.trees import UNKNOWN

MERGE_KEYS = {
    **dict.fromkeys(("claims", "containers", "env", "imagePullSecrets", "initContainers"), "name"),
    **dict.fromkeys(("resourceClaims", "schedulingGates", "volumes"), "name"),
    "hostAliases": "ip",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
"""The lists of a PodSpec whose items join, and the key that identifies them (patchMergeKey in
k8s.io/api/core/v1)."""


Overrides = Mapping[str, Mapping[str, Any]]
"""Fields of objects, by kind."""


def without_none(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Drop keys whose value is None."""
    return {key: value for key, value in mapping.items() if value is not None}


def without_nulls(value: Any) -> Any:
    """Drop keys whose value is None, at any depth."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: without_nulls(item) for key, item in items if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in cast("list[Any]", value)]
    return value


def merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two trees as Helm merges values: maps join, anything else of ``top`` wins."""
    result = {**base, **top}
    for key in base.keys() & top.keys():
        if isinstance(base[key], Mapping) and isinstance(top[key], Mapping):
            result[key] = merged(base[key], top[key])
    return result


def overridden(manifest: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Merge overrides over a manifest: maps join, lists are replaced, null removes a field."""
    return without_nulls(merged(manifest, overrides.get(manifest["kind"], {})))


def strategic_merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two trees of a PodSpec as ``kubectl patch`` does; ``top`` wins.

    Maps join. Lists of named things (containers, volumes, environment variables, …) join by name,
    and new items come last. Any other list is replaced. Null removes a field.
    """
    result = dict(base)
    for key, value in top.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = strategic_merge(section(base, key), cast("Mapping[str, Any]", value))
        elif key in MERGE_KEYS and isinstance(value, list):
            items = cast("list[Any]", value)
            result[key] = _joined(base.get(key) or [], items, MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _joined(base: Any, top: list[Any], key: str) -> Any:
    # Which items join depends on their names.
    if base is UNKNOWN or any(item is UNKNOWN for item in (*base, *top)):
        return UNKNOWN
    changes = {item.get(key): item for item in top}
    known = {item.get(key) for item in base}
    joined = [strategic_merge(item, changes.get(item.get(key), {})) for item in base]
    return joined + [strategic_merge({}, item) for item in top if item.get(key) not in known]


def named_by_content(
    manifest: Mapping[str, Any], name: str, content: str, overrides: Overrides
) -> dict[str, Any]:
    """Return an object with the overrides, under a name that follows from its field ``content``.

    A change of the content is a new object, so its pods are replaced.
    """
    made = overridden(manifest, overrides)
    digest = hashlib.sha256(json.dumps(made[content], sort_keys=True).encode()).hexdigest()
    made["metadata"].setdefault("name", f"{name}-{digest[:8]}")
    return made
