"""The resource types of the stock SDKs: their inputs and outputs, as written by ``make generate``.

The data are of the SDK versions that the lock pins. A type or property that only another version has is not known here:
the gcp plugin refuses it by name, and the kubernetes plugin takes a kind that it does not know for a custom resource's
and asks the cluster. They are read, as importing the SDKs takes seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.rehearsal.files import read_json

_ANY = {"$ref": "pulumi.json#/Any"}
"""The schema of a property whose type is not looked at."""


@dataclass(frozen=True)
class ResourceType:
    """A resource type. Names are those on the wire, such as ``nodeConfig``."""

    token: str
    required: frozenset[str]
    inputs: frozenset[str]
    outputs: frozenset[str]
    id_format: str
    """The id as the SDK documents it, ``projects/{project}/topics/{name}``; empty if it does not."""
    is_namespaced: bool
    blocks: Mapping[str, str]
    """The inputs that are blocks, with the name of what each holds; ``[]`` behind it where it is a list of them."""
    replaced_for: tuple[str, ...]
    """The paths whose change replaces a resource; empty where they follow from its id."""
    filled_in: tuple[str, ...]
    """The inputs that the cloud fills in if the program leaves them out."""
    longest_name: int
    constants: Mapping[str, Any]
    """Outputs that are the same for every resource, unless its inputs set them."""

    @property
    def computed(self) -> frozenset[str]:
        """The outputs that are not inputs."""
        return self.outputs - self.inputs

    @property
    def schema(self) -> dict[str, Any]:
        """Its part of that schema, with properties untyped."""
        return {
            "inputProperties": {name: self._property(name) for name in sorted(self.inputs)},
            "requiredInputs": sorted(self.required),
            "properties": {name: self._property(name) for name in sorted(self.outputs)},
            "isComponent": self._is_component,
        }

    @property
    def _is_component(self) -> bool:
        """Whether it makes objects and is none itself, such as a chart."""
        is_of_kubernetes = self.token.startswith("kubernetes:")
        return is_of_kubernetes and self.token != RELEASE and "apiVersion" not in self.inputs

    def _property(self, name: str) -> dict[str, str]:
        """Any value, except for apiVersion and kind, which a kind fixes."""
        api_version, kind = api_version_and_kind(self.token)
        constants = {"apiVersion": api_version, "kind": kind.removesuffix("Patch")}
        if self.token.startswith("kubernetes:") and name in constants:
            return {"type": "string", "const": constants[name]}
        return _ANY


class Sdk:
    """The resource types of one package."""

    def __init__(self, package: str) -> None:
        self.package = package

    def __contains__(self, token: str) -> bool:
        return token in self._data["types"]

    def __getitem__(self, token: str) -> ResourceType:
        """A resource type, such as ``gcp:container/nodePool:NodePool``."""
        replaced_for = {"replaced_for": _facts(self.package, "replaced_for").get(token, ())}
        more = _facts(self.package, "types").get(token, {})
        return _resource_type(token, self._data["types"][token] | replaced_for | more)

    def conflicts_of(self, token: str) -> list[list[str]]:
        """Return the pairs of inputs of a resource type that exclude each other."""
        return _facts(self.package, "conflicts").get(token, [])

    def block(self, name: str) -> ResourceType:
        """A block of inputs, by the name under which a type or another block has it."""
        return _resource_type("", self._data["blocks"][name.removesuffix("[]")])

    @property
    def version(self) -> str:
        """The version of the SDK that the data are of; 9999.0.0 where they are kept by hand, and serve any."""
        return self._data["version"]

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the package, for programs in languages other than Python."""
        return {
            "name": self.package,
            "version": self.version,
            "provider": {
                "inputProperties": _resource_type("", self._data["provider"]).schema[
                    "inputProperties"
                ]
            },
            "resources": {token: self[token].schema for token in self._data["types"]},
            "functions": {
                token: {
                    "inputs": {"properties": dict.fromkeys(facts["takes"], _ANY)},
                    "outputs": {"properties": dict.fromkeys(facts["returns"], _ANY)},
                }
                for token, facts in self._data.get("functions", {}).items()
            },
        }

    @property
    def _data(self) -> dict[str, Any]:
        return _facts(self.package, "sdk")


@cache
def _facts(package: str, name: str) -> dict[str, Any]:
    """Return the facts in a JSON file of a package; empty if the package has no such file.

    ``sdk`` is of the SDK. ``types`` has what the SDK does not tell of types, or tells wrongly; it is kept by hand.
    ``conflicts`` and ``replaced_for`` are made by ``codegen.gcp_replacements``.
    """
    return read_json(Path(__file__).with_name(package) / f"{name}.json", {})


GCP = Sdk("gcp")
KUBERNETES = Sdk("kubernetes")


def api_version_and_kind(token: str) -> tuple[str, str]:
    """The apiVersion and kind of a token: ``kubernetes:core/v1:Pod`` is a Pod of v1."""
    api_version, _, kind = token.removeprefix("kubernetes:").rpartition(":")
    return api_version.removeprefix("core/"), kind


def token_of(api_version: str, kind: str) -> str:
    """The token of one of Kubernetes' own kinds."""
    return f"kubernetes:{api_version if '/' in api_version else f'core/{api_version}'}:{kind}"


def _resource_type(token: str, entry: Mapping[str, Any]) -> ResourceType:
    required, optional, computed = (
        frozenset(entry.get(key, ())) for key in ("required", "optional", "computed")
    )
    return ResourceType(
        token=token,
        required=required,
        inputs=required | optional,
        outputs=required | optional | computed,
        id_format=entry.get("id", ""),
        is_namespaced=not entry.get("cluster_scoped", False),
        blocks=entry.get("blocks", {}),
        replaced_for=tuple(entry.get("replaced_for", ())),
        filled_in=tuple(entry.get("filled_in", ("project",))),
        longest_name=entry.get("longest_name", 63),
        constants=entry.get("constants", {}),
    )
