"""docs/components/: a page for each component with all its arguments, and pages of nested types.

Arguments that several components share are in folds, one for each base of the specs that declares
some. A nested type is on the page of the component that uses it. If several use it, it is on a
shared page.
"""

import ast
import inspect
import json
import os
import re
import types
from collections.abc import Mapping
from functools import cache, cached_property
from inspect import cleandoc, get_annotations
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import ml_foundations
from ml_foundations.component.base import PACKAGE, Child, Component
from ml_foundations.component.spec import Spec
from pydantic.alias_generators import to_camel, to_snake
from pydantic.fields import FieldInfo

from codegen import ROOT, construction, package_schema

_DOCS = ROOT / "docs"
_FOLDER = _DOCS / "components"
_SHARED = {"workloads": "pod.md", "gke": "node-pool.md"}
"""The page of a package's nested types that several components use."""
_TYPES = "types.md"
"""The page of such types of other packages."""

_Properties = Mapping[str, dict[str, Any]]
_HEADS = {
    "pod.md": "# Types of workloads' arguments\n\nSeveral workload components accept these types.",
    "node-pool.md": "# Types of node pools' arguments\n\n"
    "GpuNodePool and CpuNodePool accept these types.",
    _TYPES: "# Types of arguments\n\nSeveral components accept these types.",
}
_INTRODUCTION = """# Components

The page of a component has all its arguments, its outputs and its children.
Python programs write `max_nodes`, other languages and stack files write `maxNodes`. An argument
that is marked `or Output` accepts any Output. The value of any other argument must be known at
preview. It may be the output of a component, such as `node_selector` of a pool. Nested types that
several components use are on the pages of [workloads](pod.md), [node pools](node-pool.md) and
[others](types.md).

| component | creates |
|---|---|"""
_OBJECTS = (
    "Python programs can pass components as arguments. "
    "Leave out the arguments that such a component sets."
)
_CHILDREN = (
    "Python programs have these attributes. Each is a `pulumi.CustomResource`. "
    "`children` has all children by suffix, the end of their name."
)


def files() -> dict[Path, str]:
    """Return each page and its text."""
    book = _book()
    pages = [*(f"{name}.md" for name in book.specs), *_SHARED.values(), _TYPES, "README.md"]
    return {_FOLDER / page: book.text(page) for page in pages}


def link(model: str) -> str | None:
    """Return a link from docs/ to the page of a spec, a base or a nested model, or None."""
    book = _book()
    if home := book.homes.get(model):
        return _type_link(model, f"components/{home}")
    users: list[str] = []
    for name, spec in book.specs.items():
        if model in {base.__name__ for base in spec.__mro__}:
            users.append(name)
    return f"[{users[0]}](components/{users[0]}.md)" if len(users) == 1 else None


@cache
def _book() -> "_Book":
    return _Book()


