"""Kinds and fields of Kubernetes that a cluster's version may lack."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from ml_foundations.catalog.gke_kinds import LATER_FIELDS, begins_before, may_be_before
from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind_files import cached_per_kinds
from ml_foundations.kubernetes.objects import Manifest, name_of, plural
from ml_foundations.kubernetes.trees import is_mapping, joined, leaves, of_any_item
from ml_foundations.planning.input.field_catalog import schema
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_PACKAGE = "ml_foundations.planning.api_server"
_NEXT = "1.37"
"""The first minor version that gated_fields.csv, which is made from 1.36, does not describe."""
_EMPTY: Any = (None, "", [], {})
_REMEDY = "Set minMasterVersion (kubernetes_version of a GkeCluster) to {} or later."


class _Gated(NamedTuple):
    """A field that the API server drops unless its feature gate is on."""

    gate: str
    since: str
    """The minor version with the gate on by default; empty if none has it."""
    is_union: bool
    """Whether the API server refuses the object without the field."""


@rule(
    "version",
    Severity.ERROR,
    "Clusters begin with the version of GKE that their pools, kinds and fields need.",
    source="GKE, release notes and minimal versions of each feature",
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        minMasterVersion: "1.33"
        ---
        apiVersion: resource.k8s.io/v1
        kind: DeviceClass
        metadata: {name: gpus}
        spec: {}
    """,
)
def versions(stack: Stack) -> Iterator[Finding]:
    """Yield the kinds and fields that the program's only cluster may be too old for."""
    for manifest in stack.objects if len(stack.clusters) == 1 else ():
        cluster = stack.clusters[0]
        about = full_name(manifest)
        kind = f"{manifest.get('apiVersion')} {manifest['kind']}"
        if since := _kinds().get(kind):
            if is_older := _older(cluster, since):
                severe = error if is_older == _BEGINS else warning
                message = f"{kind} needs Kubernetes {since}, and {is_older}"
                yield severe("version", about, "apiVersion", message, _REMEDY.format(since))
            continue
        for path, field in _gated(schema()["kinds"].get(kind, ""), manifest):
            if finding := _finding(cluster, about, path, field):
                yield finding


@rule(
    "later-field",
    Severity.WARNING,
    "Objects have no fields that the kinds of an older GKE lack.",
    source="kubernetes/api, and the definitions of gke_definitions.csv by release",
    example="""
        apiVersion: gateway.networking.k8s.io/v1
        kind: HTTPRoute
        metadata: {name: llm, namespace: ml}
        spec:
          parentRefs: [{name: llm}]
          rules: [{name: chat, backendRefs: [{name: llm, port: 80}]}]
    """,
)
def later_fields(stack: Stack) -> Iterator[Finding]:
    """Yield the fields that an older release of a kind lacks, if the cluster may have that one."""
    definitions = set(map(name_of, stack.of_kind("CustomResourceDefinition")))
    for manifest in stack.objects if stack.is_program else ():
        group = str(manifest.get("apiVersion")).partition("/")[0]
        definition = f"{plural(manifest['kind'])}.{group}"
        # The program chooses the release of a definition that it declares.
        later = () if definition in definitions else LATER_FIELDS.get(definition, ())
        for field, release in later:
            # A field is below a certain item of a list, such as [1], or below any: [].
            paths = [path for path, _ in leaves(manifest)]
            paths += list(map(of_any_item, paths))
            if any(path.startswith(field) for path in paths):
                message = (
                    f"{field} is new in {release} of its kind; an older GKE refuses the object"
                )
                remedy = "Leave it out, or make sure that your version of GKE has it."
                yield warning("later-field", full_name(manifest), field, message, remedy)


_BEGINS = "its cluster begins with an older one"
_MAY = "its release channel still has older ones"


def _older(cluster: Manifest, since: str) -> str:
    """Return why a cluster is, or may be, older than a minor version; nothing if it is not."""
    if begins_before(cluster, since):
        return _BEGINS
    return _MAY if may_be_before(cluster, since) else ""


def _finding(cluster: Manifest, about: str, path: str, field: _Gated) -> Finding | None:
    effect = "refuses the object" if field.is_union else "drops the field"
    if not field.since:
        if not _older(cluster, _NEXT):
            return None
        message = f"before Kubernetes {_NEXT}, {field.gate} is off by default: GKE {effect}"
        severe = error if field.is_union else warning
        return severe("version", about, path, message, "Leave the field out.")
    if not (is_older := _older(cluster, field.since)):
        return None
    severe = error if field.is_union and is_older == _BEGINS else warning
    message = f"it needs Kubernetes {field.since} ({field.gate}), and {is_older}, which {effect}"
    return severe("version", about, path, message, _REMEDY.format(field.since))


@cache
def _kinds() -> Mapping[str, str]:
    return {row["kind"]: row["since"] for row in rows("introduced_kinds.csv", _PACKAGE)}


@cache
def _fields() -> Mapping[tuple[str, str], _Gated]:
    """Return the gated fields by type and name. A field with two gates has that of the later."""
    fields: dict[tuple[str, str], _Gated] = {}
    for row in sorted(rows("gated_fields.csv", _PACKAGE), key=lambda row: row["since"] or "never"):
        field = _Gated(row["gate"], row["since"], row["union"] == "yes")
        fields[row["type"], row["field"]] = field
    return fields


@cached_per_kinds
def _steps() -> Mapping[str, Mapping[str, str]]:
    """Return, by type, the fields that are gated or lead to gated ones, with their items' types."""
    items: dict[str, dict[str, str]] = {}
    for name, fields in schema()["types"].items():
        items[name] = {key: type_.strip("[]{}") for key, type_ in fields.items()}
    leading = {type_ for type_, _ in _fields()}
    while following := {
        name
        for name, fields in items.items()
        if name not in leading and not leading.isdisjoint(fields.values())
    }:
        leading |= following
    steps: dict[str, dict[str, str]] = {}
    for name in leading:
        for key, type_ in items.get(name, {}).items():
            if type_ in leading or (name, key) in _fields():
                steps.setdefault(name, {})[key] = type_
    return steps


def _gated(type_: str, value: Any, path: str = "") -> Iterator[tuple[str, _Gated]]:
    """Yield the path of each gated field that is set in a value of a type, or in its items."""
    if isinstance(value, list):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from _gated(type_, item, f"{path}[{index}]")
    elif is_mapping(value):
        for key, below in _steps().get(type_, {}).items():
            if (item := value.get(key)) in _EMPTY:
                continue
            at = joined(path, key) if path else key
            if field := _fields().get((type_, key)):
                yield at, field
            yield from _gated(below, item, at)
