"""Progress of a long step in a log."""

import io
import re

import pytest
from ml_foundations.rehearsal import progress
from rich.console import Console

from tests.support.waiting import until


def test_a_silent_step_prints_lines_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.05)
    progress.console.cache_clear()
    printed: list[str] = []

    def has_two_lines() -> bool:
        printed.append(capsys.readouterr().err)
        return "".join(printed).count("… waiting: Deployment vllm creating (") > 1

    with progress.Step("waiting") as step:
        step.detail("Deployment vllm creating")
        until(has_two_lines)
    progress.console.cache_clear()


def test_a_step_prints_lines_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Console(force_terminal=True, file=io.StringIO())
    monkeypatch.setattr(progress, "console", lambda: terminal)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.05)
    assert isinstance(terminal.file, io.StringIO)
    shown = terminal.file.getvalue
    with progress.Step("waiting", is_live=False):
        until(lambda: "… waiting" in shown())


def test_errors_are_wrapped_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    message = (
        "two faults:\n  Job a/b: each pod needs 2 GPUs, and a node has one. [nodes]\n\nFix them."
    )
    for is_terminal in (True, False):
        shown = Console(force_terminal=is_terminal, width=30, file=io.StringIO(), soft_wrap=True)
        monkeypatch.setattr(progress, "console", lambda shown=shown: shown)
        with pytest.raises(SystemExit), progress.user_errors():
            raise progress.RehearsalError(message)
        assert isinstance(shown.file, io.StringIO)
        lines = re.sub(r"\x1b\[[\d;]*m", "", shown.file.getvalue()).splitlines()
        if is_terminal:
            assert lines == [
                "error: two faults:",
                "  Job a/b: each pod needs 2",
                "    GPUs, and a node has one.",
                "    [nodes]",
                "",
                "Fix them.",
            ]
        else:
            assert "\n".join(lines) == f"error: {message}"
