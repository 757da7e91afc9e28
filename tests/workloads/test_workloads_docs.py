"""docs/workloads.md: its generated tables are current, and its traps have the tests that it names."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import ml_foundations
import pytest

from tests.support.checkout import CHECKOUT

SCRIPT = CHECKOUT / "docs" / "workloads.py"
PAGE = (CHECKOUT / "docs" / "workloads.md").read_text()


PAGES = ("serving.md", "queues.md", "workloads.md")
TEST = re.compile(r"`(?:(?:tests/)?(?:[a-z]+/)*(test_\w+\.py)::)?(test_[a-z0-9_]+)`")


def of_the_script(expression: str) -> str:
    """What the script makes of an expression, in a process of its own: it sets Pulumi's mocks."""
    code = f"import json, runpy; script = runpy.run_path({str(SCRIPT)!r}); print(json.dumps({expression}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_generated_tables_are_current() -> None:
    assert of_the_script("script['page']()") == PAGE, "run: make schema"


@pytest.mark.parametrize("choice", of_the_script("list(script['CHOICES'])"))
def test_every_choice_is_one_that_some_component_has(choice: str) -> None:
    assert f"`{choice}`: " in PAGE


def named_tests() -> Iterator[tuple[str, str, str]]:
    """Each test that a page names: the page, its file where that is said, and its name."""
    for page in PAGES:
        for file, name in TEST.findall((CHECKOUT / "docs" / page).read_text()):
            yield page, file, name


def test_every_test_that_a_page_names_is_there() -> None:
    there = {
        (file.name, node.name)
        for file in (CHECKOUT / "tests").rglob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    named = list(named_tests())
    assert {page for page, _, _ in named} == set(PAGES)
    missing = [item for item in named if not any(item[2] == name and item[1] in ("", file) for file, name in there)]
    assert not missing


def test_every_trap_has_a_test_on_a_replica() -> None:
    traps = PAGE.partition("## Traps")[2].partition("|---|---|---|\n")[2].strip().splitlines()
    assert len(traps) == 17
    for trap in traps:
        files = {file for file, _ in TEST.findall(trap)}
        assert files and all((CHECKOUT / "tests" / "rehearsal" / file).exists() for file in files), trap


def test_every_workload_component_is_there() -> None:
    listed = set(of_the_script("list(script['LEAST'])"))
    folders = {"workloads", "gpu.monitor", "tenancy.training_queue"}
    made = {
        name
        for name, module in ml_foundations._MODULES.items()
        if module in folders or module.partition(".")[0] in folders
    }
    assert listed == made
