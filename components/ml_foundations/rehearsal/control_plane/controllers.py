"""The real controllers of Kueue and JobSet beside the control plane, for as long as their charts are released.

What a chart installs by the release's values goes into the replica: kinds and webhooks. Where a cluster would run the
controller in a pod, a process of the rehearsal runs it, on loopback. The API server finds its webhooks as in a cluster,
by their Service: here one that stands for this machine (type ExternalName).
"""

import base64
import hashlib
import json
import shutil
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.catalog.kueue import NAMESPACE
from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.control_plane import configuration, kwok
from ml_foundations.rehearsal.control_plane.configuration import LOOPBACK
from ml_foundations.rehearsal.files import read_json, write, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.processes import Process, run
from ml_foundations.rehearsal.progress import Step
from ml_foundations.rehearsal.tools import groups, toolchain
from ml_foundations.rehearsal.tools.groups import Group
from ml_foundations.rehearsal.tools.toolchain import Tools

_READY_SECONDS = 600
_INSTALLED = (
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "Secret",
    "ValidatingWebhookConfiguration",
)
"""The kinds of a chart that a replica needs as they are; of the others, a process takes the place."""
_CERTIFICATE_FILES = ("tls.key", "tls.crt")
"""The certificate comes last: a controller takes both as there when it is."""

_VALUES, _CONFIG, _CERTIFICATES = "values.json", "config.yaml", "certificates"
_PORTS, _PATHS = "ports.json", "paths.json"
"""The files of each controller, in its folder."""


@dataclass(frozen=True)
class Controller:
    """A controller that is published as a Go module with its Helm chart in it."""

    group: Group
    namespace: str
    settings: Mapping[str, Any]
    """What its configuration says otherwise than the release's."""
    makes_certificate: bool
    """Whether it makes its webhooks' certificate itself; otherwise it uses the control plane's."""

    @property
    def name(self) -> str:
        """The name of the controller, its binary and its chart."""
        return self.group.name


KUEUE = Controller(
    groups.KUEUE,
    NAMESPACE,
    # The visibility server is an API server of its own; nothing here asks it.
    {"featureGates": {"VisibilityOnDemand": False}},
    # Otherwise it insists on a certificate for its metrics in /etc/kueue.
    makes_certificate=True,
)
JOBSET = Controller(
    groups.JOBSET,
    "jobset-system",
    {"internalCertManagement": {"enable": False}},
    # Otherwise it insists on a certificate in /tmp, which rehearsals would share.
    makes_certificate=False,
)
CONTROLLERS = (JOBSET, KUEUE)


def start(
    rehearsal: Rehearsal, tools: Tools, controller: Controller, values: Mapping[str, Any]
) -> None:
    """Install and start a controller as its chart's values say, and wait until its webhooks answer.

    There is nothing to do for one that runs so already.

    Raises:
        RehearsalError: it could not be built, or did not become ready.
    """
    built, folder = toolchain.build(controller.group), _folder(rehearsal, controller)
    command = [
        built / controller.name,
        f"--config={folder / _CONFIG}",
        f"--kubeconfig={rehearsal.kubeconfig}",
    ]
    # Another binary, other values or another way to the API server take another process.
    parts = [
        *map(str, command),
        json.dumps(values, sort_keys=True),
        rehearsal.kubeconfig.read_text(),
    ]
    version = hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def is_ready() -> bool:
        _mount_certificate(rehearsal, controller)
        return all(kwok.probe(*probe) is None for probe in _probes(folder))

    process = _process(rehearsal, controller)
    if not (process.is_current(version) and is_ready()):
        with Step(f"starting {controller.name}"):
            process.stop()
            _install(rehearsal, tools, controller, built, values)
            process.start(command, version, is_ready, _READY_SECONDS, cwd=folder)


def resume(rehearsal: Rehearsal, tools: Tools) -> None:
    """Start those again whose charts are released: without them, their webhooks would refuse every object."""
    for controller in CONTROLLERS:
        if _is_installed(rehearsal, controller):
            start(
                rehearsal,
                tools,
                controller,
                read_json(_folder(rehearsal, controller) / _VALUES, {}),
            )


def _probes(folder: Path) -> Iterator[tuple[int, str, ssl.SSLContext | None]]:
    """What answers 200 once a controller is ready: it listens for its webhooks before it knows their paths."""
    ports = read_json(folder / _PORTS, {})
    yield ports["health"], "/readyz", None
    for path in read_json(folder / _PATHS, []):
        yield ports["webhook"], path, ssl._create_unverified_context()


def remove(rehearsal: Rehearsal, tools: Tools, controller: Controller) -> None:
    """Take away what a release has brought, as Helm does: kinds of a chart's folder crds stay."""
    folder = _folder(rehearsal, controller)
    if not _is_installed(rehearsal, controller):
        return
    chart = _rendered(tools, controller, toolchain.build(controller.group), folder / _VALUES)
    objects = [item for item in chart if item["kind"] in _INSTALLED]
    _kubectl(
        rehearsal, tools, objects, "delete", "--ignore-not-found", f"--timeout={_READY_SECONDS}s"
    )
    _process(rehearsal, controller).stop()
    shutil.rmtree(folder)


def stop(rehearsal: Rehearsal) -> None:
    """Stop all controllers; what they installed stays in the replica."""
    for controller in CONTROLLERS:
        _process(rehearsal, controller).stop()


