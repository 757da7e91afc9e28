"""The processes of a rehearsal: how to start, find and end them.

A process is identified by its pid and its start time. A file records both before the process runs
its program. No interruption leaves a process that cannot be found.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ml_foundations.rehearsal.files import read_text, write
from ml_foundations.rehearsal.progress import RehearsalError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KILL_SECONDS = 10
_LAST_LINES = 20
_LOGIN = re.compile(r"""(?<![^\s"'`])[^\s"'`:]*:[^\s"'`]*@(?!v/|latest)""")
"""The start of an address with a login. In one of a Go module, `@` is before a version."""
LAUNCHER = 'read -r line && exec "$0" "$@" </dev/null'
"""A script that waits for a line, so that nothing runs if we are killed before we record it."""


@dataclass(frozen=True)
class Process:
    """A process of a rehearsal, whether or not it runs."""

    name: str
    file: Path
    """The record of its pid and start time."""
    log: Path

    @property
    def pid(self) -> int | None:
        """Return its pid, or None if it does not run."""
        process = self.find()
        return process.pid if process else None

    @property
    def running(self) -> bool:
        """Return whether it runs."""
        return self.find() is not None

    @property
    def has_ended(self) -> bool:
        """Return whether it was started and has ended."""
        return bool(read_text(self.file)) and not self.running

    @property
    def end_of_log(self) -> str:
        """Return the last lines of its log, for the user."""
        lines = read_text(self.log).splitlines()[-_LAST_LINES:]
        return "\n".join([f"The end of {self.log}:", *lines])

    def find(self) -> psutil.Process | None:
        """Return the process if it runs.

        It has ended if its pid is gone, or belongs to a zombie or to a later process.
        """
        pid, _, start = read_text(self.file).partition(" ")
        with suppress(psutil.NoSuchProcess, ValueError):  # a file that somebody else has written
            if start and start == _start_of(int(pid)):
                return psutil.Process(int(pid))
        return None

    def record(self, pid: int) -> None:
        """Record a process that has just been started."""
        write(self.file, f"{pid} {_start_of(pid)}")

    def launch(self, command: Iterable[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start the process in a new session, so that it survives this process and a Ctrl-C."""
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                ["/bin/sh", "-c", LAUNCHER, *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
                **options,
            )
        assert child.stdin
        with child.stdin as pipe:
            self.record(child.pid)
            pipe.write(b"go\n")
        return child

    def start(
        self,
        command: Iterable[str | Path],
        version: str,
        is_ready: Callable[[], bool],
        seconds: float,
        needs: Iterable[Process] = (),
        **options: Any,
    ) -> None:
        """Start the process as a version, for ``is_current``, and wait until it is ready.

        Raises:
            RehearsalError: it or a process that it ``needs`` ended, or it was not ready in time. It
                is stopped then.
        """
        self.stop()
        child = self.launch(command, **options)
        deadline = time.monotonic() + seconds
        failure = f"was not ready within {seconds:.0f} s"
        while time.monotonic() < deadline:
            if child.poll() is not None:
                failure = "ended as soon as it was started"
                break
            if dead := next((process for process in needs if process.has_ended), None):
                failure = f"cannot start, because {dead.name} died: see {dead.log}"
                break
            if is_ready():
                self._version.write_text(version)
                return
            time.sleep(0.05)
        self.stop()
        child.wait()
        raise RehearsalError(f"{self.name} {failure}. {self.end_of_log}")

    def is_current(self, version: str) -> bool:
        """Return whether it runs and was started as this version."""
        return self.running and read_text(self._version) == version

    def stop(self) -> None:
        """End the process, if it runs, by SIGTERM or else by SIGKILL."""
        process = self.find()
        end([process] if process else [], patience=_KILL_SECONDS)
        self._version.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)

    @property
    def _version(self) -> Path:
        return self.file.with_suffix(".version")


def run(command: Iterable[str | Path], failed: str, **options: Any) -> str:
    """Run a command to its end and return its output.

    Raises:
        RehearsalError: it failed. The message is ``failed`` and the output.
    """
    done = subprocess.run([*command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        output = without_logins((done.stderr or done.stdout).strip())
        raise RehearsalError(f"{failed}:\n{output}")
    return done.stdout


def without_logins(output: str) -> str:
    """Return what a tool printed, without the user and password of an address, such as a proxy's.

    Go, pip and uv hide them themselves, except in an address that they cannot read.
    """
    return _LOGIN.sub("***@", output)


def end(processes: Iterable[psutil.Process], patience: float = 0) -> None:
    """End processes by SIGTERM, and after some seconds by SIGKILL. Return when they have ended."""
    left = list(processes)
    for send, seconds in (
        (psutil.Process.terminate, patience),
        (psutil.Process.kill, _KILL_SECONDS),
    ):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                send(process)
        deadline = time.monotonic() + seconds
        while (
            left := [process for process in left if not has_ended(process)]
        ) and time.monotonic() < deadline:
            time.sleep(0.02)


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended. A zombie has, too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _start_of(pid: int) -> str:
    """Return the start time of a process, which differs for each process with its pid, or nothing.

    It is in ticks since boot (proc_pid_stat(5), field 22), with the id of the boot. A change of the
    clock does not affect it.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        if not _BOOT_ID.exists():
            return str(process.create_time())
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{ticks} {_BOOT_ID.read_text().strip()}"
    except (OSError, psutil.Error):
        return ""
