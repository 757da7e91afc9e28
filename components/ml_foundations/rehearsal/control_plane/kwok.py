"""The replica's control plane: the real etcd, API server, controller manager and scheduler, and kwok for the nodes.

kwokctl's binary runtime writes the certificates and starts the processes. This module chooses the ports, waits until
all of it is ready, and recovers after a crash or a reboot: whatever is left is stopped, and kwokctl sets the cluster
up again around the certificates and the etcd data that it finds.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from ml_foundations.rehearsal.files import write
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, Step, step
from ml_foundations.rehearsal.tools.toolchain import Tools

LOOPBACK = "127.0.0.1"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
PORT_OPTIONS = (
    "etcdPort",
    "etcdPeerPort",
    "kubeApiserverPort",
    "kubeControllerManagerPort",
    "kubeSchedulerPort",
    "kwokControllerPort",
)
"""The ports to choose, by the names of kwokctl's options."""
PORT_RANGE = range(20000, 30000)
"""Below the ports that operating systems give to outgoing connections, and below Kubernetes' own node ports."""
PORT_ATTEMPTS = 3
READY_SECONDS = 60
KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""kwok's own Stage documents that a replica uses as they are; the others are in ``control_plane/stages``."""
OWN_STAGES = Path(__file__).parent / "stages"


@dataclass(frozen=True)
class Process:
    """A process of a rehearsal, as ``status`` shows it."""

    name: str
    pid: int | None
    running: bool


@dataclass(frozen=True)
class Credentials:
    """Where the API server is, and the administrator's way in."""

    server: str
    ca: Path
    cert: Path
    key: Path


class _PortTakenError(Exception):
    """Another program took a port between its choice and its use."""


def start(rehearsal: Rehearsal, tools: Tools) -> None:
    """Bring the control plane up, whatever state it is in; return at once where it is up already.

    Raises:
        RehearsalError: it did not become ready; the message names the process and shows the end of its log.
    """
    rehearsal.make()
    if _is_current(rehearsal, tools) and _has_certificates(rehearsal) and not _problems(rehearsal):
        return
    with step("starting the control plane") as progress:
        for _ in range(PORT_ATTEMPTS):
            stop(rehearsal)
            _configure(rehearsal, tools)
            try:
                _create(rehearsal, tools, progress)
            except _PortTakenError:
                continue
            except BaseException:
                stop(rehearsal)
                raise
            _write_kubeconfig(rehearsal)
            return
        stop(rehearsal)
        raise RehearsalError(
            f"other programs took the control plane's ports {PORT_ATTEMPTS} times while it started. Try again"
        )


def stop(rehearsal: Rehearsal) -> None:
    """Stop the control plane and keep its data.

    Processes are found by their executable, not by kwokctl's pid files: a number in a file may by now be the pid of
    an innocent process. Nor is a pid file left for kwokctl to trust. A kill is what etcd is built to survive.
    """
    for _, process in _own_processes(rehearsal):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    while _own_processes(rehearsal):
        time.sleep(0.02)
    shutil.rmtree(_cluster(rehearsal) / "pids", ignore_errors=True)


def delete(rehearsal: Rehearsal) -> None:
    """Stop the control plane and remove everything that it wrote."""
    stop(rehearsal)
    shutil.rmtree(rehearsal.cluster_dir, ignore_errors=True)
    rehearsal.kubeconfig.unlink(missing_ok=True)


def processes(rehearsal: Rehearsal) -> list[Process]:
    """The control plane's processes, whether or not they run."""
    pids = {name: process.pid for name, process in _own_processes(rehearsal)}
    return [Process(name, pids.get(name), name in pids) for name in COMPONENTS]


def credentials(rehearsal: Rehearsal) -> Credentials:
    """The API server's address and the administrator's certificate.

    Raises:
        RehearsalError: the control plane was never started.
    """
    ports = _ports(rehearsal)
    if not ports:
        raise RehearsalError(f"{rehearsal.stack} has no control plane. Start it: {rehearsal.command('up')}")
    pki = _cluster(rehearsal) / "pki"
    server = f"https://{LOOPBACK}:{ports['kubeApiserverPort']}"
    return Credentials(server, ca=pki / "ca.crt", cert=pki / "admin.crt", key=pki / "admin.key")


