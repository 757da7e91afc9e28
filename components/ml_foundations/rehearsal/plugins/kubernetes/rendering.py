"""Manifests that a program does not declare one by one: from YAML, from a kustomization, from a chart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.values import Properties
from ml_foundations.rehearsal.progress import RehearsalError

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_KUSTOMIZE_SECONDS = 60


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != _TIMESTAMP]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def decode(text: str) -> list[Object]:
    """The objects of a YAML stream, those of lists one by one; documents without a kind are left out."""
    try:
        return list(_objects(yaml.load_all(text, Loader=_Loader)))
    except yaml.YAMLError as error:
        raise RehearsalError(f"the YAML cannot be read: {error}") from None


def _objects(documents: Iterable[Any]) -> Iterator[Object]:
    for document in documents:
        if not isinstance(document, Mapping) or not document.get("apiVersion") or not document.get("kind"):
            continue
        if document["kind"].endswith("List") and isinstance(document.get("items"), list):
            yield from _objects(document["items"])
        else:
            yield dict(document)


def read(file: str) -> str:
    """The text of a file, or of all files that a pattern matches, as one stream."""
    if urlsplit(file).scheme in ("http", "https"):
        raise RehearsalError(f"{file}: a rehearsal fetches no manifests. Keep the file beside the program")
    path = Path(file)
    found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if has_magic(file) else [path]
    try:
        return "\n---\n".join(path.read_text() for path in found)
    except OSError as error:
        raise RehearsalError(f"{file} cannot be read: {error.strerror}") from None


def kustomize(directory: str) -> str:
    """What ``kubectl kustomize`` makes of a folder."""
    try:
        done = subprocess.run(
            ["kubectl", "kustomize", directory],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KUSTOMIZE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RehearsalError(f"kustomize {directory} took over {_KUSTOMIZE_SECONDS} s") from None
    if done.returncode != 0:
        raise RehearsalError(f"kustomize {directory} failed: {done.stderr.strip()}")
    return done.stdout


def release_of(options: Mapping[str, Any]) -> Properties:
    """The inputs of a Release that are the options of helm/v3's Chart, which are written otherwise."""
    fetch = options.get("fetch_opts") or {}
    repository = {"repo": fetch.get("repo"), "username": fetch.get("username"), "password": fetch.get("password")}
    files = {ours: fetch.get(theirs) for ours, theirs in (("caFile", "ca_file"), ("certFile", "cert_file"))}
    named = "/".join(filter(None, (options.get("repo"), options.get("chart"))))
    return {
        "chart": options.get("path") or named,
        "name": options.get("release_name") or "",
        "namespace": options.get("namespace") or "default",
        "version": options.get("version") or fetch.get("version"),
        "values": options.get("values") or {},
        "skipCrds": bool(options.get("skip_crd_rendering")),
        "devel": bool(fetch.get("devel")),
        "repositoryOpts": {key: value for key, value in (repository | files).items() if value},
    }


class Renderer:
    """Answers the functions of the package, and renders its components."""

    def __init__(self, helm: Helm, namespace: str, is_namespaced: Callable[[Object], bool]) -> None:
        self._helm = helm
        self._namespace = namespace
        self._is_namespaced = is_namespaced

    def call(self, function: str, arguments: Properties) -> list[Object] | None:
        """The objects that a function returns; None for a function that is not known."""
        match function.removeprefix("kubernetes:"):
            case "yaml:decode":
                return self._placed(decode(arguments["text"]), arguments.get("defaultNamespace") or "")
            case "kustomize:directory":
                return decode(kustomize(arguments["directory"]))
            case "helm:template":
                options = json.loads(arguments["jsonOpts"])
                chart, hooks = release_of(options), ["--skip-tests"]
                if options.get("include_test_hook_resources"):
                    hooks = []
                return self._placed(decode(self._helm.template(chart, *hooks)), chart["namespace"])
        return None

    def render(self, component: str, name: str, inputs: Properties) -> list[Object]:
        """The objects that a component is made of; raises a KeyError for one that is not known."""
        namespace = inputs.get("namespace") or self._namespace
        return self._placed(list(COMPONENTS[component](self._helm, name, inputs | {"namespace": namespace})), namespace)

    def _placed(self, objects: list[Object], namespace: str) -> list[Object]:
        """Give a namespace to each object that has none, if its kind has one."""
        for obj in objects if namespace else ():
            metadata = obj.setdefault("metadata", {})
            if not metadata.get("namespace") and self._is_namespaced(obj):
                metadata["namespace"] = namespace
        return objects


def _config_group(_: Helm, __: str, inputs: Properties) -> Iterable[Object]:
    files = inputs.get("files") or []
    given = [read(file) for file in ([files] if isinstance(files, str) else files)]
    return [*decode("\n---\n".join([*given, inputs.get("yaml") or ""])), *_objects(inputs.get("objs") or [])]


def _chart(helm: Helm, name: str, inputs: Properties) -> Iterable[Object]:
    return decode(helm.template({"name": name} | inputs, "--no-hooks"))


COMPONENTS: Mapping[str, Callable[[Helm, str, Properties], Iterable[Object]]] = {
    "kubernetes:yaml/v2:ConfigFile": lambda _, __, inputs: decode(read(inputs["file"])),
    "kubernetes:yaml/v2:ConfigGroup": _config_group,
    "kubernetes:kustomize/v2:Directory": lambda _, __, inputs: decode(kustomize(inputs["directory"])),
    "kubernetes:helm.sh/v4:Chart": _chart,
}
"""What the components of the package are made of."""
