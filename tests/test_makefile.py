"""The variables of make, whose values are data for every target: no text in one runs anything."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT

RECORD = """#!/bin/sh
printf '%s\\0' "$0" "$@" >>calls
"""
"""A stand-in for each program that a target runs."""
VARIABLES = {
    "STACK": ("up", "down", "status", "report", "quota"),
    "PROJECT": ("up", "down", "status", "report", "quota"),
    "NODES": ("up",),
    "N": ("differential", "faults"),
    "FIRST": ("differential",),
    "GENERATOR": ("differential",),
    "PYTHON": (".venv/.ready", ".venv/.ready-dev"),
}
"""The targets that pass a variable on."""
HOSTILE = (
    *("x; touch ran", "x`touch ran`", "$(touch ran)", "$$(touch ran)", "$(shell touch ran)"),
    *("${shell touch ran}", "$$(shell touch ran)", "$(eval x := $(shell touch ran))"),
    *("$(call STACK)", "$(STACK)", "$(error ran)", "$(info ran)", 'y"; touch ran; "'),
    *("y'; touch ran; '", "y | touch ran", "y && touch ran", "y > ran", "x\ntouch ran"),
    *("x\n\ttouch ran\n", "x\\\ntouch ran", "x # y", "x ", "-x", "--help", "@x", "a\\", "~", "*"),
    *("$HOME", "%", "é\u202e"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile, with stand-ins for what it runs."""
    shutil.copy(CHECKOUT / "Makefile", tmp_path)
    for name in ("requirements.lock", "requirements-up.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for path in (programs / "ml-foundations", programs / "python", tmp_path / "install.sh"):
        path.write_text(RECORD)
        path.chmod(0o755)
    for name in (".ready", ".ready-dev"):
        (tmp_path / ".venv" / name).touch()
    return tmp_path


def make(checkout: Path, *arguments: str, **env: str) -> list[str]:
    """Run make, and return the words of the commands that it ran."""
    (checkout / "calls").unlink(missing_ok=True)
    inherited = {name: os.environ[name] for name in os.environ.keys() - VARIABLES.keys()}
    command, env = ["make", *arguments], inherited | env
    done = subprocess.run(
        command, cwd=checkout, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "ran" not in done.stdout, done.stdout + done.stderr
    return (checkout / "calls").read_text().split("\0")


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("variable", VARIABLES)
def test_a_value_is_passed_on_as_it_is_and_runs_nothing(
    checkout: Path, variable: str, value: str
) -> None:
    before = {path.name for path in checkout.iterdir()} | {"calls"}
    for target in VARIABLES[variable]:
        changed = ["-W", "requirements.lock", "-W", "pyproject.toml"] if "/" in target else []
        for words in (
            make(checkout, *changed, target, f"{variable}={value}"),
            make(checkout, *changed, target, **{variable: value}),
        ):
            passed = [word for word in words if word == value or word.endswith(f"={value}")]
            assert passed, words
    assert {path.name for path in checkout.iterdir()} == before


def test_the_table_has_all_variables() -> None:
    text = (CHECKOUT / "Makefile").read_text()
    used = set(re.findall(r"\$\$\{?MAKE_([A-Z]+)", text))
    assert used == VARIABLES.keys() | {"WRITE"}
    assert not re.search(rf"\$[({{]({'|'.join(VARIABLES)}|WRITE)\b", text)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_switch_is_a_switch_whatever_its_value(checkout: Path, value: str) -> None:
    assert "--write" in make(checkout, "faults", f"WRITE={value}")
    assert "--write" in make(checkout, "faults", WRITE=value)
    assert "--write" not in make(checkout, "faults", WRITE="")


def test_a_program_gets_no_variable_of_make_that_the_user_has_not_set(checkout: Path) -> None:
    program = checkout / ".venv" / "bin" / "ml-foundations"
    program.write_text("#!/bin/sh\nenv -0 >calls\n")
    names = {line.partition("=")[0] for line in make(checkout, "up")}
    assert not names & VARIABLES.keys()


def test_the_values_without_a_variable(checkout: Path) -> None:
    program = ".venv/bin/ml-foundations"
    assert make(checkout, "up") == [program, "up", "--project=.", "--stack=dev", ""]
    assert make(checkout, "up", "NODES=n")[-2] == "--nodes=n"
    assert make(checkout, "differential")[3:] == ["--", "10000", ""]