def _cluster(rehearsal: Rehearsal) -> Path:
    """The folder in which kwokctl keeps the one cluster of this rehearsal."""
    return rehearsal.cluster_dir.resolve() / "clusters" / "kwok"


def _own_processes(rehearsal: Rehearsal) -> list[tuple[str, psutil.Process]]:
    """Every live process that was started from this cluster's bin folder, with its component's name."""
    folder = _cluster(rehearsal) / "bin"
    own: list[tuple[str, psutil.Process]] = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if command and (executable := Path(command[0])).parent == folder:
            own.append((executable.name, process))
    return own


# --- Configuration


def _is_current(rehearsal: Rehearsal, tools: Tools) -> bool:
    """Whether the cluster was set up with these tools, options and stages."""
    config = _config_file(rehearsal)
    return config.exists() and config.read_text() == _configuration(rehearsal, tools, _ports(rehearsal))


def _configure(rehearsal: Rehearsal, tools: Tools) -> None:
    """Write the configuration, with the ports of the last start as far as they are free."""
    cluster = _cluster(rehearsal)
    if not _has_certificates(rehearsal):
        shutil.rmtree(cluster, ignore_errors=True)
    # Without these, kwokctl sets the cluster up again; it leaves the certificates and the data as they are.
    (cluster / "kwok.yaml").unlink(missing_ok=True)
    shutil.rmtree(cluster / "bin", ignore_errors=True)
    ports = free_ports(PORT_OPTIONS, _ports(rehearsal))
    write(_ports_file(rehearsal), json.dumps(ports))
    write(_config_file(rehearsal), _configuration(rehearsal, tools, ports))


def _has_certificates(rehearsal: Rehearsal) -> bool:
    """Whether the certificates are whole: where kwokctl was killed while it wrote them, nothing had started yet."""
    try:
        _admin_context(rehearsal)
    except (OSError, RehearsalError):
        return False
    return True


def free_ports(names: Iterable[str], previous: Mapping[str, int]) -> dict[str, int]:
    """A free port for each name: the one of before, where it is free."""
    candidates = iter(random.sample(PORT_RANGE, len(PORT_RANGE)))
    ports: dict[str, int] = {}
    for name in names:
        kept = previous.get(name)
        ports[name] = kept if kept and _gets_free(kept) else next(port for port in candidates if _is_free(port))
    return ports


def _gets_free(port: int) -> bool:
    """Whether a port is free, or soon will be: a process that was killed keeps its ports for a moment."""
    deadline = time.monotonic() + 1
    while not (free := _is_free(port)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _ports(rehearsal: Rehearsal) -> dict[str, int]:
    """The ports of the last start; none before the first."""
    file = _ports_file(rehearsal)
    return json.loads(file.read_text()) if file.exists() else {}


def _ports_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.cluster_dir / "ports.json"


def _config_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.cluster_dir / "kwokctl.yaml"


def _configuration(rehearsal: Rehearsal, tools: Tools, ports: Mapping[str, int]) -> str:
    """Everything that kwokctl and kwok are told, as one stream of YAML documents."""
    api_version = "config.kwok.x-k8s.io/v1alpha1"
    kwokctl = {
        "apiVersion": api_version,
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "bindAddress": LOOPBACK,
            "securePort": True,
            "kubeAuthorization": True,
            "disableQPSLimits": True,
            # kwok's heartbeats come every 10 minutes: of nodes that cannot fail, none need be missed.
            "kubeControllerManagerNodeMonitorGracePeriodMilliseconds": 3_600_000,
            "etcdBinary": str(tools.etcd),
            "kubeApiserverBinary": str(tools.kube_apiserver),
            "kubeControllerManagerBinary": str(tools.kube_controller_manager),
            "kubeSchedulerBinary": str(tools.kube_scheduler),
            "kwokControllerBinary": str(tools.kwok),
            "kubectlBinary": str(tools.kubectl),
            **ports,
        },
        "componentsPatches": _component_patches(_cluster(rehearsal) / "pki", ports),
    }
    kwok = {
        "apiVersion": api_version,
        "kind": "KwokConfiguration",
        "options": {
            "podPlayStageParallelism": 32,
            "nodePlayStageParallelism": 16,
        },
    }
    stages = [tools.kwok_stages / name for name in KWOK_STAGES] + sorted(OWN_STAGES.glob("*.yaml"))
    documents = [yaml.safe_dump(kwokctl), yaml.safe_dump(kwok), *(stage.read_text() for stage in stages)]
    return "---\n".join(documents)