class _Book:
    """All pages, and the facts that they share."""

    def __init__(self) -> None:
        self.schema = package_schema.of_python()
        self.specs: dict[str, type[Spec]] = {
            name: getattr(ml_foundations, name).spec_type()
            for name in sorted(ml_foundations.COMPONENTS)
        }

    def _entry(self, component: str) -> dict[str, Any]:
        return {"properties": {}} | self.schema["resources"][f"{PACKAGE}:index:{component}"]

    def _declared(
        self, spec: type[Spec], properties: _Properties
    ) -> dict[type[Spec], dict[str, dict[str, Any]]]:
        """Return the arguments by the class that declares them: the spec or a shared base."""
        declared: dict[type[Spec], dict[str, dict[str, Any]]] = {spec: {}}
        for name in spec.model_fields:
            if (key := to_camel(name)) in properties:
                declaring = next(base for base in spec.__mro__ if name in get_annotations(base))
                is_shared = len(self._users(declaring)) > 1
                declared.setdefault(declaring if is_shared else spec, {})[key] = properties[key]
        return declared

    def _users(self, base: type[Spec]) -> list[str]:
        """Return the components whose spec is of a class."""
        return [name for name, spec in self.specs.items() if issubclass(spec, base)]

    @cached_property
    def models(self) -> dict[str, type[Spec]]:
        """Every nested model, by the name of its type in the schema."""
        return {model.__name__: model for model in package_schema.nested_specs(self.specs.values())}

    @cached_property
    def homes(self) -> dict[str, str]:
        """The page of each nested type."""
        users: dict[str, list[str]] = {}
        for component in self.specs:
            entry = self._entry(component)
            for type_ in self._types(entry["inputProperties"]) | self._types(entry["properties"]):
                users.setdefault(type_, []).append(f"{component}.md")
        return {
            type_: pages[0] if len(pages) == 1 else self._shared_page(type_)
            for type_, pages in users.items()
        }

    def _shared_page(self, type_: str) -> str:
        return _SHARED.get(self.models[type_].__module__.split(".")[1], _TYPES)

    def _types(self, properties: _Properties) -> set[str]:
        """Return the nested types of some properties, at any depth."""
        names = set(re.findall(rf'"#/types/{PACKAGE}:index:([^"]+)"', json.dumps(properties)))
        return names.union(*(self._types(self._type(name)["properties"]) for name in names))

    def _type(self, name: str) -> dict[str, Any]:
        return self.schema["types"][f"{PACKAGE}:index:{name}"]

    def text(self, page: str) -> str:
        """Return the text of a page."""
        component = page.removesuffix(".md")
        if page == "README.md":
            lines = [_INTRODUCTION, *self._index()]
        elif component in self.specs:
            lines = self._component(component, page)
        else:
            lines = [_HEADS[page]]
        for name in sorted(name for name, home in self.homes.items() if home == page):
            described = self._type(name)
            lines += ["", f"## {name}Args", "", *_paragraphs(described["description"]), ""]
            model = self.models[name]
            lines += [*_objects(model), *self._arguments(model, described["properties"], page)]
        return "\n".join([*lines, ""])

    def _index(self) -> list[str]:
        return [
            f"| [{name}]({name}.md) | {_first_sentence(self._entry(name)['description'])} |"
            for name in self.specs
        ]

    def _component(self, name: str, page: str) -> list[str]:
        """Return a component's purpose, construction, arguments and outputs."""
        entry = self._entry(name)
        spec = self.specs[name]
        lines = [f"# {name}", "", *_paragraphs(entry["description"]), ""]
        lines += [*_construction(name), *_shown(name), "## Arguments", ""]
        if spec.objects:
            lines += [_OBJECTS, "", *_objects(spec), *_provider(spec)]
        declared, *shared = self._declared(spec, entry["inputProperties"]).items()
        lines += self._arguments(spec, declared[1], page)
        for base, properties in shared:
            lines += self._fold(name, base, properties, page)
        outputs = [
            f"- {_spelled(key)} ({self._kind(value, page)}): {one_line(value)}"
            for key, value in entry["properties"].items()
        ]
        return [
            *lines,
            *_section("Outputs", outputs),
            *_section("Children", _children(name), _CHILDREN, ""),
        ]

    def _fold(
        self, component: str, base: type[Spec], properties: _Properties, page: str
    ) -> list[str]:
        """Return shared arguments in a fold, with the other components that have them."""
        spec = self.specs[component]
        title, _, purpose = cleandoc(base.__doc__ or "").partition(".\n\n")
        required = [
            to_snake(key) for key in _required_keys(spec, properties) if not _setters(spec, key)
        ]
        summary = f"{title} (required: {', '.join(required)})" if required else title
        users = ", ".join(f"[{name}]({name}.md)" for name in self._users(base) if name != component)
        introduction = f"{' '.join(purpose.split())} The same arguments are in {users}."
        lines = ["", f"<details><summary>{summary}</summary>", "", introduction, ""]
        return [*lines, *self._arguments(spec, properties, page), "", "</details>"]

    def _arguments(self, spec: type[Spec], properties: _Properties, page: str) -> list[str]:
        """Return a list of arguments, first those that are required."""
        fields = {to_camel(name): field for name, field in spec.model_fields.items()}
        required = _required_keys(spec, properties)
        lines: list[str] = []
        for key in [*required, *(key for key in properties if key not in required)]:
            described = one_line(properties[key])
            kind = self._kind(properties[key], page, may_be_output=True)
            if "anything" in kind:
                kind = _accepted(fields[key].annotation)
            presence = _required(spec, key) if key in required else _default(fields[key], described)
            lines.append(
                f"- {_spelled(key)} ({', '.join(filter(None, [kind, presence]))}): {described}"
            )
        return lines

    def _kind(self, value: dict[str, Any], page: str, may_be_output: bool = False) -> str:
        """Return the type of a property in a word or two, and whether it may be an Output."""
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
            return (
                "object"
                if inner == "anything"
                else f"({inner}) map"
                if " or " in inner
                else f"{inner} map"
            )
        return value["type"]


def _type_link(name: str, page: str) -> str:
    """Return a link to the heading of a nested type, which has its name in Python."""
    return f"[{name}Args]({page}#{name.lower()}args)"


