"""A part of the replica that dies is told while a command waits, and what is repeated goes on whatever fails."""

import subprocess
import threading
import time
from pathlib import Path

import pytest
from ml_foundations.rehearsal import watching
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.watching import repeated, watched


def scheduler(folder: Path) -> tuple[Process, subprocess.Popen[bytes]]:
    """A process that stands for a part of the control plane."""
    process = Process("kube-scheduler", folder / "pid", folder / "log")
    return process, process.launch(["sleep", "600"])


def test_the_dead_part_is_named_and_the_wait_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_SECONDS", 0.05)
    monkeypatch.setattr(watching, "_PATIENCE_SECONDS", 0.05)
    interrupted: list[bool] = []
    monkeypatch.setattr(watching, "_interrupt_pulumi", lambda: interrupted.append(True))
    part, child = scheduler(tmp_path)
    never_started = Process("kueue", tmp_path / "none", tmp_path / "log")
    told = pytest.raises(
        RehearsalError, match=r"kube-scheduler died, .* Start the replica again: make up"
    )
    with told, watched(lambda: [part, never_started], "make up"):
        child.kill()
        child.wait()
        while len(interrupted) < 2:  # the first one may come before Pulumi, or be of no use
            time.sleep(0.01)
        raise RehearsalError("pulumi up failed")


def test_what_else_goes_wrong_is_told_as_it_is(tmp_path: Path) -> None:
    part, child = scheduler(tmp_path)
    try:
        with watched(lambda: [part], "make up"):
            pass
        with (
            pytest.raises(RehearsalError, match="pulumi up failed"),
            watched(lambda: [part], "make up"),
        ):
            raise RehearsalError("pulumi up failed")
    finally:
        child.kill()
        child.wait()


def test_a_repeated_task_survives_failures() -> None:
    calls: list[int] = []
    thrice = threading.Event()

    def write() -> None:
        calls.append(1)
        if len(calls) == 3:
            thrice.set()
        raise RehearsalError("the pod is gone")

    with repeated(write, 0):
        assert thrice.wait(30)
    count = len(calls)
    time.sleep(0.05)
    assert len(calls) == count
