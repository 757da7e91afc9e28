"""The life of the supervised process: started once, found again, stopped, and never confused with another."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil

import ml_foundations
from ml_foundations.rehearsal.cloud.store import SCALE_DOWN_SECONDS, read_json, settings_file, write_json
from ml_foundations.rehearsal.control_plane.kwok import Process
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError

NAME = "gke"
SCALE_DOWN_VARIABLE = "ML_FOUNDATIONS_SCALE_DOWN_SECONDS"
_MODULE = "ml_foundations.rehearsal.cloud"
_START_SECONDS = 30
_STOP_SECONDS = 10


def start(rehearsal: Rehearsal) -> None:
    """Start the process and wait until it has read the replica; one that runs as it should gets the settings alone.

    Raises:
        RehearsalError: it did not start, or a setting is no number.
    """
    given = os.environ.get(SCALE_DOWN_VARIABLE, str(SCALE_DOWN_SECONDS))
    try:
        write_json(settings_file(rehearsal.gke_dir), {"scale_down_seconds": float(given)})
    except ValueError:
        raise RehearsalError(f"{SCALE_DOWN_VARIABLE} is a number of seconds, and not {given!r}") from None
    if _find(rehearsal) is not None and read_json(_pid_file(rehearsal), {}).get("digest") == _digest(rehearsal):
        return
    stop(rehearsal)
    with _log_file(rehearsal).open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(rehearsal.root)],
            cwd=SOURCE_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if _find(rehearsal) is not None:
            return
        if child.poll():
            break
        time.sleep(0.05)
    if child.poll() is None:
        child.kill()
    child.wait()
    raise RehearsalError(f"the simulated GKE did not start. The end of {_log_file(rehearsal)}:\n{_log_end(rehearsal)}")


def stop(rehearsal: Rehearsal) -> None:
    """Stop the process, if it runs; what it knows stays in files and in the replica."""
    process = _find(rehearsal)
    if process is None:
        return
    try:
        process.terminate()
        process.wait(_STOP_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)
    except psutil.NoSuchProcess:
        pass
    _pid_file(rehearsal).unlink(missing_ok=True)


def process(rehearsal: Rehearsal) -> Process:
    """The process as it is now."""
    found = _find(rehearsal)
    return Process(NAME, found.pid if found else 0, found is not None)


def serve(rehearsal: Rehearsal) -> None:
    """Be the process, unless another one is: two would create every node twice."""
    digest = _digest(rehearsal)
    from ml_foundations.rehearsal.cloud.supervisor import Supervisor

    signal.signal(signal.SIGTERM, _exit)
    rehearsal.gke_dir.mkdir(mode=0o700, exist_ok=True)
    with (rehearsal.gke_dir / "supervisor.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        supervisor = Supervisor(rehearsal)
        if not supervisor.sync(_START_SECONDS):
            sys.exit("the API server of the rehearsal does not answer")
        me = psutil.Process()
        write_json(_pid_file(rehearsal), {"pid": me.pid, "create_time": me.create_time(), "digest": digest})
        supervisor.run()


def _exit(signum: int, frame: FrameType | None) -> None:
    # Daemon threads hang in reads: end without waiting for them. Every file is written at once or not at all.
    os._exit(0)


def _find(rehearsal: Rehearsal) -> psutil.Process | None:
    """The process that runs, if the pid is still its own: a reused pid has another start time and command."""
    known = read_json(_pid_file(rehearsal), None)
    if known is None:
        return None
    try:
        found = psutil.Process(known["pid"])
        ours = abs(found.create_time() - known["create_time"]) < 1 and _MODULE in found.cmdline()
        return found if ours and found.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def _digest(rehearsal: Rehearsal) -> str:
    """What the process would have to be started anew for: other code, or another way to the API server."""
    read = (path.read_bytes() for path in [rehearsal.kubeconfig, *_sources()])
    return hashlib.sha256(b"\0".join(read)).hexdigest()


def _sources() -> Iterator[Path]:
    """The code of the process and the tables that it reads."""
    folder = Path(ml_foundations.__file__).parent
    yield from sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".py", ".yaml"))


def _pid_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.gke_dir / "supervisor.json"


def _log_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.log_dir / "gke.log"


def _log_end(rehearsal: Rehearsal, lines: int = 20) -> str:
    return "\n".join(_log_file(rehearsal).read_text(errors="replace").splitlines()[-lines:])
