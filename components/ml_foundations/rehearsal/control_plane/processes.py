"""The processes of a rehearsal: started, found again, and ended.

A process is known by its pid and its time of start. It writes its pid to a file before it becomes the program that it
is started for: no interruption leaves one that cannot be found.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ml_foundations.rehearsal.files import read_text
from ml_foundations.rehearsal.progress import RehearsalError

_CLOCK_SECONDS = 2
"""How much later than its file a process may seem to have started: times are rounded, and clocks are adjusted."""
_KILL_SECONDS = 10
_LAST_LINES = 20


@dataclass(frozen=True)
class Process:
    """A process of a rehearsal, whether or not it runs."""

    name: str
    file: Path
    """Where its pid is written. A process that started after the file was written has only inherited the pid."""
    mark: str
    """What its command line names, and no other program's."""
    log: Path

    @property
    def pid(self) -> int | None:
        """Its pid, where it runs."""
        found = self.find()
        return found.pid if found else None

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.find() is not None

    @property
    def has_ended(self) -> bool:
        """Whether it was started and runs no more."""
        return self._recorded() is not None and not self.running

    @property
    def end_of_log(self) -> str:
        """The last lines of its log, for the user."""
        return "\n".join([f"The end of {self.log}:", *read_text(self.log).splitlines()[-_LAST_LINES:]])

    def find(self) -> psutil.Process | None:
        """The process, where it runs.

        It has ended when its pid is gone, a zombie's, or another program's. A command line that cannot be read, in the
        moment after exec, is no other program's.
        """
        pid = self._recorded()
        if pid is None:
            return None
        try:
            found = psutil.Process(pid)
            is_later = found.create_time() > self.file.stat().st_mtime + _CLOCK_SECONDS
            return None if is_later or _has_ended(found) or not self._may_be(found) else found
        except (OSError, psutil.NoSuchProcess):
            return None

    def launch(self, command: Iterable[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start the process, in a session of its own: it outlives this one, and a Ctrl-C."""
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", 'echo "$$" >"$0" && exec "$@"', str(self.file), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
                **options,
            )

    def start(
        self, command: Iterable[str | Path], version: str, is_ready: Callable[[], bool], seconds: float, **options: Any
    ) -> None:
        """Start the process and wait until it is ready; ``is_current`` then knows the version.

        Raises:
            RehearsalError: it ended, or was not ready in time. It is stopped.
        """
        self.stop()
        child = self.launch(command, **options)
        deadline = time.monotonic() + seconds
        while child.poll() is None and time.monotonic() < deadline:
            if self.running and is_ready():
                self._version.write_text(version)
                return
            time.sleep(0.05)
        what = f"was not ready within {seconds:.0f} s" if child.poll() is None else "ended as soon as it was started"
        self.stop()
        child.wait()
        raise RehearsalError(f"{self.name} {what}. {self.end_of_log}")

    def is_current(self, version: str) -> bool:
        """Whether it runs, and was started as this version."""
        return self.running and read_text(self._version) == version

    def stop(self) -> None:
        """End the process, if it runs, by SIGTERM or else by SIGKILL."""
        found = self.find()
        end([found] if found else [], patience=_KILL_SECONDS)
        self._version.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)

    @property
    def _version(self) -> Path:
        return self.file.with_suffix(".version")

    def _recorded(self) -> int | None:
        text = read_text(self.file).strip()
        return int(text) if text.isdecimal() else None

    def _may_be(self, found: psutil.Process) -> bool:
        command = command_of(found)
        return not command or any(self.mark in argument for argument in command)


def end(processes: Iterable[psutil.Process], patience: float = 0) -> None:
    """End processes by SIGTERM, and after some seconds by SIGKILL; return when they have ended."""
    left = list(processes)
    for send, seconds in ((psutil.Process.terminate, patience), (psutil.Process.kill, _KILL_SECONDS)):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                send(process)
        deadline = time.monotonic() + seconds
        while (left := [process for process in left if not _has_ended(process)]) and time.monotonic() < deadline:
            time.sleep(0.02)


def command_of(process: psutil.Process) -> list[str]:
    """The command line of a process; empty where it cannot be read."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
