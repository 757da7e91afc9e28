"""Writes which changes replace a resource of pulumi-gcp, and which inputs exclude each other.

Both are from the schemas of the Terraform provider that it bridges.

The SDK does not say it. Give the folders of the two sources, of the versions that the SDK was made
of: ``python -m codegen.gcp_replacements <terraform-provider-google-beta> <pulumi-gcp>``. A property
with ``ForceNew`` in its Terraform schema replaces its resource, and one with ``ConflictsWith``
excludes others; pulumi-gcp's bridge-metadata.json has the type that each resource became.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from codegen import sdk

FILE = sdk.file("gcp").with_name("replaced_for.json")
CONFLICTS = FILE.with_name("conflicts.json")
_METADATA = "provider/cmd/pulumi-resource-gcp/bridge-metadata.json"
_WORD = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|`[^`]*`|[\w.&*]+|\S', re.DOTALL)
_DEFINED = re.compile(r"^(?:func|var) (\w+)", re.MULTILINE)
_REGISTERED = re.compile(r'Name:\s*"(google_\w+)",[^}]*?SchemaTypeResource,\s*Schema:\s*(\w+)\(')
_IDENTITY = re.compile(
    r"Identity: &schema\.ResourceIdentity\{.*?^\t\t\},", re.MULTILINE | re.DOTALL
)
_MAP = ["*schema.Schema", "{"]

Words = list[str]


class Service:
    """The Go definitions of one service: what its functions and variables say of schemas."""

    def __init__(self, folder: Path) -> None:
        self.resources: dict[str, str] = {}
        self._definitions: dict[str, Words] = {}
        self._open: set[str] = set()
        for path in folder.glob("*.go"):
            text = _IDENTITY.sub("", path.read_text())
            self.resources |= dict(_REGISTERED.findall(text))
            starts = [*_DEFINED.finditer(text)]
            for start, end in zip_longest(starts, starts[1:]):
                words = _WORD.findall(text[start.end() : end.start() if end else len(text)])
                self._definitions[start[1]] = [
                    word for word in words if not word.startswith(("//", "/*"))
                ]

    def fields(self, name: str) -> dict[str, Any]:
        """Return the properties of the schema that a function or variable defines."""
        if name in self._open:  # A schema that refers to itself.
            return {}
        self._open.add(name)
        properties = self._map(self._definitions.get(name, []))
        self._open.remove(name)
        return properties

    def _map(self, words: Words) -> dict[str, Any]:
        """Return the properties of the first schema map in a text, with those merged into it."""
        at = next((i for i in range(len(words)) if words[i : i + 2] == _MAP), None)
        before = words[:at]
        properties: dict[str, Any] = {}
        if at is None or any(word.endswith("MergeSchemas") for word in before):
            for definition in (word for word in before if word in self._definitions):
                properties |= self.fields(definition)
        for key, value in _entries(words, at + 2) if at is not None else ():
            properties[key.strip('"')] = self._property(value)
        return properties

    def _property(self, words: Words) -> dict[str, Any]:
        """Return whether a property replaces the resource or is computed, and its nested fields."""
        if words[0] in self._definitions:
            words = self._definitions[words[0]]
            words = words[words.index("&schema.Schema") :] if "&schema.Schema" in words else []
        facts = dict(_entries(words, words.index("{") + 1)) if "{" in words else {}
        return {
            "replaces": facts.get("ForceNew") == ["true"],
            "computed": facts.get("Computed") == ["true"],
            "conflicts": [
                word.strip('"') for word in facts.get("ConflictsWith", []) if word.startswith('"')
            ],
            "fields": self._map(facts.get("Elem", [])),
        }


def _entries(words: Words, at: int) -> Iterator[tuple[str, Words]]:
    """Yield the keys and values of a literal, from behind its opening brace."""
    depth = 0
    start = at
    for place in range(at, len(words)):
        depth += (words[place] in "({[") - (words[place] in ")}]")
        if depth < 0 or (depth == 0 and words[place] == ","):
            if words[start + 1 : start + 2] == [":"]:
                yield words[start], words[start + 2 : place]
            start = place + 1
        if depth < 0:
            return


def _paths(
    fields: Mapping[str, Any], taken: Mapping[str, Any], blocks: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the paths of the inputs whose change replaces a resource, by their wire names."""
    names = {*taken.get("required", ()), *taken.get("optional", ())}
    for name, field in fields.items():
        wire = next((one for one in _names(name) if one in names), None)
        block = taken.get("blocks", {}).get(wire, "").removesuffix("[]")
        # A computed block is there whether or not the program gives it: what is in it counts.
        if wire and field["replaces"] and not (block and field["computed"]):
            yield wire
        elif wire and block:
            yield from (f"{wire}.{path}" for path in _paths(field["fields"], blocks[block], blocks))


