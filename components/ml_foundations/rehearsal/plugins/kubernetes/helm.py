"""Helm releases, run by the real Helm. A chart that cannot be fetched is only recorded, with a warning."""

import hashlib
import http.client
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from ml_foundations.catalog.versions import GPU_OPERATOR, NFS_PROVISIONER
from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud import operator
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.files import read_json, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import chart_values
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind, same
from ml_foundations.rehearsal.plugins.kubernetes.objects import object_id
from ml_foundations.rehearsal.plugins.kubernetes.rendering import decode
from ml_foundations.rehearsal.plugins.kubernetes.settings import Settings
from ml_foundations.rehearsal.plugins.property_paths import changed_paths
from ml_foundations.rehearsal.plugins.provider import (
    RENAMED,
    CheckError,
    Diff,
    InitFailedError,
    Provider,
    Resource,
    State,
)
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties
from ml_foundations.rehearsal.tools import toolchain

_BESIDE = {controller.name: controller for controller in controllers.CONTROLLERS}
"""Charts whose controllers run as processes beside the control plane."""
_CHART = ".chart"
"""Marks the record of a chart that the program renders itself: each update makes it anew."""
_FETCH_SECONDS = 10
_SLOW_FETCH_SECONDS = 120
_PROBE_SECONDS = 3
_DEFAULT_SECONDS = 300
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 30
"""What Helm gets beyond its own timeout, and to end when it is asked to."""
_REPOSITORY_OPTIONS = ("repo", "caFile", "certFile", "keyFile", "username", "password")
_RENAMED: Mapping[str, str] = {
    "disableWebhooks": "no-hooks",
    "forceUpdate": "force",
    "maxHistory": "history-max",
}
"""Helm's names for what it calls otherwise; the others are its own in kebab case."""
_USED_OTHERWISE = {
    *("chart", "name", "namespace", "values", "valueYamlFiles", "version", "repositoryOpts"),
    *("skipAwait", "timeout", "compat", "lint", "resourceNames"),
}
_UNSUPPORTED = {
    "allowNullValues",
    "disableCRDHooks",
    "manifest",
    "postrender",
    "recreatePods",
    "replace",
}
_OPTIONS = sorted(KUBERNETES[RELEASE].inputs - _USED_OTHERWISE - _UNSUPPORTED)
"""Inputs that are options or switches of Helm."""
_UNREACHABLE = re.compile(
    r"took over|no such host|dial tcp|connection refused|i/o timeout|TLS handshake timeout|network is unreachable|"
    r"proxyconnect|context deadline exceeded|Temporary failure in name resolution"
)
"""What Helm prints if the chart's repository cannot be reached from this machine."""


