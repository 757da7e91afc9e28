"""The replica's control plane: etcd, API server, controller manager, scheduler, and kwok.

kwokctl's binary runtime writes the certificates and starts the processes. This module chooses the
ports, waits until all processes are ready, and recovers after a crash or a reboot: it stops the
remaining processes, and kwokctl sets the cluster up again with the existing certificates and data.
"""

import os
import shutil
import ssl
import time
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

_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
COMPONENTS = ("etcd", *_KUBERNETES, "kwok-controller")
_PORT_ATTEMPTS = 3
_READY_SECONDS = 300
_GO_MEMORY = "2500MiB"
"""The soft memory limit of each process, so that 5,000 nodes with 40,000 pods fit into 8 GB."""
_GAVE_UP = ("failed to wait for apiserver", "Failed to list nodes")
"""The last log lines of the controller manager and kwok if the API server needs over 10 s."""


class _PortTakenError(Exception):
    """Another program took a port between its choice and its use."""


def start(rehearsal: Rehearsal, tools: Tools) -> None:
    """Start the control plane, whatever state it is in; return at once if it is ready."""
    rehearsal.make()
    if configuration.is_current(rehearsal, tools) and not _not_ready(rehearsal):
        if not rehearsal.kubeconfig.exists():  # an earlier start was killed before this step
            configuration.write_kubeconfig(rehearsal)
        return
    of_cluster = rehearsal.cluster and f" of {rehearsal.cluster}"
    with Step(f"starting the control plane{of_cluster}") as progress:
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
        times = f"{_PORT_ATTEMPTS} times while it started"
        raise RehearsalError(f"other programs took the control plane's ports {times}. Try again")


def stop(rehearsal: Rehearsal) -> None:
    """Stop the control plane and keep its data. The processes are killed: etcd survives that."""
    # kwokctl first, as it would go on starting processes.
    kwokctl = _kwokctl(rehearsal)
    if process := kwokctl.find():
        with suppress(psutil.NoSuchProcess):
            process.suspend()  # so that it starts no other kubectl meanwhile
            end([process, *process.children(recursive=True)])
    kwokctl.stop()
    while running := _running_processes(rehearsal):
        end(running)
    # kwokctl would trust its pid files.
    shutil.rmtree(configuration.cluster_folder(rehearsal) / "pids", ignore_errors=True)


def delete(rehearsal: Rehearsal) -> None:
    """Stop the control plane and remove all of its files."""
    stop(rehearsal)
    shutil.rmtree(rehearsal.cluster_dir, ignore_errors=True)
    rehearsal.kubeconfig.unlink(missing_ok=True)


def processes(rehearsal: Rehearsal) -> list[Process]:
    """Return the control plane's processes, whether or not they run."""
    cluster = configuration.cluster_folder(rehearsal)
    pids = cluster / "pids"
    logs = cluster / "logs"
    return [Process(name, pids / name, logs / f"{name}.log") for name in COMPONENTS]


def _kwokctl(rehearsal: Rehearsal) -> Process:
    folder = rehearsal.cluster_dir
    return Process("kwokctl", folder / "kwokctl.pid", folder / "kwokctl.log")


def _running_processes(rehearsal: Rehearsal) -> list[psutil.Process]:
    folder = configuration.cluster_folder(rehearsal) / "bin"
    running = {*filter(None, (component.find() for component in processes(rehearsal)))}
    # A process whose record is missing is found by the folder of its executable.
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"]
        if command and Path(command[0]).parent == folder:
            running.add(process)
    return list(running)


