"""docs/components/: a page for each component, and pages for what several of them share.

An argument stands on one page: that of its component or, where a base of several specs declares it, the page of that
base's room. A nested type stands on the page that uses it or, where several do, on a page of its own.
"""

import json
import re
from collections.abc import Mapping
from functools import cache, cached_property
from inspect import cleandoc, get_annotations
from pathlib import Path
from typing import Any

import ml_foundations
from ml_foundations.component.base import PACKAGE
from ml_foundations.component.spec import Spec
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from codegen import ROOT, package_schema

_DOCS = ROOT / "docs"
_FOLDER = _DOCS / "components"
_SHARED = {"workloads": "pod.md", "gke": "node-pool.md"}
"""The page of what the components of a room have in common."""
_TYPES = "types.md"

_OF_ALL = re.compile(r"Give it a kubernetes\s+provider in its\s+options\.\s*")
"""What components in the cluster say, each of itself; the pages say it once."""

_Properties = Mapping[str, dict[str, Any]]
_HEADS = {
    "pod.md": "# Arguments of workloads\n\nWhat several of the workload components take.",
    "node-pool.md": "# Arguments of node pools\n\nWhat GpuNodePool and CpuNodePool both take.",
    _TYPES: "# Types of arguments\n\nWhat the arguments of several components are made of.",
}


def files() -> dict[Path, str]:
    """Each page and its text."""
    book = _book()
    return {_FOLDER / name: book.text(name) for name in [*book.sections, _TYPES, "README.md"]}


def link(model: str) -> str | None:
    """From docs/, a link to the page of a spec, of a base of one, or of a nested model; None where none is about it."""
    book = _book()
    if home := book.homes.get(model):
        return _type_link(model, f"components/{home}")
    users = [name for name, spec in book.specs.items() if model in (base.__name__ for base in spec.__mro__)]
    return f"[{users[0]}](components/{users[0]}.md)" if len(users) == 1 else None


@cache
def _book() -> "_Book":
    return _Book()


