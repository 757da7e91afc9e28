"""The real controllers of Kueue and JobSet beside the control plane, for stacks that declare queues or JobSets.

What the project's own Helm chart would install goes into the replica: kinds and webhooks. Where a cluster would run the
controller in a pod, a process of the rehearsal runs it, on loopback. The API server finds its webhooks as in a cluster,
by their Service: here one that stands for this machine (type ExternalName).
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from ml_foundations.catalog.kueue import FRAMEWORKS, NAMESPACE
from ml_foundations.rehearsal.cloud.store import read_json, write_json
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.control_plane.kwok import LOOPBACK, Process
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, step
from ml_foundations.rehearsal.tools import toolchain
from ml_foundations.rehearsal.tools.toolchain import Group, Tools

READY_SECONDS = 180
STOP_SECONDS = 10
INSTALLED = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "Secret", "ValidatingWebhookConfiguration")
"""The kinds of a chart that a replica needs as they are; of the others, a process takes the place."""
CERTIFICATE_FILES = ("tls.key", "tls.crt")
"""The certificate comes last: a controller takes both as there when it is."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Controller:
    """A controller that is published as a Go module with its Helm chart in it."""

    group: Group
    namespace: str
    settings: Mapping[str, Any]
    """What its configuration says beside the chart's defaults."""
    makes_certificate: bool
    """Whether it makes its webhooks' certificate itself; otherwise it is the control plane's, which is good for it."""
    is_asked_for: Callable[[Any], bool]
    """Whether a section of a stack file needs it."""

    @property
    def name(self) -> str:
        """The name of the controller, its binary and its chart."""
        return self.group.name


def _queues(section: Any) -> bool:
    return isinstance(section, dict) and "queue" in section


def _is_job_set(section: Any) -> bool:
    return isinstance(section, dict) and section.get("jobset") is True


KUEUE = Controller(
    toolchain.KUEUE,
    NAMESPACE,
    # The visibility server is an API server of its own; nothing here asks it.
    {"featureGates": {"VisibilityOnDemand": False}, "integrations": {"frameworks": list(FRAMEWORKS)}},
    # Otherwise it insists on a certificate for its metrics in /etc/kueue.
    makes_certificate=True,
    is_asked_for=_queues,
)
JOBSET = Controller(
    toolchain.JOBSET,
    "jobset-system",
    {"internalCertManagement": {"enable": False}},
    # Otherwise it insists on a certificate in /tmp, which rehearsals would share.
    makes_certificate=False,
    is_asked_for=_is_job_set,
)
CONTROLLERS = (JOBSET, KUEUE)


def wanted(rehearsal: Rehearsal, stack_file: Path) -> list[Controller]:
    """The controllers that a stack file asks for, and those whose webhooks are in the replica already."""
    config = (yaml.safe_load(stack_file.read_text()) or {}).get("config", {})
    sections = list(_sections(config))
    return [
        controller
        for controller in CONTROLLERS
        if _state_file(rehearsal, controller).exists() or any(map(controller.is_asked_for, sections))
    ]


def start(rehearsal: Rehearsal, tools: Tools, controllers: Iterable[Controller]) -> None:
    """Install and start controllers, and wait until their webhooks answer; nothing to do for those that run.

    Raises:
        RehearsalError: one of them could not be built, or did not become ready.
    """
    for controller in controllers:
        folder = toolchain.build(controller.group)
        if not _runs_as_it_should(rehearsal, controller, folder):
            with step(f"starting {controller.name}"):
                _stop(rehearsal, controller)
                _start(rehearsal, tools, controller, folder)


def stop(rehearsal: Rehearsal) -> None:
    """Stop all controllers; what they installed stays in the replica."""
    for controller in CONTROLLERS:
        _stop(rehearsal, controller)


def processes(rehearsal: Rehearsal) -> list[Process]:
    """The processes of the controllers that this rehearsal has, whether or not they run."""
    installed = [controller for controller in CONTROLLERS if _state_file(rehearsal, controller).exists()]
    found = {controller.name: _find(rehearsal, controller) for controller in installed}
    return [Process(name, process.pid if process else None, process is not None) for name, process in found.items()]


