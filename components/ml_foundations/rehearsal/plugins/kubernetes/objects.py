"""Objects of the cluster, and their declared parts."""

import base64
import copy
from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes.diff import same
from ml_foundations.rehearsal.plugins.property_paths import join, steps, value_at
from ml_foundations.rehearsal.protocol.values import Properties, Secret

SERVER_WRITTEN = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
    *("managedFields", "resourceVersion", "selfLink", "uid"),
)
"""Metadata that the API server writes."""
_BOOKKEEPING = (
    *("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration"),
)
"""Annotations that controllers and kubectl write."""


def object_id(metadata: Object) -> str:
    """Return the id of an object in Pulumi: its name, after its namespace if it has one."""
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def title(obj: Object) -> str:
    """Return the name of an object in messages: its kind and id."""
    return f"{obj['kind']} {object_id(obj['metadata'])}"


def as_stored(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Secret with its stringData in its data; any other object as it is."""
    # The official plugin compares them in this form (normalizeSecret in clients/unstructured.go).
    # Before the update, either may be unknown as a whole.
    texts = obj.get("stringData")
    data = obj.get("data") or {}
    is_secret = (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Secret")
    if not is_secret or not isinstance(texts, Mapping) or not isinstance(data, Mapping):
        return obj
    encoded = dict(data)
    for key, value in texts.items():
        is_text = isinstance(value, str)
        encoded[key] = base64.b64encode(value.encode()).decode() if is_text else value
    return {key: value for key, value in obj.items() if key != "stringData"} | {"data": encoded}


def keep_live(applied: Object, live: Object, ignored: Iterable[str], manager: str = "") -> None:
    """Change the object to apply so that the ignored paths keep their live values.

    A field that only other managers own is omitted, so that this manager's apply does not own it.
    Paths into lists have no effect, as in handleSSAIgnoreFields of pulumi-kubernetes,
    provider/pkg/await/await.go.
    """
    for path in ignored:
        parent, _, last = path.rpartition(".")
        target = value_at(applied, parent)
        source = value_at(live, parent)
        is_in_maps = isinstance(target, dict) and isinstance(source, dict) and "[" not in path
        if not is_in_maps or last not in source:
            continue
        entries = live["metadata"].get("managedFields", []) if manager else []
        owners = {entry["manager"] for entry in entries if _owns(entry["fieldsV1"], steps(path))}
        if owners and manager not in owners:
            target.pop(last, None)
        else:
            target[last] = source[last]


def _owns(fields: Object | None, path: Iterable[str]) -> bool:
    """Return whether an entry of managedFields has a path."""
    for step in path:
        fields = (fields or {}).get(f"f:{step}")
    return fields is not None


def content_of(live: Object) -> Object:
    """Return an object without status, and without metadata that users do not write."""
    metadata = _without(live["metadata"], (*SERVER_WRITTEN, "annotations"))
    if annotations := _without(live["metadata"].get("annotations", {}), _BOOKKEEPING):
        metadata["annotations"] = annotations
    return _without(live, ["status"]) | {"metadata": metadata}


def _without(mapping: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


def hidden(properties: Properties) -> Properties:
    """Return properties in which the contents of a Secret are marked as secret."""
    if (properties.get("apiVersion"), properties.get("kind")) != ("v1", "Secret"):
        return properties
    contents = properties.keys() & {"data", "stringData"}
    return properties | {key: Secret(properties[key]) for key in contents}


def outputs_of(live: Object, preview: bool = False) -> Properties:
    """Return the object as the state gets it: the contents of a Secret are marked as secret."""
    outputs = copy.deepcopy(live)
    outputs["metadata"].pop("managedFields", None)
    if preview:
        unknown = ("creationTimestamp", "resourceVersion", "uid")
        outputs["metadata"] |= dict.fromkeys(unknown, UNKNOWN)
        outputs["status"] = UNKNOWN
    return hidden(outputs)


def as_declared(declared: Any, live: Any, path: str = "") -> Any:
    """Return the declared part of an object, with the live values where they differ."""
    if isinstance(declared, Mapping) and isinstance(live, Mapping):
        merged: dict[str, Any] = {}
        for key, value in declared.items():
            if key in live:
                merged[key] = as_declared(value, live[key], join(path, str(key)))
            elif not value:  # The server omits what is empty, zero or false.
                merged[key] = value
        return merged
    if isinstance(declared, list) and isinstance(live, list):
        # As in the official plugin, items that the server appends are no drift.
        pairs = zip(declared, live, strict=False)
        return [as_declared(*pair, path) for pair in pairs]
    return declared if same(declared, live, path) else live
