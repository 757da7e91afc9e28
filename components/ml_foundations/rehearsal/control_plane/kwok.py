"""The replica's control plane: the real etcd, API server, controller manager and scheduler, and kwok for the nodes.

kwokctl's binary runtime writes the certificates and starts the processes. This module chooses the ports, waits until
all of it is ready, and recovers after a crash or a reboot: whatever is left is stopped, and kwokctl sets the cluster
up again around the certificates and the etcd data that it finds.
"""

import os
import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

import psutil

from ml_foundations.rehearsal.control_plane import configuration
from ml_foundations.rehearsal.files import read_text
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.processes import Process, end
from ml_foundations.rehearsal.progress import RehearsalError, Step
from ml_foundations.rehearsal.tools.toolchain import Tools

COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok-controller",
)
_PORT_ATTEMPTS = 3
_READY_SECONDS = 300
_GO_MEMORY = "2500MiB"
"""Above it, Go's collectors work harder: 5,000 nodes with 40,000 pods are to fit into 8 GB."""
_GAVE_UP = ("failed to wait for apiserver", "Failed to list nodes")
"""What the controller manager and kwok say last where the API server is not ready within 10 or 15 s."""


class _PortTakenError(Exception):
    """Another program took a port between its choice and its use."""


def start(rehearsal: Rehearsal, tools: Tools) -> None:
    """Bring the control plane up, whatever state it is in; return at once where it is up already.

    Raises:
        RehearsalError: it did not become ready; the message names the process and shows the end of its log.
    """
    rehearsal.make()
    if configuration.is_current(rehearsal, tools) and not _missing(rehearsal):
        if not rehearsal.kubeconfig.exists():  # the start was killed before it came to that
            configuration.write_kubeconfig(rehearsal)
        return
    with Step(
        f"starting the control plane{rehearsal.cluster and f' of {rehearsal.cluster}'}"
    ) as progress:
        for _ in range(_PORT_ATTEMPTS):
            stop(rehearsal)
            configuration.configure(rehearsal, tools)
            try:
                _create(rehearsal, tools, progress)
            except _PortTakenError:
                continue
            except BaseException:
                stop(rehearsal)
                raise
            configuration.write_kubeconfig(rehearsal)
            return
        stop(rehearsal)
        raise RehearsalError(
            f"other programs took the control plane's ports {_PORT_ATTEMPTS} times while it started. Try again"
        )


def stop(rehearsal: Rehearsal) -> None:
    """Stop the control plane and keep its data. A kill is what etcd is built to survive."""
    # kwokctl first: it would go on starting processes.
    kwokctl = _kwokctl(rehearsal)
    if found := kwokctl.find():
        with suppress(psutil.NoSuchProcess):
            found.suspend()  # or it might start another kubectl meanwhile
            end([found, *found.children(recursive=True)])
    kwokctl.stop()
    while found := list(_started(rehearsal)):
        end(found)
    # No pid file is left for kwokctl to trust.
    shutil.rmtree(configuration.cluster_folder(rehearsal) / "pids", ignore_errors=True)


def delete(rehearsal: Rehearsal) -> None:
    """Stop the control plane and remove everything that it wrote."""
    stop(rehearsal)
    shutil.rmtree(rehearsal.cluster_dir, ignore_errors=True)
    rehearsal.kubeconfig.unlink(missing_ok=True)


def processes(rehearsal: Rehearsal) -> list[Process]:
    """The control plane's processes, whether or not they run."""
    cluster = configuration.cluster_folder(rehearsal)
    return [
        Process(name, cluster / "pids" / name, cluster / "logs" / f"{name}.log")
        for name in COMPONENTS
    ]


def _kwokctl(rehearsal: Rehearsal) -> Process:
    folder = rehearsal.cluster_dir
    return Process("kwokctl", folder / "kwokctl.pid", folder / "kwokctl.log")


def _started(rehearsal: Rehearsal) -> Iterator[psutil.Process]:
    """The processes that run, and by their executable those of which no record was made, or is left."""
    folder = configuration.cluster_folder(rehearsal) / "bin"
    known = {found.pid: found for process in processes(rehearsal) if (found := process.find())}
    yield from known.values()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"]
        if command and Path(command[0]).parent == folder and process.pid not in known:
            yield process


