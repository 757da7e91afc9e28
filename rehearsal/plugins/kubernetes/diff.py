"""What a change of inputs means: which paths change, and which of them the API server would refuse to change."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ml_foundations.planning.quantity import parse_quantity

IDENTITY = ("kind", "metadata.name", "metadata.namespace", "metadata.generateName")

QUANTITIES = re.compile(r"\b(requests|limits|capacity|hard|default|defaultRequest|max|min|overhead|sizeLimit)\b")
"""The places in a manifest where a string is an amount."""
PLAIN = re.compile(r"^(data|stringData|parameters)\b|\bmetadata\b|\b(env|args|command)\[")
"""The places where a string is only a string, whatever its key is called."""

IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    "ClusterRoleBinding.rbac.authorization.k8s.io": ("roleRef",),
    "CSIDriver.storage.k8s.io": ("spec",),
    "DaemonSet.apps": ("spec.selector",),
    "Deployment.apps": ("spec.selector",),
    "Job.batch": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolume": ("spec.csi", "spec.nfs", "spec.hostPath", "spec.storageClassName"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    "PriorityClass.scheduling.k8s.io": ("value", "preemptionPolicy"),
    "ReplicaSet.apps": ("spec.selector",),
    "ResourceClaimTemplate.resource.k8s.io": ("spec",),
    "ResourceQuota": ("spec.scopes", "spec.scopeSelector"),
    "RoleBinding.rbac.authorization.k8s.io": ("roleRef",),
    "RuntimeClass.node.k8s.io": ("handler",),
    "Secret": ("type",),
    "Service": ("spec.clusterIP",),
    "StatefulSet.apps": (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "StorageClass.storage.k8s.io": ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
}
"""Fields that cannot change on a live object, by kind and group: the official plugin replaces for them."""

CONTENT: Mapping[str, tuple[str, ...]] = {"ConfigMap": ("binaryData", "data"), "Secret": ("data", "stringData")}
"""Fields for which the official plugin replaces too, unless it is told that the kind is mutable.

From forceNewProperties of pulumi-kubernetes, provider/pkg/provider/diff.go.
"""

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


def group_kind(obj: Mapping[str, Any]) -> str:
    """``Job.batch`` or ``Pod``: other groups have kinds of the same name, and other rules."""
    group, slash, _ = obj["apiVersion"].rpartition("/")
    return f"{obj['kind']}.{group}" if slash else obj["kind"]


def as_stored(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Secret with its stringData in its data, as the API server keeps it; anything else as it is.

    So the official plugin compares them: normalizeSecret in its provider/pkg/clients/unstructured.go.
    """
    plain, data = obj.get("stringData"), obj.get("data") or {}
    is_secret = (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Secret")
    if not is_secret or not isinstance(plain, Mapping) or not isinstance(data, Mapping):
        return obj
    encoded = {key: _base64(value) if isinstance(value, str) else value for key, value in plain.items()}
    return {key: value for key, value in obj.items() if key != "stringData"} | {"data": {**data, **encoded}}


def replaced_paths(changed: list[str], new: Mapping[str, Any], mutable: Collection[str] = ()) -> list[str]:
    """Those of the changed paths for which an object must be made anew; the content of mutable kinds may change."""
    kind = group_kind(new)
    if kind == "Pod":
        return [p for p in changed if _below(p, IDENTITY) or (p.startswith("spec") and not POD_MUTABLE.match(p))]
    immutable = (*IDENTITY, *IMMUTABLE.get(kind, ()))
    if kind not in mutable or new.get("immutable"):
        immutable = (*immutable, *CONTENT.get(kind, ()))
    return [path for path in changed if _below(path, immutable)]


def same(old: Any, new: Any, path: str) -> bool:
    """Whether two values mean the same, as the amounts 2048Mi and 2Gi do."""
    if old == new:
        return True
    if old is None or new is None or PLAIN.search(path) or not QUANTITIES.search(path):
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
            if key in live or not value  # The server leaves out what is empty, zero or false.
        }
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        return [as_declared(ours, theirs, path) for ours, theirs in zip(declared, live, strict=True)]
    return declared if same(declared, live, path) else live


def owned(live: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """The part of a live value that its fieldsV1 (the bookkeeping of server-side apply) give to one manager."""
    part: dict[str, Any] = {}
    for key, below in fields.items():
        name = key.removeprefix("f:")
        if key.startswith("f:") and name in live:
            part[name] = _owned_value(live[name], below)
    return part


def _owned_value(live: Any, fields: Mapping[str, Any]) -> Any:
    deeper = {key: below for key, below in fields.items() if key != "."}
    if isinstance(live, Mapping) and deeper:
        return owned(live, deeper)
    if isinstance(live, list) and deeper:
        return [item for item in (_owned_item(value, deeper) for value in live) if item is not None]
    return {} if isinstance(live, Mapping) and fields else live


def _owned_item(item: Any, fields: Mapping[str, Any]) -> Any:
    """A list's item, found by its keys (``k:{"name":"x"}``) or, in a set, by its value (``v:"x"``)."""
    for key, below in fields.items():
        kind, _, text = key.partition(":")
        if kind == "v" and json.loads(text) == item:
            return item
        if kind == "k" and isinstance(item, Mapping):
            wanted = json.loads(text)
            # A key that its default filled in, such as a port's protocol, is absent from the fields below.
            if all(item.get(name) == value for name, value in wanted.items()):
                return _owned_value(item, below)
    return None


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith((f"{root}.", f"{root}[")) for root in roots)


def _join(path: str, key: str) -> str:
    quoted = key if re.fullmatch(r"[A-Za-z_$][\w$]*", key) else f'["{key}"]'
    return f"{path}{'' if not path or quoted.startswith('[') else '.'}{quoted}"
