"""docs/stack-file.md: the keys of a stack file, from stacks/schema.json, with the component's page for each section."""

import json
from pathlib import Path
from typing import Any

from generate import cell

DOCS = Path(__file__).parent
PAGE = DOCS / "stack-file.md"
PREFIX = "ml-foundations:"
INTRODUCTION = """# The stack file

`stacks/Pulumi.<stack>.yaml` describes an environment. To make another, copy `stacks/Pulumi.dev.yaml`, the shortest.
Editors complete and check it by its first line, which names `stacks/schema.json`. At preview every error comes at once,
with its path, the value and what is allowed.

A section takes the arguments of its component, in camelCase, but for those that the program knows from elsewhere:
names, which are keys here, the project, the cluster, the namespace.
"""


def page() -> str:
    """The whole page."""
    schema = json.loads((DOCS.parent / "stacks" / "schema.json").read_text())
    config, definitions = schema["properties"]["config"], schema["$defs"]
    lines = [INTRODUCTION, "## The keys under config", "", f"All but `gcp:project` begin with `{PREFIX}`.", ""]
    lines += _table(config)
    for name, heading in SECTIONS.items():
        lines += ["", f"## {heading}", "", definitions[name]["description"], "", *_table(definitions[name])]
    return "\n".join([*lines, ""])


SECTIONS = {
    "ExistingClusterSettings": "A cluster that is there",
    "Team": "A team",
    "QuotaSettings": "A team's quota",
    "TeamQueue": "A team's queue",
    "ProofSettings": "The proof",
}
"""The sections that are no component's own, with their headings."""


def _table(section: dict[str, Any]) -> list[str]:
    required = set(section.get("required", []))
    rows = [_row(key, value, key in required) for key, value in section["properties"].items()]
    return ["| key (* required) | is | takes |", "|---|---|---|", *rows]


def _row(key: str, value: dict[str, Any], required: bool) -> str:
    star = " *" if required else ""
    return f"| `{key.removeprefix(PREFIX)}`{star} | {cell(value)} | {_takes(value)} |"


def _takes(value: dict[str, Any]) -> str:
    """What a key takes, in few words: a section's page or heading, allowed values, or a type."""
    if reference := value.get("$ref"):
        return _section(reference.rpartition("/")[2])
    if "enum" in value:
        return ", ".join(f"`{item}`" for item in value["enum"])
    if options := [item for item in value.get("anyOf", value.get("oneOf", [])) if item.get("type") != "null"]:
        return " or ".join(dict.fromkeys(map(_takes, options)))
    match value.get("type"):
        case "object":
            inner = value.get("additionalProperties")
            return f"by name: {_takes(inner)}" if isinstance(inner, dict) else "a map"
        case "array":
            return f"a list of {_takes(value['items'])}"
        case list() as types:
            return " or ".join(types)
        case str() as type_:
            return type_
        case _:
            return "anything"


def _section(name: str) -> str:
    if heading := SECTIONS.get(name):
        return f"[{heading.lower()}](#{heading.lower().replace(' ', '-').replace(chr(39), '')})"
    component = name.removesuffix("Settings")
    if (DOCS / "components" / f"{component}.md").exists():
        return f"[{component}](components/{component}.md)"
    kind = f"{component}Args"
    holder = next(path for path in sorted((DOCS / "components").glob("*.md")) if f"## {kind}\n" in path.read_text())
    return f"[{kind}](components/{holder.name}#{kind.lower()})"
