"""stacks/schema.json: the JSON Schema of a stack file, with which editors complete and check it."""

import json
import sys
from pathlib import Path
from typing import Any

from ml_foundations.component.errors import models_in
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from codegen import ROOT

_NAME = "<name>"
FILE = ROOT / "stacks" / "schema.json"


def files() -> dict[Path, str]:
    """The file and its text."""
    return {FILE: json.dumps(schema(), indent=2) + "\n"}


def schema() -> dict[str, Any]:
    """The schema of a whole stack file; keys of other namespaces are Pulumi's own business."""
    sys.path.insert(0, str(ROOT / "stacks"))  # where the program of the stacks imports its modules from
    from settings import PROJECT, Settings

    sections = Settings.model_json_schema(by_alias=True)
    definitions = sections.pop("$defs")
    _leave_out_what_follows(definitions)
    pool = sections["properties"]["nodePools"]["additionalProperties"]
    pool["anyOf"] = pool.pop("oneOf")  # a machine type decides between the two, and a schema does not see that
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


def _leave_out_what_follows(definitions: dict[str, Any]) -> None:
    """Take out the arguments that follow from the place of a section in the file, and are not written there."""
    from places import fill
    from settings import Settings
    from team import SECTIONS

    sections = {"queue": {}} | {to_camel(section): {_NAME: {}} for section in SECTIONS}
    sample = {"cluster": {}, "nodePools": {_NAME: {}}, "gpuMonitors": {_NAME: {}}, "teams": {_NAME: sections}}
    for path, _, follows in fill(sample):
        for model in _models_at(Settings, path.split(".")):
            definition = definitions[model.__name__]
            definition["properties"] = {k: v for k, v in definition["properties"].items() if k not in follows}
            definition["required"] = [key for key in definition.get("required", []) if key not in follows]


def _models_at(model: type[BaseModel], path: list[str]) -> list[type[BaseModel]]:
    """The models of the section at a path, of which each second key is a name where there are several sections."""
    key, *rest = [part for part in path if part != _NAME]
    field = next(field for field in model.model_fields.values() if field.alias == key)
    found = models_in(field.annotation)
    return [deeper for each in found for deeper in _models_at(each, rest)] if rest else found
