"""A part of the replica that dies is told while a command waits, and what is repeated goes on whatever fails."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.rehearsal import watching
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.watching import repeated, watched

from tests.support.waiting import until

WAITING = """
import time
from ml_foundations.rehearsal import progress, watching
watching.interrupt_on_signals()
with progress.user_errors():
    print("waits", flush=True)
    time.sleep(60)
"""


def scheduler(folder: Path) -> tuple[Process, subprocess.Popen[bytes]]:
    """A process that stands for a part of the control plane."""
    process = Process("kube-scheduler", folder / "pid", folder / "log")
    return process, process.launch(["sleep", "600"])


def test_the_dead_part_is_named_and_the_wait_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_SECONDS", 0.05)
    part, child = scheduler(tmp_path)
    never_started = Process("kueue", tmp_path / "none", tmp_path / "log")
    log = re.escape(os.path.relpath(part.log))
    named = pytest.raises(RehearsalError, match=rf"^kube-scheduler died: see {log}.* make up$")
    with named, watched(lambda: [part, never_started], "make up"):
        child.kill()
        child.wait()
        time.sleep(60)  # as any step of a command does


def test_a_death_is_the_cause_of_what_fails_at_once(tmp_path: Path) -> None:
    part, child = scheduler(tmp_path)
    with (
        pytest.raises(RehearsalError, match="kube-scheduler died"),
        watched(lambda: [part], "make up"),
    ):
        child.kill()
        child.wait()
        raise RehearsalError("no answer from the API server")


def test_a_part_that_is_stopped_on_purpose_interrupts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_SECONDS", 0.2)
    part, child = scheduler(tmp_path)
    ends = iter([False, True])
    looks: list[bool] = []

    class Stopped:
        """A part that has ended at one look. Then its record is removed."""

        @property
        def has_ended(self) -> bool:
            looks.append(next(ends, False))
            return looks[-1]

    stopped: Any = Stopped()
    try:
        with watched(lambda: [part, stopped], "make up"):
            until(lambda: len(looks) > 3)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_a_message(number: signal.Signals) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # As a script starts what runs in its background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert command.stdout
    assert command.stdout.readline() == "waits\n"
    command.send_signal(number)
    _, printed = command.communicate(timeout=300)
    assert command.returncode == 128 + number
    assert printed.startswith("interrupted:")


def test_nohup_outlives_its_terminal() -> None:
    command = subprocess.Popen(
        ["nohup", sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert command.stdout
    assert command.stdout.readline() == b"waits\n"
    command.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(1)
    command.terminate()
    assert command.wait(300) == 128 + signal.SIGTERM


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
        assert thrice.wait(300)
    count = len(calls)
    time.sleep(0.05)
    assert len(calls) == count
