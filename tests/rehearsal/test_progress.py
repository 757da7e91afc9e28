"""Progress of a long step in a log."""

import time

import pytest
from ml_foundations.rehearsal import progress


def test_a_silent_step_prints_lines_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.05)
    progress.console.cache_clear()
    with progress.Step("waiting") as step:
        step.detail("Deployment vllm creating")
        time.sleep(0.3)
    assert capsys.readouterr().err.count("… waiting: Deployment vllm creating (0 s)") > 1
    progress.console.cache_clear()
