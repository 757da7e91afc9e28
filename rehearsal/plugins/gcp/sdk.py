"""What the stock pulumi_gcp SDK says about resource types: their inputs and outputs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any


class UnknownTypeError(Exception):
    """A resource type that the installed pulumi_gcp does not have."""


@cache
def _class(token: str) -> type:
    _, module, name = token.split(":")
    try:
        return getattr(importlib.import_module(f"pulumi_gcp.{module.partition('/')[0].lower()}"), name)
    except (ImportError, AttributeError) as error:
        raise UnknownTypeError(f"{token} is not a resource type of the installed pulumi_gcp") from error


@cache
def _properties(token: str) -> Mapping[str, str]:
    """The outputs of a type: their names in Python and on the wire."""
    return {
        name: getattr(member.fget, "_pulumi_name")  # noqa: B009  (set by the SDK's decorator)
        for base in _class(token).__mro__
        for name, member in vars(base).items()
        if isinstance(member, property) and hasattr(member.fget, "_pulumi_name")
    }


@cache
def outputs(token: str) -> frozenset[str]:
    """The names of all outputs of a type."""
    return frozenset(_properties(token).values())


@cache
def inputs(token: str) -> frozenset[str]:
    """The names of all inputs of a type."""
    accepted = inspect.signature(_class(token)._internal_init).parameters
    return frozenset(wire for name, wire in _properties(token).items() if name in accepted)


def unmodelled(token: str, state: Mapping[str, Any]) -> set[str]:
    """The outputs of a type that only Google computes and that a state lacks: a program would read None.

    Args:
        token: The type, such as ``gcp:container/cluster:Cluster``.
        state: The outputs that the plugin gave.
    """
    return set(outputs(token) - inputs(token) - state.keys())


def unmodelled_outputs(resources: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """By URN, the outputs that the plugin did not model, of the gcp resources of an exported stack.

    Args:
        resources: ``deployment.resources`` of ``pulumi stack export``.
    """
    return {
        resource["urn"]: missing
        for resource in resources
        if resource["type"].startswith("gcp:") and resource.get("custom")
        for missing in [unmodelled(resource["type"], resource.get("outputs") or {})]
        if missing
    }
