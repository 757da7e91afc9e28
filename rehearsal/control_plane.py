"""The replica's control plane: real etcd and Kubernetes components, kept by kwokctl's binary runtime.

kwokctl makes the certificates, finds free ports and starts the processes. This module writes its configuration, guards
its pid files (kwokctl kills whatever pid a file names, and takes a reused pid for its own), and puts a crashed or
rebooted control plane back on its feet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import urllib3
import yaml

from rehearsal.layout import Rehearsal
from rehearsal.progress import RehearsalError, step
from rehearsal.toolchain import Tools

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
READY_SECONDS = 60
STAGES = Path(__file__).parent / "stages"
KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/general/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
"""Stages of kwok: nodes and pods get ready at once; the pods of a Job run for 1 to 5 seconds, so that they are seen."""


@dataclass(frozen=True)
class Process:
    """A process that a rehearsal needs."""

    name: str
    pid: int
    """0 where it has none."""
    running: bool


@dataclass(frozen=True)
class Credentials:
    """What a client needs to reach the API server as its administrator."""

    server: str
    ca: Path
    cert: Path
    key: Path


def start(rehearsal: Rehearsal, tools: Tools) -> None:
    """Bring the control plane up: create it, restart what has died, or find that all is well.

    Raises:
        RehearsalError: a component does not get ready; the message names it and shows the end of its log.
    """
    if _is_ready(rehearsal):
        return
    with step("starting the control plane"):
        _forget_dead_pids(rehearsal)
        if _is_created(rehearsal):
            # kwokctl's start alone hangs beside survivors of a crash: stop them first.
            _kwokctl(rehearsal, tools, "stop", "cluster")
            _kwokctl(rehearsal, tools, "start", "cluster", "--wait", f"{READY_SECONDS}s")
        else:
            _create(rehearsal, tools)
        _write_kubeconfig(rehearsal)
        _wait_until_ready(rehearsal)


def stop(rehearsal: Rehearsal, tools: Tools) -> None:
    """Stop every process and keep the data."""
    _forget_dead_pids(rehearsal)
    if _is_created(rehearsal):
        _kwokctl(rehearsal, tools, "stop", "cluster")
    _kill_leftovers(rehearsal)


def delete(rehearsal: Rehearsal, tools: Tools) -> None:
    """Stop every process and remove every file of the control plane."""
    _forget_dead_pids(rehearsal)
    if _is_created(rehearsal):
        _kwokctl(rehearsal, tools, "delete", "cluster")
    _kill_leftovers(rehearsal)
    shutil.rmtree(rehearsal.cluster_dir, ignore_errors=True)
    rehearsal.kubeconfig.unlink(missing_ok=True)


def processes(rehearsal: Rehearsal) -> list[Process]:
    """The control plane's processes, running or not."""
    return [_process(rehearsal, name) for name in COMPONENTS]


def credentials(rehearsal: Rehearsal) -> Credentials:
    """Where the API server is, and the administrator's certificate.

    Raises:
        RehearsalError: the control plane has not been created.
    """
    kubeconfig = _home(rehearsal) / "kubeconfig.yaml"
    if not kubeconfig.exists():
        raise RehearsalError(f"{rehearsal.stack} is not up. Start it: make up STACK={rehearsal.stack}")
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    pki = _home(rehearsal) / "pki"
    return Credentials(server, pki / "ca.crt", pki / "admin.crt", pki / "admin.key")


def configuration(tools: Tools) -> str:
    """Kwokctl's configuration: our binaries on loopback, GKE's admission, and how nodes, pods and volumes live."""
    kwokctl = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "etcdBinary": str(tools.etcd),
            "kubeApiserverBinary": str(tools.kube_apiserver),
            "kubeControllerManagerBinary": str(tools.kube_controller_manager),
            "kubeSchedulerBinary": str(tools.kube_scheduler),
            "kwokControllerBinary": str(tools.kwok),
            "kubectlBinary": str(tools.kubectl),
            "bindAddress": "127.0.0.1",
            "disableQPSLimits": True,
        },
        "componentsPatches": [
            # GKE tolerates the GPU taint for pods that request GPUs, by this admission plugin.
            _flags("kube-apiserver", {"enable-admission-plugins": "ExtendedResourceToleration"}),
            _flags("kube-controller-manager", {"concurrent-job-syncs": "20"}),
        ],
    }
    kwok = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {"podPlayStageParallelism": 32, "nodePlayStageParallelism": 16, "nodeLeaseParallelism": 16},
    }
    stages = [tools.kwok_stages / name for name in KWOK_STAGES] + sorted(STAGES.glob("*.yaml"))
    documents = [yaml.safe_dump(kwokctl), yaml.safe_dump(kwok), *(path.read_text() for path in stages)]
    return "\n---\n".join(documents)


