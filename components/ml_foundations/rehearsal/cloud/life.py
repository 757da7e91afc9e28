"""The process that plays GKE: started once, found again, stopped."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import ml_foundations
from ml_foundations.rehearsal.cloud.store import SCALE_DOWN_SECONDS, settings_file
from ml_foundations.rehearsal.control_plane.processes import Process
from ml_foundations.rehearsal.files import write_json
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError

SCALE_DOWN_VARIABLE = "ML_FOUNDATIONS_SCALE_DOWN_SECONDS"
_MODULE = "ml_foundations.rehearsal.cloud"
_START_SECONDS = 30


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
    supervisor, version, ready = process(rehearsal), _digest(rehearsal), _ready_file(rehearsal)
    if not supervisor.is_current(version):
        stop(rehearsal)
        command = [sys.executable, "-m", _MODULE, str(rehearsal.root)]
        supervisor.start(command, version, ready.exists, _START_SECONDS, cwd=SOURCE_ROOT)


def stop(rehearsal: Rehearsal) -> None:
    """Stop the process, if it runs; what it knows stays in files and in the replica."""
    process(rehearsal).stop()
    _ready_file(rehearsal).unlink(missing_ok=True)


def process(rehearsal: Rehearsal) -> Process:
    """The process, whether or not it runs."""
    return Process("gke", rehearsal.gke_dir / "supervisor.pid", rehearsal.log_dir / "gke.log")


def serve(rehearsal: Rehearsal) -> None:
    """Be the process, unless another one is: two would create every node twice."""
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
        _ready_file(rehearsal).touch()
        supervisor.run()


def _exit(signum: int, frame: FrameType | None) -> None:
    # Daemon threads hang in reads: end without waiting for them. Every file is written at once or not at all.
    os._exit(0)


def _digest(rehearsal: Rehearsal) -> str:
    """What would require a restart of the process: other code, or another way to the API server."""
    read = (path.read_bytes() for path in [rehearsal.kubeconfig, *_sources()])
    return hashlib.sha256(b"\0".join(read)).hexdigest()


def _sources() -> Iterator[Path]:
    """The code of the process and the tables that it reads."""
    folder = Path(ml_foundations.__file__).parent
    yield from sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".py", ".yaml"))


def _ready_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.gke_dir / "supervisor.ready"
