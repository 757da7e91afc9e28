"""What manifests say, field by field: a path in an object, and the value that stands there."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_foundations.kubernetes.quantities import parse_quantity

_WORKLOADS = {"Deployment", "Job", "StatefulSet", "Pod"}
_IDENTITIES = ("mountPath", "containerPort", "port", "name", "key")
_AMOUNTS = (".limits.", ".requests.", ".sizeLimit", ".averageValue")

Fields = Mapping[str, Mapping[str, Any]]
"""Of the one object of each kind its fields; those of a pod are the same whatever makes it."""


def fields_of(manifests: Iterable[Mapping[str, Any]]) -> Fields:
    """The fields of some manifests; items of lists are told by what names them, and lists of words are one field."""
    found: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        kind = manifest["kind"]
        for path, value in _leaves(
            {key: item for key, item in manifest.items() if key not in ("apiVersion", "kind")}, ""
        ):
            of_pod = path.removeprefix("spec.template.")
            if kind not in _WORKLOADS:
                found.setdefault(kind, {})[path] = value
            elif of_pod != path or (kind == "Pod" and path != "metadata.name"):
                found.setdefault("pod", {})[of_pod] = value
            else:
                found.setdefault("workload", {})[path] = value
    return {name: _with_numbered_ports(fields, found) for name, fields in found.items()}


def unsaid(public: Fields, ours: Fields) -> list[str]:
    """The fields that a public manifest has, and ours has not, or with another value."""
    fields = (
        (name, path, value) for name, paths in public.items() for path, value in paths.items()
    )
    compared = [(name, path, value, ours.get(name, {}).get(path)) for name, path, value in fields]
    return [
        f"{name} {path}: {made!r}, not {value!r}"
        for name, path, value, made in compared
        if _plain(path, made) != _plain(path, value)
    ]


def _plain(path: str, value: Any) -> Any:
    """Kubernetes reads 1 and "1", and 1024Mi and 1Gi, as one amount."""
    is_amount = value is not None and any(amount in path for amount in _AMOUNTS)
    return parse_quantity(str(value)) if is_amount else value


def _with_numbered_ports(fields: Mapping[str, Any], objects: Fields) -> dict[str, Any]:
    """Kubernetes looks a named port of a probe or a Service up in the pod."""
    numbers = {
        value: path.rpartition("[")[2].partition("]")[0]
        for of_object in objects.values()
        for path, value in of_object.items()
        if ".ports[" in path and path.startswith("spec.containers") and path.endswith(".name")
    }
    return {
        path: numbers.get(value, str(value))
        if path.endswith((".targetPort", "Get.port"))
        else value
        for path, value in fields.items()
    }


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, item in enumerate(value):
            name = next((item[key] for key in _IDENTITIES if key in item), index)
            yield from _leaves(item, f"{path}[{name}]")
    else:
        yield path, value
