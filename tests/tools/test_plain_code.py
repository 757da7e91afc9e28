"""The check of names without a role and of parallel assignments."""

import ast
from pathlib import Path

import pytest

from tools import plain_code, readability


@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "def f(wanted): ...",
        "def __init__(self, found): ...",
        "lambda own: 1",
        "[each for each in x]",
        "if (other := x): ...",
        "with x as found: ...",
        "match x:\n    case {'a': found, **other}: ...",
    ],
)
def test_a_name_without_a_role_is_a_violation(code: str) -> None:
    violations = [*plain_code.violations(ast.parse(code))]
    assert any("by its role" in problem for _, problem in violations)


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    own: int",
        "def __eq__(self, other): ...",
        "a, b = b, a",
        "a.x, b = b, a.x + 1",
        "a, b = f(x)",
        "first, *rest = *x, y",
        "f(own=1)",
    ],
)
def test_other_code_has_no_violations(code: str) -> None:
    assert not [*plain_code.violations(ast.parse(code))]


@pytest.mark.parametrize("code", ["a, b = 1, 2", "a.x, b = x, y", "def f():\n    a, b = f(), 2"])
def test_a_parallel_assignment_is_a_violation(code: str) -> None:
    assert ["line each" in problem for _, problem in plain_code.violations(ast.parse(code))] == [
        True
    ]


def test_the_check_reads_the_clean_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"clean/a.py": "found = 1\n", "unread/b.py": "found = 1\n"}
    for name, text in names.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(readability, "ROOT", tmp_path)
    monkeypatch.setattr(plain_code, "CLEAN", ("clean/",))
    files = {".py": [tmp_path / name for name in names]}
    monkeypatch.setattr(
        readability,
        "files",
        lambda folders, suffix: files.get(suffix, []) if "policy" in folders else [],
    )
    (violation,) = readability.violations()
    assert violation.startswith(f"{tmp_path}/clean/a.py:1: name 'found'")
