"""Checks of the user's overrides: fields, shapes and selectors."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Union, cast, get_args, get_origin

import pulumi
from pydantic import AfterValidator

from ml_foundations.component._pulumi_internals import input_types, is_input_type
from ml_foundations.component.errors import shown, unknown
from ml_foundations.component.outputs import arguments_class
from ml_foundations.component.partial import FieldsError
from ml_foundations.kubernetes.merging import MERGE_KEYS
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, section
from ml_foundations.kubernetes.selectors import selects

_SELECTORS = {
    **dict.fromkeys(("DaemonSet", "Deployment", "StatefulSet", "Service"), "selector"),
    **dict.fromkeys(("PodDisruptionBudget", "PodMonitoring"), "selector"),
    "NetworkPolicy": "podSelector",
}
"""The field of a kind's spec that selects pods."""

_SEE_KUBERNETES = "See https://kubernetes.io/docs/reference/kubernetes-api/"

_ITEM = re.compile(r"(\w+)\[\d+\]$")
"""The end of a path to an item of a list."""


def _checked(value: dict[str, Any], api_type: str) -> dict[str, Any]:
    declared = getattr(import_module("pulumi_kubernetes.core.v1"), api_type)
    if errors := list(_wrong(value, declared, "")):
        raise FieldsError(errors)
    return value


PodFields = Annotated[dict[str, Any], AfterValidator(partial(_checked, api_type="PodSpecArgs"))]
"""Fields of a PodSpec, as Kubernetes writes them."""

Affinity = Annotated[dict[str, Any], AfterValidator(partial(_checked, api_type="AffinityArgs"))]
"""The affinity of a pod, as Kubernetes writes it."""

Probe = Annotated[dict[str, Any], AfterValidator(partial(_checked, api_type="ProbeArgs"))]
"""Fields of a probe, as Kubernetes writes them."""

Container = Annotated[dict[str, Any], AfterValidator(partial(_checked, api_type="ContainerArgs"))]
"""A container, as Kubernetes writes it."""


def object_errors(
    api_version: str, kind: str, fields: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the overrides of a kind that Kubernetes' schema does not allow."""
    # Of a kind outside of Kubernetes, only metadata is checked.
    metadata = import_module("pulumi_kubernetes.meta.v1").ObjectMetaArgs
    known: Mapping[str, Any] = {"metadata": metadata, "spec": Mapping}
    group, _, version = api_version.rpartition("/")
    with suppress(ModuleNotFoundError):
        module = import_module(f"pulumi_kubernetes.{group.partition('.')[0] or 'core'}.{version}")
        if typed := arguments_class(getattr(module, kind, None)):
            known = input_types(typed)
    settable = {key: known[key] for key in known.keys() - {"apiVersion", "kind"}}
    yield from _wrong_fields(fields, settable, f"overrides.{kind}")


def container_errors(
    pod: Manifest, made: Mapping[str, Sequence[Manifest]]
) -> Iterator[tuple[str, str]]:
    """Yield containers in ``pod_overrides`` that are neither in ``made`` nor have an image."""
    for field, containers in made.items():
        names = [container.get("name", "") for container in containers]
        for index, container in enumerate(items(pod, field)):
            if container["name"] not in names and not container.get("image"):
                known = f"there is {', '.join(names)}" if names else "there is none"
                fix = "Name an existing one, or add an image to the new one"
                reason = f'is "{container["name"]}", and {known}. {fix}'
                yield f"pod_overrides.{field}[{index}].name", reason


def selector_errors(
    manifests: Sequence[Manifest], overrides: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield overridden selectors that no longer select the component's pods, by kind."""
    owners = [manifest for manifest in manifests if section(manifest, "spec", "selector")]
    templates = [section(manifest, "spec", "template") for manifest in owners]
    pods = [labels_of(template) for template in templates if template]
    makers = {owner["kind"] for owner in owners}
    for manifest in manifests:
        # What no override changes may be for the pods of other components.
        if overrides.keys().isdisjoint({manifest["kind"], *makers}):
            continue
        kind = manifest["kind"]
        field = _SELECTORS.get(manifest["kind"], "")
        # A Service may be for some of the pods: those that a controller labels.
        if not pods or not field or (kind == "Service" and section(overrides, kind, "spec", field)):
            continue
        selector = section(manifest, "spec", field)
        if not selects({"matchLabels": selector} if kind == "Service" else selector, pods[0]):
            labels = f"the pods' labels are {shown(pods[0])}"
            reason = f"is {shown(selector)}, but {labels}; override both in the same way"
            yield f"overrides.{kind}.spec.{field}", reason


def _wrong(value: Any, declared: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each field or shape of a value that differs from the SDK's type."""
    if get_origin(declared) is Union:  # the value, or what will be it
        declared = get_args(declared)[0]
    shape = get_origin(declared) or declared
    is_object = is_input_type(shape)
    if is_input_type(cast("Any", type(value))) or shape is Any:
        return
    if is_object and isinstance(value, Mapping):
        yield from _wrong_fields(cast("Mapping[str, Any]", value), input_types(shape), path)
    elif shape is Sequence and isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _wrong(item, get_args(declared)[0], f"{path}[{index}]")
    elif is_object or shape in (Mapping, Sequence):
        wanted_shape = "list" if shape is Sequence else "map"
        if isinstance(value, pulumi.Output):
            fix = f"the {wanted_shape} must be known at preview, and its values may be Outputs"
            yield path, f"is an Output; {fix}"
        elif shape is Sequence or not isinstance(value, Mapping):
            yield path, f"is {shown(value)}; it must be a {wanted_shape}"
    elif isinstance(value, Mapping | list):
        yield path, f"is {shown(value)}; it must be a single value"


def _wrong_fields(
    value: Mapping[str, Any], known: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        where = f"{path}.{key}".lstrip(".")
        if key not in known:
            yield where, unknown(key, known, _SEE_KUBERNETES)
        elif item is not None:  # null removes a field
            yield from _wrong(item, known[key], where)
    match = _ITEM.search(path)
    merge_key = MERGE_KEYS.get(match[1], "") if match else ""
    if merge_key in known and value.get(merge_key) is None:
        yield f"{path}.{merge_key}", "is required: it identifies the items of the list"