def _create(rehearsal: Rehearsal, tools: Tools, progress: Step) -> None:
    """Run kwokctl until all processes are ready, and watch them."""
    # kwokctl itself would wait for minutes for an API server that has ended.
    kwokctl = _kwokctl(rehearsal)
    environment = _environment(rehearsal, tools)
    create = [tools.kwokctl, "create", "cluster", "--config"]
    command = [*create, configuration.config_file(rehearsal), "--kubeconfig", ""]
    child = kwokctl.launch(command, env=environment)
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        # Record what kwokctl has started: its own files contain only pids.
        for process in processes(rehearsal):
            pid = read_text(process.file.with_suffix(".pid")).strip()
            if pid and not process.file.exists():
                process.record(int(pid))
        ended = _ended_early(rehearsal)
        if ended and child.poll() == 0:
            for process in ended:
                process.file.unlink()
                process.file.with_suffix(".pid").unlink()
            child = kwokctl.launch([tools.kwokctl, "start", "cluster"], env=environment)
        if child.poll():
            failure = "kwokctl could not set the control plane up"
            raise RehearsalError(f"{failure}. {kwokctl.end_of_log}")
        waiting = _not_ready(rehearsal)
        if not waiting and child.poll() == 0:
            return
        if time.monotonic() > deadline:
            name, reason = next(iter(waiting.items()), ("kwokctl", "still running"))
            by_name = {process.name: process for process in processes(rehearsal)}
            failure = f"{name} was not ready within {_READY_SECONDS} s: {reason}"
            raise RehearsalError(f"{failure}. {by_name.get(name, kwokctl).end_of_log}")
        progress.detail(", ".join(waiting))
        time.sleep(0.1)


def _environment(rehearsal: Rehearsal, tools: Tools) -> dict[str, str]:
    """Return the user's environment without kwok's variables, and with our kubectl on PATH."""
    ambient = {name: value for name, value in os.environ.items() if not name.startswith("KWOK_")}
    path = os.pathsep.join([str(tools.kubectl.parent), ambient.get("PATH", os.defpath)])
    # kwokctl's folder is below HOME: it cuts a path in KWOK_WORKDIR at the first space.
    home = str(rehearsal.cluster_dir.resolve())
    return {"GOMEMLIMIT": _GO_MEMORY} | ambient | {"HOME": home, "PATH": path}


def _ended_early(rehearsal: Rehearsal) -> list[Process]:
    """Return the processes to start again: they gave up waiting for the API server."""
    ended = [process for process in processes(rehearsal) if process.has_ended]
    for process in ended:
        if "address already in use" in read_text(process.log):
            raise _PortTakenError
        # If a process ended for another reason, the first one has the cause.
        end_of_log = process.end_of_log
        if not any(line in end_of_log for line in _GAVE_UP):
            commands = f"{rehearsal.command('down')}, then {rehearsal.command('up')}"
            fix = f"If its log does not show what to change, start afresh: {commands}"
            failure = f"{process.name} ended as soon as it was started"
            raise RehearsalError(f"{failure}. {fix}. {end_of_log}")
    return ended


def _not_ready(rehearsal: Rehearsal) -> dict[str, str]:
    """Return why components are not ready. The API server alone is reported if it is not ready."""
    stopped = [process.name for process in processes(rehearsal) if not process.running]
    if stopped:
        return dict.fromkeys(stopped, "it does not run")
    unready: dict[str, str] = {}
    ports = configuration.ports(rehearsal)
    admin = configuration.admin_context(rehearsal)
    default_account = "/api/v1/namespaces/default/serviceaccounts/default"
    for name, port, path, context in (
        ("kube-apiserver", "kubeApiserverPort", "/readyz", admin),
        ("kube-controller-manager", "kubeControllerManagerPort", "/healthz", admin),
        ("kube-controller-manager", "kubeApiserverPort", default_account, admin),
        ("kube-scheduler", "kubeSchedulerPort", "/readyz", admin),
        ("kwok-controller", "kwokControllerPort", "/readyz", None),
    ):
        if reason := probe(ports[port], path, context):
            unready.setdefault(name, reason)
        if "kube-apiserver" in unready:
            break
    return unready


def probe(port: int, path: str, context: ssl.SSLContext | None = None) -> str | None:
    """Request a path. Return what is wrong, or None if the answer is 200."""
    # Not urllib3: it warns the user of each certificate that is not verified.
    connect = partial(HTTPSConnection, context=context) if context else HTTPConnection
    try:
        with closing(connect(configuration.LOOPBACK, port, timeout=5)) as connection:
            connection.request("GET", path)
            status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        return f"no answer at {path} ({error})"
    return None if status == 200 else f"{path} answers {status}"
