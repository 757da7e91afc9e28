"""Helm releases: run by the real Helm. A chart that cannot be fetched is recorded, and said to be only recorded."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehearsal.layout import Rehearsal
from rehearsal.plugins.kubernetes.diff import changed_paths
from rehearsal.plugins.servicer import CheckError, Diff, Properties, Provider, Resource, State, UserError

RELEASE = "kubernetes:helm.sh/v3:Release"
CHART_KEYS = Path(__file__).parent / "charts"
FETCH_SECONDS = 15
DEFAULT_SECONDS = 300
UNREACHABLE = re.compile(
    r"no such host|dial tcp|connection refused|i/o timeout|TLS handshake timeout|network is unreachable|"
    r"proxyconnect|context deadline exceeded|403 Forbidden|Temporary failure in name resolution"
)
"""What Helm says where the chart's home cannot be reached from this machine."""


class Helm:
    """Installs, reads and removes releases with the ``helm`` on PATH."""

    def __init__(self, provider: Provider, kubeconfig: Callable[[], Path]) -> None:
        self._provider = provider
        self._kubeconfig = kubeconfig
        self._unreachable: set[str] = set()

    def check(self, resource: Resource, old: Properties, new: Properties, seed: bytes) -> Properties:
        """Fill in name and namespace."""
        if not new.get("chart"):
            raise CheckError([("chart", "is required")])
        name = new.get("name") or old.get("name") or f"{resource.name}-{hashlib.sha256(seed).hexdigest()[:8]}"
        return new | {"name": name, "namespace": new.get("namespace") or "default"}

    def diff(self, old: State, new: Properties) -> Diff:
        """A release is upgraded in place, unless it moves."""
        changed = [path for path in changed_paths(old.inputs, new) if not path.startswith("__")]
        replaces = [path for path in changed if path in ("name", "namespace")]
        return Diff(changed, replaces, delete_before_replace=False)

    def install(self, resource: Resource, inputs: Properties) -> State:
        """Install or upgrade the release, or record it where its chart cannot be fetched."""
        if why := self._cannot_be_fetched(inputs):
            unknown = list(unknown_keys(_chart_name(inputs), inputs.get("values") or {}))
            if unknown:
                raise UserError("\n".join(unknown))
            self._provider.log(resource, "warning", f"recorded, chart not installed: {why}")
            return self._recorded(inputs, installed=False)
        with _values_file(inputs) as values:
            self._helm(
                *_install_arguments(inputs, resource.timeout), "--values", values, seconds=_seconds(inputs, resource)
            )
        return self._recorded(inputs, installed=True)

    def read(self, resource: Resource, old: State) -> State | None:
        """The release as it was recorded, unless Helm no longer knows it."""
        namespace, _, name = (old.id or resource.id).rpartition("/")
        path = _record_path(namespace, name)
        if not path.exists():
            return None
        record = json.loads(path.read_text())
        if record["installed"] and not self._is_installed(namespace, name):
            return None
        inputs = old.inputs or {key: record[key] for key in ("name", "namespace", "chart", "version", "values")}
        return State(f"{namespace}/{name}", inputs, _outputs(inputs, record["installed"]))

    def uninstall(self, resource: Resource, old: State) -> None:
        """Remove the release; that it is gone already is no error."""
        namespace, _, name = old.id.rpartition("/")
        path = _record_path(namespace, name)
        if path.exists() and json.loads(path.read_text())["installed"]:
            seconds = resource.timeout or DEFAULT_SECONDS
            self._helm("uninstall", name, "--namespace", namespace, "--ignore-not-found", "--wait", seconds=seconds)
        path.unlink(missing_ok=True)

    def _cannot_be_fetched(self, inputs: Properties) -> str:
        """Why the chart cannot be had on this machine, or nothing."""
        chart, home = str(inputs["chart"]), _home(inputs)
        if Path(chart).exists():
            return ""
        if home not in self._unreachable:
            try:
                self._helm("show", "chart", *_chart_arguments(inputs), seconds=FETCH_SECONDS)
                return ""
            except UserError as error:
                if not UNREACHABLE.search(str(error)):
                    raise
                self._unreachable.add(home)
        return f"{home} cannot be reached"

    def _is_installed(self, namespace: str, name: str) -> bool:
        try:
            self._helm("status", name, "--namespace", namespace, seconds=60)
        except UserError as error:
            if "not found" in str(error):
                return False
            raise
        return True

    def _helm(self, *args: str, seconds: float) -> str:
        command = ["helm", "--kubeconfig", str(self._kubeconfig()), *args]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"helm {args[0]} took longer than {seconds:.0f} s: i/o timeout") from None
        if done.returncode != 0:
            raise UserError(f"helm {args[0]} failed: {done.stderr.strip()[-3000:]}")
        return done.stdout

    def _recorded(self, inputs: Properties, installed: bool) -> State:
        record = {key: inputs.get(key) for key in ("namespace", "name", "version")} | {
            "chart": _chart_name(inputs),
            "repo": (inputs.get("repositoryOpts") or {}).get("repo"),
            "values": inputs.get("values") or {},
            "installed": installed,
        }
        path = _record_path(inputs["namespace"], inputs["name"])
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(record, indent=1))
        draft.replace(path)
        return State(f"{inputs['namespace']}/{inputs['name']}", inputs, _outputs(inputs, installed))


