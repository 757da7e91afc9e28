"""The controllers of workloads, such as Kueue, which run while their charts are released.

The replica gets the kinds and webhooks that a chart installs with the values of the release. On a
cluster, the controller runs in a pod; here, a process on loopback runs it. The API server finds its
webhooks as on a cluster, by a Service, which leads to this machine (type ExternalName).
"""

import base64
import hashlib
import json
import os
import shutil
import ssl
import time
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
from ml_foundations.rehearsal.progress import RehearsalError, Step
from ml_foundations.rehearsal.tools import groups, toolchain
from ml_foundations.rehearsal.tools.groups import Group
from ml_foundations.rehearsal.tools.toolchain import Tools

_READY_SECONDS = 600
_ESTABLISHED_SECONDS = 30
_RETRY_SECONDS = 0.1
_TIMEOUT = f"--timeout={_READY_SECONDS}s"
_CHART = "chart"
_DEFINITIONS = "crds"
"""What a group copies from the module: the chart, or the definitions if the chart is elsewhere."""
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_INSTALLED = ("CustomResourceDefinition", "Secret", *_WEBHOOKS)
"""The kinds of a chart that the replica needs. A process replaces the other objects."""
_DEFAULT_CERTIFICATES = "k8s-webhook-server/serving-certs"
"""The folder of the certificate of a controller without ``certDir``, below TMPDIR
(controller-runtime v0.24.0, pkg/webhook/server.go)."""
_CERTIFICATE_FILES = ("tls.key", "tls.crt")
"""In the order of writing: a controller expects the key once it sees the certificate."""

_VALUES = "values.json"
_CONFIG = "config.yaml"
_CERTIFICATES = "certificates"
_CHART_CONFIG = "controller_manager_config.yaml"
"""The key of the configuration in the ConfigMap of a chart."""
_PORTS = "ports.json"
_PATHS = "paths.json"
"""The files of each controller, in its folder."""


@dataclass(frozen=True)
class Controller:
    """A controller that is published as a Go module, with its Helm chart or its definitions."""

    group: Group
    namespace: str
    settings: Mapping[str, Any]
    """The values of its configuration that differ from the chart's."""
    makes_certificate: bool = False
    """Whether it creates the certificate of its webhooks. Otherwise it uses the control plane's."""
    asks_dashboards: bool = False
    """Whether it asks pods by HTTP. A server on its port ``dashboard`` answers for them."""
    certificates: str = _CERTIFICATES
    """The folder of the certificate. Without the default one, its configuration cannot set any."""

    @property
    def name(self) -> str:
        """Return the name of the controller, its binary and its chart."""
        return self.group.name


KUEUE = Controller(
    groups.KUEUE,
    NAMESPACE,
    # The visibility server is a separate API server, which nothing here uses.
    {"featureGates": {"VisibilityOnDemand": False}},
    # Otherwise it requires a certificate for its metrics in /etc/kueue.
    makes_certificate=True,
)
JOBSET = Controller(
    groups.JOBSET,
    "jobset-system",
    # Otherwise it requires a certificate in /tmp, which rehearsals would share.
    {"internalCertManagement": {"enable": False}},
)
LWS = Controller(
    groups.LWS,
    "lws-system",
    # Otherwise it waits until it has written its certificate to a Secret and patched its webhooks.
    {"internalCertManagement": {"enable": False}},
)
KUBERAY = Controller(
    groups.KUBERAY,
    "kuberay-system",
    {
        "apiVersion": "config.ray.io/v1alpha1",
        "kind": "Configuration",
        "enableLeaderElection": False,
    },
    asks_dashboards=True,
)
TRAINER = Controller(
    groups.TRAINER,
    "kubeflow-system",
    {"certManagement": {"enable": False}},
    certificates=_DEFAULT_CERTIFICATES,
)
CONTROLLERS = (JOBSET, LWS, KUBERAY, TRAINER, KUEUE)


def start(
    rehearsal: Rehearsal, tools: Tools, controller: Controller, values: Mapping[str, Any]
) -> None:
    """Install and start a controller with the values of its chart, and wait until it is ready."""
    build = toolchain.build(controller.group)
    folder = _folder(rehearsal, controller)
    kubeconfig = rehearsal.kubeconfig
    command = [str(build / controller.name), f"--config={folder / _CONFIG}"]
    command.append(f"--kubeconfig={kubeconfig}")
    if controller is KUBERAY:  # its log has the commands of pods (pod.go), which may be secret
        command.append("--zap-log-level=error")
    # A change of the binary, the values or the kubeconfig requires another process.
    inputs = [*command, json.dumps(values, sort_keys=True), kubeconfig.read_text()]
    version = hashlib.sha256("\0".join(inputs).encode()).hexdigest()

    def is_ready() -> bool:
        _mount_certificate(rehearsal, controller)
        # A controller listens for its webhooks before it serves their paths.
        ports = read_json(folder / _PORTS, {})
        if kwok.probe(ports["health"], "/readyz") is not None:
            return False
        trusting = ssl._create_unverified_context()
        paths = read_json(folder / _PATHS, [])
        return all(kwok.probe(ports["webhook"], path, trusting) is None for path in paths)

    process = _process(rehearsal, controller)
    if not (process.is_current(version) and is_ready()):
        with Step(f"starting {controller.name}"):
            process.stop()
            _install(rehearsal, tools, controller, values)
            # Rehearsals must not share the folder in which a controller looks for its certificate.
            environment = {**os.environ, "TMPDIR": str(folder)}
            if controller.asks_dashboards:  # Its requests to pods go to the dashboards' server.
                environment["HTTP_PROXY"] = f"http://{LOOPBACK}:{dashboard_port(rehearsal)}"
            process.start(command, version, is_ready, _READY_SECONDS, cwd=folder, env=environment)


