"""Good objects with one to three random edits: at any path that the API server's schema allows, by values near its rules."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
GOOD = Path(__file__).with_name("good.yaml")
SERVERS_OWN = frozenset({"apiVersion", "kind", "namespace", "generateName", "generation", "uid"})
SERVERS_OWN |= {"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}
SERVERS_OWN |= {"managedFields", "resourceVersion", "selfLink"}
"""Fields of metadata that the API server writes, or that say where the object is created."""

OFTEN = ("Pod", "Pod", "Pod", "Service", "Job")
"""Kinds with many fields have more cases."""

PAIRS = (
    ("Service", "StatefulSet", "s"),
    ("Service", "Ingress", "s"),
    ("IngressClass", "Ingress", "c"),
    ("ConfigMap", "Pod", "c"),
    ("Secret", "Deployment", "s"),
    ("PersistentVolumeClaim", "Deployment", "d"),
    ("PersistentVolume", "PersistentVolumeClaim", "v"),
    ("StorageClass", "PersistentVolumeClaim", "d"),
    ("ServiceAccount", "CronJob", "a"),
    ("PriorityClass", "JobSet", "p"),
    ("PriorityClass", "Pod", "p"),
    ("RuntimeClass", "Pod", "r"),
    ("Role", "RoleBinding", "r"),
    ("ClusterRole", "ClusterRoleBinding", "r"),
    ("Deployment", "PodDisruptionBudget", "other"),
    ("Deployment", "HorizontalPodAutoscaler", "other"),
    ("ResourceFlavor", "ClusterQueue", "f"),
    ("ClusterQueue", "LocalQueue", "q"),
    ("AdmissionCheck", "ClusterQueue", "a"),
    ("ProvisioningRequestConfig", "AdmissionCheck", "p"),
    ("WorkloadPriorityClass", "Job", "p"),
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "p"),
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "p"),
)
"""Kinds of which the second names the first by this name."""


def _written_out(value: Any) -> Any:
    """A value of the file: ``x{64}`` in a text stands for 64 characters."""
    if not isinstance(value, str):
        return value
    return re.sub(r"x\{(\d+)\}", lambda found: "x" * int(found[1]), value)


def _values(section: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {name: [*map(_written_out, section[name])] for name in section}


_FILE = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())
BY_NAME = _values(_FILE.pop("by_name"))
"""Strings by the end of their field's name, in lower case."""
_VALUES = _values(_FILE)
WORDS, NUMBERS, QUANTITIES = _VALUES["words"], _VALUES["numbers"], _VALUES["quantities"]
SHARES, RESOURCES = _VALUES["shares"], _VALUES["resources"]
KEYS, BYTES = _VALUES["keys"], _VALUES["bytes"]


