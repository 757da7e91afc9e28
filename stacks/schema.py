"""The JSON Schema of a stack file, with which editors complete and check it: ``make schema`` writes schema.json."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from ml_foundations.component.errors import models_in
from pydantic import BaseModel
from settings import PROJECT, Settings


def stack_file_schema() -> dict[str, Any]:
    """The schema of a whole stack file; keys of other namespaces are Pulumi's own business."""
    sections = Settings.model_json_schema(by_alias=True)
    definitions = sections.pop("$defs")
    pool = sections["properties"]["nodePools"]["additionalProperties"]
    pool["anyOf"] = pool.pop("oneOf")  # a machine type decides between the two, and a schema does not see that
    for model in _models(Settings):
        described = _descriptions(model)
        for name, field in model.model_fields.items():
            if name in described and model.__name__ in definitions:
                definitions[model.__name__]["properties"][field.alias or name]["description"] = described[name]
    properties = {f"{PROJECT}:{key}": value for key, value in sections["properties"].items() if key != "project"}
    required = [f"{PROJECT}:{key}" for key in sections["required"] if key != "project"]
    config = {
        "type": "object",
        "properties": {"gcp:project": {"type": "string", "description": "The Google Cloud project."}, **properties},
        "required": ["gcp:project", *required],
        "patternProperties": {f"^(?!{PROJECT}:).*$": {}},
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack file of ML Foundations",
        "type": "object",
        "properties": {"config": config},
        "required": ["config"],
        "$defs": definitions,
    }


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and all the models in it."""
    found = {model}
    waiting = [model]
    while waiting:
        for field in waiting.pop().model_fields.values():
            new = set(models_in(field.annotation)) - found
            found |= new
            waiting += new
    return found


def _descriptions(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of a component's arguments say, by the names of the fields."""
    described: dict[str, str] = {}
    for base in model.__mro__:
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[base.__module__]))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Args"):
                described = _field_docstrings(node) | described
    return described


def _field_docstrings(node: ast.ClassDef) -> dict[str, str]:
    return {
        field.target.id: doc.value.value
        for field, doc in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }


if __name__ == "__main__":
    Path(__file__).with_name("schema.json").write_text(json.dumps(stack_file_schema(), indent=2) + "\n")
