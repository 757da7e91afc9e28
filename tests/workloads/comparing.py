"""Where a manifest of ours does not say what a public one says."""

from collections.abc import Iterator
from typing import Any


def differences(expected: Any, made: Any, path: str = "") -> Iterator[str]:
    """Where a manifest does not say what another one says; lists of named things are compared by name."""
    if isinstance(expected, dict) and isinstance(made, dict):
        for key, value in expected.items():
            yield from differences(value, made.get(key), f"{path}.{key}".lstrip("."))
    elif (
        isinstance(expected, list)
        and isinstance(made, list)
        and all(isinstance(item, dict) for item in expected)
    ):
        ours = {identity(item): item for item in made}
        for item in expected:
            yield from differences(item, ours.get(identity(item)), f"{path}[{identity(item)}]")
    elif expected != made:
        yield f"{path}: {made!r}, not {expected!r}"


def identity(item: dict[str, Any]) -> Any:
    keys = ("mountPath", "name", "containerPort", "port", "key", "action")
    return next((item[key] for key in keys if key in item), None)


def plain(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