def _names(name: str) -> list[str]:
    """Return possible names of a property: lists are in the plural, single blocks singular."""
    first, *rest = name.split("_")
    plain = first + "".join(word[:1].upper() + word[1:] for word in rest)
    return [plain, f"{plain}s", f"{plain}es", f"{plain[:-1]}ies", plain.removesuffix("s")]


def _wire_path(path: str, taken: Mapping[str, Any], blocks: Mapping[str, Any]) -> str:
    """Return a path of Terraform's, ``a_b.0.c``, by wire names; empty if it leads into a list."""
    parts: list[str] = []
    for name in (step for step in path.split(".") if step != "0"):
        names = {*taken.get("required", ()), *taken.get("optional", ())}
        wire = next((one for one in _names(name) if one in names), "")
        block = taken.get("blocks", {}).get(wire, "")
        if not wire or (parts and not taken):
            return ""
        parts.append(wire)
        taken = {} if block.endswith("[]") else blocks.get(block, {})
    return ".".join(parts)


def _exclusions(fields: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """Return the pairs of paths, as Terraform has them, of inputs that exclude each other."""
    for name, field in fields.items():
        yield from ((f"{at}{name}", excluded) for excluded in field["conflicts"])
        yield from _exclusions(field["fields"], f"{at}{name}.0.")


def replacements(
    terraform: Path, pulumi: Path
) -> tuple[dict[str, list[str]], dict[str, list[list[str]]]]:
    """Return, by type, the paths whose change replaces a resource, and exclusive pairs."""
    data = sdk.written("gcp")
    metadata = json.loads((pulumi / _METADATA).read_text())
    replacing: dict[str, list[str]] = {}
    conflicts: dict[str, list[list[str]]] = {}
    for folder in sorted((terraform / "google-beta" / "services").iterdir()):
        service = Service(folder)
        for name, function in service.resources.items():
            token = metadata["auto-aliasing"]["resources"].get(name, {}).get("current")
            if token in data["types"]:
                taken = data["types"][token]
                fields = service.fields(function)
                replacing[token] = sorted({*_paths(fields, taken, data["blocks"])})
                pairs: set[tuple[str, ...]] = set()
                for exclusion in _exclusions(fields):
                    wired = [_wire_path(path, taken, data["blocks"]) for path in exclusion]
                    if all(wired):
                        pairs.add(tuple(sorted(wired)))
                conflicts[token] = [list(pair) for pair in sorted(pairs)]
    return dict(sorted(replacing.items())), dict(sorted(conflicts.items()))


def main() -> None:
    """Write the data, a type a line."""
    terraform, pulumi = map(Path, sys.argv[1:])
    for file, paths_of in zip((FILE, CONFLICTS), replacements(terraform, pulumi), strict=True):
        kept = ((json.dumps(token), paths) for token, paths in paths_of.items() if paths)
        rows = (f"{token}:{json.dumps(paths, separators=(',', ':'))}" for token, paths in kept)
        file.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
