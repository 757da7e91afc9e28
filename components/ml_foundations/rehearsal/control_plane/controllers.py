"""The real controllers of Kueue and JobSet beside the control plane, for stacks that declare queues or JobSets.

What the project's own Helm chart would install goes into the replica: kinds and webhooks. Where a cluster would run the
controller in a pod, a process of the rehearsal runs it, on loopback. The API server finds its webhooks as in a cluster,
by their Service: here one that stands for this machine (type ExternalName).
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.catalog.kueue import FRAMEWORKS, NAMESPACE
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.control_plane import configuration, kwok
from ml_foundations.rehearsal.control_plane.configuration import LOOPBACK
from ml_foundations.rehearsal.control_plane.processes import Process
from ml_foundations.rehearsal.files import read_json, write, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, step
from ml_foundations.rehearsal.tools import groups, toolchain
from ml_foundations.rehearsal.tools.groups import Group
from ml_foundations.rehearsal.tools.toolchain import Tools

_READY_SECONDS = 180
_INSTALLED = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "Secret", "ValidatingWebhookConfiguration")
"""The kinds of a chart that a replica needs as they are; of the others, a process takes the place."""
_CERTIFICATE_FILES = ("tls.key", "tls.crt")
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
    groups.KUEUE,
    NAMESPACE,
    # The visibility server is an API server of its own; nothing here asks it.
    {"featureGates": {"VisibilityOnDemand": False}, "integrations": {"frameworks": list(FRAMEWORKS)}},
    # Otherwise it insists on a certificate for its metrics in /etc/kueue.
    makes_certificate=True,
    is_asked_for=_queues,
)
JOBSET = Controller(
    groups.JOBSET,
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
        if _is_installed(rehearsal, controller) or any(map(controller.is_asked_for, sections))
    ]


def start(rehearsal: Rehearsal, tools: Tools, controllers: Iterable[Controller]) -> None:
    """Install and start controllers, and wait until their webhooks answer; nothing to do for those that run.

    Raises:
        RehearsalError: one of them could not be built, or did not become ready.
    """
    for controller in controllers:
        folder = toolchain.build(controller.group)
        command = [folder / controller.name, f"--config={_config(rehearsal, controller)}"]
        command += [f"--kubeconfig={rehearsal.kubeconfig}"]
        # Another binary, or another way to the API server, takes another process.
        version = hashlib.sha256("\0".join([*map(str, command), rehearsal.kubeconfig.read_text()]).encode()).hexdigest()
        if _process(rehearsal, controller).is_current(version) and _is_ready(rehearsal, controller):
            continue
        with step(f"starting {controller.name}"):
            _process(rehearsal, controller).stop()
            _install(rehearsal, tools, controller, folder)

            def is_ready(controller: Controller = controller) -> bool:
                _mount_certificate(rehearsal, controller)
                return _is_ready(rehearsal, controller)

            _process(rehearsal, controller).start(
                command, version, is_ready, _READY_SECONDS, cwd=_folder(rehearsal, controller)
            )


def stop(rehearsal: Rehearsal) -> None:
    """Stop all controllers; what they installed stays in the replica."""
    for controller in CONTROLLERS:
        _process(rehearsal, controller).stop()


def processes(rehearsal: Rehearsal) -> list[Process]:
    """The processes of the controllers that this rehearsal has, whether or not they run."""
    return [_process(rehearsal, controller) for controller in CONTROLLERS if _is_installed(rehearsal, controller)]


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


def _install(rehearsal: Rehearsal, tools: Tools, controller: Controller, folder: Path) -> None:
    """Put into the replica and into files all that the process needs."""
    ports = configuration.free_ports(("health", "webhook"), _ports(rehearsal, controller))
    write_json(_ports_file(rehearsal, controller), ports)
    # A certificate of before the replica lost its data would be no good.
    shutil.rmtree(_certificates(rehearsal, controller), ignore_errors=True)
    chart = _chart(tools, controller, folder)
    _apply(rehearsal, tools, _objects(rehearsal, controller, chart, ports["webhook"]))
    settings = _configuration(rehearsal, controller, chart, ports)
    write(_config(rehearsal, controller), yaml.safe_dump(settings))
    if not controller.makes_certificate:
        _mount_certificate(rehearsal, controller)


def _chart(tools: Tools, controller: Controller, folder: Path) -> list[Object]:
    """The objects of the controller's own chart."""
    command = [tools.helm, "template", controller.name, folder / "chart", "--namespace", controller.namespace]
    done = subprocess.run([*command, "--include-crds"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RehearsalError(f"the chart of {controller.name} cannot be rendered:\n{done.stderr.strip()}")
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def _objects(rehearsal: Rehearsal, controller: Controller, chart: list[Object], port: int) -> list[Object]:
    """Kinds and webhooks, with a Service that leads to the process."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": controller.namespace}}
    # A chart's Secret is empty: what the controller has put into it must stay.
    objects = [
        {key: part for key, part in item.items() if key != "data"} for item in chart if item["kind"] in _INSTALLED
    ]
    webhooks = [webhook for item in objects for webhook in _webhooks(item)]
    for webhook in webhooks:
        webhook["service"]["port"] = port
        if not controller.makes_certificate:
            webhook["caBundle"] = base64.b64encode(configuration.credentials(rehearsal).ca.read_bytes()).decode()
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": controller.namespace},
            "spec": {"type": "ExternalName", "externalName": LOOPBACK},
        }
        for name in sorted({webhook["service"]["name"] for webhook in webhooks})
    ]
    return [namespace, *services, *objects]


def _apply(rehearsal: Rehearsal, tools: Tools, objects: list[Object]) -> None:
    to = [f"--kubeconfig={rehearsal.kubeconfig}", f"--cache-dir={rehearsal.kubectl_cache_dir}"]
    how = ["--server-side", "--force-conflicts", "--field-manager=rehearsal", "--filename=-"]
    done = subprocess.run(
        [tools.kubectl, *to, "apply", *how],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RehearsalError(f"kubectl apply failed: {done.stderr.strip()}")


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


def _mount_certificate(rehearsal: Rehearsal, controller: Controller) -> None:
    """Do what the kubelet does with the Secret of the webhooks' certificate, once the controller has filled it."""
    folder = _certificates(rehearsal, controller)
    if folder.exists():
        return
    if controller.makes_certificate:
        secret = f"/api/v1/namespaces/{controller.namespace}/secrets/{controller.name}-webhook-server-cert"
        found = Api(Access(rehearsal.kubeconfig)).get(secret).get("data") or {}
        data = {name: base64.b64decode(found.get(name, "")) for name in _CERTIFICATE_FILES}
    else:
        access = configuration.credentials(rehearsal)
        data = {"tls.key": access.key.read_bytes(), "tls.crt": access.cert.read_bytes()}
    if all(data.values()):
        folder.mkdir(mode=0o700)
        for name in _CERTIFICATE_FILES:
            (folder / name).touch(mode=0o600)
            (folder / name).write_bytes(data[name])


def _is_ready(rehearsal: Rehearsal, controller: Controller) -> bool:
    return kwok.probe(_ports(rehearsal, controller)["health"], "/readyz") is None


# --- Files


def _folder(rehearsal: Rehearsal, controller: Controller) -> Path:
    return rehearsal.controllers_dir / controller.name


def _process(rehearsal: Rehearsal, controller: Controller) -> Process:
    file, log = _folder(rehearsal, controller) / "process.pid", rehearsal.log_dir / f"{controller.name}.log"
    return Process(controller.name, file, log)


def _is_installed(rehearsal: Rehearsal, controller: Controller) -> bool:
    """Whether its webhooks may be in the replica: the ports are chosen before."""
    return _ports_file(rehearsal, controller).exists()


def _ports(rehearsal: Rehearsal, controller: Controller) -> dict[str, int]:
    return read_json(_ports_file(rehearsal, controller), {})


def _ports_file(rehearsal: Rehearsal, controller: Controller) -> Path:
    return _folder(rehearsal, controller) / "ports.json"


def _config(rehearsal: Rehearsal, controller: Controller) -> Path:
    return _folder(rehearsal, controller) / "config.yaml"


def _certificates(rehearsal: Rehearsal, controller: Controller) -> Path:
    return _folder(rehearsal, controller) / "certificates"