def _accepted(kind: Any) -> str:
    """Return the types that an argument accepts, for one that the schema has as Any."""
    origin = get_origin(kind)
    inside = get_args(kind)
    if origin is Annotated:
        return _accepted(inside[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_accepted(part) for part in inside if part is not type(None))
    if origin is list:
        item = _accepted(inside[0])
        return f"({item})[]" if " or " in item else f"{item}[]"
    return package_schema.SCALARS.get(kind, "anything")


def _default(field: FieldInfo, described: str) -> str:
    """Return a default as a stack file writes it; nothing if the description has it."""
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    text = json.dumps(value, default=_plain).replace('"', "")
    return (
        ""
        if text in ("null", "", "{}", "[]") or f"efault is {text}" in described
        else f"default `{text}`"
    )


def _plain(value: Any) -> Any:
    return (
        value.model_dump(exclude_unset=True, by_alias=True)
        if isinstance(value, Spec)
        else str(value)
    )


def _required_keys(spec: type[Spec], properties: _Properties) -> list[str]:
    """Return the required arguments. The name field defaults to the component's name."""
    keys = [
        to_camel(name) for name, _, is_required in package_schema.arguments(spec) if is_required
    ]
    return [key for key in keys if key in properties]


def _required(spec: type[Spec], key: str) -> str:
    """Return that an argument is required, and what sets it otherwise."""
    others = _setters(spec, key)
    return f"required unless {' or '.join(others)} sets it" if others else "required"


def _setters(spec: type[Spec], key: str) -> list[str]:
    """Return what else may set an argument: components among the arguments, configuration."""
    name = to_snake(key)
    settings: Mapping[str, str] = getattr(spec, "config_defaults", {})
    objects = [f"`{by}`" for by, argument in spec.objects.items() if name in argument.outputs]
    return [*objects, *([f"the configuration `{settings[name]}`"] if name in settings else [])]


def _spelled(key: str) -> str:
    """Return a name as Python programs write it and, if it differs, as others do."""
    return f"`{key}`" if to_snake(key) == key else f"`{to_snake(key)}` / `{key}`"


def _objects(spec: type[Spec]) -> list[str]:
    """Return a list of the arguments of Python programs that are components."""
    lines: list[str] = []
    for name, argument in spec.objects.items():
        kinds = " or ".join(f"[{component}]({component}.md)" for component in argument.components)
        lines.append(f"- `{name}` ({kinds}, Python only): {argument.description}")
    return lines


def _provider(spec: type[Spec]) -> list[str]:
    """Return how a component gets its Kubernetes provider, if it needs one."""
    givers = [f"`{name}=`" for name, argument in spec.objects.items() if argument.gives_provider]
    return (
        ["", f"Pass {' or '.join(givers)}, or a Kubernetes provider in `opts`.", ""]
        if givers
        else []
    )


def _construction(name: str) -> list[str]:
    """Return the program that constructs a component, or nothing, which a test reports."""
    source = inspect.getsource(construction)
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    statements = (cleandoc(f"    {ast.get_source_segment(source, node)}") for node in function.body)
    statement = next((text for text in statements if re.match(rf"(\w+ = )?{name}\(", text)), "")
    return (
        ["```python", f"from ml_foundations import {name}", "", statement, "```", ""]
        if statement
        else []
    )


def _shown(name: str) -> list[str]:
    """Return links to the examples and guides that construct a component."""
    places = {
        "Examples": (ROOT / "examples").glob("*/__main__.py"),
        "Guides": _DOCS.glob("[!_]*.md"),
    }
    lines: list[str] = []
    for title, paths in places.items():
        users = [path for path in sorted(paths) if re.search(rf"\b{name}\(", path.read_text())]
        if links := [f"[{_label(path)}]({os.path.relpath(path, _FOLDER)})" for path in users]:
            lines += [f"{title}: {', '.join(links)}.", ""]
    return lines


def _label(path: Path) -> str:
    return path.parent.name if path.name == "__main__.py" else path.stem


def _children(name: str) -> list[str]:
    component: type[Component[Any]] = getattr(ml_foundations, name)
    docstrings = package_schema.attribute_docstrings(component)
    children = [key for key, value in vars(component).items() if isinstance(value, Child)]
    return [f"- `{key}`: {' '.join(docstrings[key].split())}" for key in children]


def _section(title: str, items: list[str], *introduction: str) -> list[str]:
    """Return a section with a list; nothing if the list is empty."""
    return ["", f"## {title}", "", *introduction, *items] if items else []


def _paragraphs(text: str) -> list[str]:
    return cleandoc(text).splitlines()


def one_line(value: dict[str, Any]) -> str:
    """Return a description in one line."""
    return " ".join(value.get("description", "").split())


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