def resume(rehearsal: Rehearsal, tools: Tools) -> None:
    """Start the controllers of released charts. Without them, their webhooks reject all objects."""
    for controller in _installed(rehearsal):
        values = read_json(_folder(rehearsal, controller) / _VALUES, {})
        start(rehearsal, tools, controller, values)


def remove(rehearsal: Rehearsal, tools: Tools, controller: Controller) -> None:
    """Remove the objects of a release as Helm does: kinds in a chart's folder crds stay."""
    if controller not in _installed(rehearsal):
        return
    folder = _folder(rehearsal, controller)
    chart = _render(tools, controller, folder / _VALUES)
    objects = [item for item in chart if item["kind"] in _INSTALLED]
    _kubectl(rehearsal, tools, objects, "delete", "--ignore-not-found", _TIMEOUT)
    _process(rehearsal, controller).stop()
    shutil.rmtree(folder)


def dashboard_port(rehearsal: Rehearsal) -> int | None:
    """Return the port on which to answer for the dashboards of pods; None if nobody asks them."""
    for controller in _installed(rehearsal):
        if controller.asks_dashboards:
            return read_json(_folder(rehearsal, controller) / _PORTS, {}).get("dashboard")
    return None


def stop(rehearsal: Rehearsal) -> None:
    """Stop all controllers. Their objects stay in the replica."""
    for controller in CONTROLLERS:
        _process(rehearsal, controller).stop()


def processes(rehearsal: Rehearsal) -> list[Process]:
    """Return the processes of the installed controllers, whether or not they run."""
    return [_process(rehearsal, controller) for controller in _installed(rehearsal)]


def _installed(rehearsal: Rehearsal) -> list[Controller]:
    """Return the controllers that may be installed: their values are written first."""
    return [item for item in CONTROLLERS if (_folder(rehearsal, item) / _VALUES).exists()]


def _install(
    rehearsal: Rehearsal, tools: Tools, controller: Controller, values: Mapping[str, Any]
) -> None:
    folder = _folder(rehearsal, controller)
    names = ("health", "webhook", "dashboard")
    ports = configuration.free_ports(names, read_json(folder / _PORTS, {}))
    write_json(folder / _PORTS, ports)
    write_json(folder / _VALUES, values)
    # The replica may have lost its data, and with it the Secret of this certificate.
    shutil.rmtree(folder / controller.certificates, ignore_errors=True)
    chart = _render(tools, controller, folder / _VALUES, "--include-crds")
    objects = _objects(rehearsal, controller, chart, ports["webhook"])
    clients = [webhook["clientConfig"] for item in objects for webhook in item.get("webhooks", ())]
    write_json(folder / _PATHS, sorted({client["service"]["path"] for client in clients}))
    options = ("--server-side", "--force-conflicts", "--field-manager=rehearsal")
    _kubectl(rehearsal, tools, objects, "apply", *options)
    # A controller that does not find its kinds looks for them again only after 10 seconds.
    kinds: list[Object] | Path = [
        item for item in objects if item["kind"] == "CustomResourceDefinition"
    ]
    if not _has_chart(controller):
        kinds = toolchain.build(controller.group) / _DEFINITIONS
        _kubectl(rehearsal, tools, kinds, "apply", *options)
    _await_established(rehearsal, tools, kinds)
    write(folder / _CONFIG, yaml.safe_dump(_configuration(folder, controller, chart, ports)))
    if not controller.makes_certificate:
        _mount_certificate(rehearsal, controller)


def _await_established(rehearsal: Rehearsal, tools: Tools, kinds: list[Object] | Path) -> None:
    """Wait until the API server serves kinds."""
    deadline = time.monotonic() + _ESTABLISHED_SECONDS
    while True:
        try:
            _kubectl(rehearsal, tools, kinds, "wait", "--for=condition=Established", _TIMEOUT)
        except RehearsalError:
            # kubectl fails if a definition has no conditions yet, or null in their place.
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _render(tools: Tools, controller: Controller, values: Path, *options: str) -> list[Object]:
    """Return the objects of a controller's chart; none if its module has no chart."""
    if not _has_chart(controller):
        return []
    chart = values.with_name(_CHART)
    shutil.copytree(toolchain.build(controller.group) / _CHART, chart, dirs_exist_ok=True)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    # The module lacks the charts that it depends on. Other controllers run in their place.
    write(chart / "Chart.yaml", yaml.safe_dump(about | {"dependencies": []}))
    command = [tools.helm, "template", controller.name, chart, "--namespace", controller.namespace]
    failure = f"the chart of {controller.name} cannot be rendered"
    output = run([*command, "--values", values, *options], failure)
    return [item for item in yaml.safe_load_all(output) if item]


