"""Objects of the cluster, and what of them was declared."""

import base64
import copy
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes.diff import same
from ml_foundations.rehearsal.plugins.property_paths import join, steps
from ml_foundations.rehearsal.protocol.values import Properties, Secret

SERVER_WRITTEN = (
    *(
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
    ),
    *("resourceVersion", "selfLink", "uid"),
)
"""Metadata that the API server writes."""
_BOOKKEEPING = (
    "deployment.kubernetes.io/revision",
    "kubectl.kubernetes.io/last-applied-configuration",
)
"""Annotations that controllers and kubectl write."""


def object_id(metadata: Object) -> str:
    """The id that Pulumi knows an object by: its name, after its namespace if it has one."""
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def title(obj: Object) -> str:
    """What to call an object in a message: its kind and id."""
    return f"{obj['kind']} {object_id(obj['metadata'])}"


def as_stored(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Secret with its stringData in its data, as the API server keeps it; anything else as it is.

    So the official plugin compares them: normalizeSecret in its provider/pkg/clients/unstructured.go.
    """
    plain, data = obj.get("stringData"), obj.get("data") or {}
    is_secret = (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Secret")
    if not is_secret or not isinstance(plain, Mapping) or not isinstance(data, Mapping):
        return obj
    encoded = {
        key: base64.b64encode(value.encode()).decode() if isinstance(value, str) else value
        for key, value in plain.items()
    }
    return {key: value for key, value in obj.items() if key != "stringData"} | {
        "data": {**data, **encoded}
    }


def removal(api_version: str, kind: str) -> str:
    """What to say of a kind of a version that Kubernetes has removed; nothing where it may be served."""
    if not (row := _removed().get((api_version, kind))):
        return ""
    instead = (
        f"Use {row['instead']}/{kind} instead" if row["instead"] else "Nothing takes its place"
    )
    return f"{api_version}/{kind} was removed in Kubernetes {row['removed in']}. {instead}"


@cache
def _removed() -> Mapping[tuple[str, str], Mapping[str, str]]:
    found = rows("removed.csv", "ml_foundations.rehearsal.plugins.kubernetes")
    return {(row["apiVersion"], kind): row for row in found for kind in row["kinds"].split()}


def keep_live(wanted: Object, live: Object, ignored: Iterable[str], manager: str = "") -> None:
    """Where changes are ignored, keep the live values, and leave to others what a manager's apply does not own.

    handleSSAIgnoreFields of pulumi-kubernetes, provider/pkg/await/await.go: a key with a dot it does not find.
    """
    for path in ignored:
        *parents, last = found = steps(path)
        target, source = wanted, live
        for step in parents:
            target, source = (
                part.get(step) if isinstance(part, dict) else None for part in (target, source)
            )
        if (
            not isinstance(target, dict)
            or not isinstance(source, dict)
            or last not in source
            or "[" in path
        ):
            continue
        entries = live["metadata"].get("managedFields", []) if manager else []
        owners = {entry["manager"] for entry in entries if _has(entry["fieldsV1"], found)}
        if owners and manager not in owners:
            target.pop(last, None)
        else:
            target[last] = source[last]


def _has(fields: Object | None, path: Iterable[str]) -> bool:
    """Whether an entry of managedFields has a path."""
    for step in path:
        fields = (fields or {}).get(f"f:{step}")
    return fields is not None


def content_of(live: Object) -> Object:
    """An object without its status and what the server, controllers and kubectl note in it."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in SERVER_WRITTEN}
    said = {
        key: value
        for key, value in metadata.pop("annotations", {}).items()
        if key not in _BOOKKEEPING
    }
    metadata |= {"annotations": said} if said else {}
    return {key: value for key, value in live.items() if key != "status"} | {"metadata": metadata}


def hidden(properties: Properties) -> Properties:
    """The same, but with the contents of a Secret kept secret."""
    if properties.get("kind") != "Secret" or properties.get("apiVersion") != "v1":
        return properties
    return properties | {
        key: Secret(properties[key]) for key in ("data", "stringData") if key in properties
    }


def outputs_of(live: Object, preview: bool = False) -> Properties:
    """The object as the program and the state get it; the contents of a Secret stay secret."""
    outputs = copy.deepcopy(live)
    outputs["metadata"].pop("managedFields", None)
    if preview:
        outputs["metadata"] |= dict.fromkeys(
            ("creationTimestamp", "resourceVersion", "uid"), UNKNOWN
        )
        outputs["status"] = UNKNOWN
    return hidden(outputs)


def as_declared(declared: Any, live: Any, path: str = "") -> Any:
    """What was declared, with the live values where they differ."""
    if isinstance(declared, Mapping) and isinstance(live, Mapping):
        return {
            key: as_declared(value, live[key], join(path, str(key))) if key in live else value
            for key, value in declared.items()
            if key in live or not value  # The server leaves out what is empty, zero or false.
        }
    if isinstance(declared, list) and isinstance(live, list):
        # What the server adds behind the declared items, as tolerations of a Pod, is no drift: so the official plugin.
        return [
            as_declared(ours, theirs, path) for ours, theirs in zip(declared, live, strict=False)
        ]
    return declared if same(declared, live, path) else live
