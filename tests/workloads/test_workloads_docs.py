"""docs/workloads.md: every choice is shown; docs/traps.md: each trap has the tests that it names."""

import ast
import re

import ml_foundations
import pytest
import yaml

from codegen import objects
from tests.support.checkout import CHECKOUT

PAGE = (CHECKOUT / "docs" / "workloads.md").read_text()


TRAPS = (CHECKOUT / "docs" / "traps.md").read_text()
TESTED_TRAPS = yaml.safe_load((CHECKOUT / "tests" / "workloads" / "traps.yaml").read_text())
TEST = re.compile(r"(test_\w+\.py)::(test_\w+)$", re.MULTILINE)


@pytest.mark.parametrize("choice", objects.CHOICES)
def test_every_choice_is_one_that_some_component_has(choice: str) -> None:
    assert f"`{choice}`: " in PAGE


def test_every_trap_names_existing_tests() -> None:
    known = {
        (file.name, node.name)
        for file in (CHECKOUT / "tests").rglob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    rows = TRAPS.partition("|---|---|\n")[2].strip().splitlines()
    assert [row.split(" | ")[0] for row in rows] == [f"| {row['trap']}" for row in TESTED_TRAPS]
    assert len(rows) == 28
    named = [TEST.findall("\n".join(row["tests"])) for row in TESTED_TRAPS]
    assert all(named)
    assert not {test for found in named for test in found} - known
    on_a_replica = [
        found for found in named if (CHECKOUT / "tests" / "rehearsal" / found[0][0]).exists()
    ]
    assert len(on_a_replica) == 23


def test_every_workload_component_is_there() -> None:
    listed = set(objects.LEAST)
    folders = {"workloads", "gpu.monitor", "tenancy.training_queue"}
    made = {
        name
        for name, module in ml_foundations.COMPONENTS.items()
        if module in folders or module.partition(".")[0] in folders
    }
    assert listed == made
