"""The daemon, a process that simulates GKE (``python -m ml_foundations.rehearsal.cloud.daemon``).

Its arguments are the folder of the rehearsal and the cluster of the replica.
"""

import hashlib
import logging
import os
import signal
import sys
from pathlib import Path

import ml_foundations
from ml_foundations.rehearsal.cloud.store import SCALE_DOWN_SECONDS, Store
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.files import lock
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError

SCALE_DOWN_VARIABLE = "ML_FOUNDATIONS_SCALE_DOWN_SECONDS"
_START_SECONDS = 120


def start(rehearsal: Rehearsal) -> None:
    """Start the daemon, unless it is current, and wait until it has read the replica."""
    setting = os.environ.get(SCALE_DOWN_VARIABLE, str(SCALE_DOWN_SECONDS))
    try:
        Store(rehearsal).put("scale_down_seconds", float(setting))
    except ValueError:
        rule = "must be a number of seconds"
        raise RehearsalError(f"{SCALE_DOWN_VARIABLE} {rule}, not {setting!r}") from None
    daemon = process(rehearsal)
    version = _version(rehearsal)
    if not daemon.is_current(version):
        stop(rehearsal)
        command = [sys.executable, "-m", __name__, str(rehearsal.root), rehearsal.cluster]
        is_ready = _ready_file(rehearsal).exists
        needs = kwok.processes(rehearsal)
        daemon.start(command, version, is_ready, _START_SECONDS, needs, cwd=SOURCE_ROOT)


def stop(rehearsal: Rehearsal) -> None:
    """Stop the daemon if it runs. Its state is in files and in the replica."""
    process(rehearsal).stop()
    _ready_file(rehearsal).unlink(missing_ok=True)


def process(rehearsal: Rehearsal) -> Process:
    """Return the daemon, whether or not it runs."""
    return Process("gke", rehearsal.gke_dir / "supervisor.pid", rehearsal.log_dir / "gke.log")


def _serve(rehearsal: Rehearsal) -> None:
    """Run until stopped. A second daemon ends at once: it would create every node again."""
    from ml_foundations.rehearsal.cloud.supervisor import Supervisor

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # End without waiting for threads, which may hang in reads. No file is ever half-written.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if not lock(rehearsal.gke_dir):
        return
    supervisor = Supervisor(rehearsal)
    if not supervisor.sync(_START_SECONDS):
        sys.exit("the API server of the rehearsal does not answer")
    _ready_file(rehearsal).touch()
    supervisor.run()


def _version(rehearsal: Rehearsal) -> str:
    """Return a hash of the code and the kubeconfig. If one of them changes, the daemon restarts."""
    digest = hashlib.sha256()
    for path in [rehearsal.kubeconfig, *_sources()]:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources() -> list[Path]:
    files = Path(ml_foundations.__file__).parent.rglob("*")
    return sorted(path for path in files if path.suffix in (".csv", ".py", ".yaml"))


def _ready_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.gke_dir / "supervisor.ready"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    _serve(Rehearsal(folder.name, folder, sys.argv[2]))
