"""Helm releases by the real Helm. A chart that cannot be fetched is only recorded."""

import hashlib
import http.client
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ml_foundations.catalog.versions import GPU_OPERATOR, NFS_PROVISIONER
from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import RELEASE, annotations_of, labels_of
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud import operator
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.files import read_json, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import provider as plugin
from ml_foundations.rehearsal.plugins.kubernetes import chart_values
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind, same
from ml_foundations.rehearsal.plugins.kubernetes.objects import object_id
from ml_foundations.rehearsal.plugins.kubernetes.rendering import decode
from ml_foundations.rehearsal.plugins.kubernetes.settings import Settings
from ml_foundations.rehearsal.plugins.kubernetes.unschedulable import UnschedulableCheck
from ml_foundations.rehearsal.plugins.property_paths import changed_paths
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties
from ml_foundations.rehearsal.tools import toolchain

_CONTROLLERS = {controller.name: controller for controller in controllers.CONTROLLERS}
"""The controllers that run as processes next to the control plane, by the names of their charts."""
_CHART = ".chart"
"""The suffix of the record of a chart that the program renders, again in each update."""
_Stop = Callable[[], str]
"""A function that returns why a command is in vain; empty if it is not."""
_OF_RELEASE = "meta.helm.sh/release-name"
"""Helm's annotation of the objects of a release."""
_FETCH_SECONDS = 10
_SLOW_FETCH_SECONDS = 120
_PROBE_SECONDS = 3
_DEFAULT_SECONDS = 300
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 30
"""The time that Helm gets beyond its own timeout, and to end after an interrupt."""
_REPOSITORY_OPTIONS = ("repo", "caFile", "certFile", "keyFile", "username", "password")
_RENAMED = {"disableWebhooks": "no-hooks", "forceUpdate": "force", "maxHistory": "history-max"}
"""Helm's options for inputs with other names; all other inputs are options in kebab case."""
_USED_OTHERWISE = {
    *("chart", "name", "namespace", "values", "valueYamlFiles", "version", "repositoryOpts"),
    *("skipAwait", "timeout", "compat", "lint", "resourceNames"),
}
_UNSUPPORTED = {
    *("allowNullValues", "disableCRDHooks", "manifest", "postrender", "recreatePods", "replace"),
}
_OPTIONS = sorted(KUBERNETES[RELEASE].inputs - _USED_OTHERWISE - _UNSUPPORTED)
"""Inputs that are options or switches of Helm."""
_UNREACHABLE = re.compile(
    r"took over|no such host|dial tcp|connection refused|i/o timeout|TLS handshake timeout|"
    r"network is unreachable|proxyconnect|context deadline exceeded|"
    r"Temporary failure in name resolution"
)
"""Helm's messages if this machine cannot reach the chart's repository."""