@cache
def good() -> Sequence[Object]:
    """The objects to edit."""
    return yaml.load(GOOD.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class Schema:
    """The types that the API server publishes under /openapi/v3, and the path that each kind is created under."""

    def __init__(self, documents: Sequence[Object]) -> None:
        self._types: dict[str, Any] = {}
        self._kinds: dict[tuple[str, str], str] = {}
        self.paths: dict[tuple[str, str], str] = {}
        for document in documents:
            self._types |= document["components"]["schemas"]
            for path, methods in document["paths"].items():
                if "post" in methods and "{name}" not in path:
                    made = methods["post"]["x-kubernetes-group-version-kind"]
                    version = "/".join(filter(None, (made["group"], made["version"])))
                    if (version, made["kind"]) not in self.paths or "{namespace}" in path:
                        self.paths[version, made["kind"]] = path
        for name, schema in self._types.items():
            for made in schema.get("x-kubernetes-group-version-kind", ()):
                self._kinds.setdefault(
                    ("/".join(filter(None, (made["group"], made["version"]))), made["kind"]), name
                )

    def of(self, document: Object) -> Object:
        """The type of an object."""
        return self._types[self._kinds[document["apiVersion"], document["kind"]]]

    def plain(self, node: Object | None) -> Object:
        """A type without references and wrapping."""
        while node:
            if "$ref" in node:
                node = self._types[node["$ref"].rpartition("/")[2]]
            elif len(node.get("allOf", ())) == 1 and "properties" not in node:
                node = node["allOf"][0]
            else:
                return node
        return {}


class Editor:
    """Edits of one object."""

    def __init__(self, at: random.Random, schema: Schema, document: Object) -> None:
        self._at, self._schema, self._document = at, schema, document

    def edit(self) -> None:
        """Change the object at one random place."""
        places = list(self._places(self._document, self._schema.of(self._document), ""))
        way = self._at.choices(("add", "replace", "remove", "repeat", "odd"), (40, 38, 8, 8, 6))[0]
        if way == "add":
            holders = [(value, type_) for *_, value, type_ in places if isinstance(value, dict)]
            for holder, type_ in self._at.sample(holders, min(9, len(holders))):
                if missing := [
                    key
                    for key in type_.get("properties", ())
                    if key not in holder and self._is_ours(key, holder)
                ]:
                    key = self._at.choice(missing)
                    holder[key] = self._value(type_["properties"][key], key, 0)
                    return
                if "additionalProperties" in type_:
                    holder[self._at.choice(self._keys(type_))] = self._value(
                        type_["additionalProperties"], "value", 0
                    )
                    return
            return
        held = [
            place
            for place in places
            if place[0] is not None and self._is_ours(str(place[1]), place[0])
        ]
        if way == "repeat":
            held = [place for place in held if isinstance(place[3], list) and place[3]] or held
        holder, key, name, value, type_ = self._at.choice(held)
        if way == "repeat" and isinstance(value, list) and value:
            value.append(copy.deepcopy(self._at.choice(value)))
            if isinstance(value[-1], dict) and value[-1] and self._at.random() < 0.7:
                changed = self._at.choice([*value[-1]])
                inner = self._schema.plain(
                    self._schema.plain(type_.get("items")).get("properties", {}).get(changed)
                )
                value[-1][changed] = self._value(inner, changed, 0)
        elif holder is self._document["metadata"] and key == "name":
            holder[key] = self._value(type_, name, 0) or "o"  # what has no name may get one
        elif way == "remove":
            del holder[key]
        elif way == "odd":
            holder[key] = self._at.choice(
                self._at.choice(((None, "", [], {}), (1, "a", True, ["a"], {"a": "b"})))
            )
        else:
            holder[key] = self._value(type_, name, 0)

    def _is_ours(self, key: str, holder: Any) -> bool:
        top = self._document
        if holder is top["metadata"]:
            return key not in SERVERS_OWN
        if holder is top.get("status"):
            return key in ("allocatable", "capacity", "conditions")
        return not (
            holder is top
            and key in ("apiVersion", "kind", "metadata", *(["status"] * (top["kind"] != "Node")))
        )

    def _places(
        self, value: Any, type_: Object, name: str, holder: Any = None, key: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        """All values of the object: what holds each, its key, its field's name, and its type."""
        type_ = self._schema.plain(type_)
        yield holder, key, name, value, type_
        if isinstance(value, dict):
            for each, inner in value.items():
                below = (
                    type_.get("properties", {}).get(each) or type_.get("additionalProperties") or {}
                )
                if below is not True:
                    yield from self._places(inner, below, each, value, each)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from self._places(inner, type_.get("items") or {}, name, value, index)

    def _value(self, type_: Object | None, name: str, depth: int) -> Any:
        """A random value of a type: right in most parts, and near a rule in some."""
        at, type_ = self._at, self._schema.plain(type_)
        if type_.get("x-kubernetes-int-or-string") or {"integer", "string"} <= {
            each.get("type") for each in type_.get("oneOf", ())
        }:
            return at.choice(SHARES)
        if any(each.get("type") == "number" for each in type_.get("oneOf", ())) or _is_quantity(
            type_
        ):
            return at.choice(QUANTITIES)
        match type_.get("type"):
            case "boolean":
                return at.random() < 0.5
            case "integer" | "number":
                return at.choice(NUMBERS)
            case "array":
                if at.random() < 0.06:
                    return []
                made = [
                    self._value(type_.get("items"), name, depth + 1)
                    for _ in range(at.choice((1, 1, 1, 2)))
                ]
                return made + copy.deepcopy(made[:1]) if at.random() < 0.06 else made
            case "object" | None if "properties" in type_:
                wanted = type_.get("required", ())
                rest = [key for key in type_["properties"] if key not in wanted]
                chosen = (
                    at.sample(
                        rest,
                        min(len(rest), at.choice((0, 1, 1, 2)) if wanted else at.choice((1, 1, 2))),
                    )
                    if depth < 4
                    else []
                )
                keys = [key for key in (*wanted, *chosen) if at.random() < 0.97]
                return {
                    key: self._value(type_["properties"][key], key, depth + 1)
                    for key in keys
                    if depth < 7
                }
            case "object" if isinstance(of := type_.get("additionalProperties"), dict):
                return {
                    at.choice(self._keys(type_)): self._value(of, "value", depth + 1)
                    for _ in range(at.choice((0, 1, 1, 1, 2)))
                }
            case "string":
                return self._string(type_, name)
            case _:
                return at.choice(({}, "x", 1))

    def _keys(self, type_: Object) -> Sequence[str]:
        return (
            RESOURCES if _is_quantity(self._schema.plain(type_["additionalProperties"])) else KEYS
        )

    def _string(self, type_: Object, name: str) -> str:
        at = self._at
        if type_.get("format") == "byte":
            return at.choice(BYTES)
        if type_.get("format") == "date-time":
            return at.choice(("2026-01-01T00:00:00Z", "x", ""))
        if type_.get("enum") and at.random() < 0.8:
            found = at.choice(type_["enum"])
            if at.random() < 0.75:
                return found
            return at.choice((found.lower(), f"{found}x", "", found.upper()))
        if at.random() < 0.2:
            known = [v for *_, v, _ in self._places(self._document, {}, "") if isinstance(v, str)]
            return at.choice(known)
        ending = [
            values for end, values in BY_NAME.items() if name.lower().endswith((end, f"{end}s"))
        ]
        return at.choice(at.choice(ending) if ending and at.random() < 0.75 else WORDS)


def _is_quantity(type_: Object) -> bool:
    kinds = {each.get("type") for each in (*type_.get("oneOf", ()), *type_.get("anyOf", ()))}
    return kinds == {"number", "string"} or (kinds == {"integer", "string"} and "pattern" in type_)


def case(schema: Schema, seed: int, *, served: bool = False) -> list[Object]:
    """A good object, edited; in each fifth case two, of one name or one named by the other.

    Where asked for, they are of kinds that the API server has.
    """
    at = random.Random(seed)
    known = [
        each for each in good() if not served or (each["apiVersion"], each["kind"]) in schema.paths
    ]
    if seed % 5 == 0:
        return _pair(at, schema, known)
    kind = at.choice((*sorted({each["kind"] for each in known}), *OFTEN))
    document = copy.deepcopy(at.choice([each for each in known if each["kind"] == kind]))
    for _ in range(at.choices((1, 2, 3), (7, 2, 1))[0]):
        Editor(at, schema, document).edit()
    return [document]


def _pair(at: random.Random, schema: Schema, known: Sequence[Object]) -> list[Object]:
    """Two objects, of which one or both are edited."""
    of_kind = {
        kind: [each for each in known if each["kind"] == kind]
        for kind in {each["kind"] for each in known}
    }
    one, other, name = at.choice([each for each in PAIRS if {*each[:2]} <= of_kind.keys()])
    pair = [copy.deepcopy(at.choice(of_kind[kind])) for kind in (one, other)]
    metadata = [each["metadata"] for each in pair]
    metadata[0]["name"] = name
    if at.random() < 0.4:  # in its place the other once more, in another namespace if it has one
        pair[0] = copy.deepcopy(pair[1])
        metadata[0] = pair[0]["metadata"]
        metadata[0] |= {"namespace": "strict"} if "namespace" in metadata[1] else {"name": "p"}
    elif "namespace" in metadata[0] and "namespace" in metadata[1]:
        metadata[0]["namespace"] = metadata[1]["namespace"]
    for document in pair if at.random() < 0.3 else [at.choice(pair)]:
        Editor(at, schema, document).edit()
    return pair
