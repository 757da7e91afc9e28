"""The JSON Schema that editors check a stack file with: of one mind with the program."""

import copy
import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.support.checkout import CHECKOUT

STACKS = CHECKOUT / "stacks"
SCHEMA = json.loads((STACKS / "schema.json").read_text())


def stack_file(stack: str) -> dict[str, Any]:
    return yaml.safe_load((STACKS / f"Pulumi.{stack}.yaml").read_text())


def test_it_is_a_schema_and_describes_every_setting() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for name, definition in SCHEMA["$defs"].items():
        if name.endswith("Settings"):
            silent = {key for key, setting in definition["properties"].items() if "description" not in setting}
            assert not silent, f"{name}: {silent}"


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_our_stacks_follow_it(stack: str) -> None:
    Draft202012Validator(SCHEMA).validate(stack_file(stack))
    first_line = (STACKS / f"Pulumi.{stack}.yaml").read_text().partition("\n")[0]
    assert first_line == "# yaml-language-server: $schema=schema.json"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("nodePools", "l4", {"machineType": "g2-standard-9", "maxNodes": 1}),
        ("nodePools", "l4", {"machineType": "g2-standard-8", "maxNode": 1}),
        ("cluster", "endpoint", "everywhere"),
        ("teams", "Research", {}),
        ("nodePool", "l4", {}),
    ],
)
def test_what_the_program_refuses_an_editor_marks(section: str, key: str, value: Any) -> None:
    given = copy.deepcopy(stack_file("dev"))
    given["config"].setdefault(f"ml-foundations:{section}", {})[key] = value
    assert list(Draft202012Validator(SCHEMA).iter_errors(given))
