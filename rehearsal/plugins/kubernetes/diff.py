"""What a change of inputs means: which paths change, and which of them the API server would refuse to change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.planning.quantity import parse_quantity

IDENTITY = ("kind", "metadata.name", "metadata.namespace", "metadata.generateName")

QUANTITIES = re.compile(r"\b(requests|limits|capacity|hard|default|defaultRequest|max|min|overhead|sizeLimit)\b")
"""The places in a manifest where a string is an amount."""

IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    "ClusterRoleBinding": ("roleRef",),
    "CSIDriver": ("spec",),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolume": ("spec.csi", "spec.nfs", "spec.hostPath", "spec.storageClassName"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    "PriorityClass": ("value", "preemptionPolicy"),
    "ReplicaSet": ("spec.selector",),
    "ResourceClaimTemplate": ("spec",),
    "ResourceQuota": ("spec.scopes", "spec.scopeSelector"),
    "RoleBinding": ("roleRef",),
    "RuntimeClass": ("handler",),
    "Secret": ("type",),
    "Service": ("spec.clusterIP",),
    "StatefulSet": (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "StorageClass": ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
}
"""Fields that cannot change on a live object, by kind: the official plugin replaces for them (facts of its diff)."""

POD_MUTABLE = re.compile(r"spec\.(initContainers|containers)\[\d+\]\.image$|spec\.(activeDeadlineSeconds|tolerations)")
"""The only parts of a Pod's spec that the API server lets change."""


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The paths at which two values differ, as deep as both sides go."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from changed_paths(old.get(key), new.get(key), _join(path, str(key)))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(before, after, f"{path}[{index}]")
    elif not same(old, new, path):
        yield path


def replaced_paths(kind: str, changed: list[str], old: Mapping[str, Any]) -> list[str]:
    """Those of the changed paths for which the object must be made anew."""
    if kind == "Pod":
        return [p for p in changed if _below(p, IDENTITY) or (p.startswith("spec") and not POD_MUTABLE.match(p))]
    immutable = (*IDENTITY, *IMMUTABLE.get(kind, ()))
    if kind in ("ConfigMap", "Secret") and old.get("immutable"):
        immutable = (*immutable, "data", "binaryData", "stringData", "immutable")
    return [path for path in changed if _below(path, immutable)]


def same(old: Any, new: Any, path: str) -> bool:
    """Whether two values mean the same: as amounts 2048Mi and 2Gi do, and so do an empty and an absent value."""
    if old == new or (_is_empty(old) and _is_empty(new)):
        return True
    if not QUANTITIES.search(path) or _is_empty(old) or _is_empty(new):
        return False
    try:
        return parse_quantity(old) == parse_quantity(new)
    except (ValueError, TypeError):
        return False


def as_declared(declared: Any, live: Any, path: str = "") -> Any:
    """The inputs that a live object amounts to: what was declared, with the live values where they differ."""
    if isinstance(declared, Mapping) and isinstance(live, Mapping):
        return {
            key: as_declared(value, live[key], _join(path, str(key))) if key in live else value
            for key, value in declared.items()
            if key in live or _is_empty(value)
        }
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        return [as_declared(ours, theirs, path) for ours, theirs in zip(declared, live, strict=True)]
    return declared if same(declared, live, path) else live


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", {}, [])


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith((f"{root}.", f"{root}[")) for root in roots)


def _join(path: str, key: str) -> str:
    quoted = key if re.fullmatch(r"[A-Za-z_$][\w$]*", key) else f'["{key}"]'
    return f"{path}{'' if not path or quoted.startswith('[') else '.'}{quoted}"