def _sections(value: Any) -> Iterator[Any]:
    """Every mapping in a stack file."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _sections(item)
    elif isinstance(value, list):
        for item in value:
            yield from _sections(item)


# --- What is installed


def _start(rehearsal: Rehearsal, tools: Tools, controller: Controller, folder: Path) -> None:
    ports = kwok.free_ports(("health", "webhook"), read_json(_ports_file(rehearsal, controller), {}))
    write_json(_ports_file(rehearsal, controller), ports)
    # A certificate of before the replica lost its data would be no good.
    shutil.rmtree(_certificates(rehearsal, controller), ignore_errors=True)
    chart = _chart(tools, controller, folder)
    _install(rehearsal, tools, controller, chart, ports["webhook"])
    config = _folder(rehearsal, controller) / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(rehearsal, controller, chart, ports)))
    if not controller.makes_certificate:
        _mount_certificate(rehearsal, tools, controller)
    command = _command(rehearsal, controller, folder)
    with _log(rehearsal, controller).open("ab") as log:
        child = subprocess.Popen(
            command,
            cwd=_folder(rehearsal, controller),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    process = psutil.Process(child.pid)
    state = {"pid": child.pid, "create_time": process.create_time(), "digest": _digest(rehearsal, command)}
    write_json(_state_file(rehearsal, controller), state)
    _wait_until_ready(rehearsal, tools, controller, child, ports["health"])


def _chart(tools: Tools, controller: Controller, folder: Path) -> list[Object]:
    """The objects of the controller's own chart."""
    command = [tools.helm, "template", controller.name, folder / "chart", "--namespace", controller.namespace]
    done = subprocess.run([*command, "--include-crds"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RehearsalError(f"the chart of {controller.name} cannot be rendered:\n{done.stderr.strip()}")
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def _install(rehearsal: Rehearsal, tools: Tools, controller: Controller, chart: list[Object], port: int) -> None:
    """Put kinds and webhooks into the replica, with a Service that leads to the process."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": controller.namespace}}
    # A chart's Secret is empty: what the controller has put into it must stay.
    objects = [
        {key: part for key, part in item.items() if key != "data"} for item in chart if item["kind"] in INSTALLED
    ]
    webhooks = [webhook for item in objects for webhook in _webhooks(item)]
    for webhook in webhooks:
        webhook["service"]["port"] = port
        if not controller.makes_certificate:
            webhook["caBundle"] = base64.b64encode(kwok.credentials(rehearsal).ca.read_bytes()).decode()
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": controller.namespace},
            "spec": {"type": "ExternalName", "externalName": LOOPBACK},
        }
        for name in sorted({webhook["service"]["name"] for webhook in webhooks})
    ]
    command = ["apply", "--server-side", "--force-conflicts", "--field-manager=rehearsal", "--filename=-"]
    _kubectl(rehearsal, tools, *command, text=yaml.safe_dump_all([namespace, *services, *objects]))


def _webhooks(value: Any) -> Iterator[Object]:
    """Where each webhook in an object is called."""
    if isinstance(value, list):
        for item in value:
            yield from _webhooks(item)
    elif isinstance(value, dict):
        if "service" in (value.get("clientConfig") or {}):
            yield value["clientConfig"]
        for key, item in value.items():
            if key != "clientConfig":
                yield from _webhooks(item)


def _configuration(rehearsal: Rehearsal, controller: Controller, chart: list[Object], ports: Mapping[str, int]) -> Any:
    """The chart's own configuration, on loopback and for one process alone."""
    [text] = [text for item in chart if item["kind"] == "ConfigMap" for text in item["data"].values()]
    config: Object = yaml.safe_load(text)
    return {
        **config,
        **controller.settings,
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports['health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": LOOPBACK,
            "port": ports["webhook"],
            "certDir": str(_certificates(rehearsal, controller)),
        },
        "leaderElection": {"leaderElect": False},
    }


# --- The process


def _command(rehearsal: Rehearsal, controller: Controller, folder: Path) -> list[str]:
    config = _folder(rehearsal, controller) / "config.yaml"
    return [str(folder / controller.name), f"--config={config}", f"--kubeconfig={rehearsal.kubeconfig}"]


def _wait_until_ready(
    rehearsal: Rehearsal, tools: Tools, controller: Controller, child: subprocess.Popen[bytes], port: int
) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        _mount_certificate(rehearsal, tools, controller)
        if _is_ready(port):
            return
        time.sleep(0.2)
    _stop(rehearsal, controller)
    log = _log(rehearsal, controller)
    end = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    raise RehearsalError(f"{controller.name} was not ready within {READY_SECONDS} s. The end of {log}:\n{end}")


def _mount_certificate(rehearsal: Rehearsal, tools: Tools, controller: Controller) -> None:
    """Do what the kubelet does with the Secret of the webhooks' certificate, once the controller has filled it."""
    folder = _certificates(rehearsal, controller)
    if folder.exists():
        return
    if controller.makes_certificate:
        secret = ["secret", f"{controller.name}-webhook-server-cert", f"--namespace={controller.namespace}"]
        found = json.loads(_kubectl(rehearsal, tools, "get", *secret, "--output=json")).get("data") or {}
        data = {name: base64.b64decode(found.get(name, "")) for name in CERTIFICATE_FILES}
    else:
        access = kwok.credentials(rehearsal)
        data = {"tls.key": access.key.read_bytes(), "tls.crt": access.cert.read_bytes()}
    if all(data.values()):
        folder.mkdir(mode=0o700)
        for name in CERTIFICATE_FILES:
            (folder / name).touch(mode=0o600)
            (folder / name).write_bytes(data[name])


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _runs_as_it_should(rehearsal: Rehearsal, controller: Controller, folder: Path) -> bool:
    """Whether it runs, is ready, and knows the API server as it is now."""
    state = read_json(_state_file(rehearsal, controller), {})
    ports = read_json(_ports_file(rehearsal, controller), {})
    return (
        _find(rehearsal, controller) is not None
        and state["digest"] == _digest(rehearsal, _command(rehearsal, controller, folder))
        and _is_ready(ports["health"])
    )


def _digest(rehearsal: Rehearsal, command: list[str]) -> str:
    """What a process would have to be started anew for: another binary, or another way to the API server."""
    return hashlib.sha256("\0".join([*command, rehearsal.kubeconfig.read_text()]).encode()).hexdigest()


def _stop(rehearsal: Rehearsal, controller: Controller) -> None:
    process = _find(rehearsal, controller)
    if process is None:
        return
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _find(rehearsal: Rehearsal, controller: Controller) -> psutil.Process | None:
    """The process that runs, if the pid is still its own: a reused pid has another start time and command."""
    state = read_json(_state_file(rehearsal, controller), None)
    if state is None:
        return None
    with suppress(psutil.Error):
        found = psutil.Process(state["pid"])
        config = f"--config={_folder(rehearsal, controller) / 'config.yaml'}"
        ours = abs(found.create_time() - state["create_time"]) < 1 and config in found.cmdline()
        return found if ours and found.status() != psutil.STATUS_ZOMBIE else None
    return None


def _kubectl(rehearsal: Rehearsal, tools: Tools, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        [
            tools.kubectl,
            f"--kubeconfig={rehearsal.kubeconfig}",
            f"--cache-dir={rehearsal.kubectl_cache_dir}",
            *arguments,
        ],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RehearsalError(f"kubectl {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


# --- Files


def _folder(rehearsal: Rehearsal, controller: Controller) -> Path:
    return rehearsal.controllers_dir / controller.name


def _state_file(rehearsal: Rehearsal, controller: Controller) -> Path:
    return _folder(rehearsal, controller) / "process.json"


def _ports_file(rehearsal: Rehearsal, controller: Controller) -> Path:
    return _folder(rehearsal, controller) / "ports.json"


def _certificates(rehearsal: Rehearsal, controller: Controller) -> Path:
    return _folder(rehearsal, controller) / "certificates"


def _log(rehearsal: Rehearsal, controller: Controller) -> Path:
    return rehearsal.log_dir / f"{controller.name}.log"
