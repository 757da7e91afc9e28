"""Components of the kubernetes package: each registers the objects that it renders as its children.

Names and order are those of Pulumi's own plugin: provider/pkg/provider/yaml/v2/yaml.go of pulumi-kubernetes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pulumi

from ml_foundations.kubernetes.objects import annotations_of, name_of
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.objects import object_id, title
from ml_foundations.rehearsal.plugins.sdk import token_of
from ml_foundations.rehearsal.plugins.values import Properties
from ml_foundations.rehearsal.progress import RehearsalError

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
            return _Children(self, given.get("resourcePrefix", name), bool(given.get("skipAwait"))).of(objects)

        self.resources = pulumi.Output.from_input(dict(inputs)).apply(children)
        self.register_outputs({"resources": self.resources})


class _Children:
    """Registers objects, each after those that it depends on."""

    def __init__(self, parent: pulumi.Resource, prefix: str, skips_await: bool) -> None:
        self._parent = parent
        self._prefix = prefix
        self._skips_await = skips_await
        self._objects: dict[_Key, Object] = {}
        self._made: dict[_Key, pulumi.Resource | None] = {}

    def of(self, objects: list[Object]) -> list[pulumi.Resource]:
        """The resources of these objects."""
        if nameless := [obj["kind"] for obj in objects if not name_of(obj)]:
            raise RehearsalError(f"metadata.name is required: {', '.join(nameless)}")
        self._objects = {_key(obj): obj for obj in objects}
        return [self._resource(key) for key in self._objects]

    def _resource(self, key: _Key) -> pulumi.Resource:
        if key not in self._made:
            self._made[key] = None
            after = [self._resource(other) for other in self._dependencies(key)]
            self._made[key] = self._registered(self._objects[key], after)
        if (made := self._made[key]) is None:
            raise RehearsalError(f"{title(self._objects[key])} depends on itself ({_DEPENDS_ON})")
        return made

    def _dependencies(self, key: _Key) -> Iterator[_Key]:
        """Its namespace, the definition of its kind, and what its annotation names, as far as they are here."""
        group, kind, namespace, _ = key
        words = annotations_of(self._objects[key]).get(_DEPENDS_ON, "").split(",")
        named = [_reference(word) for word in words if word]
        defined = [other for other, obj in self._objects.items() if _defined(obj) == (group, kind)]
        for other in [("", "Namespace", "", namespace), *defined, *named]:
            if other in self._objects and other != key:
                yield other

    def _registered(self, obj: Object, after: list[pulumi.Resource]) -> pulumi.Resource:
        metadata = obj["metadata"]
        name = object_id(metadata)
        policy = annotations_of(obj).get(_POLICY)
        if self._skips_await:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), annotations.SKIP: "true"}
        secrets = ("data", "stringData") if (obj["apiVersion"], obj["kind"]) == ("v1", "Secret") else ()
        return pulumi.CustomResource(
            token_of(obj["apiVersion"], obj["kind"]),
            f"{self._prefix}:{name}" if self._prefix else name,
            {key: pulumi.Output.secret(value) if key in secrets else value for key, value in obj.items()},
            pulumi.ResourceOptions(parent=self._parent, depends_on=after, retain_on_delete=policy == "keep" or None),
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
    raise RehearsalError(f"{_DEPENDS_ON}: {text} is neither group/kind/name nor group/namespaces/namespace/kind/name")


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
