"""The types of a user's kind, by the paths in its description."""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.planning.model.described_kinds import DescribedKind

_TEMPLATE = "core.v1.PodTemplateSpec"
_NUMBER = "int32"
_ANY = "any"
_CLAIMS = "[core.v1.PersistentVolumeClaim]"
_METADATA = "meta.v1.ObjectMeta"
_OF_CONTAINER = {
    "resources": "core.v1.ResourceRequirements",
    "securityContext": "core.v1.SecurityContext",
}
"""The types of fields of containers that decide."""


def type_of(kind: DescribedKind) -> str:
    """Return the name of the type of a kind's objects."""
    return f"{kind.group}.{kind.version}.{kind.kind}"


def types_of(kind: DescribedKind) -> dict[str, dict[str, str]]:
    """Return the types of a kind's objects, each with its fields and their types."""
    types: dict[str, dict[str, str]] = {type_of(kind): {"metadata": _METADATA, "status": _ANY}}
    types[type_of(kind)] |= dict.fromkeys(("apiVersion", "kind"), "string")
    for path, leaf in _paths(kind):
        name = type_of(kind)
        *parents, last = path.split(".")
        for key in parents:
            below = f"{name}.{key.removesuffix('[]')}"
            # A path may go through a field that another path ends at.
            shape = f"[{below}]" if key.endswith("[]") else below
            types.setdefault(name, {})[key.removesuffix("[]")] = shape
            types.setdefault(below, {})
            name = below
        types[name].setdefault(last, leaf)
    return types


def rules_of(kind: DescribedKind) -> dict[str, dict[str, Any]]:
    """Return the rules of the same types: which fields decide, and which are harmless."""
    harmless = {"status", "apiVersion", "kind"}
    rules: dict[str, dict[str, Any]] = {}
    for name, fields in types_of(kind).items():
        path = name.removeprefix(type_of(kind)).lstrip(".")
        ignored = [key for key in fields if _joined(path, key) in {*harmless, *kind.harmless}]
        decided = [key for key in fields if key not in ignored]
        rules[name] = {"decided": decided, "harmless": {"described": ignored}}
    rules[type_of(kind)]["required"] = ["metadata", "spec"]
    return rules


def _paths(kind: DescribedKind) -> Iterator[tuple[str, str]]:
    """Yield each path of a description as in a schema, with the type of its value."""
    for path in (kind.replicas, kind.surge):
        if path:
            yield path, _NUMBER
    if kind.claims:
        yield kind.claims, _CLAIMS
    for pods in kind.pods:
        prefix = f"{pods.each}[]." if pods.each else ""
        leaves: Mapping[str, list[str]] = {
            _TEMPLATE: [*pods.template],
            _NUMBER: [pods.count, *pods.bounds, pods.times],
            _ANY: [pods.unless.partition("=")[0], *pods.labels_from.values()],
        }
        for added in pods.containers:
            leaves[_ANY].append(added.when.partition("=")[0])
            for field, path in added.fields_from.items():
                yield f"{prefix}{path}", _OF_CONTAINER.get(field, _ANY)
        for leaf, paths in leaves.items():
            for path in filter(None, paths):
                yield f"{prefix}{path}", leaf
    for path in (kind.ends, kind.service_per_replica):
        if path.startswith("spec."):
            yield path.partition("=")[0], _ANY
    for path in kind.harmless:
        yield path, _ANY


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}".lstrip(".")