def _component_patches(pki: Path, ports: Mapping[str, int]) -> list[dict[str, Any]]:
    """The flags that differ from kwokctl's own."""
    if not ports:
        return []
    ca, cert, key = str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")
    client, peer = (f"https://{LOOPBACK}:{ports[option]}" for option in ("etcdPort", "etcdPeerPort"))
    # kwokctl's etcd speaks plain HTTP, open to every user of the machine; here it asks for the admin certificate.
    etcd = {
        "cert-file": cert,
        "key-file": key,
        "trusted-ca-file": ca,
        "client-cert-auth": "true",
        "peer-cert-file": cert,
        "peer-key-file": key,
        "peer-trusted-ca-file": ca,
        "peer-client-cert-auth": "true",
    }
    etcd_urls = {
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"node0={peer}",
    }
    apiserver = {
        "etcd-cafile": ca,
        "etcd-certfile": cert,
        "etcd-keyfile": key,
        "anonymous-auth": "false",
        "enable-admission-plugins": "ExtendedResourceToleration",
        # No pod connects to the API server, and a machine without a network has no address to advertise.
        "advertise-address": LOOPBACK,
        "endpoint-reconciler-type": "none",
    }
    # With one process of each kind, a lease would only make its successor wait after a crash.
    alone = {"leader-elect": "false"}
    return [
        _patch("etcd", etcd, overridden=etcd_urls),
        _patch("kube-apiserver", apiserver, overridden={"etcd-servers": client}),
        _patch("kube-controller-manager", {"concurrent-job-syncs": "20", **alone}),
        _patch("kube-scheduler", alone),
        _patch("kwok-controller", {}, overridden={"node-lease-duration-seconds": "0"}),
    ]


def _patch(component: str, added: Mapping[str, str], overridden: Mapping[str, str] | None = None) -> dict[str, Any]:
    arguments = [{"key": key, "value": value, "override": False} for key, value in added.items()]
    arguments += [{"key": key, "value": value, "override": True} for key, value in (overridden or {}).items()]
    return {"name": component, "extraArgs": arguments}


def _write_kubeconfig(rehearsal: Rehearsal) -> None:
    access = credentials(rehearsal)
    name = f"gke_rehearsal_local_{rehearsal.stack}"
    cluster = {"server": access.server, "certificate-authority-data": _base64(access.ca)}
    user = {"client-certificate-data": _base64(access.cert), "client-key-data": _base64(access.key)}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    write(rehearsal.kubeconfig, yaml.safe_dump(kubeconfig, sort_keys=False))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


# --- Start and readiness


def _create(rehearsal: Rehearsal, tools: Tools, progress: Step) -> None:
    """Run kwokctl, and watch what it starts: alone, it would wait for minutes for an API server that has died."""
    log = rehearsal.cluster_dir / "kwokctl.log"
    log.touch(mode=0o600)
    with log.open("w") as output:
        kwokctl = subprocess.Popen(
            [tools.kwokctl, "create", "cluster", "--config", _config_file(rehearsal), "--kubeconfig", ""],
            env=_environment(rehearsal, tools),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            umask=0o077,
        )
    try:
        _wait_until_ready(rehearsal, kwokctl, log, progress)
    finally:
        if kwokctl.poll() is None:
            # Its kubectl, which asks whether the API server is ready, would outlive it.
            for process in (*psutil.Process(kwokctl.pid).children(recursive=True), kwokctl):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            kwokctl.wait()


