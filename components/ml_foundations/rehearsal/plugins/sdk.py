"""The resource types of the SDKs, with inputs and outputs, as ``make generate`` writes them.

The data are those of the locked SDK versions. If another version has a type or property that these
lack, the gcp plugin refuses it by name. The kubernetes plugin treats an unknown kind as a custom
resource and asks the cluster. The data are in files because importing the SDKs takes seconds.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.plugins.property_paths import join

InputErrors = list[tuple[str, str]]
"""Pairs of a property path and the reason why the property is invalid."""
_ANY = {"$ref": "pulumi.json#/Any"}
"""The schema of a property of any type."""


class ResourceType:
    """A resource type. Names are those of Pulumi's protocol, such as ``nodeConfig``."""

    def __init__(self, token: str, facts: Mapping[str, Any]) -> None:
        self.token = token
        self.required = frozenset[str](facts.get("required", ()))
        self.inputs = self.required | frozenset[str](facts.get("optional", ()))
        self.outputs = self.inputs | frozenset[str](facts.get("computed", ()))
        self.id_format: str = facts.get("id", "")
        """The documented form of the id, ``projects/{project}/topics/{name}``, or empty."""
        self.is_namespaced = not facts.get("cluster_scoped", False)
        self.blocks: Mapping[str, str] = facts.get("blocks", {})
        """The name of each block input's block; it ends in ``[]`` for a list of blocks."""
        self.replaced_for = tuple[str, ...](facts.get("replaced_for", ()))
        """The paths whose change replaces a resource; empty if they follow from its id."""
        self.filled_in = tuple[str, ...](facts.get("filled_in", ("project",)))
        """The inputs that the cloud fills in if the program omits them."""
        self.longest_name: int = facts.get("longest_name", 63)
        self.constants: Mapping[str, Any] = facts.get("constants", {})
        """Outputs that are the same for every resource, unless its inputs set them."""

    @property
    def computed(self) -> frozenset[str]:
        """The outputs that are not inputs."""
        return self.outputs - self.inputs

    @property
    def schema(self) -> dict[str, Any]:
        """The type's part of the package schema, with properties of any type."""
        is_object = "apiVersion" in self.inputs or self.token == RELEASE
        return {
            "inputProperties": self._properties(self.inputs),
            "requiredInputs": sorted(self.required),
            "properties": self._properties(self.outputs),
            # A type of kubernetes that is not an object is a component, such as a chart.
            "isComponent": self.token.startswith("kubernetes:") and not is_object,
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
        return ResourceType(token, self._data["types"][token] | replaced_for | corrections)

    def conflicts_of(self, token: str) -> list[list[str]]:
        """Return the pairs of inputs of a resource type that exclude each other."""
        return _facts(self.package, "conflicts").get(token, [])

    def block(self, name: str) -> ResourceType:
        """Return a block of inputs, by the name in ``blocks`` of a type or another block."""
        return ResourceType("", self._data["blocks"][name.removesuffix("[]")])

    def input_errors(self, token: str, inputs: Mapping[str, Any]) -> InputErrors:
        """Return the errors for properties that a resource type does not have, or requires."""
        return self._input_errors(token, self[token], inputs, "")

    def _input_errors(
        self, title: str, kind: ResourceType, inputs: Mapping[str, Any], path: str
    ) -> InputErrors:
        errors: InputErrors = []
        for name, value in inputs.items():
            if name.startswith("__"):
                continue
            if name not in kind.inputs:
                # No message shows a value: a misspelt name may be that of a secret.
                reason = f"{title} has no property of this name in pulumi-{self.package}"
                page = f"See https://www.pulumi.com/registry/packages/{self.package}/api-docs/"
                hints = filter(None, [did_you_mean(name, kind.inputs), page])
                errors.append((join(path, name), f"{reason} {self.version}. {' '.join(hints)}"))
            elif name in kind.blocks and value is not UNKNOWN:
                errors += self._block_errors(kind.blocks[name], value, join(path, name))
        for name in sorted(kind.required - inputs.keys()):
            errors.append((join(path, name), f"is required in {title}"))
        return errors

    def _block_errors(self, block: str, value: Any, path: str) -> InputErrors:
        is_list = isinstance(value, list)
        if block.endswith("[]") != is_list:
            expected = "a single block, not a list or a value" if is_list else "a list of blocks"
            return [(path, f"must be {expected}")]
        errors: InputErrors = []
        for index, item in enumerate(value if is_list else [value]):
            item_path = f"{path}[{index}]" if is_list else path
            if isinstance(item, Mapping):
                errors += self._input_errors(item_path, self.block(block), item, item_path)
            elif item is not UNKNOWN:
                errors.append((item_path, "must be a block of properties"))
        return errors

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
        provider = ResourceType("", self._data["provider"]).schema
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
