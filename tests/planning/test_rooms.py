"""The rooms of planning import one way, and nothing of the components."""

import ast
from collections.abc import Iterator
from pathlib import Path

import ml_foundations.planning

ROOMS = ("model", "input", "scheduler", "api_server", "verdict")
PLANNING = Path(ml_foundations.planning.__file__).parent


def imported(file: Path) -> Iterator[list[str]]:
    for statement in ast.walk(ast.parse(file.read_text())):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(
            "ml_foundations."
        ):
            yield (statement.module or "").split(".")[1:]


def test_a_room_imports_only_those_before_it() -> None:
    files = {file: room for room in ROOMS for file in (PLANNING / room).glob("*.py")}
    assert len(files) > 30
    for file, room in files.items():
        for package, *inside in imported(file):
            assert package in ("kubernetes", "catalog", "planning"), file
            if package == "planning":
                assert inside[0] in ROOMS[: ROOMS.index(room) + 1], file
