"""What a change of inputs means: which paths change, and for which of them the official plugin makes an object anew.

It updates in place for all others, and the API server refuses what it cannot change: here as in the cloud.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from ml_foundations.kubernetes.quantities import parse_quantity

IDENTITY = ("metadata.name", "metadata.namespace")

QUANTITIES = re.compile(r"\b(requests|limits|capacity|hard|default|defaultRequest|max|min|overhead|sizeLimit)\b")
"""The places in a manifest where a string is an amount."""
PLAIN = re.compile(r"^(data|stringData|parameters)\b|\bmetadata\b|\b(env|args|command)\[")
"""The places where a string is only a string, whatever its key is called."""

FORCE_NEW: Mapping[str, tuple[str, ...]] = {
    "ClusterRoleBinding.rbac.authorization.k8s.io": ("roleRef",),
    "DaemonSet.apps": ("spec.selector",),
    "Deployment.apps": ("spec.selector",),
    "Job.batch": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolume": (
        *("spec.awsElasticBlockStore", "spec.azureDisk", "spec.azureFile", "spec.cephfs", "spec.cinder", "spec.csi"),
        *("spec.fc", "spec.flexVolume", "spec.flocker", "spec.gcePersistentDisk", "spec.glusterfs", "spec.hostPath"),
        *("spec.iscsi", "spec.local", "spec.nfs", "spec.photonPersistentDisk", "spec.portworxVolume", "spec.quobyte"),
        *("spec.rbd", "spec.scaleIO", "spec.storageos", "spec.vsphereVolume"),
    ),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    "Pod": (
        *("spec.affinity", "spec.automountServiceAccountToken", "spec.dnsConfig", "spec.dnsPolicy"),
        *("spec.enableServiceLinks", "spec.hostAliases", "spec.hostIPC", "spec.hostNetwork", "spec.hostPID"),
        *("spec.hostname", "spec.imagePullSecrets", "spec.nodeName", "spec.nodeSelector", "spec.overhead"),
        *("spec.preemptionPolicy", "spec.priority", "spec.priorityClassName", "spec.readinessGates"),
        *("spec.restartPolicy", "spec.runtimeClassName", "spec.schedulerName", "spec.securityContext"),
        *("spec.serviceAccount", "spec.serviceAccountName", "spec.shareProcessNamespace", "spec.subdomain"),
        *("spec.terminationGracePeriodSeconds", "spec.volumes"),
    ),
    "ResourceQuota": ("spec.scopes",),
    "RoleBinding.rbac.authorization.k8s.io": ("roleRef",),
    "Secret": ("type",),
    "Service": ("spec.clusterIP",),
    "StatefulSet.apps": (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "StorageClass.storage.k8s.io": ("parameters", "provisioner"),
}
"""Fields for which the official plugin replaces, by kind and group: these, and no others.

From forceNewProperties of pulumi-kubernetes, provider/pkg/provider/diff.go.
"""

FORCE_NEW_CONTAINER = (
    *("args", "command", "env", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports", "readinessProbe"),
    *("resources", "securityContext", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy"),
    *("tty", "volumeDevices", "volumeMounts", "workingDir"),
)
"""Fields of a Pod's containers for which it replaces too."""
CONTAINER = re.compile(r"spec\.(containers|initContainers)(?:\[(\d+)\](?:\.(\w+).*)?)?$")

CONTENT: Mapping[str, tuple[str, ...]] = {"ConfigMap": ("binaryData", "data"), "Secret": ("data", "stringData")}
"""Fields for which it replaces too, unless it is told that the kind is mutable."""

ABSENT = object()
"""The value of a key that is not there; one that is null may mean something, as in Helm's values."""


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The paths at which two values differ, as deep as both sides go."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from changed_paths(old.get(key, ABSENT), new.get(key, ABSENT), _join(path, str(key)))
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip_longest(old, new, fillvalue=ABSENT)):
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
    fields = (*IDENTITY, *FORCE_NEW.get(kind, ()))
    if kind not in mutable or new.get("immutable"):
        fields = (*fields, *CONTENT.get(kind, ()))
    return [path for path in changed if _below(path, fields) or (kind == "Pod" and _replaces_container(path, new))]


def _replaces_container(path: str, pod: Mapping[str, Any]) -> bool:
    """Whether a Pod is made anew for what changes in its containers; not for one that only goes."""
    if not (found := CONTAINER.match(path)):
        return False
    containers, index, field = found.groups()
    if field:
        return field in FORCE_NEW_CONTAINER
    return index is None or int(index) < len(pod["spec"][containers])


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
