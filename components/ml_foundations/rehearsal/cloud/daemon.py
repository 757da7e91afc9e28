"""The process that plays GKE (``python -m ml_foundations.rehearsal.cloud.daemon <folder> <cluster>``)."""

import hashlib
import logging
import os
import signal
import sys
from pathlib import Path

import ml_foundations
from ml_foundations.rehearsal.cloud.store import SCALE_DOWN_SECONDS, Store
from ml_foundations.rehearsal.files import lock
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError

SCALE_DOWN_VARIABLE = "ML_FOUNDATIONS_SCALE_DOWN_SECONDS"
_MODULE = "ml_foundations.rehearsal.cloud.daemon"
_START_SECONDS = 120


def start(rehearsal: Rehearsal) -> None:
    """Start the process and wait until it has read the replica; one that is current only gets the settings.

    Raises:
        RehearsalError: it did not start, or a setting is not a number.
    """
    given = os.environ.get(SCALE_DOWN_VARIABLE, str(SCALE_DOWN_SECONDS))
    try:
        Store(rehearsal).put("scale_down_seconds", float(given))
    except ValueError:
        raise RehearsalError(
            f"{SCALE_DOWN_VARIABLE} must be a number of seconds, not {given!r}"
        ) from None
    supervisor, version = process(rehearsal), _digest(rehearsal)
    if not supervisor.is_current(version):
        stop(rehearsal)
        command = [sys.executable, "-m", _MODULE, str(rehearsal.root), rehearsal.cluster]
        supervisor.start(
            command, version, _ready_file(rehearsal).exists, _START_SECONDS, cwd=SOURCE_ROOT
        )


def stop(rehearsal: Rehearsal) -> None:
    """Stop the process, if it runs; what it knows stays in files and in the replica."""
    process(rehearsal).stop()
    _ready_file(rehearsal).unlink(missing_ok=True)


def process(rehearsal: Rehearsal) -> Process:
    """The process, whether or not it runs."""
    return Process("gke", rehearsal.gke_dir / "supervisor.pid", rehearsal.log_dir / "gke.log")


def _serve(rehearsal: Rehearsal) -> None:
    """Run until stopped, unless another process does: two would create every node twice."""
    from ml_foundations.rehearsal.cloud.supervisor import Supervisor

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Daemon threads hang in reads: end without waiting for them. Every file is written at once or not at all.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if not lock(rehearsal.gke_dir):
        return
    supervisor = Supervisor(rehearsal)
    if not supervisor.sync(_START_SECONDS):
        sys.exit("the API server of the rehearsal does not answer")
    _ready_file(rehearsal).touch()
    supervisor.run()


def _digest(rehearsal: Rehearsal) -> str:
    """What would require a restart of the process: other code, or another way to the API server."""
    return hashlib.sha256(
        b"\0".join(path.read_bytes() for path in [rehearsal.kubeconfig, *_sources()])
    ).hexdigest()


def _sources() -> list[Path]:
    found = Path(ml_foundations.__file__).parent.rglob("*")
    return sorted(path for path in found if path.suffix in (".csv", ".py", ".yaml"))


def _ready_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.gke_dir / "supervisor.ready"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    _serve(Rehearsal(folder.name, folder, sys.argv[2]))
