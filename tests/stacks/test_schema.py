"""The JSON Schema that editors check a stack file with: of one mind with the program."""

import copy
import json
from typing import Any

import pytest
import yaml

from tests.support.checkout import CHECKOUT

STACKS = CHECKOUT / "stacks"
SCHEMA = json.loads((STACKS / "schema.json").read_text())


@pytest.fixture(scope="module")
def validator() -> Any:
    # Imported by the one worker that needs it: it compiles the grammars of all formats.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(SCHEMA)


def stack_file(stack: str) -> dict[str, Any]:
    return yaml.safe_load((STACKS / f"Pulumi.{stack}.yaml").read_text())


def test_it_is_a_schema_and_describes_every_setting(validator: Any) -> None:
    validator.check_schema(SCHEMA)
    for name, definition in SCHEMA["$defs"].items():
        if name.endswith("Settings"):
            silent = {
                key
                for key, setting in definition["properties"].items()
                if "description" not in setting
            }
            assert not silent, f"{name}: {silent}"


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_our_stacks_follow_it(stack: str, validator: Any) -> None:
    validator.validate(stack_file(stack))
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
def test_what_the_program_refuses_an_editor_marks(
    section: str, key: str, value: Any, validator: Any
) -> None:
    given = copy.deepcopy(stack_file("dev"))
    given["config"].setdefault(f"ml-foundations:{section}", {})[key] = value
    assert list(validator.iter_errors(given))
