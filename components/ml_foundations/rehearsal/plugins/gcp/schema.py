"""The package's schema for programs that are no Python: every type that the SDK knows, with its properties untyped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from ml_foundations.rehearsal.plugins.gcp import sdk
from ml_foundations.rehearsal.plugins.sdk import ANY


@cache
def resources() -> dict[str, Any]:
    """The schema of each resource type, by its token."""
    return {token: _resource(token) for token in sdk.tokens()}


def provider() -> dict[str, Any]:
    """The schema of the provider itself."""
    return {"inputProperties": _untyped(sdk.provider_inputs())}


def _resource(token: str) -> dict[str, Any]:
    return {
        "inputProperties": _untyped(sdk.inputs(token)),
        "requiredInputs": sorted(sdk.required(token)),
        "properties": _untyped(sdk.outputs(token)),
    }


def _untyped(names: Iterable[str]) -> dict[str, Any]:
    return dict.fromkeys(sorted(names), ANY)
