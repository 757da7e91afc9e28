"""Objects of the cluster beside what was declared of them."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.changes import join, steps
from ml_foundations.rehearsal.plugins.kubernetes.client import FIELD_MANAGER
from ml_foundations.rehearsal.plugins.kubernetes.diff import same
from ml_foundations.rehearsal.plugins.values import UNKNOWN, Properties, Secret

_SERVER_SET = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
"""Metadata that the API server writes."""


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
    encoded = {key: _base64(value) if isinstance(value, str) else value for key, value in plain.items()}
    return {key: value for key, value in obj.items() if key != "stringData"} | {"data": {**data, **encoded}}


def keep_live(wanted: Object, live: Object | None, ignored: Iterable[str]) -> None:
    """Put the live values where changes are ignored: they may be another's, such as an autoscaler's replicas."""
    for path in ignored if live else ():
        *parents, last = steps(path)
        target, source = wanted, live
        for step in parents:
            target, source = (part.get(step) if isinstance(part, dict) else None for part in (target, source))
        if isinstance(target, dict) and isinstance(source, dict) and last in source:
            target[last] = source[last]


def without_nulls(value: Any) -> Any:
    """The same without the keys that are null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def declared_part(live: Object) -> Properties:
    """What was declared: the fields that this plugin applied, or else all but what the server wrote."""
    for entry in live["metadata"].get("managedFields", []):
        if entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply" and not entry.get("subresource"):
            part = _owned(live, entry["fieldsV1"])
            names = {key: live["metadata"][key] for key in ("name", "namespace") if key in live["metadata"]}
            part["metadata"] = names | part.get("metadata", {})
            return {"apiVersion": live["apiVersion"], "kind": live["kind"]} | part
    return content_of(live)


def content_of(live: Object) -> Object:
    """What an object says, without its status and the server's bookkeeping."""
    content = {key: value for key, value in live.items() if key != "status"}
    content["metadata"] = {key: value for key, value in live["metadata"].items() if key not in _SERVER_SET}
    return content


def hidden(properties: Properties) -> Properties:
    """The same, but with the contents of a Secret kept secret."""
    if properties.get("kind") != "Secret" or properties.get("apiVersion") != "v1":
        return properties
    return properties | {key: Secret(properties[key]) for key in ("data", "stringData") if key in properties}


def outputs_of(live: Object, preview: bool = False) -> Properties:
    """The object as the program and the state get it; the contents of a Secret stay secret."""
    outputs = copy.deepcopy(live)
    outputs["metadata"].pop("managedFields", None)
    if preview:
        outputs["metadata"] |= dict.fromkeys(("creationTimestamp", "resourceVersion", "uid"), UNKNOWN)
        outputs["status"] = UNKNOWN
    return hidden(outputs)


def as_declared(declared: Any, live: Any, path: str = "") -> Any:
    """The inputs that a live object amounts to: what was declared, with the live values where they differ."""
    if isinstance(declared, Mapping) and isinstance(live, Mapping):
        return {
            key: as_declared(value, live[key], join(path, str(key))) if key in live else value
            for key, value in declared.items()
            if key in live or not value  # The server leaves out what is empty, zero or false.
        }
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        return [as_declared(ours, theirs, path) for ours, theirs in zip(declared, live, strict=True)]
    return declared if same(declared, live, path) else live


def _owned(live: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
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
        return _owned(live, deeper)
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