class _Book:
    """All pages, each with its sections: a spec, and which of its arguments."""

    def __init__(self) -> None:
        self.schema = package_schema.of_python()
        self.specs: dict[str, type[Spec]] = {
            name: getattr(ml_foundations, name).spec_type() for name in sorted(ml_foundations.COMPONENTS)
        }
        self.outputs: dict[str, _Properties] = {f"{name}.md": self._entry(name)["properties"] for name in self.specs}
        self.sections: dict[str, dict[type[Spec], dict[str, dict[str, Any]]]] = {
            page: {} for page in [*self.outputs, *_SHARED.values()]
        }
        for name, spec in self.specs.items():
            for declaring, properties in self._declared(spec, self._entry(name)["inputProperties"]).items():
                self.sections[self._page(name, declaring)].setdefault(declaring, {}).update(properties)

    def _entry(self, component: str) -> dict[str, Any]:
        return {"properties": {}} | self.schema["resources"][f"{PACKAGE}:index:{component}"]

    def _declared(self, spec: type[Spec], properties: _Properties) -> dict[type[Spec], dict[str, dict[str, Any]]]:
        """The arguments by the class that declares them: the spec itself, or a base that other specs have too."""
        found: dict[type[Spec], dict[str, dict[str, Any]]] = {spec: {}}
        for name in spec.model_fields:
            if (key := to_camel(name)) in properties:
                declaring = next(base for base in spec.__mro__ if name in get_annotations(base))
                shared = sum(issubclass(other, declaring) for other in self.specs.values()) > 1
                found.setdefault(declaring if shared else spec, {})[key] = properties[key]
        return found

    def _page(self, component: str, declaring: type[Spec]) -> str:
        if declaring is self.specs[component]:
            return f"{component}.md"
        return _SHARED[declaring.__module__.split(".")[1]]

    @cached_property
    def models(self) -> dict[str, type[Spec]]:
        """Every nested model, by the name of its type in the schema."""
        return {model.__name__: model for model in package_schema.nested_specs(self.specs.values())}

    @cached_property
    def homes(self) -> dict[str, str]:
        """The page of each nested type."""
        users: dict[str, set[str]] = {}
        for page, sections in self.sections.items():
            for properties in [*sections.values(), self.outputs.get(page, {})]:
                for type_ in self._types(properties):
                    users.setdefault(type_, set()).add(page)
        return {type_: next(iter(pages)) if len(pages) == 1 else _TYPES for type_, pages in users.items()}

    def _types(self, properties: _Properties) -> set[str]:
        """The nested types of some properties, and of those."""
        found = set(re.findall(rf'"#/types/{PACKAGE}:index:([^"]+)"', json.dumps(properties)))
        return found.union(*(self._types(self._type(name)["properties"]) for name in found))

    def _type(self, name: str) -> dict[str, Any]:
        return self.schema["types"][f"{PACKAGE}:index:{name}"]

    def text(self, page: str) -> str:
        """A page."""
        component = page.removesuffix(".md")
        if page == "README.md":
            lines = self._index()
        elif component in self.specs:
            lines = self._component(component, page)
        else:
            lines = self._shared(page)
        for name in sorted(name for name, home in self.homes.items() if home == page):
            described = self._type(name)
            lines = [*lines, "", f"## {name}Args", "", *_paragraphs(described["description"]), ""]
            lines += self._arguments(self.models[name], described["properties"], page)
        return "\n".join([*lines, ""])

    def _index(self) -> list[str]:
        rows = [f"| [{name}]({name}.md) | {_first_sentence(self._entry(name)['description'])} |" for name in self.specs]
        said = (
            "Python programs write `max_nodes` where others, and stack files, write `maxNodes`. Components other than "
        )
        said += "clusters and node pools take a kubernetes provider in their options. In other languages every "
        said += "argument takes an Output, such as the `nodeSelector` of a pool; where `or Output` is missing on these "
        said += "pages, it has to be known at preview."
        shared = "Shared: [arguments of workloads](pod.md), [of node pools](node-pool.md), [nested types](types.md)."
        return ["# Components", "", f"{said} {shared}", "", "| component | makes |", "|---|---|", *rows]

    def _component(self, name: str, page: str) -> list[str]:
        """What a component is, what it takes, what it gives, and where it is shown at work."""
        entry, spec = self._entry(name), self.specs[name]
        lines = [f"# {name}", "", *_paragraphs(_OF_ALL.sub("", entry["description"])), ""]
        if shown := _guides(name):
            lines += [f"Examples: {', '.join(shown)}.", ""]
        own, *shared = self._declared(spec, entry["inputProperties"]).items()
        lines += ["## Arguments", ""]
        if shared:
            links = [f"[{_title(base)}]({self._page(name, base)}#{_anchor(_title(base))})" for base, _ in shared]
            lines += [f"Besides: {', '.join(links)}.", ""]
        lines += self._arguments(spec, own[1], page)
        lines += ["", "## Outputs", ""]
        return lines + [
            f"- `{key}` ({self._kind(value, page)}): {one_line(value)}" for key, value in entry["properties"].items()
        ]

    def _shared(self, page: str) -> list[str]:
        lines = [_HEADS[page]]
        for base, properties in self.sections.get(page, {}).items():
            users = [f"[{name}]({name}.md)" for name, spec in self.specs.items() if issubclass(spec, base)]
            lines += [
                "",
                f"## {_title(base)}",
                "",
                f"{', '.join(users)}.",
                "",
                *self._arguments(base, properties, page),
            ]
        return lines

    def _arguments(self, spec: type[Spec], properties: _Properties, page: str) -> list[str]:
        """A list of arguments, those that must be given first."""
        fields = {to_camel(name): field for name, field in spec.model_fields.items()}
        named = to_camel(getattr(spec, "name_field", None) or "")
        required = [key for key in properties if fields[key].is_required() and key != named]
        lines: list[str] = []
        for key in [*required, *(key for key in properties if key not in required)]:
            is_ = one_line(properties[key])
            kind = self._kind(properties[key], page, may_be_output=True)
            said = [kind, "required" if key in required else _default(fields[key], is_)]
            lines.append(f"- `{key}` ({', '.join(filter(None, said))}): {is_}")
        return lines

    def _kind(self, value: dict[str, Any], page: str, may_be_output: bool = False) -> str:
        """The type of a property, in a word or two; of an argument also whether it may be an Output."""
        if reference := value.get("$ref"):
            name = reference.rpartition(":")[2]
            home = self.homes.get(name)
            return _type_link(name, "" if home == page else home) if home else "anything"
        if may_be_output and value["type"] not in ("array", "object") and not value.get("plain"):
            return f"{value['type']} or Output"
        if value["type"] == "array":
            inner = self._kind(value["items"], page, may_be_output)
            return f"({inner})[]" if " or " in inner else f"{inner}[]"
        if value["type"] == "object":
            inner = self._kind(value["additionalProperties"], page, may_be_output)
            return "object" if inner == "anything" else f"({inner}) map" if " or " in inner else f"{inner} map"
        return value["type"]


def _type_link(name: str, page: str) -> str:
    """Return a link to the heading of a nested type, which has its name in Python."""
    return f"[{name}Args]({page}#{name.lower()}args)"


def _default(field: FieldInfo, described: str) -> str:
    """A default as a stack file says it; nothing where there is none, or where the description names it."""
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    text = json.dumps(value, default=_plain).replace('"', "")
    return "" if text in ("null", "", "{}", "[]") or f"efault {text}" in described else f"default `{text}`"


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True, by_alias=True) if isinstance(value, Spec) else str(value)


def _title(base: type[Spec]) -> str:
    """The heading of shared arguments, from the docstring of the class that declares them."""
    whose = re.sub(r"^(The )?[Aa]rguments (that|of|about) | have$", "", _first_sentence(base.__doc__ or "").rstrip("."))
    return f"{whose[0].upper()}{whose[1:]}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def _guides(name: str) -> list[str]:
    """Links to the guides and examples in which a component is constructed."""
    guides = [(path.stem, f"../{path.name}", path) for path in sorted(_DOCS.glob("*.md"))]
    examples = sorted((ROOT / "examples").glob("*/__main__.py"))
    guides += [(f"examples/{path.parent.name}", f"../../{path.relative_to(ROOT)}", path) for path in examples]
    return [f"[{label}]({link})" for label, link, path in guides if re.search(rf"\b{name}\(", path.read_text())]


def _paragraphs(text: str) -> list[str]:
    return cleandoc(text).splitlines()


def one_line(value: dict[str, Any]) -> str:
    """A description in one line."""
    return " ".join(value.get("description", "").split())


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