def _environment(rehearsal: Rehearsal, tools: Tools) -> dict[str, str]:
    """The user's environment without kwok's own variables, and with our kubectl, which kwokctl takes from PATH."""
    ambient = {name: value for name, value in os.environ.items() if not name.startswith("KWOK_")}
    path = os.pathsep.join([str(tools.kubectl.parent), ambient.get("PATH", os.defpath)])
    return ambient | {"KWOK_WORKDIR": str(rehearsal.cluster_dir.resolve()), "PATH": path}


def _wait_until_ready(rehearsal: Rehearsal, kwokctl: subprocess.Popen[bytes], log: Path, progress: Step) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        _require_alive(rehearsal)
        if kwokctl.poll():
            raise RehearsalError(f"kwokctl could not set the control plane up. {_end_of(log)}")
        problems = _problems(rehearsal)
        if not problems and kwokctl.poll() == 0:
            return
        if time.monotonic() > deadline:
            name, problem = next(iter(problems.items()), ("kwokctl", "still running"))
            raise RehearsalError(
                f"{name} was not ready within {READY_SECONDS} s: {problem}. "
                f"{_end_of(log if name == 'kwokctl' else _log(rehearsal, name))}"
            )
        progress.detail(", ".join(problems))
        time.sleep(0.1)


def _require_alive(rehearsal: Rehearsal) -> None:
    """Fail where a process that kwokctl started has ended: the first one, since the others depend on it."""
    started = {file.stem for file in (_cluster(rehearsal) / "pids").glob("*.pid")}
    for process in processes(rehearsal):
        name = process.name
        if process.running or name not in started:
            continue
        log = _log(rehearsal, name)
        if "address already in use" in log.read_text(errors="replace"):
            raise _PortTakenError
        raise RehearsalError(
            f"{name} ended as soon as it was started. If its log does not tell you what to change, start afresh: "
            f"{rehearsal.command('down')}, then {rehearsal.command('up')}. {_end_of(log)}"
        )


def _log(rehearsal: Rehearsal, name: str) -> Path:
    return _cluster(rehearsal) / "logs" / f"{name}.log"


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"The end of {log}:", *lines[-20:]])


def _problems(rehearsal: Rehearsal) -> dict[str, str]:
    """What keeps each component from being ready; empty when all of them are."""
    problems = {process.name: "it does not run" for process in processes(rehearsal) if not process.running}
    if problems:
        return problems
    ports, admin = _ports(rehearsal), _admin_context(rehearsal)
    # The controller manager's and the scheduler's own certificates are made at start and signed by nobody.
    unverified = ssl._create_unverified_context()
    default_account = "/api/v1/namespaces/default/serviceaccounts/default"
    for name, port, path, context in (
        ("kube-apiserver", "kubeApiserverPort", "/readyz", admin),
        ("kube-controller-manager", "kubeControllerManagerPort", "/healthz", unverified),
        ("kube-controller-manager", "kubeApiserverPort", default_account, admin),
        ("kube-scheduler", "kubeSchedulerPort", "/readyz", unverified),
        ("kwok-controller", "kwokControllerPort", "/readyz", None),
    ):
        problem = _probe(ports[port], path, context)
        if problem:
            problems.setdefault(name, problem)
    return problems


def _admin_context(rehearsal: Rehearsal) -> ssl.SSLContext:
    access = credentials(rehearsal)
    context = ssl.create_default_context(cafile=str(access.ca))
    context.load_cert_chain(access.cert, access.key)
    return context


def _probe(port: int, path: str, context: ssl.SSLContext | None) -> str | None:
    """Ask for a path; return what is wrong, or nothing when the answer is 200."""
    if context is None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    else:
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=5, context=context)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer at {path} ({error})"
    finally:
        connection.close()
    return None if status == http.HTTPStatus.OK else f"{path} answers {status}"
