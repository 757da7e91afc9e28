"""Generate the embedded plugins' data about the SDKs pulumi-gcp and pulumi-kubernetes.

It follows from what the SDKs register and from the signatures of their classes. Importing them all
takes half a minute, so that a plugin reads the written data instead: plain JSON, a line for each
type, which packs to 65 KB. ``python -m codegen.sdk``
"""

import importlib
import importlib.metadata
import inspect
import json
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pulumi.runtime import rpc

FOLDER = Path(__file__).parents[1] / "components" / "ml_foundations" / "rehearsal" / "plugins"
PACKAGES = ("gcp", "kubernetes")

_CLUSTER_SCOPED = frozenset(
    (
        *(
            "APIService",
            "AuditSink",
            "CSIDriver",
            "CSINode",
            "CertificateSigningRequest",
            "ClusterCIDR",
            "ClusterRole",
        ),
        *(
            "ClusterRoleBinding",
            "ClusterTrustBundle",
            "CustomResourceDefinition",
            "DeviceClass",
            "DeviceTaintRule",
        ),
        *(
            "FlowSchema",
            "IPAddress",
            "IngressClass",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        ),
        *(
            "MutatingWebhookConfiguration",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PodSecurityPolicy",
        ),
        *(
            "PriorityClass",
            "PriorityLevelConfiguration",
            "ResourceClass",
            "ResourceSlice",
            "RuntimeClass",
        ),
        *("ServiceCIDR", "StorageClass", "StorageVersionMigration", "ValidatingAdmissionPolicy"),
        *("ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment"),
        *("VolumeAttributesClass",),
    )
)
"""Kubernetes' own kinds without a namespace, which the SDK does not say. A test asks a replica's
API server."""

