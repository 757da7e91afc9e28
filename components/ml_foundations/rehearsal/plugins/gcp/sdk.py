"""What the stock pulumi_gcp SDK says about resource types: their inputs and outputs.

It is read, not imported: an import takes seconds, and a type's own file says all that is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ml_foundations.rehearsal.plugins.sdk import folder, modules

PACKAGE = "pulumi_gcp"

# Patterns, as the files are generated, and a parser takes ten seconds for all of them.
_GETTER = re.compile(r'@pulumi\.getter(?:\(name="(\w+)"\))?\n(?:    @.*\n)?    def (\w+)\(self\)')
_SIGNATURE = re.compile(r"def _internal_init\((.*?)\):\n", re.DOTALL)
_ARGUMENT = re.compile(r"^ *(\w+):", re.MULTILINE)
_REQUIRED = re.compile(r"Missing required property '(\w+)'")
_IMPORT_FORMAT = re.compile(r"^ *\* `([^`]*\{\{[^`]*)`", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{([^{}]+)\}+")


class UnknownTypeError(Exception):
    """A resource type that the installed pulumi_gcp does not have."""


@dataclass(frozen=True)
class _Type:
    """A resource type. Names are those on the wire, such as ``nodeConfig``."""

    inputs: frozenset[str]
    required: frozenset[str]
    outputs: frozenset[str]
    id_format: str


def tokens() -> list[str]:
    """Every resource type of the SDK, such as ``gcp:container/nodePool:NodePool``."""
    return [token for module in modules(PACKAGE) for token in module["classes"]]


def _source(token: str) -> str:
    """The body of the class of ``gcp:container/nodePool:NodePool``: that name in container/node_pool.py."""
    _, module, name = token.split(":")
    place, _, file = module.lower().partition("/")
    # Case is no guide in either name: the SDK has an entitlement:entitlement, whose class is Entitlement.
    heading = re.compile(rf"^class {re.escape(name)}\(pulumi\.CustomResource\):$", re.MULTILINE | re.IGNORECASE)
    for path in (folder(PACKAGE) / place).glob("*.py"):
        if path.stem.replace("_", "") == file:
            source = path.read_text()
            if found := heading.search(source):
                return source[found.end() :]
    raise UnknownTypeError(f"{token} is not a resource type of the installed pulumi_gcp")


@cache
def _type(token: str) -> _Type:
    source = _source(token)
    wire = _names(source)
    signature = _SIGNATURE.search(source)
    assert signature, f"{token} has no constructor in the installed pulumi_gcp"
    return _Type(
        inputs=frozenset(wire[name] for name in _ARGUMENT.findall(signature[1]) if name in wire),
        required=frozenset(wire[name] for name in _REQUIRED.findall(source)),
        outputs=frozenset(wire.values()),
        id_format=_id_format(source, wire),
    )


def _id_format(source: str, wire: Mapping[str, str]) -> str:
    """The first format of the section about imports, which is that of the id; its words are not all properties."""
    found = _IMPORT_FORMAT.search(source.partition("## Import")[2])
    words = {"project_id": "project", **wire}
    return _PLACEHOLDER.sub(lambda word: f"{{{words.get(word[1], word[1])}}}", found[1]) if found else ""


def _names(source: str) -> dict[str, str]:
    """What has a getter: its name in Python, and the one on the wire, which the getter says where they differ."""
    return {python: named or python for named, python in _GETTER.findall(source)}


def provider_inputs() -> frozenset[str]:
    """The names of all that ``pulumi:providers:gcp`` takes."""
    return frozenset(_names((folder(PACKAGE) / "provider.py").read_text()).values())


def outputs(token: str) -> frozenset[str]:
    """The names of all outputs of a type."""
    return _type(token).outputs


def inputs(token: str) -> frozenset[str]:
    """The names of all inputs of a type."""
    return _type(token).inputs


def required(token: str) -> frozenset[str]:
    """The names of the inputs that a type cannot do without."""
    return _type(token).required


def id_format(token: str) -> str:
    """The id of a type as its documentation gives it, ``projects/{project}/topics/{name}``; empty where it does not."""
    return _type(token).id_format


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
