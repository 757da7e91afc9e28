"""Generate components/schema.json, the package schema for other languages."""

import ast
import inspect
import json
import types
from collections.abc import Awaitable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin, is_typeddict

import ml_foundations
import pulumi
from ml_foundations.component.base import PACKAGE, Component
from ml_foundations.component.partial import models_in
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputOf
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from codegen import ROOT

FILE = ROOT / "components" / "schema.json"
_ANY = {"$ref": "pulumi.json#/Any"}
_LANGUAGES = ("csharp", "go", "java", "nodejs", "python")
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def files() -> dict[Path, str]:
    """Return the file and its text."""
    return {FILE: json.dumps(schema(), indent=2, sort_keys=True) + "\n"}


def schema() -> dict[str, Any]:
    """Return the schema for other languages.

    Nothing is marked as plain in it: programs have what another component publishes as an Output.
    """
    return _unmarked(of_python())


def of_python() -> dict[str, Any]:
    """Return the schema, with types marked as plain if they must be known at preview."""
    components = {name: getattr(ml_foundations, name) for name in ml_foundations.COMPONENTS}
    nested = nested_specs(component.spec_type() for component in components.values())
    return {
        "name": PACKAGE,
        "displayName": PACKAGE,
        "version": ml_foundations.__version__,
        "language": {language: {"respectSchemaVersion": True} for language in _LANGUAGES},
        "config": {},
        "resources": {
            f"{PACKAGE}:index:{name}": _resource(component)
            for name, component in components.items()
        },
        "types": {f"{PACKAGE}:index:{spec.__name__}": _nested_type(spec) for spec in nested},
    }


def nested_specs(specs: Iterable[type[Spec]]) -> list[type[Spec]]:
    """Return the specs inside of others, at any depth, the innermost first."""
    nested: list[type[Spec]] = []
    for spec in specs:
        for field in spec.model_fields.values():
            inside = [model for model in models_in(field.annotation) if issubclass(model, Spec)]
            nested += [*nested_specs(inside), *inside]
    return list(dict.fromkeys(nested))


def arguments(spec: type[Spec]) -> Iterator[tuple[str, FieldInfo, bool]]:
    """Yield each argument of a spec: its name, its field, and whether it is required."""
    name_field = getattr(spec, "name_field", None)
    for name, field in spec.model_fields.items():
        if name == name_field == "name":
            continue  # Pulumi's own argument of this name has its value.
        assert field.description, f"{spec.__name__}.{name} has no docstring"
        yield name, field, field.is_required() and name != name_field


def field_type(field: FieldInfo) -> Any:
    """Return the type of a field together with its marks, which pydantic stores separately."""
    return Annotated[(field.annotation, None, *field.metadata)]


def output_mark(kind: Any) -> InputOf | None:
    """Return the mark of an annotated type whose value may be an Output."""
    return next((mark for mark in get_args(kind)[1:] if isinstance(mark, InputOf)), None)


def _resource(component: type[Component[Any]]) -> dict[str, Any]:
    inputs, required = _inputs(component.spec_type())
    outputs = _outputs(component)
    described = {
        "inputProperties": inputs,
        "requiredInputs": required,
        "properties": outputs,
        "required": [*outputs],
    }
    return _object(component, described) | {"isComponent": True}


def _nested_type(spec: type[Spec]) -> dict[str, Any]:
    properties, required = _inputs(spec)
    return _object(spec, {"properties": properties, "required": required})


def _object(documented: type, described: dict[str, Any]) -> dict[str, Any]:
    """Return an object type as the CLI prints it: sorted lists, and nothing empty."""
    filled = {
        key: sorted(value) if isinstance(value, list) else value
        for key, value in described.items()
        if value
    }
    return {"type": "object", "description": _indented(documented.__doc__)} | filled


def _inputs(spec: type[Spec]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of a spec, and the names of the required ones.

    What Pulumi's configuration may set is not required: YAML would not let a program leave it out.
    """
    fields = list(arguments(spec))
    configured = getattr(spec, "config_defaults", {})
    properties = {
        to_camel(name): _property(field_type(field), field.description) for name, field, _ in fields
    }
    required = [name for name, _, is_required in fields if is_required and name not in configured]
    return properties, [to_camel(name) for name in required]


def _outputs(component: type) -> dict[str, Any]:
    """Return the public annotations of a component, with the docstrings under them."""
    outputs: dict[str, Any] = {}
    for base in reversed(component.__mro__):
        if issubclass(base, Component) and base is not Component:
            docstrings = attribute_docstrings(base)
            annotations = inspect.get_annotations(base, eval_str=True)
            public = [name for name in annotations if not name.startswith("_")]
            outputs |= {
                to_camel(name): _property(annotations[name], docstrings[name]) for name in public
            }
    return outputs


def attribute_docstrings(documented: type) -> dict[str, str]:
    """Return the docstrings under the attributes of a class, by name."""
    (declaration,) = ast.parse(inspect.getsource(documented)).body
    assert isinstance(declaration, ast.ClassDef)
    docstrings: dict[str, str] = {}
    for attribute, text in pairwise(declaration.body):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docstrings |= dict.fromkeys(_targets(attribute), text.value.value)
    return docstrings


def _targets(statement: ast.stmt) -> list[str]:
    """Return the names that an assignment or an annotation declares."""
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    return (
        [ast.unparse(target) for target in statement.targets]
        if isinstance(statement, ast.Assign)
        else []
    )


def _indented(text: str | None) -> str:
    """Return a docstring as it is in its class, where the lines after the first are indented."""
    lines = inspect.cleandoc(text or "").splitlines()
    return "\n".join([*lines[:1], *(line and f"    {line}" for line in lines[1:])])


def _property(kind: Any, description: str | None) -> dict[str, Any]:
    return _type(kind) | {"description": _indented(description)}


def _type(kind: Any) -> dict[str, Any]:
    """Return a type as it is on the wire. Addresses, dates and quantities travel as text."""
    origin = get_origin(kind)
    inside = get_args(kind)
    if origin is Annotated:
        mark = output_mark(kind)
        return {"type": SCALARS[mark.type]} if mark else _type(inside[0])
    if origin in (Union, types.UnionType):
        return _union(inside)
    if isinstance(origin, type) and issubclass(origin, pulumi.Output):
        return _type(inside[0])
    return _plain_type(kind, origin, inside) | {"plain": True}


def _union(parts: Iterable[Any]) -> dict[str, Any]:
    """Return the one type of all parts on the wire. Parts of different types make it any."""
    # pulumi.Input adds an awaitable and an Output to its type. They are the same on the wire.
    values = [part for part in parts if part is not type(None) and not isinstance(part, ForwardRef)]
    types = [_type(part) for part in values if get_origin(part) is not Awaitable]
    return types[0] if all(part == types[0] for part in types) else {**_ANY, "plain": True}


def _plain_type(kind: Any, origin: Any, inside: tuple[Any, ...]) -> dict[str, Any]:
    if origin is list:
        return {"type": "array", "items": _type(inside[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(inside[1])}
    if origin is Literal:
        return {"type": SCALARS[type(inside[0])]}
    if is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, Spec)):
        return {"$ref": f"#/types/{PACKAGE}:index:{kind.__name__.removesuffix('Args')}"}
    return _ANY if kind is Any else {"type": SCALARS.get(kind, "string")}


def _unmarked(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            key: _unmarked(value) for key, value in tree.items() if (key, value) != ("plain", True)
        }
    return [_unmarked(item) for item in tree] if isinstance(tree, list) else tree