def processes(rehearsal: Rehearsal) -> list[Process]:
    """The processes of the controllers that this rehearsal has, whether or not they run."""
    return [
        _process(rehearsal, controller)
        for controller in CONTROLLERS
        if _is_installed(rehearsal, controller)
    ]


def _mappings(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _mappings(item)


def _install(
    rehearsal: Rehearsal,
    tools: Tools,
    controller: Controller,
    built: Path,
    values: Mapping[str, Any],
) -> None:
    folder = _folder(rehearsal, controller)
    ports = configuration.free_ports(("health", "webhook"), read_json(folder / _PORTS, {}))
    write_json(folder / _PORTS, ports)
    write_json(folder / _VALUES, values)
    # A certificate of before the replica lost its data would be no good.
    shutil.rmtree(folder / _CERTIFICATES, ignore_errors=True)
    chart = _rendered(tools, controller, built, folder / _VALUES, "--include-crds")
    objects = _objects(rehearsal, controller, chart, ports["webhook"])
    webhooks = (webhook for item in objects for webhook in item.get("webhooks", ()))
    write_json(
        folder / _PATHS,
        sorted({webhook["clientConfig"]["service"]["path"] for webhook in webhooks}),
    )
    _kubectl(
        rehearsal,
        tools,
        objects,
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=rehearsal",
    )
    # A controller that starts before its kinds are served looks for them again after 10 seconds.
    kinds = [item for item in objects if item["kind"] == "CustomResourceDefinition"]
    _kubectl(
        rehearsal,
        tools,
        kinds,
        "wait",
        "--for=condition=Established",
        f"--timeout={_READY_SECONDS}s",
    )
    write(folder / _CONFIG, yaml.safe_dump(_configuration(folder, controller, chart, ports)))
    if not controller.makes_certificate:
        _mount_certificate(rehearsal, controller)


def _rendered(
    tools: Tools, controller: Controller, built: Path, values: Path, *options: str
) -> list[Object]:
    command = [
        tools.helm,
        "template",
        controller.name,
        built / "chart",
        "--namespace",
        controller.namespace,
    ]
    done = run(
        [*command, "--values", values, *options],
        f"the chart of {controller.name} cannot be rendered",
    )
    return [item for item in yaml.safe_load_all(done) if item]


def _kubectl(rehearsal: Rehearsal, tools: Tools, objects: list[Object], *command: str) -> None:
    to = [
        f"--kubeconfig={rehearsal.kubeconfig}",
        f"--cache-dir={rehearsal.kubectl_cache_dir}",
        "--filename=-",
    ]
    run(
        [tools.kubectl, *command, *to],
        f"kubectl {command[0]} failed",
        input=yaml.safe_dump_all(objects),
    )


def _objects(
    rehearsal: Rehearsal, controller: Controller, chart: list[Object], port: int
) -> list[Object]:
    """Kinds and webhooks, with a Service that leads to the process."""
    # A chart's Secret is empty: what the controller has put into it must stay.
    installed = (item for item in chart if item["kind"] in _INSTALLED)
    objects = [{key: part for key, part in item.items() if key != "data"} for item in installed]
    clients = [
        found["clientConfig"]
        for found in _mappings(objects)
        if "service" in (found.get("clientConfig") or {})
    ]
    for client in clients:
        client["service"]["port"] = port
        if not controller.makes_certificate:
            client["caBundle"] = base64.b64encode(
                configuration.credentials(rehearsal).ca.read_bytes()
            ).decode()
    leads_here = {"type": "ExternalName", "externalName": LOOPBACK}
    names = sorted({client["service"]["name"] for client in clients})
    places = [{"name": name, "namespace": controller.namespace} for name in names]
    services = [api_object("v1", "Service", place, spec=leads_here) for place in places]
    return [api_object("v1", "Namespace", {"name": controller.namespace}), *services, *objects]


def _configuration(
    folder: Path, controller: Controller, chart: list[Object], ports: Mapping[str, int]
) -> Object:
    """The chart's own configuration, on loopback and for one process alone."""
    [text] = [
        text for item in chart if item["kind"] == "ConfigMap" for text in item["data"].values()
    ]
    return {
        **merged(yaml.safe_load(text), controller.settings),
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports['health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": LOOPBACK,
            "port": ports["webhook"],
            "certDir": str(folder / _CERTIFICATES),
        },
        "leaderElection": {"leaderElect": False},
    }


def _mount_certificate(rehearsal: Rehearsal, controller: Controller) -> None:
    """Do what the kubelet does with the Secret of the webhooks' certificate, once the controller has filled it."""
    folder = _folder(rehearsal, controller) / _CERTIFICATES
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


def _folder(rehearsal: Rehearsal, controller: Controller) -> Path:
    return rehearsal.replica_dir / "controllers" / controller.name


def _process(rehearsal: Rehearsal, controller: Controller) -> Process:
    log = rehearsal.log_dir / f"{controller.name}.log"
    return Process(controller.name, _folder(rehearsal, controller) / "process.pid", log)


def _is_installed(rehearsal: Rehearsal, controller: Controller) -> bool:
    """Whether its webhooks may be in the replica: the values are written before."""
    return (_folder(rehearsal, controller) / _VALUES).exists()