class Helm:
    """Installs, reads and removes releases with the ``helm`` on PATH."""

    def __init__(self, provider: Provider, settings: Settings) -> None:
        self._provider = provider
        self._settings = settings
        self._unreachable: set[str] = set()

    def check(
        self, resource: Resource, old: Properties, new: Properties, seed: bytes
    ) -> Properties:
        """Fill in name and namespace."""
        if not new.get("chart"):
            raise CheckError([("chart", "is required")])
        set_ = {key for key, value in new.items() if value and not key.startswith("__")}
        if foreign := sorted(set_ - _USED_OTHERWISE - {*_OPTIONS}):
            raise CheckError([(key, "is not supported in a rehearsal") for key in foreign])
        name = (
            new.get("name")
            or old.get("name")
            or f"{resource.name}-{hashlib.sha256(seed).hexdigest()[:8]}"
        )
        return new | {"name": name, "namespace": new.get("namespace") or self._settings.namespace}

    def diff(self, old: State, new: Properties) -> Diff:
        """A release is upgraded in place, unless it moves."""
        changed = [
            path for path in changed_paths(old.inputs, new, same=same) if not path.startswith("__")
        ]
        replaces = [path for path in changed if path in ("name", "namespace")]
        return Diff(changed, replaces, delete_before_replace=False)

    def preview(self, inputs: Properties) -> Properties:
        """The inputs, unless they have values that the chart is known not to have."""
        self._refuse_unknown_values(inputs)
        return inputs | {"status": UNKNOWN, "resourceNames": UNKNOWN}

    def refuse_taken(self, inputs: Properties) -> None:
        """Refuse a new release whose name is in use: Helm would upgrade what another resource or user installed."""
        if (
            status(self._settings.client, str(inputs["namespace"]), str(inputs["name"]))
            == "deployed"
        ):
            raise RehearsalError(
                f"the release {inputs['namespace']}/{inputs['name']} exists already: give this one another name, "
                f"or import it. {RENAMED}"
            )

    def install(self, resource: Resource, inputs: Properties) -> State:
        """Install or upgrade the release, or record it if its chart cannot be fetched."""
        self._refuse_unknown_values(inputs)
        if why := self._cannot_be_fetched(inputs):
            self._run_beside(resource, inputs)
            self._provider.log(resource, "warning", f"recorded, chart not installed: {why}")
            return self._recorded(inputs, resource, instead=why)
        name, namespace = str(inputs["name"]), str(inputs["namespace"])
        seconds = float(resource.timeout or inputs.get("timeout") or _DEFAULT_SECONDS)
        self._end_interrupted(name, namespace)
        try:
            with chart_values.as_options(inputs) as values:
                self._helm(
                    *self._install_arguments(inputs, seconds),
                    *values,
                    seconds=seconds + _GRACE_SECONDS,
                )
        except RehearsalError as error:
            if not self._provider.cancelled.is_set() and not status(
                self._settings.client, namespace, name
            ):
                raise
            raise InitFailedError(self._recorded(inputs, resource), [str(error)]) from None
        return self._recorded(inputs, resource)

    def template(self, inputs: Properties, *switches: str) -> str:
        """The manifests of a chart as text; if it cannot be fetched nothing, which the report then tells."""
        self._refuse_unknown_values(inputs)
        name = str(inputs["name"])
        if why := self._cannot_be_fetched(inputs):
            text = (
                f"the chart {_chart_name(inputs)} is only recorded, its objects are missing: {why}"
            )
            resource = Resource("", "", name)
            self._provider.log(resource, "warning", text)
            self._recorded(inputs, resource, instead=why, suffix=_CHART)
            return ""
        words = [
            "template",
            name,
            *self._chart_arguments(inputs),
            "--namespace",
            str(inputs["namespace"]),
            *switches,
        ]
        words += [] if inputs.get("skipCrds") else ["--include-crds"]
        words += [
            word
            for version in self._settings.client.versions()
            for word in ("--api-versions", version)
        ]
        with chart_values.as_options(inputs) as values:
            return self._helm(*words, *values, seconds=_DEFAULT_SECONDS)

    def _refuse_unknown_values(self, inputs: Properties) -> None:
        """Refuse values that the chart does not have; if it can be fetched, Helm itself checks them."""
        chart, given = _chart_name(inputs), chart_values.given(inputs)
        unknown = [
            error
            for place, values in given
            for error in chart_values.unknown_keys(chart, values, place)
        ]
        if unknown and self._cannot_be_fetched(inputs):
            raise RehearsalError("\n".join(unknown))

    def _run_beside(self, resource: Resource, inputs: Properties) -> None:
        """Start the controller of a chart that runs as a process, as the values say."""
        rehearsal, chart = self._settings.replica, _chart_name(inputs)
        if chart in _BESIDE and rehearsal.kubeconfig.exists():
            self._provider.log(resource, "status", f"{chart} starts beside the control plane")
            values = reduce(merged, (dict(values) for _, values in chart_values.given(inputs)), {})
            controllers.start(rehearsal, toolchain.ensure(), _BESIDE[chart], values)

    def read(self, resource: Resource, old: State) -> State | None:
        """The release as it was recorded, unless Helm no longer knows it."""
        namespace, _, name = (old.id or resource.id).rpartition("/")
        record = read_json(self._record_path(namespace, name), None)
        if record is None or (
            record["installed"] and not status(self._settings.client, namespace, name)
        ):
            return None
        inputs = old.inputs or {
            key: record[key] for key in ("name", "namespace", "chart", "version", "values")
        }
        return State(f"{namespace}/{name}", inputs, self._outputs(inputs, record["installed"]))

    def uninstall(self, resource: Resource, old: State) -> None:
        """Remove the release; one that is already gone is not an error."""
        namespace, _, name = old.id.rpartition("/")
        path = self._record_path(namespace, name)
        record = read_json(path, {})
        if record.get("chart") in _BESIDE:
            controllers.remove(self._settings.replica, toolchain.ensure(), _BESIDE[record["chart"]])
        if record.get("installed"):
            seconds = resource.timeout or _DEFAULT_SECONDS
            self._helm(
                "uninstall",
                name,
                "--namespace",
                namespace,
                "--ignore-not-found",
                "--wait",
                seconds=seconds,
            )
        path.unlink(missing_ok=True)

    def _cannot_be_fetched(self, inputs: Properties) -> str:
        """Why the chart cannot be fetched on this machine; empty if it can."""
        chart = str(inputs["chart"])
        home = str((inputs.get("repositoryOpts") or {}).get("repo") or chart)
        if beside := _BESIDE.get(_chart_name(inputs)):
            version = beside.group.pinned(beside.group.version_of)
            return f"its controller {version} runs as a process, with the kinds and webhooks of its chart"
        if Path(chart).exists():
            return ""
        if home not in self._unreachable:
            try:
                self._show(inputs, _FETCH_SECONDS)
                return ""
            except RehearsalError as error:
                if self._provider.cancelled.is_set() or not _UNREACHABLE.search(str(error)):
                    raise
            if self._has_network:
                self._require_reachable(inputs, home)
                return ""
            self._unreachable.add(home)
        return f"{home} cannot be reached"

    def _show(self, inputs: Properties, seconds: float) -> None:
        """Fetch the chart's description; raises a RehearsalError if that fails."""
        self._helm("show", "chart", *self._chart_arguments(inputs), seconds=seconds)

    def _require_reachable(self, inputs: Properties, home: str) -> None:
        """Give a slow repository more time; where others answer, one that does not is no lack of a network."""
        try:
            self._show(inputs, _SLOW_FETCH_SECONDS)
        except RehearsalError as error:
            raise RehearsalError(
                f"the chart {_chart_name(inputs)}: {home} cannot be reached, and other chart repositories can. "
                f"Check its address. {error}"
            ) from None

    @cached_property
    def _has_network(self) -> bool:
        """Whether the repository of any chart that the components know answers, however it does."""
        return any(map(_answers, (GPU_OPERATOR.repo, NFS_PROVISIONER.repo)))

    def _end_interrupted(self, name: str, namespace: str) -> None:
        """Clean up after a run that was killed, since Helm would refuse to go on; only this stack can have run it."""
        found = status(self._settings.client, namespace, name)
        if found == "pending-install":
            self._helm(
                "uninstall", name, "--namespace", namespace, "--wait", seconds=_DEFAULT_SECONDS
            )
        elif found.startswith("pending-"):
            self._helm("rollback", name, "--namespace", namespace, seconds=_DEFAULT_SECONDS)

    def _chart_arguments(self, inputs: Properties) -> list[str]:
        """Helm's words for a chart; a password of its repository is not among them, but told to Helm before."""
        chart, repository = str(inputs["chart"]), dict(inputs.get("repositoryOpts") or {})
        if password := repository.pop("password", None):
            user = ["--username", str(repository.pop("username", "")), "--password-stdin"]
            files = _options(("caFile", "certFile", "keyFile"), repository)
            if chart.startswith("oci://"):
                log_in = ["registry", "login", chart.split("/")[2]]
            else:
                home = str(repository.pop("repo"))
                alias = f"program-{hashlib.sha256(home.encode()).hexdigest()[:8]}"
                log_in, chart, repository = (
                    ["repo", "add", alias, home, "--force-update"],
                    f"{alias}/{chart}",
                    {},
                )
            self._helm(*log_in, *user, *files, seconds=_FETCH_SECONDS, secret=str(password))
        return [chart, *_options(_REPOSITORY_OPTIONS, repository), *_options(["version"], inputs)]

    def _install_arguments(self, inputs: Properties, seconds: float) -> list[str]:
        return [
            *("upgrade", "--install", str(inputs["name"]), *self._chart_arguments(inputs)),
            *("--namespace", str(inputs["namespace"]), "--timeout", f"{seconds:.0f}s"),
            *([] if inputs.get("skipAwait") else ["--wait"]),
            *_options(_OPTIONS, inputs),
        ]

    def _helm(self, *args: str, seconds: float, secret: str = "") -> str:
        """Run Helm; it is asked to end when the user interrupts the update, or after those seconds.

        A secret is what it reads from its standard input.
        """
        deadline = time.monotonic() + seconds
        with (
            self._settings.access.kubeconfig_file() as kubeconfig,
            subprocess.Popen(
                ["helm", "--kubeconfig", str(kubeconfig), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            while True:
                try:
                    printed, said = process.communicate(secret, timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    secret = ""  # It is being told.
                    if self._provider.cancelled.is_set() or time.monotonic() > deadline:
                        _end(process)
                        why = (
                            "was interrupted"
                            if self._provider.cancelled.is_set()
                            else f"took over {seconds:.0f} s"
                        )
                        raise RehearsalError(f"helm {args[0]} {why}") from None
        if process.returncode != 0:
            raise RehearsalError(f"helm {args[0]} failed: {said.strip()[-3000:]}")
        return printed

    def _recorded(
        self, inputs: Properties, resource: Resource, instead: str = "", suffix: str = ""
    ) -> State:
        """The state of a release, and its record; ``instead`` says why its chart is not installed."""
        record = {key: inputs.get(key) for key in ("namespace", "name", "version")} | {
            "chart": _chart_name(inputs),
            "repo": (inputs.get("repositoryOpts") or {}).get("repo"),
            "values": resource.writable(inputs).get("values") or {},
            "installed": not instead,
            "instead": instead,
        }
        write_json(self._record_path(inputs["namespace"], f"{inputs['name']}{suffix}"), record)
        return State(
            f"{inputs['namespace']}/{inputs['name']}", inputs, self._outputs(inputs, not instead)
        )

    def _record_path(self, namespace: str, name: str) -> Path:
        return self._settings.replica.releases_dir / f"{namespace}.{name}.json"

    def _outputs(self, inputs: Properties, installed: bool) -> Properties:
        """The inputs with what Helm says of the release, if it is installed."""
        namespace, name = str(inputs["namespace"]), str(inputs["name"])
        status = {
            "name": name,
            "namespace": namespace,
            "chart": _chart_name(inputs),
            "version": inputs.get("version"),
        }
        last = _last_revision(self._settings.client, namespace, name) if installed else None
        if last is None:
            return inputs | {"status": status | {"status": "recorded"}, "resourceNames": {}}
        release = operator.unpacked(last)
        chart = release["chart"]["metadata"]
        status |= {"status": release["info"]["status"], "revision": release["version"]}
        status |= {
            "chart": chart["name"],
            "version": chart["version"],
            "appVersion": chart.get("appVersion") or "",
        }
        return inputs | {
            "status": status,
            "resourceNames": _resource_names(release.get("manifest", "")),
        }


def status(client: Client, namespace: str, name: str) -> str:
    """Helm's status of a release, such as ``deployed``: a label of its last revision; empty if there is no release."""
    last = _last_revision(client, namespace, name)
    return last["metadata"]["labels"]["status"] if last else ""


def _last_revision(client: Client, namespace: str, name: str) -> Object | None:
    """The Secret in which Helm keeps the last revision of a release."""
    revisions = client.list("v1", "Secret", namespace, labelSelector=f"owner=helm,name={name}")
    return max(
        revisions, key=lambda secret: int(secret["metadata"]["labels"]["version"]), default=None
    )


def _resource_names(manifest: str) -> dict[str, list[str]]:
    """The names of a release's objects by kind, as Pulumi's own plugin keys them: ``Deployment.apps/apps/v1``."""
    names: dict[str, set[str]] = {}
    for obj in decode(manifest):
        names.setdefault(f"{group_kind(obj)}/{obj['apiVersion']}", set()).add(
            object_id(obj["metadata"])
        )
    return {key: sorted(found) for key, found in names.items()}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, http.client.HTTPException):
        return False


def forget_charts(rehearsal: Rehearsal) -> None:
    """Remove the records of charts that the program rendered last time: it may have them no more."""
    for replica in rehearsal.replicas:
        for record in replica.releases_dir.glob(f"*{_CHART}.json"):
            record.unlink()


def _chart_name(inputs: Properties) -> str:
    return str(inputs["chart"]).rstrip("/").rpartition("/")[2]


def _options(keys: Iterable[str], inputs: Mapping[str, Any]) -> list[str]:
    """Helm's options: a switch is named, any other has its value too."""
    words: list[str] = []
    for key in filter(inputs.get, keys):
        flag = _RENAMED.get(key) or re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", key)
        words += [f"--{flag}"] if inputs[key] is True else [f"--{flag}", str(inputs[key])]
    return words


def _end(process: subprocess.Popen[str]) -> None:
    """End Helm in its own way, in which it marks the release as failed; then by force."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
