"""Manifests that a program does not declare one by one: from YAML, from a kustomization, from a chart."""

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from ml_foundations.planning.input.streams import Loader, problem
from ml_foundations.rehearsal import processes
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

Template = Callable[..., str]
"""Makes the manifests of a chart from the inputs of its release, and from switches of Helm."""
_REQUIRED = {
    "kubernetes:helm.sh/v4:Chart": "chart",
    "kubernetes:helm:template": "jsonOpts",
    "kubernetes:kustomize/v2:Directory": "directory",
    "kubernetes:kustomize:directory": "directory",
    "kubernetes:yaml/v2:ConfigFile": "file",
    "kubernetes:yaml:decode": "text",
}
"""What a function or a component cannot do without."""
_KUSTOMIZE_SECONDS = 60
_FETCH_OPTIONS = dict(
    repo="repo", username="username", password="password", caFile="ca_file", certFile="cert_file"
)
"""Of the options of a repository, by their names in a Release: their names in helm/v3's Chart."""


def decode(text: str) -> list[Object]:
    """The objects of a YAML stream, those of lists one by one; documents without a kind are left out."""
    try:
        return list(objects_of(yaml.load_all(text, Loader=Loader)))
    except yaml.YAMLError as error:
        raise RehearsalError(f"the YAML cannot be read: {problem(error)}") from None


def objects_of(documents: Iterable[Any]) -> Iterator[Object]:
    """The objects among documents, those of lists one by one."""
    for document in documents:
        if (
            not isinstance(document, Mapping)
            or not document.get("apiVersion")
            or not document.get("kind")
        ):
            continue
        kind, metadata = document["kind"], document.get("metadata") or {}
        if not isinstance(kind, str) or not isinstance(metadata, Mapping):
            raise RehearsalError(
                f"an object's kind is a text, and its metadata a map (kind: {kind})"
            )
        if kind.endswith("List") and isinstance(document.get("items"), list):
            yield from objects_of(document["items"])
        else:
            yield {**document, "metadata": {**metadata}}


def read(file: str) -> str:
    """The text of a file, or of all files that a pattern matches, as one stream."""
    if urlsplit(file).scheme in ("http", "https"):
        raise RehearsalError(
            f"{file}: a rehearsal fetches no manifests. Keep the file beside the program"
        )
    path = Path(file)
    found = (
        sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if has_magic(file)
        else [path]
    )
    try:
        return "\n---\n".join(path.read_text() for path in found)
    except OSError as error:
        raise RehearsalError(f"{file} cannot be read: {error.strerror}") from None


def kustomize(directory: str) -> str:
    """What ``kubectl kustomize`` makes of a folder."""
    command, options = (
        ("kubectl", "kustomize", directory),
        {"stdin": subprocess.DEVNULL, "timeout": _KUSTOMIZE_SECONDS},
    )
    try:
        return processes.run(command, f"kustomize {directory} failed", **options)
    except subprocess.TimeoutExpired:
        raise RehearsalError(f"kustomize {directory} took over {_KUSTOMIZE_SECONDS} s") from None


def release_of(options: Mapping[str, Any]) -> Properties:
    """The inputs of a Release that are the options of helm/v3's Chart, which are written otherwise."""
    fetch = options.get("fetch_opts") or {}
    named = "/".join(filter(None, (options.get("repo"), options.get("chart"))))
    return {
        "chart": options.get("path") or named,
        "name": options.get("release_name") or "",
        "namespace": options.get("namespace") or "default",
        "version": options.get("version") or fetch.get("version"),
        "values": options.get("values") or {},
        "skipCrds": bool(options.get("skip_crd_rendering")),
        "devel": bool(fetch.get("devel")),
        "repositoryOpts": {
            ours: fetch[theirs] for ours, theirs in _FETCH_OPTIONS.items() if fetch.get(theirs)
        },
    }


def _check(what: str, given: Mapping[str, Any]) -> None:
    if (needed := _REQUIRED.get(what)) and not isinstance(given.get(needed), str):
        raise RehearsalError(f"{what} needs {needed}: a text")


class Renderer:
    """Answers the functions of the package, and renders its components."""

    def __init__(
        self, template: Template, namespace: str, is_namespaced: Callable[[Object], bool]
    ) -> None:
        self._template = template
        self._namespace = namespace
        self._is_namespaced = is_namespaced

    def call(self, function: str, arguments: Properties) -> list[Object] | None:
        """The objects that a function returns; None for a function that is not known."""
        _check(function, arguments)
        match function.removeprefix("kubernetes:"):
            case "yaml:decode":
                return self._placed(
                    decode(arguments["text"]), arguments.get("defaultNamespace") or ""
                )
            case "kustomize:directory":
                return decode(kustomize(arguments["directory"]))
            case "helm:template":
                options = json.loads(arguments["jsonOpts"])
                chart = release_of(options)
                hooks = [] if options.get("include_test_hook_resources") else ["--skip-tests"]
                return self._placed(decode(self._template(chart, *hooks)), chart["namespace"])
        return None

    def render(self, component: str, name: str, inputs: Properties) -> list[Object]:
        """The objects that a component is made of; raises a KeyError for one that is not known."""
        _check(component, inputs)
        namespace = inputs.get("namespace") or self._namespace
        found = COMPONENTS[component](
            self._template, {"name": name} | inputs | {"namespace": namespace}
        )
        return self._placed(list(found), namespace)

    def _placed(self, objects: list[Object], namespace: str) -> list[Object]:
        """Give a namespace to each object that has none, if its kind has one."""
        for obj in objects if namespace else ():
            if not obj["metadata"].get("namespace") and self._is_namespaced(obj):
                obj["metadata"]["namespace"] = namespace
        return objects


def _config_group(_: Template, inputs: Properties) -> Iterable[Object]:
    files = inputs.get("files") or []
    given = [read(file) for file in ([files] if isinstance(files, str) else files)]
    return [
        *decode("\n---\n".join([*given, inputs.get("yaml") or ""])),
        *objects_of(inputs.get("objs") or []),
    ]


COMPONENTS: Mapping[str, Callable[[Template, Properties], Iterable[Object]]] = {
    "kubernetes:yaml/v2:ConfigFile": lambda _, inputs: decode(read(inputs["file"])),
    "kubernetes:yaml/v2:ConfigGroup": _config_group,
    "kubernetes:kustomize/v2:Directory": lambda _, inputs: decode(kustomize(inputs["directory"])),
    "kubernetes:helm.sh/v4:Chart": lambda template, inputs: decode(template(inputs, "--no-hooks")),
}
"""What the components of the package are made of."""
