"""stacks/schema.json: the JSON Schema of a stack file, with which editors complete and check it."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from codegen import ROOT

FILE = ROOT / "stacks" / "schema.json"


def files() -> dict[Path, str]:
    """Return the file and its text."""
    return {FILE: json.dumps(schema(), indent=2) + "\n"}


def schema() -> dict[str, Any]:
    """Return the schema of a whole stack file. It accepts all keys of other namespaces."""
    sys.path.insert(
        0, str(ROOT / "stacks")
    )  # where the program of the stacks imports its modules from
    from defaults import DERIVED
    from settings import PROJECT, Settings
    from team import SECTIONS, references

    sections = Settings.model_json_schema(by_alias=True)
    definitions = sections.pop("$defs")
    for spec, fields in DERIVED.items():
        _leave_out(definitions[spec.__name__], [to_camel(field) for field in fields])
    for spec in SECTIONS.values():
        for reference in references(spec):
            argument = definitions[spec.__name__]["properties"][to_camel(reference.argument)]
            place = argument["items"] if reference.is_list else argument
            section = to_camel(reference.section)
            named = {"type": "string", "description": f"A name in {section} of the team."}
            if (schema_type := place.pop("$ref", None)) is not None:
                place["anyOf"] = [named, {"$ref": schema_type}]
            elif "anyOf" in place:
                place["anyOf"].insert(0, named)
    for kind in ("CpuNodePoolSpec", "GpuNodePoolSpec"):
        # A machine type that the catalog lacks has its shape beside it.
        known = definitions[kind]["properties"]["machineType"].pop("examples")
        definitions[kind] |= {
            "if": {"required": ["machine"]},
            "else": {"properties": {"machineType": {"enum": known}}},
        }
    pool = sections["properties"]["nodePools"]["additionalProperties"]
    pool["anyOf"] = pool.pop(
        "oneOf"
    )  # a machine type decides between the two, and a schema does not see that
    properties = {
        f"{PROJECT}:{key}": value
        for key, value in sections["properties"].items()
        if key != "project"
    }
    required = [f"{PROJECT}:{key}" for key in sections["required"] if key != "project"]
    config = {
        "type": "object",
        "properties": {
            "gcp:project": {"type": "string", "description": "The Google Cloud project."},
            **properties,
        },
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


def _leave_out(definition: dict[str, Any], keys: list[str]) -> None:
    """Remove keys that follow from a section's place."""
    for key in keys:
        del definition["properties"][key]
    definition["required"] = [key for key in definition.get("required", []) if key not in keys]
