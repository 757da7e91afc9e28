"""The fields of kinds, and their types if no schema has them, by the paths in descriptions."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from ml_foundations.kinds.kind import Kind
from ml_foundations.kinds.kind_files import package_kinds

_TEMPLATE = "core.v1.PodTemplateSpec"
_NUMBER = "int32"
_ANY = "any"
_OF_CONTAINER = {
    "resources": "core.v1.ResourceRequirements",
    "securityContext": "core.v1.SecurityContext",
}
"""The types of fields of containers that decide."""
_Schema = Mapping[str, Mapping[str, Any]]


def type_of(kind: Kind) -> str:
    """Return the name of the type of the objects of a kind that the schema lacks."""
    return f"{kind.group}.{kind.version}.{kind.kind}"


def types_of(kind: Kind, schema: _Schema) -> dict[str, dict[str, str]]:
    """Return the types of a kind's objects, each with its fields and their types."""
    root = {"apiVersion": "string", "kind": "string", "metadata": "meta.v1.ObjectMeta"}
    types: dict[str, dict[str, str]] = {type_of(kind): {**root, "status": _ANY}}
    paths = [*_deciding(kind)]
    for _, by_path in _sections(kind):
        paths += [(path, _ANY) for path in by_path]
    for path, leaf in paths:
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
    for path, embedded in kind.embeds.items():
        *parents, last = path.split(".")
        type_ = schema["kinds"][package_kinds()[embedded].api_name]
        types[".".join([type_of(kind), *parents])][last] = schema["types"][type_]["spec"]
    return types


def rules_of(kinds: Iterable[Kind], schema: _Schema) -> dict[str, dict[str, Any]]:
    """Return the rules of the types of kinds as in ``fields.yaml``."""
    rules: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        for titles, by_path in _sections(kind):
            for path, value in by_path.items():
                name = schema["kinds"][kind.api_name]
                *parents, last = path.replace("[]", "").split(".")
                for key in parents:
                    rules.setdefault(name, {}).setdefault("decided", {})[key] = None
                    name = schema["types"].get(name, {}).get(key, "").strip("[]{}")
                holder = rules.setdefault(name, {})
                for title in titles:
                    holder = holder.setdefault(title, {})
                holder[last] = value
    for of_type in rules.values():
        ignored = of_type.get("harmless", {}).get("described", ())
        of_type["decided"] = [key for key in of_type.get("decided", ()) if key not in ignored]
    # A user's description may name fields that the schema does not have.
    return {name: rules[name] for name in rules if name in schema["types"]}


def _sections(kind: Kind) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the sections of a kind's rules, each with values by the paths of fields."""
    decided = ("metadata", *(path for path, _ in _deciding(kind)), *kind.read, *kind.embeds)
    always = {"apiVersion", "kind", "status"} - {*kind.read}
    yield ("decided",), dict.fromkeys((*decided, *kind.known_values, *kind.least))
    yield ("harmless", "described"), dict.fromkeys((*sorted(always), *kind.harmless))
    for why, paths in kind.unknown.items():
        yield ("unknown", why), dict.fromkeys(paths)
    yield ("values",), kind.known_values
    yield ("least",), kind.least
    holders = accumulate((kind.template or "spec").split("."), "{}.{}".format)
    yield ("required",), dict.fromkeys(("metadata", *(kind.required or holders)))


def _deciding(kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield each path that decides about pods, as in a schema, with the type of its value."""
    embedded = tuple(f"{field}." for field in kind.embeds)
    paths = [(kind.replicas, _NUMBER), (kind.surge, _NUMBER), (kind.template or "", _TEMPLATE)]
    paths.append((kind.claims, "[core.v1.PersistentVolumeClaim]"))
    for pods in kind.pods:
        prefix = f"{pods.each}[]." if pods.each else ""
        paths += [(f"{prefix}{path}", _TEMPLATE) for path in pods.template]
        numbers = filter(None, (pods.count, *pods.bounds, pods.times))
        paths += [(f"{prefix}{path}", _NUMBER) for path in numbers]
        for added in pods.containers:
            for field, path in added.fields_from.items():
                paths.append((f"{prefix}{path}", _OF_CONTAINER.get(field, _ANY)))
        paths += [(path, _ANY) for path in pods.deciding_paths(prefix)]
        paths += [(f"{prefix}{path}", _ANY) for path in pods.labels_from.values()]
    for condition in (kind.ends, kind.service_per_replica):
        if condition.startswith("spec."):
            paths.append((condition.partition("=")[0], _ANY))
    for path, leaf in paths:
        if path and not path.startswith(embedded):
            yield path, leaf
