"""Components of the kubernetes package: each registers the objects that it renders as its children.

Names and order are those of Pulumi's own plugin: provider/pkg/provider/yaml/v2/yaml.go of pulumi-kubernetes.
"""

from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pulumi

from ml_foundations.kubernetes.objects import annotations_of, name_of
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.objects import object_id, title
from ml_foundations.rehearsal.plugins.sdk import token_of
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

_DEPENDS_ON = "config.kubernetes.io/depends-on"
_POLICY = "helm.sh/resource-policy"
_Key = tuple[str, str, str, str]
"""An object's group, kind, namespace and name."""


class Rendered(pulumi.ComponentResource):
    """A component whose children are objects that it renders once its inputs are known."""

    def __init__(
        self,
        type: str,
        name: str,
        inputs: Mapping[str, Any],
        options: pulumi.ResourceOptions,
        render: Callable[[str, str, Properties], list[Object]],
    ) -> None:
        super().__init__(type, name, None, options)

        def children(known: Mapping[str, Any]) -> list[pulumi.Resource]:
            given = {key: _plain(value) for key, value in known.items() if value is not None}
            objects = render(type, name, given)
            for obj in objects if given.get("skipAwait") else ():
                obj["metadata"]["annotations"] = {**annotations_of(obj), annotations.SKIP: "true"}
            made = _children(self, given.get("resourcePrefix", name), objects)
            running_calls.mark_idle(
                True
            )  # from now on it waits for its children, and each is a call of its own
            return made

        self.resources = pulumi.Output.from_input(dict(inputs)).apply(children)
        self.register_outputs({"resources": self.resources})


def _children(parent: pulumi.Resource, prefix: str, objects: list[Object]) -> list[pulumi.Resource]:
    """Register objects, each after those that it depends on, and return their resources in the order of the objects."""
    if nameless := [obj["kind"] for obj in objects if not name_of(obj)]:
        raise RehearsalError(f"metadata.name is required: {', '.join(nameless)}")
    by_key = {_key(obj): obj for obj in objects}
    needed = {key: list(_dependencies(key, by_key)) for key in by_key}
    made: dict[_Key, pulumi.Resource] = {}
    try:
        for key in TopologicalSorter(needed).static_order():
            after = [made[other] for other in needed[key]]
            made[key] = _registered(
                by_key[key], pulumi.ResourceOptions(parent=parent, depends_on=after), prefix
            )
    except CycleError as error:
        first, *_ = error.args[1]
        raise RehearsalError(f"{title(by_key[first])} depends on itself ({_DEPENDS_ON})") from None
    return [made[key] for key in by_key]


def _dependencies(key: _Key, objects: Mapping[_Key, Object]) -> Iterator[_Key]:
    """Its namespace, the definition of its kind, and what its annotation names, as far as they are here."""
    group, kind, namespace, _ = key
    words = annotations_of(objects[key]).get(_DEPENDS_ON, "").split(",")
    named = [_reference(word) for word in words if word]
    defined = [other for other, obj in objects.items() if _defined(obj) == (group, kind)]
    for other in [("", "Namespace", "", namespace), *defined, *named]:
        if other in objects and other != key:
            yield other


def _registered(obj: Object, options: pulumi.ResourceOptions, prefix: str) -> pulumi.Resource:
    name = object_id(obj["metadata"])
    options.retain_on_delete = annotations_of(obj).get(_POLICY) == "keep" or None
    secrets = ("data", "stringData") if (obj["apiVersion"], obj["kind"]) == ("v1", "Secret") else ()
    return pulumi.CustomResource(
        token_of(obj["apiVersion"], obj["kind"]),
        f"{prefix}:{name}" if prefix else name,
        {
            key: pulumi.Output.secret(value) if key in secrets else value
            for key, value in obj.items()
        },
        options,
    )


def _key(obj: Object) -> _Key:
    group = obj["apiVersion"].rpartition("/")[0]
    return (group, obj["kind"], obj["metadata"].get("namespace") or "", obj["metadata"]["name"])


def _reference(text: str) -> _Key:
    """``group/kind/name`` or ``group/namespaces/namespace/kind/name``."""
    match text.strip().split("/"):
        case [group, kind, name]:
            return (group, kind, "", name)
        case [group, "namespaces", namespace, kind, name]:
            return (group, kind, namespace, name)
    raise RehearsalError(
        f"{_DEPENDS_ON}: {text} is neither group/kind/name nor group/namespaces/namespace/kind/name"
    )


def _defined(obj: Object) -> tuple[str, str] | None:
    """The group and kind that a CustomResourceDefinition defines."""
    if obj["kind"] != "CustomResourceDefinition":
        return None
    spec = obj.get("spec") or {}
    return spec.get("group", ""), (spec.get("names") or {}).get("kind", "")


def _plain(value: Any) -> Any:
    """An input as the plugin reads it: assets as they are on the wire."""
    if isinstance(value, pulumi.StringAsset):
        return {"text": value.text}
    if isinstance(value, pulumi.FileAsset):
        return {"path": value.path}
    return [_plain(item) for item in value] if isinstance(value, list) else value
