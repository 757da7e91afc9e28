"""Valid objects of the kinds that controllers read, each with one to three random edits near the edges of its schema."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.differential.acceptance.generator import Editor, Object, Schema

HERE = Path(__file__).parent
VERSIONS = ("v1", "v1beta1", "v1alpha1", "v1alpha2", "v9")
WAYS = ("field", "mark", "pair", "aim")
WEIGHTS = (55, 20, 10, 15)
CLUSTERS = {
    "RayCluster": "spec.",
    "RayJob": "spec.rayClusterSpec.",
    "RayService": "spec.rayClusterConfig.",
}
"""The RayClusters in objects of Ray."""


@cache
def valid() -> list[Object]:
    """The objects to edit."""
    return yaml.safe_load((HERE / "valid.yaml").read_text())


@cache
def marks() -> dict[str, Any]:
    """The labels, annotations and other texts that controllers read."""
    return yaml.safe_load((HERE / "marks.yaml").read_text())


@cache
def aims(kind: str) -> list[Object]:
    """The edits of a kind that aim at a rule."""
    by_kind: dict[str, list[Object]] = yaml.safe_load((HERE / "aims.yaml").read_text())
    cluster = CLUSTERS.get(kind)
    of_clusters = by_kind["clusters"] if cluster else []
    edits = [{f"{cluster}{path}": edit[path] for path in edit} for edit in of_clusters]
    return by_kind.get(kind, []) + edits


@cache
def aimed() -> list[Object]:
    """The valid objects, each with each edit that aims at a rule of its kind."""
    made: list[Object] = []
    for document in valid():
        for aim in aims(document["kind"]):
            made.append(copy.deepcopy(document))
            _apply(made[-1], aim)
    return made


def case(schema: Schema, seed: int) -> Object:
    """An edited object. Negative seeds are those of ``aimed``, which are the same in each run."""
    if seed < 0:
        return aimed()[seed]
    at = random.Random(seed)
    kind = at.choice(sorted({document["kind"] for document in valid()}))
    document = copy.deepcopy(
        at.choice([document for document in valid() if document["kind"] == kind])
    )
    if at.random() < 0.4:
        document["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "q"
    editor = EdgeEditor(at, schema, document)
    for _ in range(at.choice((0, 1, 1, 1, 2, 2, 3))):
        way = at.choices(WAYS, WEIGHTS)[0]
        if way == "field":
            editor.edit()
        elif way == "mark":
            _mark(at, document)
        elif way == "pair":
            editor.add_pair()
        elif way == "aim" and aims(kind):
            _apply(document, at.choice(aims(kind)))
    if at.random() < 0.02:
        group, _, _ = document["apiVersion"].rpartition("/")
        document["apiVersion"] = "/".join(filter(None, (group, at.choice(VERSIONS))))
    return json.loads(json.dumps(document), parse_float=_number)


def _number(text: str) -> float:
    """A number as clients write it, who read YAML or a program: 1.0 is 1."""
    return int(float(text)) if float(text).is_integer() else float(text)


class EdgeEditor(Editor):
    """An editor that knows the limits in the definitions of kinds."""

    def add_pair(self) -> None:
        """Add two fields to one mapping: some exclude each other."""
        places = self._places(self._document, self._schema.of(self._document), "")
        holders: list[tuple[Object, Object, list[str]]] = []
        for *_, value, type_ in places:
            if isinstance(value, dict):
                properties = type_.get("properties", {})
                missing = [
                    key for key in properties if key not in value and self._is_ours(key, value)
                ]
                if len(missing) > 1:
                    holders.append((value, properties, missing))
        for holder, properties, missing in self._at.sample(holders, min(1, len(holders))):
            for key in self._at.sample(missing, 2):
                holder[key] = self._value(properties[key], key, 0)

    def _places(
        self, value: Any, type_: Object, name: str, holder: Any = None, key: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        """All values, mostly without those of pods: another test is about them."""
        is_pod = name == "spec" and isinstance(value, dict) and "containers" in value
        if is_pod and self._at.random() < 0.7:
            return
        yield from super()._places(value, type_, name, holder, key)

    def _value(self, type_: Object | None, name: str, depth: int) -> Any:
        at, plain = self._at, self._schema.plain(type_)
        limits = [*_edges(plain)]
        if limits and at.random() < 0.4:
            return at.choice(limits)
        if name == "env" and at.random() < 0.7:
            return [{"name": at.choice(marks()["variables"]), "value": at.choice(("a", "1"))}]
        if plain.get("type") == "object" and name in marks()["maps"] and at.random() < 0.7:
            return {at.choice(marks()["maps"][name]): at.choice(("a", "1"))}
        return super()._value(type_, name, depth)

    def _string(self, type_: Object, name: str) -> str:
        if name in marks()["texts"] and self._at.random() < 0.7:
            return self._at.choice(marks()["texts"][name])
        return super()._string(type_, name)


def _edges(type_: Object) -> Iterator[Any]:
    """The values at the limits of a type, and next to them."""
    for limit in ("minimum", "maximum"):
        if limit in type_:
            yield from (type_[limit] - 1, type_[limit], type_[limit] + 1)
    for limit in ("minLength", "maxLength"):
        if type_.get(limit, 9999) < 9999:
            yield from ("a" * max(type_[limit] + more, 0) for more in (-1, 0, 1))


def _apply(document: Object, aim: Object) -> None:
    for path, value in aim.items():
        _set(document, path.split("."), copy.deepcopy(value))


def _set(holder: Any, keys: list[str], value: Any) -> None:
    """Set a value at a path, if what is above it is there or may be."""
    key, *below = keys
    at: Any = key
    if isinstance(holder, list):
        at = int(key)
        if at >= len(holder):
            return
    elif isinstance(holder, dict):
        holder.setdefault(key, {} if below else None)
    else:
        return
    if below:
        _set(holder[at], below, value)
    elif isinstance(value, dict) and isinstance(holder[at], dict):
        holder[at] |= value
    else:
        holder[at] = value


def _mark(at: random.Random, document: Object) -> None:
    """Set a label or annotation of the object or of a template."""
    metadata = at.choice([*_metadata(document)])
    field = at.choice(("labels", "annotations", "annotations"))
    key = at.choice([*marks()[field]])
    if not isinstance(metadata.get(field), dict):
        metadata[field] = {}
    metadata[field][key] = at.choice(marks()[field][key])


def _metadata(value: Any) -> Iterator[Object]:
    """The metadata of an object and of the templates in it."""
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(value.get("metadata"), dict):
            yield value["metadata"]
        elif "metadata" not in value and isinstance(spec, dict) and "containers" in spec:
            yield value.setdefault("metadata", {})
        for key, below in value.items():
            if key != "metadata":
                yield from _metadata(below)
    elif isinstance(value, list):
        for item in value:
            yield from _metadata(item)
