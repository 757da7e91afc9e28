"""What the plugins' tests share."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_a_rehearsal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plugin is started in a rehearsal's folder, and may leave notes there."""
    monkeypatch.setenv("ML_FOUNDATIONS_REHEARSAL", str(tmp_path))