def unknown_keys(chart: str, values: Mapping[str, Any]) -> Iterator[str]:
    """An error for each value that the chart does not have, by the list of its keys where there is one."""
    listed = CHART_KEYS / f"{chart}.txt"
    if not listed.exists():
        return
    lines = (line.strip() for line in listed.read_text().splitlines())
    known = {line for line in lines if line and not line.startswith("#")}
    for path in _paths(values, known):
        if path not in known and not any(path.startswith(f"{key[:-2]}.") for key in known if key.endswith(".*")):
            near = ", ".join(difflib.get_close_matches(path, known, 3)) or "see the chart's values.yaml"
            yield f"values.{path}: the chart {chart} has no such value. Near: {near}"


def _paths(values: Mapping[str, Any], known: set[str], prefix: str = "") -> Iterator[str]:
    """The dotted paths of the values, as deep as the chart's own keys go."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        deeper = any(item.startswith(f"{path}.") for item in known)
        if isinstance(value, Mapping) and deeper:
            yield from _paths(value, known, f"{path}.")
        else:
            yield path


def _chart_name(inputs: Properties) -> str:
    return str(inputs["chart"]).rstrip("/").rpartition("/")[2]


def _home(inputs: Properties) -> str:
    """Where the chart comes from, for people."""
    return str((inputs.get("repositoryOpts") or {}).get("repo") or inputs["chart"])


def _chart_arguments(inputs: Properties) -> list[str]:
    repo = (inputs.get("repositoryOpts") or {}).get("repo")
    return [
        str(inputs["chart"]),
        *(["--repo", str(repo)] if repo else []),
        *(["--version", str(inputs["version"])] if inputs.get("version") else []),
    ]


def _install_arguments(inputs: Properties, timeout: float) -> list[str]:
    flags = {
        "--create-namespace": inputs.get("createNamespace"),
        "--wait": not inputs.get("skipAwait"),
        "--wait-for-jobs": inputs.get("waitForJobs"),
        "--atomic": inputs.get("atomic"),
        "--cleanup-on-fail": inputs.get("cleanupOnFail"),
        "--skip-crds": inputs.get("skipCrds"),
        "--dependency-update": inputs.get("dependencyUpdate"),
        "--disable-openapi-validation": inputs.get("disableOpenapiValidation"),
        "--no-hooks": inputs.get("disableWebhooks"),
    }
    seconds = int(timeout or inputs.get("timeout") or DEFAULT_SECONDS)
    return [
        *("upgrade", "--install", str(inputs["name"]), *_chart_arguments(inputs)),
        *("--namespace", str(inputs["namespace"]), "--timeout", f"{seconds}s"),
        *(flag for flag, wanted in flags.items() if wanted),
    ]


def _seconds(inputs: Properties, resource: Resource) -> float:
    """Helm ends by itself at its own timeout; this is for a Helm that does not."""
    return float(resource.timeout or inputs.get("timeout") or DEFAULT_SECONDS) + 30


@contextmanager
def _values_file(inputs: Properties) -> Iterator[str]:
    """The values as a private file for Helm, gone afterwards: they may hold secrets."""
    handle, path = tempfile.mkstemp(suffix=".json")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(inputs.get("values") or {}, file)
        yield path
    finally:
        Path(path).unlink()


def _outputs(inputs: Properties, installed: bool) -> Properties:
    status = {
        "name": inputs["name"],
        "namespace": inputs["namespace"],
        "chart": _chart_name(inputs),
        "version": inputs.get("version"),
        "status": "deployed" if installed else "recorded",
    }
    return inputs | {"status": status, "resourceNames": {}}


def _record_path(namespace: str, name: str) -> Path:
    root = Path(os.environ["ML_FOUNDATIONS_REHEARSAL"])
    return Rehearsal(root.name, root).releases_dir / f"{namespace}.{name}.json"
