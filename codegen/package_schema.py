"""components/schema.json: what ``pulumi package get-schema ./components`` prints, without pulumi."""

import json
import runpy
from pathlib import Path
from typing import Any

import ml_foundations
from ml_foundations.component.base import PACKAGE
from pulumi.provider.experimental.component import ComponentProvider

from codegen import ROOT

FILE = ROOT / "components" / "schema.json"


def files() -> dict[Path, str]:
    """The file and its text."""
    return {FILE: json.dumps(schema(), indent=2, sort_keys=True) + "\n"}


def schema() -> dict[str, Any]:
    """The schema as the component host gives it to other languages."""
    return _as_printed(runpy.run_path(str(ROOT / "components"))["Host"]())


def of_python() -> dict[str, Any]:
    """The schema as it follows from Python's types: what must be plain is marked."""
    components = [getattr(ml_foundations, name) for name in ml_foundations.COMPONENTS]
    return _as_printed(ComponentProvider(components, PACKAGE))


def _as_printed(host: ComponentProvider) -> dict[str, Any]:
    """The schema of a host in the form that the CLI brings it into."""
    given = _without_none(json.loads(host.schema))
    del given["dependencies"]
    for resource in given["resources"].values():
        _one_description(resource["inputProperties"], resource["properties"])
        for key in ("requiredInputs", "properties", "required"):
            if not resource[key]:  # The CLI leaves out what is empty.
                del resource[key]
    for described in given["types"].values():
        _one_description(described["properties"])
    return given | {"config": {}}


def _one_description(*sections: dict[str, Any]) -> None:
    """The SDK describes a list and again its items; the CLI keeps the first."""
    for section in sections:
        for value in section.values():
            inner = value.get("items") or value.get("additionalProperties")
            while inner:
                inner.pop("description", None)
                inner = inner.get("items") or inner.get("additionalProperties")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
