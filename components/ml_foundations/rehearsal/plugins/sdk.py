"""The resource types of the SDKs, with inputs and outputs, as ``make generate`` writes them.

The data are those of the locked SDK versions. If another version has a type or property that these
lack, the gcp plugin refuses it by name. The kubernetes plugin treats an unknown kind as a custom
resource and asks the cluster. The data are in files because importing the SDKs takes seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.rehearsal.files import read_json

_ANY = {"$ref": "pulumi.json#/Any"}
"""The schema of a property of any type."""


@dataclass(frozen=True)
class ResourceType:
    """A resource type. Names are those of Pulumi's protocol, such as ``nodeConfig``."""

    token: str
    required: frozenset[str]
    inputs: frozenset[str]
    outputs: frozenset[str]
    id_format: str
    """The documented form of the id, ``projects/{project}/topics/{name}``, or empty."""
    is_namespaced: bool
    blocks: Mapping[str, str]
    """The name of each block input's block; it ends in ``[]`` if the input is a list of blocks."""
    replaced_for: tuple[str, ...]
    """The paths whose change replaces a resource; empty if they follow from its id."""
    filled_in: tuple[str, ...]
    """The inputs that the cloud fills in if the program omits them."""
    longest_name: int
    constants: Mapping[str, Any]
    """Outputs that are the same for every resource, unless its inputs set them."""

    @property
    def computed(self) -> frozenset[str]:
        """The outputs that are not inputs."""
        return self.outputs - self.inputs

    @property
    def schema(self) -> dict[str, Any]:
        """The type's part of the package schema, with properties of any type."""
        # A type of kubernetes without an apiVersion is a component, such as a chart.
        is_component = (
            self.token.startswith("kubernetes:")
            and self.token != RELEASE
            and "apiVersion" not in self.inputs
        )
        return {
            "inputProperties": self._properties(self.inputs),
            "requiredInputs": sorted(self.required),
            "properties": self._properties(self.outputs),
            "isComponent": is_component,
        }

    def _properties(self, names: frozenset[str]) -> dict[str, Any]:
        """Return the schema of each property; a kubernetes type fixes its apiVersion and kind."""
        properties: dict[str, Any] = dict.fromkeys(sorted(names), _ANY)
        if self.token.startswith("kubernetes:"):
            api_version, kind = api_version_and_kind(self.token)
            constants = {"apiVersion": api_version, "kind": kind.removesuffix("Patch")}
            for name in constants.keys() & names:
                properties[name] = {"type": "string", "const": constants[name]}
        return properties


class Sdk:
    """The resource types of one package."""

    def __init__(self, package: str) -> None:
        self.package = package

    def __contains__(self, token: str) -> bool:
        return token in self._data["types"]

    def __getitem__(self, token: str) -> ResourceType:
        """Return a resource type, such as ``gcp:container/nodePool:NodePool``."""
        replaced_for = {"replaced_for": _facts(self.package, "replaced_for").get(token, ())}
        corrections = _facts(self.package, "types").get(token, {})
        return _resource_type(token, self._data["types"][token] | replaced_for | corrections)

    def conflicts_of(self, token: str) -> list[list[str]]:
        """Return the pairs of inputs of a resource type that exclude each other."""
        return _facts(self.package, "conflicts").get(token, [])

    def block(self, name: str) -> ResourceType:
        """Return a block of inputs, by the name in ``blocks`` of a type or another block."""
        return _resource_type("", self._data["blocks"][name.removesuffix("[]")])

    @property
    def version(self) -> str:
        """The version of the SDK; 9999.0.0 if the data are written by hand, for any version."""
        return self._data["version"]

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the package, for programs in languages other than Python."""
        functions: dict[str, Any] = {}
        for token, facts in self._data.get("functions", {}).items():
            functions[token] = {
                "inputs": {"properties": dict.fromkeys(facts["takes"], _ANY)},
                "outputs": {"properties": dict.fromkeys(facts["returns"], _ANY)},
            }
        provider = _resource_type("", self._data["provider"]).schema
        return {
            "name": self.package,
            "version": self.version,
            "provider": {"inputProperties": provider["inputProperties"]},
            "resources": {token: self[token].schema for token in self._data["types"]},
            "functions": functions,
        }

    @property
    def _data(self) -> dict[str, Any]:
        return _facts(self.package, "sdk")


@cache
def _facts(package: str, name: str) -> dict[str, Any]:
    """Return the facts in a JSON file of a package; empty if the package has no such file.

    ``sdk`` is generated from the SDK. ``types`` is written by hand: it adds to the SDK's data and
    corrects them. ``conflicts`` and ``replaced_for`` are generated by ``codegen.gcp_replacements``.
    """
    return read_json(Path(__file__).with_name(package) / f"{name}.json", {})


GCP = Sdk("gcp")
KUBERNETES = Sdk("kubernetes")


def api_version_and_kind(token: str) -> tuple[str, str]:
    """Return the apiVersion and kind of a token: ``kubernetes:core/v1:Pod`` is a Pod of v1."""
    api_version, _, kind = token.removeprefix("kubernetes:").rpartition(":")
    return api_version.removeprefix("core/"), kind


def token_of(api_version: str, kind: str) -> str:
    """Return the token of a kind: ``kubernetes:core/v1:Pod`` for a Pod of v1."""
    group_version = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{group_version}:{kind}"


def _resource_type(token: str, entry: Mapping[str, Any]) -> ResourceType:
    required = frozenset(entry.get("required", ()))
    inputs = required | frozenset(entry.get("optional", ()))
    return ResourceType(
        token=token,
        required=required,
        inputs=inputs,
        outputs=inputs | frozenset(entry.get("computed", ())),
        id_format=entry.get("id", ""),
        is_namespaced=not entry.get("cluster_scoped", False),
        blocks=entry.get("blocks", {}),
        replaced_for=tuple(entry.get("replaced_for", ())),
        filled_in=tuple(entry.get("filled_in", ("project",))),
        longest_name=entry.get("longest_name", 63),
        constants=entry.get("constants", {}),
    )
