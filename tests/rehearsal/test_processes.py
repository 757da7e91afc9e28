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
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError

from tests.support.waiting import until

SLEEP = ["/bin/sh", "-c", "while :; do sleep 60; done"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process("sleeper", tmp_path / "sleeper.pid", tmp_path / "sleeper.log")
    yield process
    process.stop()


def launch(process: Process) -> subprocess.Popen[bytes]:
    child = process.launch(SLEEP)
    assert process.running
    return child


def empty(_: psutil.Process) -> list[str]:
    return []


def denied(found: psutil.Process) -> NoReturn:
    raise psutil.AccessDenied(found.pid)


@pytest.mark.parametrize("cmdline", [empty, denied])
def test_one_whose_command_line_cannot_be_read_has_not_ended(
    process: Process,
    cmdline: Callable[[psutil.Process], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it is for a moment after exec."""
    child = launch(process)
    with monkeypatch.context() as patched:
        patched.setattr(psutil.Process, "cmdline", cmdline)
        assert process.pid == child.pid
        assert not process.has_ended
    assert process.running


def test_one_is_known_whatever_the_clock_says(process: Process) -> None:
    child = launch(process)
    for seconds in (-3600, 3600):
        then = time.time() + seconds
        os.utime(process.file, (then, then))
        assert process.pid == child.pid
        assert not process.has_ended


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


@pytest.mark.parametrize("part", ["start", "boot"])
def test_one_of_another_start_only_has_the_pid(process: Process, part: str) -> None:
    with subprocess.Popen(SLEEP) as innocent:
        process.record(innocent.pid)
        assert process.running
        pid, start, *boot = process.file.read_text().split()
        others = {"start": [pid, str(int(start) - 1), *boot], "boot": [pid, start, "another"]}
        process.file.write_text(" ".join(others[part]))
        assert process.has_ended
        process.stop()
        assert innocent.poll() is None
        innocent.kill()


def interrupted(process: Process, before: str = "") -> None:
    """Launch the process in a Python that is killed: when it has done so, or by what it does before."""
    code = f"""
import os, signal
from pathlib import Path
from ml_foundations.rehearsal.processes import Process
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{before}
Process("sleeper", Path({str(process.file)!r}), Path({str(process.log)!r})).launch({[*SLEEP, str(process.log)]!r})
killed()
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL


def test_one_whose_start_was_interrupted_is_found(process: Process) -> None:
    interrupted(process)
    found = process.find()
    process.stop()
    assert found
    assert not found.is_running() or found.status() == psutil.STATUS_ZOMBIE
    assert not process.file.exists()


def test_one_of_which_no_record_was_made_ends_by_itself(process: Process) -> None:
    def left() -> list[psutil.Process]:
        return [
            found
            for found in psutil.process_iter(["cmdline"])
            if str(process.log) in (found.info["cmdline"] or [])
        ]

    interrupted(process, before="Process.record = killed")
    until(lambda: not left())
    assert not process.running


def test_it_is_current_as_long_as_its_version_is_wanted(process: Process) -> None:
    process.start(SLEEP, "one", lambda: True, seconds=60)
    assert process.is_current("one")
    assert not process.is_current("two")
    process.stop()
    assert not process.is_current("one")


def test_it_waits_for_nothing_when_a_process_that_it_needs_has_ended(
    process: Process, tmp_path: Path
) -> None:
    etcd = Process("etcd", tmp_path / "etcd.pid", tmp_path / "etcd.log")
    etcd.launch(["true"]).wait()
    with pytest.raises(RehearsalError, match=r"because etcd died: see .*etcd\.log"):
        process.start(SLEEP, "one", lambda: False, 60, [etcd])
    assert not process.running


@pytest.mark.parametrize(
    ("command", "seconds", "said"),
    [
        (
            ["/bin/sh", "-c", "echo out of luck; exit 3"],
            *(600, r"(?s)sleeper ended as soon as .*out of luck"),
        ),
        (SLEEP, 1, "sleeper was not ready within 1 s"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    process: Process, command: list[str], seconds: float, said: str
) -> None:
    with pytest.raises(RehearsalError, match=said):
        process.start(command, "one", lambda: False, seconds=seconds)
    assert (process.running, process.file.exists()) == (False, False)