class Helm:
    """Releases that the ``helm`` on PATH installs, reads and removes."""

    def __init__(self, provider: Provider, settings: Settings) -> None:
        self._provider = provider
        self._settings = settings
        self._unreachable: set[str] = set()
        """The repositories that were not reachable before."""

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        """Fill in name and namespace."""
        if not new.get("chart"):
            raise CheckError(("chart", "is required"))
        used = {key for key, value in new.items() if value and not key.startswith("__")}
        if unsupported := sorted(used - _USED_OTHERWISE - {*_OPTIONS}):
            raise CheckError(*((key, "is not supported in a rehearsal") for key in unsupported))
        name = new.get("name") or old.get("name") or f"{resource.name}-{resource.digits[:8]}"
        return new | {"name": name, "namespace": new.get("namespace") or self._settings.namespace}

    def diff(self, old: State, new: Properties) -> Diff:
        """Compare the inputs; a new name or namespace replaces the release."""
        paths = changed_paths(old.inputs, new, same=same)
        changed = [path for path in paths if not path.startswith("__")]
        return Diff(changed, [path for path in changed if path in ("name", "namespace")])

    def preview(self, inputs: Properties) -> Properties:
        """Return the inputs, unless the chart does not have some of their values."""
        self._refuse_unknown_values(inputs)
        return inputs | {"status": UNKNOWN, "resourceNames": UNKNOWN}

    def refuse_existing(self, inputs: Properties) -> None:
        """Refuse a new release whose name is in use: Helm would upgrade somebody's release."""
        name = str(inputs["name"])
        namespace = str(inputs["namespace"])
        if self._status(namespace, name) == "deployed":
            fix = f"change the name of this one, or import it. {plugin.RENAMED}"
            raise RehearsalError(f"the release {namespace}/{name} exists already: {fix}")

    def install(self, resource: Resource, inputs: Properties) -> State:
        """Install or upgrade the release, or record it if its chart cannot be fetched."""
        self._refuse_unknown_values(inputs)
        if obstacle := self._fetch_obstacle(inputs):
            rehearsal = self._settings.replica
            chart = _chart_name(inputs)
            if chart in _CONTROLLERS and rehearsal.kubeconfig.exists():
                # The controller runs as a process in place of the chart.
                self._provider.log(resource, "status", f"{chart} starts next to the control plane")
                settings: dict[str, Any] = {}
                for _, more in chart_values.local_values(inputs):
                    settings = merged(settings, more)
                controllers.start(rehearsal, toolchain.ensure(), _CONTROLLERS[chart], settings)
            self._provider.log(resource, "warning", f"recorded, chart not installed: {obstacle}")
            return self._record(inputs, resource, instead=obstacle)
        name = str(inputs["name"])
        namespace = str(inputs["namespace"])
        seconds = float(resource.timeout or inputs.get("timeout") or _DEFAULT_SECONDS)
        # An operation of this stack that was killed is undone: Helm would refuse to continue.
        interrupted = self._status(namespace, name)
        if interrupted == "pending-install":
            self._uninstall(namespace, name, _DEFAULT_SECONDS)
        elif interrupted.startswith("pending-"):
            self._helm("rollback", name, "--namespace", namespace, seconds=_DEFAULT_SECONDS)
        # Helm applies its timeout itself. This one is longer, for a Helm that hangs.
        words = ["upgrade", "--install", name, *self._chart_arguments(inputs)]
        words += ["--namespace", namespace, "--timeout", f"{seconds:.0f}s"]
        words += [] if inputs.get("skipAwait") else ["--wait"]
        words += _options(_OPTIONS, inputs)
        check = UnschedulableCheck(self._settings.client)
        release = partial(self._workloads, namespace, name)
        try:
            with chart_values.as_options(inputs) as values:
                seconds += _GRACE_SECONDS
                self._helm(*words, *values, seconds=seconds, stop=lambda: check.reason(release()))
        except RehearsalError as error:
            # A release that exists gets into the state, so that the next update can repair it.
            if not self._provider.cancelled.is_set() and not self._status(namespace, name):
                raise
            raise plugin.InitFailedError(self._record(inputs, resource), [str(error)]) from None
        return self._record(inputs, resource)

    def _workloads(self, namespace: str, release: str) -> Iterator[Object]:
        """Yield the workloads of a release whose pods ``--wait`` waits for."""
        for kind in ("Deployment", "StatefulSet", "DaemonSet"):
            for item in self._settings.client.list("apps/v1", kind, namespace):
                if annotations_of(item).get(_OF_RELEASE) == release:
                    yield {**item, "apiVersion": "apps/v1", "kind": kind}

    def template(self, inputs: Properties, *switches: str) -> str:
        """Return the manifests of a chart; empty, with a record, if it cannot be fetched."""
        self._refuse_unknown_values(inputs)
        name = str(inputs["name"])
        if obstacle := self._fetch_obstacle(inputs):
            resource = Resource("", "", name)
            missing = "is only recorded, its objects are missing"
            text = f"the chart {_chart_name(inputs)} {missing}: {obstacle}"
            self._provider.log(resource, "warning", text)
            self._record(inputs, resource, instead=obstacle, suffix=_CHART)
            return ""
        words = ["template", name, *self._chart_arguments(inputs)]
        words += ["--namespace", str(inputs["namespace"]), *switches]
        words += [] if inputs.get("skipCrds") else ["--include-crds"]
        for version in self._settings.client.custom_versions():
            words += ["--api-versions", version]
        with chart_values.as_options(inputs) as values:
            return self._helm(*words, *values, seconds=_DEFAULT_SECONDS)

    def _refuse_unknown_values(self, inputs: Properties) -> None:
        """Refuse values that the chart does not have; a fetched chart is checked by Helm itself."""
        errors: list[str] = []
        for path, values in chart_values.local_values(inputs):
            errors += chart_values.unknown_keys(_chart_name(inputs), values, path)
        if errors and self._fetch_obstacle(inputs):
            raise RehearsalError("\n".join(errors))

    def read(self, resource: Resource, old: State) -> State | None:
        """Return the release as it was recorded, or None if Helm no longer has it."""
        namespace, _, name = (old.id or resource.id).rpartition("/")
        record = read_json(self._record_path(namespace, name), None)
        if record is None or (record["installed"] and not self._status(namespace, name)):
            return None
        keys = ("name", "namespace", "chart", "version", "values")
        inputs = old.inputs or {key: record[key] for key in keys}
        return State(f"{namespace}/{name}", inputs, self._outputs(inputs, record["installed"]))

    def uninstall(self, resource: Resource, old: State) -> None:
        """Remove the release; one that is already gone is not an error."""
        namespace, _, name = old.id.rpartition("/")
        path = self._record_path(namespace, name)
        record = read_json(path, {})
        if controller := _CONTROLLERS.get(record.get("chart", "")):
            controllers.remove(self._settings.replica, toolchain.ensure(), controller)
        if record.get("installed"):
            seconds = resource.timeout or _DEFAULT_SECONDS
            self._uninstall(namespace, name, seconds)
        path.unlink(missing_ok=True)

    def _uninstall(self, namespace: str, name: str, seconds: float) -> None:
        words = ("uninstall", name, "--namespace", namespace, "--ignore-not-found", "--wait")
        self._helm(*words, seconds=seconds)

    def _fetch_obstacle(self, inputs: Properties) -> str:
        """Return why the chart cannot be fetched on this machine; empty if it can."""
        chart = str(inputs["chart"])
        home = str((inputs.get("repositoryOpts") or {}).get("repo") or chart)
        if controller := _CONTROLLERS.get(_chart_name(inputs)):
            version = controller.group.pinned(controller.group.version_of)
            kinds = "with the kinds and webhooks of its chart"
            return f"its controller {version} runs as a process, {kinds}"
        if Path(chart).exists():
            return ""
        if home not in self._unreachable:
            try:
                self._show(inputs, _FETCH_SECONDS)
                return ""
            except RehearsalError as error:
                if self._provider.cancelled.is_set() or not _UNREACHABLE.search(str(error)):
                    raise
            # Without any network, all charts are recorded. With one, the address may be wrong.
            if self._has_network:
                self._require_reachable(inputs, home)
                return ""
            self._unreachable.add(home)
        return f"{home} cannot be reached"

    def _show(self, inputs: Properties, seconds: float) -> None:
        """Fetch the chart's description; raises a RehearsalError if that fails."""
        self._helm("show", "chart", *self._chart_arguments(inputs), seconds=seconds)

    def _require_reachable(self, inputs: Properties, home: str) -> None:
        """Give a slow repository more time; raise an error if it still does not answer."""
        try:
            self._show(inputs, _SLOW_FETCH_SECONDS)
        except RehearsalError as error:
            reason = f"{home} cannot be reached, and other chart repositories can"
            fix = f"Check its address. {error}"
            raise RehearsalError(f"the chart {_chart_name(inputs)}: {reason}. {fix}") from None

    @cached_property
    def _has_network(self) -> bool:
        """True if any repository of the components' charts answers, even with an error."""
        return any(map(_answers, (GPU_OPERATOR.repo, NFS_PROVISIONER.repo)))

    def _status(self, namespace: str, name: str) -> str:
        return status(self._settings.client, namespace, name)

    def _chart_arguments(self, inputs: Properties) -> list[str]:
        """Return Helm's arguments for a chart; log in first if its repository has a password."""
        chart = str(inputs["chart"])
        repository = dict(inputs.get("repositoryOpts") or {})
        if password := repository.pop("password", None):
            user = ["--username", str(repository.pop("username", "")), "--password-stdin"]
            files = _options(("caFile", "certFile", "keyFile"), repository)
            if chart.startswith("oci://"):
                login = ["registry", "login", chart.split("/")[2]]
            else:
                home = str(repository["repo"])
                alias = f"program-{hashlib.sha256(home.encode()).hexdigest()[:8]}"
                login = ["repo", "add", alias, home, "--force-update"]
                chart = f"{alias}/{chart}"
                repository = {}
            self._helm(*login, *user, *files, seconds=_FETCH_SECONDS, secret=str(password))
        return [chart, *_options(_REPOSITORY_OPTIONS, repository), *_options(["version"], inputs)]

    def _helm(self, *args: str, seconds: float, secret: str = "", stop: _Stop = str) -> str:
        """Run Helm, with a secret as its input, until its end, an interrupt, or a timeout."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with self._settings.access.kubeconfig_file() as kubeconfig:
            command = ["helm", "--kubeconfig", str(kubeconfig), *args]
            with subprocess.Popen(command, text=True, **pipes) as process:
                stdout, stderr = self._communicate(process, args[0], seconds, secret, stop)
        if process.returncode != 0:
            raise RehearsalError(f"helm {args[0]} failed: {stderr.strip()[-3000:]}")
        return stdout

    def _communicate(
        self, process: subprocess.Popen[str], command: str, seconds: float, secret: str, stop: _Stop
    ) -> tuple[str, str]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return process.communicate(secret, timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                secret = ""  # The first call goes on to send it.
                reason = f"took over {seconds:.0f} s" if time.monotonic() > deadline else ""
                if self._provider.cancelled.is_set():
                    reason = "was interrupted"
                elif hopeless := stop():
                    reason = f"ends early: {hopeless}"
                if reason:
                    # Helm then marks the release as failed. It is killed if it does not end.
                    process.send_signal(signal.SIGINT)
                    try:
                        process.communicate(timeout=_GRACE_SECONDS)
                    except subprocess.TimeoutExpired:
                        process.kill()
                    raise RehearsalError(f"helm {command} {reason}") from None

    def _record(
        self, inputs: Properties, resource: Resource, instead: str = "", suffix: str = ""
    ) -> State:
        """Record a release, and return its state; ``instead`` is why the chart is not installed."""
        namespace = inputs["namespace"]
        name = inputs["name"]
        record = {
            "namespace": namespace,
            "name": name,
            "version": inputs.get("version"),
            "chart": _chart_name(inputs),
            "repo": (inputs.get("repositoryOpts") or {}).get("repo"),
            "values": resource.redacted(inputs).get("values") or {},
            "installed": not instead,
            "instead": instead,
        }
        write_json(self._record_path(namespace, f"{name}{suffix}"), record)
        return State(f"{namespace}/{name}", inputs, self._outputs(inputs, not instead))

    def _record_path(self, namespace: str, name: str) -> Path:
        return self._settings.replica.releases_dir / f"{namespace}.{name}.json"

    def _outputs(self, inputs: Properties, is_installed: bool) -> Properties:
        """Return the inputs, with Helm's status of the release if it is installed."""
        namespace = str(inputs["namespace"])
        name = str(inputs["name"])
        status: dict[str, Any] = {"name": name, "namespace": namespace}
        last = _last_revision(self._settings.client, namespace, name) if is_installed else None
        if last is None:
            chart = _chart_name(inputs)
            version = inputs.get("version")
            status |= {"chart": chart, "version": version, "status": "recorded"}
            return inputs | {"status": status, "resourceNames": {}}
        release = operator.unpacked(last)
        chart = release["chart"]["metadata"]
        status |= {
            "status": release["info"]["status"],
            "revision": release["version"],
            "chart": chart["name"],
            "version": chart["version"],
            "appVersion": chart.get("appVersion") or "",
        }
        # By kind, such as ``Deployment.apps/apps/v1``.
        names: dict[str, set[str]] = {}
        for obj in decode(release.get("manifest", "")):
            kind = f"{group_kind(obj)}/{obj['apiVersion']}"
            names.setdefault(kind, set()).add(object_id(obj["metadata"]))
        resource_names = {kind: sorted(objects) for kind, objects in names.items()}
        return inputs | {"status": status, "resourceNames": resource_names}


