"""The processes of a rehearsal: which one is ours, and when it has ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from ml_foundations.rehearsal.control_plane.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError

from tests.support.waiting import until

SLEEP = ["/bin/sh", "-c", "while :; do sleep 60; done", "our-mark"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process("sleeper", tmp_path / "sleeper.pid", mark="our-mark", log=tmp_path / "sleeper.log")
    yield process
    process.stop()


def launch(process: Process) -> subprocess.Popen[bytes]:
    child = process.launch(SLEEP)
    until(lambda: process.running)
    return child


def empty(_: psutil.Process) -> list[str]:
    return []


def denied(found: psutil.Process) -> NoReturn:
    raise psutil.AccessDenied(found.pid)


@pytest.mark.parametrize("cmdline", [empty, denied])
def test_one_whose_command_line_cannot_be_read_has_not_ended(
    process: Process, cmdline: Callable[[psutil.Process], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is for a moment after exec."""
    child = launch(process)
    with monkeypatch.context() as patched:
        patched.setattr(psutil.Process, "cmdline", cmdline)
        assert process.pid == child.pid
        assert not process.has_ended
    assert process.running


def test_one_that_nobody_waited_for_has_ended(process: Process) -> None:
    child = launch(process)
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert process.has_ended
    child.wait()
    assert process.has_ended


def test_one_that_was_never_started_has_not_ended(process: Process) -> None:
    assert (process.running, process.has_ended) == (False, False)
    process.file.write_text("")
    assert (process.running, process.has_ended) == (False, False)


def test_one_that_started_after_the_file_was_written_only_has_the_pid(process: Process) -> None:
    with subprocess.Popen(SLEEP) as innocent:
        process.file.write_text(str(innocent.pid))
        an_hour_ago = time.time() - 3600
        os.utime(process.file, (an_hour_ago, an_hour_ago))
        assert process.has_ended
        process.stop()
        assert innocent.poll() is None
        innocent.kill()


def test_another_program_is_left_alone(process: Process) -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        process.file.write_text(str(innocent.pid))
        assert not process.running
        process.stop()
        assert innocent.poll() is None
        innocent.kill()


def test_one_whose_start_was_interrupted_is_found(process: Process) -> None:
    code = f"""
import os, signal
from pathlib import Path
from ml_foundations.rehearsal.control_plane.processes import Process
Process("sleeper", Path({str(process.file)!r}), "our-mark", Path({str(process.log)!r})).launch({SLEEP!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    until(lambda: process.running)
    found = process.find()
    process.stop()
    assert found
    assert not found.is_running() or found.status() == psutil.STATUS_ZOMBIE
    assert not process.file.exists()


def test_it_is_current_as_long_as_its_version_is_wanted(process: Process) -> None:
    process.start(SLEEP, "one", lambda: True, seconds=10)
    assert process.is_current("one")
    assert not process.is_current("two")
    process.stop()
    assert not process.is_current("one")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/bin/sh", "-c", "echo out of luck; exit 3"], r"(?s)sleeper ended as soon as .*out of luck"),
        (SLEEP, "sleeper was not ready within 1 s"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(process: Process, command: list[str], said: str) -> None:
    with pytest.raises(RehearsalError, match=said):
        process.start(command, "one", lambda: False, seconds=1)
    assert (process.running, process.file.exists()) == (False, False)
