"""What the functions of the package answer, and what its components are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.kubernetes.rendering import decode, kustomize, objects_of, read, release_of
from ml_foundations.rehearsal.plugins.values import Properties


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
    return [*decode("\n---\n".join([*given, inputs.get("yaml") or ""])), *objects_of(inputs.get("objs") or [])]


def _chart(helm: Helm, name: str, inputs: Properties) -> Iterable[Object]:
    return decode(helm.template({"name": name} | inputs, "--no-hooks"))


COMPONENTS: Mapping[str, Callable[[Helm, str, Properties], Iterable[Object]]] = {
    "kubernetes:yaml/v2:ConfigFile": lambda _, __, inputs: decode(read(inputs["file"])),
    "kubernetes:yaml/v2:ConfigGroup": _config_group,
    "kubernetes:kustomize/v2:Directory": lambda _, __, inputs: decode(kustomize(inputs["directory"])),
    "kubernetes:helm.sh/v4:Chart": _chart,
}
"""What the components of the package are made of."""
