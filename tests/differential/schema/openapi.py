"""The API server's schema: its kinds, their types, and the fields of each, as it publishes them under /openapi/v3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

Node = Mapping[str, Any]

PREFIX = "#/components/schemas/"


@dataclass(frozen=True)
class Kind:
    """A kind that the API server takes: its version, its path, and its type."""

    name: str
    api_version: str
    plural: str
    namespaced: bool
    type: str

    def path(self, namespace: str | None) -> str:
        """The collection that an object of this kind is created in."""
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        inside = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{inside}/{self.plural}"


@dataclass(frozen=True)
class Schema:
    """What the API server publishes, without the descriptions."""

    types: Mapping[str, Node]
    paths: Mapping[str, Node]

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Every kind that can be created, by its name; of several versions the stable one."""
        found: dict[str, Kind] = {}
        for path, made in sorted(self.paths.items()):
            *_, plural = path.split("/")
            namespaced = "/namespaces/{namespace}/" in path
            group = made["group"]
            api_version = f"{group}/{made['version']}" if group else made["version"]
            kind = made["kind"]
            found.setdefault(kind, Kind(kind, api_version, plural, namespaced, made["type"]))
        return found

    def fields(self, type_name: str) -> Mapping[str, Node]:
        return self.types[type_name].get("properties", {})

    def required(self, type_name: str) -> frozenset[str]:
        return frozenset(self.types[type_name].get("required", ()))


def reference(node: Node) -> str | None:
    """The type that a field refers to, however it is wrapped."""
    if "$ref" in node:
        return node["$ref"].removeprefix(PREFIX)
    for part in node.get("allOf", ()):
        return reference(part)
    return None


def compact(documents: list[Any]) -> dict[str, Any]:
    """The types and the paths of creation in some documents of /openapi/v3, without texts."""
    types: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for document in documents:
        types |= {name: _bare(schema) for name, schema in document["components"]["schemas"].items()}
        for path, methods in document["paths"].items():
            if "post" in methods and "{name}" not in path:
                post = methods["post"]
                body = next(iter(post["requestBody"]["content"].values()))["schema"]
                paths[path] = post["x-kubernetes-group-version-kind"] | {"type": reference(body)}
    return {"types": types, "paths": paths}


def _bare(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _bare(value)
            for key, value in node.items()
            if key != "description" or not isinstance(value, str)
        }
    return [_bare(item) for item in node] if isinstance(node, list) else node


@cache
def load(path: Path) -> Schema:
    """The schema that a file holds as ``compact`` makes it."""
    held = json.loads(path.read_text())
    return Schema(held["types"], held["paths"])