def _create(rehearsal: Rehearsal, tools: Tools, progress: Step) -> None:
    """Run kwokctl, and watch what it starts: alone, it would wait for minutes for an API server that has died."""
    kwokctl = _kwokctl(rehearsal)
    environment = _environment(rehearsal, tools)
    command = [
        tools.kwokctl,
        "create",
        "cluster",
        "--config",
        configuration.config_file(rehearsal),
        "--kubeconfig",
        "",
    ]
    running = kwokctl.launch(command, env=environment)
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        _record(rehearsal)
        impatient = _require_alive(rehearsal)
        if impatient and running.poll() == 0:
            for process in impatient:
                process.file.unlink()
                process.file.with_suffix(".pid").unlink()
            running = kwokctl.launch([tools.kwokctl, "start", "cluster"], env=environment)
        if running.poll():
            raise RehearsalError(
                f"kwokctl could not set the control plane up. {kwokctl.end_of_log}"
            )
        missing = _missing(rehearsal)
        if not missing and running.poll() == 0:
            return
        if time.monotonic() > deadline:
            name, what = next(iter(missing.items()), ("kwokctl", "still running"))
            late = next(
                (process for process in processes(rehearsal) if process.name == name), kwokctl
            )
            raise RehearsalError(
                f"{name} was not ready within {_READY_SECONDS} s: {what}. {late.end_of_log}"
            )
        progress.detail(", ".join(missing))
        time.sleep(0.1)


def _record(rehearsal: Rehearsal) -> None:
    """Record what kwokctl has started: its own files hold pids alone."""
    for process in processes(rehearsal):
        if not process.file.exists() and (
            pid := read_text(process.file.with_suffix(".pid")).strip()
        ):
            process.record(int(pid))


def _environment(rehearsal: Rehearsal, tools: Tools) -> dict[str, str]:
    """The user's environment without kwok's own variables, and with our kubectl, which kwokctl takes from PATH."""
    ambient = {name: value for name, value in os.environ.items() if not name.startswith("KWOK_")}
    path = os.pathsep.join([str(tools.kubectl.parent), ambient.get("PATH", os.defpath)])
    # Its folder is below its HOME: of a path in KWOK_WORKDIR it takes what stands before the first space.
    own = {"HOME": str(rehearsal.cluster_dir.resolve()), "PATH": path}
    return {"GOMEMLIMIT": _GO_MEMORY} | ambient | own


def _require_alive(rehearsal: Rehearsal) -> list[Process]:
    """Fail where a process that kwokctl started has ended: the first one, since the others depend on it.

    But those that gave an API server on a busy machine up too soon are to start again.
    """
    ended = [process for process in processes(rehearsal) if process.has_ended]
    for process in ended:
        if "address already in use" in read_text(process.log):
            raise _PortTakenError
        if not any(said in process.end_of_log for said in _GAVE_UP):
            raise RehearsalError(
                f"{process.name} ended as soon as it was started. If its log does not tell you what to change, start "
                f"afresh: {rehearsal.command('down')}, then {rehearsal.command('up')}. {process.end_of_log}"
            )
    return ended


def _missing(rehearsal: Rehearsal) -> dict[str, str]:
    """What keeps components from being ready, the API server before all others; empty when all of them are."""
    missing = {
        process.name: "it does not run" for process in processes(rehearsal) if not process.running
    }
    if missing:
        return missing
    ports, admin = configuration.ports(rehearsal), configuration.admin_context(rehearsal)
    default_account = "/api/v1/namespaces/default/serviceaccounts/default"
    for name, port, path, context in (
        ("kube-apiserver", "kubeApiserverPort", "/readyz", admin),
        ("kube-controller-manager", "kubeControllerManagerPort", "/healthz", admin),
        ("kube-controller-manager", "kubeApiserverPort", default_account, admin),
        ("kube-scheduler", "kubeSchedulerPort", "/readyz", admin),
        ("kwok-controller", "kwokControllerPort", "/readyz", None),
    ):
        if wrong := probe(ports[port], path, context):
            missing.setdefault(name, wrong)
        if "kube-apiserver" in missing:
            break
    return missing


def probe(port: int, path: str, context: ssl.SSLContext | None = None) -> str | None:
    """Ask for a path; return what is wrong, or nothing when the answer is 200."""
    # Not urllib3: it warns the user of each certificate that is not verified.
    connect = partial(HTTPSConnection, context=context) if context else HTTPConnection
    try:
        with closing(connect(configuration.LOOPBACK, port, timeout=5)) as connection:
            connection.request("GET", path)
            status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        return f"no answer at {path} ({error})"
    return None if status == 200 else f"{path} answers {status}"
