"""The processes of a rehearsal: started, found again, and ended.

A process is known by its pid and its start. Both are recorded in a file before the process becomes the program that it
is started for: no interruption leaves one that cannot be found.
"""

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


@dataclass(frozen=True)
class Process:
    """A process of a rehearsal, whether or not it runs."""

    name: str
    file: Path
    """The record of its pid and start."""
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
        return bool(read_text(self.file)) and not self.running

    @property
    def end_of_log(self) -> str:
        """The last lines of its log, for the user."""
        return "\n".join(
            [f"The end of {self.log}:", *read_text(self.log).splitlines()[-_LAST_LINES:]]
        )

    def find(self) -> psutil.Process | None:
        """The process, where it runs: it has ended when its pid is gone, a zombie's, or that of a later process."""
        pid, _, start = read_text(self.file).partition(" ")
        with suppress(psutil.NoSuchProcess):
            if start and start == _start_of(int(pid)):
                return psutil.Process(int(pid))
        return None

    def record(self, pid: int) -> None:
        """Make a process that has just been started this one."""
        write(self.file, f"{pid} {_start_of(pid)}")

    def launch(self, command: Iterable[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start the process, in a session of its own: it outlives this one, and a Ctrl-C."""
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                # It waits for a word, which it does not get from a process that was killed before it made the record.
                ["/bin/sh", "-c", 'read -r word && exec "$0" "$@" </dev/null', *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
                **options,
            )
        assert child.stdin
        with child.stdin as word:
            self.record(child.pid)
            word.write(b"go\n")
        return child

    def start(
        self,
        command: Iterable[str | Path],
        version: str,
        is_ready: Callable[[], bool],
        seconds: float,
        **options: Any,
    ) -> None:
        """Start the process and wait until it is ready; ``is_current`` then knows the version.

        Raises:
            RehearsalError: it ended, or was not ready in time. It is stopped.
        """
        self.stop()
        child = self.launch(command, **options)
        deadline = time.monotonic() + seconds
        while child.poll() is None and time.monotonic() < deadline:
            if is_ready():
                self._version.write_text(version)
                return
            time.sleep(0.05)
        what = (
            f"was not ready within {seconds:.0f} s"
            if child.poll() is None
            else "ended as soon as it was started"
        )
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


def run(command: Iterable[str | Path], failed: str, **options: Any) -> str:
    """What a command prints that ends by itself.

    Raises:
        RehearsalError: it failed, with these words and its own.
    """
    done = subprocess.run([*command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise RehearsalError(f"{failed}:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def end(processes: Iterable[psutil.Process], patience: float = 0) -> None:
    """End processes by SIGTERM, and after some seconds by SIGKILL; return when they have ended."""
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
    """Whether a process is gone, or nobody has asked how it ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _start_of(pid: int) -> str:
    """What tells a process from others that had or will have its pid; empty where it has ended.

    Ticks since boot (proc_pid_stat(5), field 22) and the id of the boot: unlike the time of day, no clock changes them.
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