def _flags(component: str, flags: dict[str, str]) -> dict[str, Any]:
    return {"name": component, "extraArgs": [{"key": key, "value": value} for key, value in flags.items()]}


def _home(rehearsal: Rehearsal) -> Path:
    """Kwokctl's folder of this cluster."""
    return rehearsal.cluster_dir / "clusters" / rehearsal.stack


def _is_created(rehearsal: Rehearsal) -> bool:
    return (_home(rehearsal) / "kwok.yaml").exists() and (_home(rehearsal) / "etcd" / "member").exists()


def _create(rehearsal: Rehearsal, tools: Tools) -> None:
    """Create the cluster, over what an interrupted creation may have left."""
    _kill_leftovers(rehearsal)
    shutil.rmtree(rehearsal.cluster_dir, ignore_errors=True)
    rehearsal.cluster_dir.mkdir(mode=0o700)
    config = rehearsal.cluster_dir / "kwokctl.yaml"
    config.write_text(configuration(tools))
    _kwokctl(rehearsal, tools, "create", "cluster", "--config", str(config), "--wait", f"{READY_SECONDS}s")
    for path in rehearsal.cluster_dir.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() or path.parent.name == "bin" else 0o600)


def _kwokctl(rehearsal: Rehearsal, tools: Tools, *args: str) -> None:
    environment = dict(os.environ) | {"KWOK_WORKDIR": str(rehearsal.cluster_dir)}
    done = subprocess.run(
        [tools.kwokctl, *args, "--name", rehearsal.stack],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        umask=0o077,
    )
    if done.returncode != 0:
        raise RehearsalError(_why_not_ready(rehearsal, f"kwokctl {args[0]} failed:\n{done.stderr.strip()[-1500:]}"))


def _is_ready(rehearsal: Rehearsal) -> bool:
    return rehearsal.kubeconfig.exists() and all(p.running for p in processes(rehearsal)) and _answers(rehearsal)


def _answers(rehearsal: Rehearsal) -> bool:
    """Whether the API server says that it is ready."""
    access = credentials(rehearsal)
    with urllib3.PoolManager(
        ca_certs=str(access.ca), cert_file=str(access.cert), key_file=str(access.key), retries=False, timeout=2
    ) as pool:
        try:
            return pool.request("GET", f"{access.server}/readyz").status == 200
        except urllib3.exceptions.HTTPError:
            return False


def _wait_until_ready(rehearsal: Rehearsal) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _is_ready(rehearsal):
        if time.monotonic() > deadline or not all(p.running for p in processes(rehearsal)):
            raise RehearsalError(_why_not_ready(rehearsal, "the control plane does not get ready"))
        time.sleep(0.1)


def _why_not_ready(rehearsal: Rehearsal, message: str) -> str:
    """Name the first component that is down, and show the end of its log."""
    for process in processes(rehearsal):
        log = _home(rehearsal) / "logs" / f"{process.name}.log"
        if not process.running and log.exists():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            return f"{process.name} does not run; the end of its log ({log}):\n{tail}\n\n{message}"
    return message


def _write_kubeconfig(rehearsal: Rehearsal) -> None:
    access = credentials(rehearsal)
    name = f"rehearsal-{rehearsal.stack}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": access.server, "certificate-authority": str(access.ca)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [
            {"name": name, "user": {"client-certificate": str(access.cert), "client-key": str(access.key)}},
        ],
    }
    draft = rehearsal.kubeconfig.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(yaml.safe_dump(config))
    draft.replace(rehearsal.kubeconfig)


def _process(rehearsal: Rehearsal, name: str) -> Process:
    pid = _recorded_pid(rehearsal, name)
    running = pid > 0 and _is_ours(rehearsal, pid)
    return Process(name, pid if running else 0, running)


def _recorded_pid(rehearsal: Rehearsal, name: str) -> int:
    try:
        return int((_home(rehearsal) / "pids" / f"{name}.pid").read_text())
    except (OSError, ValueError):
        return 0


def _is_ours(rehearsal: Rehearsal, pid: int) -> bool:
    """Whether a pid is a process that was started from this cluster's own folder."""
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
        return bool(command) and Path(command[0]).parent == _home(rehearsal) / "bin" and process.status() != "zombie"
    except psutil.Error:
        return False


def _forget_dead_pids(rehearsal: Rehearsal) -> None:
    """Remove pid files that name no process of ours, before kwokctl acts on them."""
    for name in COMPONENTS:
        if not _process(rehearsal, name).running:
            (_home(rehearsal) / "pids" / f"{name}.pid").unlink(missing_ok=True)


def _kill_leftovers(rehearsal: Rehearsal) -> None:
    """End processes of this cluster that no pid file names, such as those of an interrupted creation."""
    ours = [process for process in psutil.process_iter() if _is_ours(rehearsal, process.pid)]
    for process in ours:
        process.kill()
    psutil.wait_procs(ours, timeout=10)
