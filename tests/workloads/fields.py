"""Which fields manifests use, by their paths: what a user names freely (labels, resources) is one field, *."""

from collections.abc import Iterable, Iterator
from typing import Any

_KEYED = {"labels", "matchLabels", "annotations", "nodeSelector", "limits", "requests", "selector", "data"}
_KEYED |= {"volumeAttributes"}
_CONTROLLERS = {"Deployment", "Job", "StatefulSet"}


def used(manifests: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """The fields of some manifests, by kind; those of pods are the same whatever makes them."""
    found: dict[str, set[str]] = {}
    for manifest in manifests:
        kind = manifest["kind"]
        for path in _paths({key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}, ""):
            if kind in _CONTROLLERS and path.startswith("spec.template."):
                found.setdefault("pod", set()).add(path.removeprefix("spec.template."))
            elif kind == "Pod" and path != "metadata.name":
                found.setdefault("pod", set()).add(path)
            else:
                found.setdefault("controller" if kind in {*_CONTROLLERS, "Pod"} else kind, set()).add(path)
    return found


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        if path.rpartition(".")[2] in _KEYED and not any(isinstance(item, dict | list) for item in value.values()):
            yield f"{path}.*"
            return
        for key, item in value.items():
            yield from _paths(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for item in value:
            yield from _paths(item, f"{path}[]")
    else:
        yield path