_IMPORT_FORMAT = re.compile(r"^ *\* `([^`]*\{\{[^`]*)`", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{([^{}]+)\}+")
_INVOKED = re.compile(r"pulumi\.runtime\.invoke\('([^']+)'")
_GIVEN = re.compile(r"__args__\['(\w+)'\]")
_GETTER = re.compile(r'@pulumi\.getter(?:\(name="(\w+)"\))?\s+def (\w+)')
_BLOCK = re.compile(r"ForwardRef\('(\w+)Args'\)")


def file(package: str) -> Path:
    """Return the file with the data of a package."""
    return FOLDER / package / "sdk.json"


def written(package: str) -> dict[str, Any]:
    """Return the current data of a package."""
    return json.loads(file(package).read_text())


def generated(package: str) -> str:
    """Return the text of a package's data, one type on each line."""
    lines = ",\n".join(
        f"{json.dumps(token)}:{_compact(described(token))}" for token in sorted(classes(package))
    )
    provider = _described("", importlib.import_module(f"pulumi_{package}").Provider)
    blocks = ",\n".join(
        f"{json.dumps(name)}:{_compact(facts)}" for name, facts in sorted(_blocks(package).items())
    )
    functions = ",\n".join(
        f"{json.dumps(token)}:{_compact(facts)}" for token, facts in _functions(package)
    )
    more = f',\n"blocks":{{\n{blocks}\n}},\n"functions":{{\n{functions}\n}}' if blocks else ""
    head = f'"version":"{_installed(package)}",\n"provider":{_compact(provider)}'
    return f'{{{head},\n"types":{{\n{lines}\n}}{more}}}\n'


@cache
def classes(package: str) -> dict[str, tuple[str, str]]:
    """Return module and name of the class of each registered resource type, by token."""
    importlib.import_module(f"pulumi_{package}")
    packages: Any = rpc._RESOURCE_MODULES
    registered = [module.mod_info for modules in packages.values() for module in modules]
    return {
        token: (module["fqn"], name)
        for module in registered
        if module["pkg"] == package
        for token, name in module["classes"].items()
    }


def described(token: str) -> dict[str, Any]:
    """Return the data of a type: its properties by wire names, and the package's extras."""
    module, name = classes(token.partition(":")[0])[token]
    return _described(token, getattr(importlib.import_module(module), name))


def _described(token: str, kind: Any) -> dict[str, Any]:
    declared = typing.get_overloads(kind.__init__)[1]
    arguments = _arguments(inspect.signature(declared).parameters["args"].annotation)
    wire = _wire_names(arguments)
    facts = {
        "computed": sorted({*_wire_names(kind).values()} - {*wire.values()}),
        "id": _id_format(inspect.getdoc(declared) or "", _wire_names(kind) | wire),
        "cluster_scoped": token.startswith("kubernetes:")
        and token.rpartition(":")[2] in _CLUSTER_SCOPED,
    }
    return _taken(arguments) | {key: value for key, value in facts.items() if value}


def _taken(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a class: required ones, optional ones and blocks."""
    parameters = inspect.signature(arguments.__init__).parameters
    wire = _wire_names(arguments)
    required = {wire[name] for name in wire if parameters[name].default is inspect.Parameter.empty}
    blocks = {
        wire[name]: block
        for name in wire
        if (block := _block(arguments, parameters[name].annotation))
    }
    facts = {
        "required": sorted(required),
        "optional": sorted({*wire.values()} - required),
        "blocks": blocks,
    }
    return {key: value for key, value in facts.items() if value}


def _block(arguments: Any, annotation: Any) -> str:
    """Return the name of an argument's block with its module, and ``[]`` for a list; or nothing."""
    text = str(annotation)
    match = _BLOCK.search(text)
    if not match or arguments.__module__.startswith("pulumi_kubernetes."):
        return ""
    return f"{_service(arguments)}.{match[1]}{'[]' if 'Sequence[' in text else ''}"


def _service(arguments: Any) -> str:
    return arguments.__module__.split(".")[1]


def _blocks(package: str) -> dict[str, Any]:
    """Return every block of arguments in the types of a package, by name."""
    blocks: dict[str, Any] = {}
    missing = {
        name for token in classes(package) for name in described(token).get("blocks", {}).values()
    }
    while missing:
        name = missing.pop().removesuffix("[]")
        if name not in blocks:
            service, _, short = name.partition(".")
            module = importlib.import_module(f"pulumi_{package}.{service}._inputs")
            blocks[name] = _taken(getattr(module, f"{short}Args"))
            missing |= set(blocks[name].get("blocks", {}).values())
    return blocks


def _functions(package: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each function of a package with its arguments and results, from its module's text."""
    root = Path(str(importlib.import_module(f"pulumi_{package}").__file__)).parent
    for path in sorted(root.glob("*/get_*.py")):
        text = path.read_text()
        if token := _INVOKED.search(text):
            returned = {wire or name for wire, name in _GETTER.findall(text)}
            yield (
                token[1],
                {"takes": sorted(set(_GIVEN.findall(text))), "returns": sorted(returned)},
            )


def _arguments(annotation: Any) -> Any:
    """Return the class of a type's arguments, from an annotation that may be optional."""
    return next(
        (kind for kind in typing.get_args(annotation) if kind is not type(None)), annotation
    )


def _wire_names(kind: Any) -> dict[str, str]:
    """Return the names of a class's properties: in Python, and on the wire."""
    getters: dict[str, Any] = {
        name: prop.fget for name, prop in vars(kind).items() if isinstance(prop, property)
    }
    return {name: getter._pulumi_name for name, getter in getters.items()}


def _id_format(text: str, wire: Mapping[str, str]) -> str:
    """Return the format of the id, which is the first one in the section about imports."""
    match = _IMPORT_FORMAT.search(text.partition("## Import")[2])
    words = {"project_id": "project", **wire}
    return (
        _PLACEHOLDER.sub(lambda word: f"{{{words.get(word[1], word[1])}}}", match[1])
        if match
        else ""
    )


def _installed(package: str) -> str:
    return importlib.metadata.version(f"pulumi-{package}")


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def update() -> None:
    """Write the data again if the installed SDK has another version."""
    for package in PACKAGES:
        if not file(package).exists() or written(package)["version"] != _installed(package):
            file(package).write_text(generated(package))


def main() -> None:
    """Write the data again, whatever its version."""
    for package in PACKAGES:
        file(package).write_text(generated(package))


if __name__ == "__main__":
    main()