def _has_chart(controller: Controller) -> bool:
    return _CHART in controller.group.copies


def _kubectl(rehearsal: Rehearsal, tools: Tools, objects: list[Object] | Path, *words: str) -> None:
    """Run kubectl with objects, or with the files of a folder."""
    folders = (f"--kubeconfig={rehearsal.kubeconfig}", f"--cache-dir={rehearsal.kubectl_cache_dir}")
    command = [tools.kubectl, *words, *folders]
    failure = f"kubectl {words[0]} failed"
    if isinstance(objects, Path):
        run([*command, f"--filename={objects}"], failure)
    else:
        run([*command, "--filename=-"], failure, input=yaml.safe_dump_all(objects))


def _objects(
    rehearsal: Rehearsal, controller: Controller, chart: list[Object], port: int
) -> list[Object]:
    """Return the kinds and webhooks of a chart, with Services that lead to the process."""
    objects: list[Object] = []
    for item in chart:
        if item["kind"] in _INSTALLED:
            # A chart's Secret is empty. What the controller has written into it must stay.
            objects.append({key: part for key, part in item.items() if key != "data"})
    services: set[str] = set()
    for client in _webhook_clients(objects):
        client["service"]["port"] = port
        services.add(client["service"]["name"])
        if not controller.makes_certificate:
            ca = configuration.credentials(rehearsal).ca
            client["caBundle"] = base64.b64encode(ca.read_bytes()).decode()
    prefix = [api_object("v1", "Namespace", {"name": controller.namespace})]
    to_loopback = {"type": "ExternalName", "externalName": LOOPBACK}
    for name in sorted(services):
        metadata = {"name": name, "namespace": controller.namespace}
        prefix.append(api_object("v1", "Service", metadata, spec=to_loopback))
    return [*prefix, *objects]


def _webhook_clients(value: Any) -> Iterator[Object]:
    """Yield each ``clientConfig`` with a Service, of webhooks and of the conversions of kinds."""
    if isinstance(value, dict):
        if "service" in (value.get("clientConfig") or {}):
            yield value["clientConfig"]
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _webhook_clients(item)


def _configuration(
    folder: Path, controller: Controller, chart: list[Object], ports: Mapping[str, int]
) -> Object:
    """Return the chart's configuration, on loopback and for a single process."""
    health = f"{LOOPBACK}:{ports['health']}"
    if not _has_chart(controller):
        return {**controller.settings, "probeAddr": health, "metricsAddr": "0"}
    config_maps = [item["data"] for item in chart if item["kind"] == "ConfigMap"]
    [text] = [data[_CHART_CONFIG] for data in config_maps if _CHART_CONFIG in data]
    webhook = {"host": LOOPBACK, "port": ports["webhook"]}
    if controller.certificates == _CERTIFICATES:
        webhook["certDir"] = str(folder / _CERTIFICATES)
    return {
        **merged(yaml.safe_load(text), controller.settings),
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": "0"},
        "webhook": webhook,
        "leaderElection": {"leaderElect": False},
    }


def _mount_certificate(rehearsal: Rehearsal, controller: Controller) -> None:
    """Write the webhooks' certificate to files once it exists, as a kubelet mounts its Secret."""
    folder = _folder(rehearsal, controller) / controller.certificates
    if folder.exists():
        return
    if controller.makes_certificate:
        secrets = f"/api/v1/namespaces/{controller.namespace}/secrets"
        path = f"{secrets}/{controller.name}-webhook-server-cert"
        encoded = Api(Access(rehearsal.kubeconfig)).get(path).get("data") or {}
        data = {name: base64.b64decode(encoded.get(name, "")) for name in _CERTIFICATE_FILES}
    else:
        access = configuration.credentials(rehearsal)
        data = {"tls.key": access.key.read_bytes(), "tls.crt": access.cert.read_bytes()}
    if all(data.values()):
        folder.mkdir(mode=0o700, parents=True)
        for name in _CERTIFICATE_FILES:
            (folder / name).touch(mode=0o600)
            (folder / name).write_bytes(data[name])


def _folder(rehearsal: Rehearsal, controller: Controller) -> Path:
    return rehearsal.replica_dir / "controllers" / controller.name


def _process(rehearsal: Rehearsal, controller: Controller) -> Process:
    log = rehearsal.log_dir / f"{controller.name}.log"
    return Process(controller.name, _folder(rehearsal, controller) / "process.pid", log)