def status(client: Client, namespace: str, name: str) -> str:
    """Return Helm's status of a release, such as ``deployed``; empty if there is no release."""
    last = _last_revision(client, namespace, name)
    return labels_of(last)["status"] if last else ""


def _last_revision(client: Client, namespace: str, name: str) -> Object | None:
    """Return the Secret in which Helm keeps the last revision of a release."""
    revisions = client.list("v1", "Secret", namespace, labelSelector=f"owner=helm,name={name}")
    return max(revisions, key=lambda secret: int(labels_of(secret)["version"]), default=None)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, http.client.HTTPException):
        return False


def forget_charts(rehearsal: Rehearsal) -> None:
    """Remove the records of charts that the program rendered in the last update."""
    for replica in rehearsal.replicas:
        for record in replica.releases_dir.glob(f"*{_CHART}.json"):
            record.unlink()


def _chart_name(inputs: Properties) -> str:
    return str(inputs["chart"]).rstrip("/").rpartition("/")[2]


def _options(keys: Iterable[str], inputs: Mapping[str, Any]) -> list[str]:
    """Return Helm's options for inputs; a switch has no value."""
    words: list[str] = []
    for key in filter(inputs.get, keys):
        kebab_case = re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", key)
        words.append(f"--{_RENAMED.get(key, kebab_case)}")
        if inputs[key] is not True:
            words.append(str(inputs[key]))
    return words
