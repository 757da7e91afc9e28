"""Components of the kubernetes package: each registers the objects that it renders as its children.

Names and order are those of Pulumi's own plugin: provider/pkg/provider/yaml/v2/yaml.go of
pulumi-kubernetes.
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

        def register(known: Mapping[str, Any]) -> list[pulumi.Resource]:
            plain = {key: _plain(value) for key, value in known.items() if value is not None}
            objects = render(type, name, plain)
            for obj in objects if plain.get("skipAwait") else ():
                skip = {annotations.SKIP: "true"}
                obj["metadata"]["annotations"] = {**annotations_of(obj), **skip}
            children = _register_children(self, plain.get("resourcePrefix", name), objects)
            # This call only waits for the children from here on, and each child is a separate call.
            running_calls.mark_idle(True)
            return children

        self.resources = pulumi.Output.from_input(dict(inputs)).apply(register)
        self.register_outputs({"resources": self.resources})


def _register_children(
    parent: pulumi.Resource, prefix: str, objects: list[Object]
) -> list[pulumi.Resource]:
    """Register objects, each after its dependencies; return them in the objects' order."""
    if nameless := [obj["kind"] for obj in objects if not name_of(obj)]:
        raise RehearsalError(f"metadata.name is required: {', '.join(nameless)}")
    by_key = {_key(obj): obj for obj in objects}
    dependencies = {key: list(_dependencies(key, by_key)) for key in by_key}
    children: dict[_Key, pulumi.Resource] = {}
    try:
        for key in TopologicalSorter(dependencies).static_order():
            depends_on = [children[dependency] for dependency in dependencies[key]]
            options = pulumi.ResourceOptions(parent=parent, depends_on=depends_on)
            obj = by_key[key]
            name = object_id(obj["metadata"])
            options.retain_on_delete = annotations_of(obj).get(_POLICY) == "keep" or None
            is_secret = (obj["apiVersion"], obj["kind"]) == ("v1", "Secret")
            secrets = obj.keys() & {"data", "stringData"} if is_secret else ()
            properties = obj | {part: pulumi.Output.secret(obj[part]) for part in secrets}
            token = token_of(obj["apiVersion"], obj["kind"])
            full_name = f"{prefix}:{name}" if prefix else name
            children[key] = pulumi.CustomResource(token, full_name, properties, options)
    except CycleError as error:
        first, *_ = error.args[1]
        raise RehearsalError(f"{title(by_key[first])} depends on itself ({_DEPENDS_ON})") from None
    return list(map(children.__getitem__, by_key))


def _dependencies(key: _Key, objects: Mapping[_Key, Object]) -> Iterator[_Key]:
    """Yield an object's dependencies: its namespace, its kind's definition, those it names."""
    group, kind, namespace, _ = key
    definitions = [name for name, obj in objects.items() if _defined_kind(obj) == (group, kind)]
    references = annotations_of(objects[key]).get(_DEPENDS_ON, "").split(",")
    named = map(_key_of_reference, filter(None, references))
    for candidate in [("", "Namespace", "", namespace), *definitions, *named]:
        if candidate in objects and candidate != key:
            yield candidate


def _key(obj: Object) -> _Key:
    group = obj["apiVersion"].rpartition("/")[0]
    return (group, obj["kind"], obj["metadata"].get("namespace") or "", obj["metadata"]["name"])


def _key_of_reference(text: str) -> _Key:
    """Return the key of ``group/kind/name`` or ``group/namespaces/namespace/kind/name``."""
    match text.strip().split("/"):
        case [group, kind, name]:
            return (group, kind, "", name)
        case [group, "namespaces", namespace, kind, name]:
            return (group, kind, namespace, name)
    forms = "neither group/kind/name nor group/namespaces/namespace/kind/name"
    raise RehearsalError(f"{_DEPENDS_ON}: {text} is {forms}")


def _defined_kind(obj: Object) -> tuple[str, str] | None:
    """Return the group and kind of a CustomResourceDefinition; None for another object."""
    if obj["kind"] != "CustomResourceDefinition":
        return None
    spec = obj.get("spec") or {}
    return spec.get("group", ""), (spec.get("names") or {}).get("kind", "")


def _plain(value: Any) -> Any:
    """Return an input with assets as they are in messages."""
    if isinstance(value, pulumi.StringAsset):
        return {"text": value.text}
    if isinstance(value, pulumi.FileAsset):
        return {"path": value.path}
    return list(map(_plain, value)) if isinstance(value, list) else value
