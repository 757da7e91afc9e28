"""The package's schema for programs that are no Python: every kind that the SDK knows, with its properties untyped."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from typing import Any, Literal, get_args, get_origin

from rehearsal.plugins.sdk import ANY, modules


@cache
def resources() -> dict[str, Any]:
    """The schema of each resource type, by its token."""
    return {
        token: _resource(getattr(importlib.import_module(module["fqn"]), name))
        for module in modules("pulumi_kubernetes")
        for token, name in module["classes"].items()
    }


def provider() -> dict[str, Any]:
    """The schema of the provider itself."""
    return {"inputProperties": _resource(importlib.import_module("pulumi_kubernetes").Provider)["inputProperties"]}


def _resource(kind: Any) -> dict[str, Any]:
    parameters = list(inspect.signature(kind._internal_init).parameters.values())[3:-1]
    inputs = {_camel_case(parameter.name): _property(parameter.annotation) for parameter in parameters}
    getters: list[Any] = [prop.fget for prop in vars(kind).values() if isinstance(prop, property)]
    outputs = [getter._pulumi_name for getter in getters]
    return {"inputProperties": inputs, "properties": {name: inputs.get(name, ANY) for name in outputs}}


def _property(annotation: Any) -> dict[str, Any]:
    """Anything, but for apiVersion and kind: a kind has but one of each."""
    for choice in get_args(annotation):
        if get_origin(choice) is Literal:
            return {"type": "string", "const": get_args(choice)[0]}
    return ANY


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
