"""Writes docs/components/, a page per component from its schema, docs/stack-file.md and docs/workloads.md."""

import json
import re
from inspect import cleandoc
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SCHEMA = json.loads((DOCS.parent / "components" / "schema.json").read_text())
PREFIX = "ml-foundations:index:"


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    names = [token.removeprefix(PREFIX) for token in SCHEMA["resources"]]
    return {f"{name}.md": page(name) for name in names} | {"README.md": index(sorted(names))}


def index(names: list[str]) -> str:
    """The list of all components."""
    rows = [
        f"| [{name}]({name}.md) | {first_sentence(SCHEMA['resources'][PREFIX + name]['description'])} |"
        for name in names
    ]
    return "\n".join(["# Components", "", "| component | makes |", "|---|---|", *rows, ""])


def page(name: str) -> str:
    """What a component is, what it takes, what it gives, and where it is shown at work."""
    entry = SCHEMA["resources"][PREFIX + name]
    lines = [f"# {name}", "", cleandoc(entry["description"]), ""]
    if shown := guides(name):
        lines += [f"Shown at work in {', '.join(shown)}.", ""]
    lines += [
        "## Arguments",
        "",
        "Python programs write `max_nodes` where others, and stack files, write `maxNodes`.",
        "",
    ]
    lines += table(entry["inputProperties"], set(entry.get("requiredInputs", [])))
    lines += ["", "## Outputs", "", "| output | type | is |", "|---|---|---|"]
    lines += [f"| `{key}` | {kind(value)} | {cell(value)} |" for key, value in entry["properties"].items()]
    for used in types(entry["inputProperties"] | entry["properties"]):
        described = SCHEMA["types"][used]
        lines += ["", f"## {used.removeprefix(PREFIX)}", "", described.get("description", ""), ""]
        lines += table(described["properties"], set(described.get("required", [])))
    return "\n".join([*lines, ""])


def table(properties: dict[str, Any], required: set[str]) -> list[str]:
    """Arguments as a table, those that must be given first."""
    ordered = sorted(properties.items(), key=lambda item: item[0] not in required)
    rows = [f"| `{key}`{' *' if key in required else ''} | {kind(value)} | {cell(value)} |" for key, value in ordered]
    return ["| argument (* required) | type | is |", "|---|---|---|", *rows]


def kind(value: dict[str, Any]) -> str:
    """The type of a property, in a word or two."""
    if reference := value.get("$ref"):
        name = reference.rpartition(":")[2]
        return "anything" if name.endswith("Any") else f"[{name}](#{name.lower()})"
    if value["type"] == "array":
        return f"list of {kind(value['items'])}"
    if value["type"] == "object":
        return f"map of {kind(value['additionalProperties'])}"
    return value["type"]


def types(properties: dict[str, Any]) -> list[str]:
    """The nested types of some properties, and of those, in order."""
    found: list[str] = []
    for reference in re.findall(r'"#/types/([^"]+)"', json.dumps(properties)):
        if reference not in found:
            found.append(reference)
            found += [deeper for deeper in types(SCHEMA["types"][reference]["properties"]) if deeper not in found]
    return found


def guides(name: str) -> list[str]:
    """The guides and examples in which a component is constructed."""
    root = DOCS.parent
    candidates = [*sorted(DOCS.glob("*.md")), *sorted((root / "examples").glob("*/__main__.py"))]
    shown = [path for path in candidates if re.search(rf"\b{name}\(", path.read_text())]
    return [f"[{label(path)}](../{'' if path.parent == DOCS else '../'}{link(path)})" for path in shown]


def link(path: Path) -> str:
    """A page's path as seen from docs/, or an example's from the root."""
    return path.name if path.parent == DOCS else str(path.relative_to(DOCS.parent))


def label(path: Path) -> str:
    """The name of a guide, or of an example."""
    return path.stem if path.parent == DOCS else f"examples/{path.parent.name}"


def cell(value: dict[str, Any]) -> str:
    """A description in one line."""
    return " ".join(value.get("description", "").split()).replace("|", "\\|")


def first_sentence(text: str) -> str:
    """A text up to its first full stop."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]


if __name__ == "__main__":
    (DOCS / "components").mkdir(exist_ok=True)
    for name, text in pages().items():
        (DOCS / "components" / name).write_text(text)
    import stack_file  # the script's own folder is where Python looks first
    import workloads

    for generated in (stack_file, workloads):
        generated.PAGE.write_text(generated.page())
