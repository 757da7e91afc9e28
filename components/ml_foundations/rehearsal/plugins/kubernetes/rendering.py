"""Manifests that a program does not declare itself: of YAML, kustomizations and charts."""

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ml_foundations.kubernetes.reading import ReadError, documents, json_value
from ml_foundations.rehearsal import processes
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

Template = Callable[..., str]
"""Returns the manifests of a chart, for the inputs of its release and options of Helm."""
_REQUIRED = {
    "kubernetes:helm.sh/v4:Chart": "chart",
    "kubernetes:helm:template": "jsonOpts",
    "kubernetes:kustomize/v2:Directory": "directory",
    "kubernetes:kustomize:directory": "directory",
    "kubernetes:yaml/v2:ConfigFile": "file",
    "kubernetes:yaml:decode": "text",
}
"""The required input of a function or a component."""
_KUSTOMIZE_SECONDS = 60
_FETCH_OPTIONS = {key: key for key in ("repo", "username", "password")}
_FETCH_OPTIONS |= {"caFile": "ca_file", "certFile": "cert_file"}
"""The names of a repository's options in helm/v3's Chart, by their names in a Release."""


def decode(text: str) -> list[Object]:
    """Return the objects of a YAML stream and of its lists; omit documents without a kind."""
    try:
        return list(objects_of(documents(text)))
    except ReadError as error:
        raise RehearsalError(f"the YAML cannot be read: {error}") from None


def objects_of(documents: Iterable[Any]) -> Iterator[Object]:
    """Yield the objects among documents, those of lists one by one."""
    for document in documents:
        is_map = isinstance(document, Mapping)
        if not is_map or not document.get("apiVersion") or not document.get("kind"):
            continue
        kind = document["kind"]
        metadata = document.get("metadata") or {}
        if not isinstance(kind, str) or not isinstance(metadata, Mapping):
            rule = "an object's kind is a text, and its metadata a map"
            raise RehearsalError(f"{rule} (kind: {kind})")
        if kind.endswith("List") and isinstance(document.get("items"), list):
            yield from objects_of(document["items"])
        else:
            yield {**document, "metadata": {**metadata}}


def read(file: str) -> str:
    """Return the text of a file, or of all files that a pattern matches, as one stream."""
    if urlsplit(file).scheme in ("http", "https"):
        fix = "Keep the file next to the program"
        raise RehearsalError(f"{file}: a rehearsal fetches no manifests. {fix}")
    path = Path(file)
    paths = [path]
    if has_magic(file):
        paths = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    try:
        return "\n---\n".join(map(Path.read_text, paths))
    except OSError as error:
        raise RehearsalError(f"{file} cannot be read: {error.strerror}") from None


def kustomize(directory: str) -> str:
    """Return the manifests that ``kubectl kustomize`` builds from a folder."""
    command = ("kubectl", "kustomize", directory)
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "timeout": _KUSTOMIZE_SECONDS}
    try:
        return processes.run(command, f"kustomize {directory} failed", **options)
    except subprocess.TimeoutExpired:
        raise RehearsalError(f"kustomize {directory} took over {_KUSTOMIZE_SECONDS} s") from None


def release_of(options: Mapping[str, Any]) -> Properties:
    """Return the inputs of a Release for the options of helm/v3's Chart, which have other names."""
    fetch = options.get("fetch_opts") or {}
    chart = "/".join(filter(None, (options.get("repo"), options.get("chart"))))
    repository = {key: fetch.get(name) for key, name in _FETCH_OPTIONS.items() if fetch.get(name)}
    return {
        "chart": options.get("path") or chart,
        "name": options.get("release_name") or "",
        "namespace": options.get("namespace") or "default",
        "version": options.get("version") or fetch.get("version"),
        "values": options.get("values") or {},
        "skipCrds": bool(options.get("skip_crd_rendering")),
        "devel": bool(fetch.get("devel")),
        "repositoryOpts": repository,
    }


def _require_input(token: str, inputs: Mapping[str, Any]) -> None:
    if (name := _REQUIRED.get(token)) and not isinstance(inputs.get(name), str):
        raise RehearsalError(f"{token} needs {name}: a text")


class Renderer:
    """The functions and the components of the package that render manifests."""

    def __init__(
        self, template: Template, namespace: str, is_namespaced: Callable[[Object], bool]
    ) -> None:
        self._template = template
        self._namespace = namespace
        self._is_namespaced = is_namespaced

    def call(self, function: str, arguments: Properties) -> list[Object] | None:
        """Return the objects that a function returns; None for an unknown function."""
        _require_input(function, arguments)
        match function.removeprefix("kubernetes:"):
            case "yaml:decode":
                namespace = arguments.get("defaultNamespace") or ""
                return self._with_namespace(decode(arguments["text"]), namespace)
            case "kustomize:directory":
                return decode(kustomize(arguments["directory"]))
            case "helm:template":
                options = json_value(arguments["jsonOpts"])
                release = release_of(options)
                hooks = [] if options.get("include_test_hook_resources") else ["--skip-tests"]
                objects = decode(self._template(release, *hooks))
                return self._with_namespace(objects, release["namespace"])
        return None

    def render(self, component: str, name: str, inputs: Properties) -> list[Object]:
        """Return the objects of a component; raises a KeyError for an unknown one."""
        _require_input(component, inputs)
        namespace = inputs.get("namespace") or self._namespace
        inputs = {"name": name} | inputs | {"namespace": namespace}
        objects = list(COMPONENTS[component](self._template, inputs))
        return self._with_namespace(objects, namespace)

    def _with_namespace(self, objects: list[Object], namespace: str) -> list[Object]:
        """Set the namespace of each object that has none, if its kind has one."""
        for obj in objects if namespace else ():
            if not obj["metadata"].get("namespace") and self._is_namespaced(obj):
                obj["metadata"]["namespace"] = namespace
        return objects


def _config_group(_: Template, inputs: Properties) -> Iterable[Object]:
    files = inputs.get("files") or []
    texts = list(map(read, [files] if isinstance(files, str) else files))
    text = "\n---\n".join([*texts, inputs.get("yaml") or ""])
    return [*decode(text), *objects_of(inputs.get("objs") or [])]


COMPONENTS: Mapping[str, Callable[[Template, Properties], Iterable[Object]]] = {
    "kubernetes:yaml/v2:ConfigFile": lambda _, inputs: decode(read(inputs["file"])),
    "kubernetes:yaml/v2:ConfigGroup": _config_group,
    "kubernetes:kustomize/v2:Directory": lambda _, inputs: decode(kustomize(inputs["directory"])),
    "kubernetes:helm.sh/v4:Chart": lambda template, inputs: decode(template(inputs, "--no-hooks")),
}
"""The functions that render the components of the package."""
