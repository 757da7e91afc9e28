"""What a component is made of: its children, each declared once, for Pulumi, for planning and for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pulumi
import pulumi_kubernetes as k8s
from pydantic.alias_generators import to_snake

from ml_foundations.catalog.versions import Chart
from ml_foundations.component.sdk import class_of
from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.kubernetes.trees import mapped

# What is not awaited must be gone at once when it is deleted, or its replacement would meet it.
NOT_AWAITED = {"pulumi.com/skipAwait": "true", "pulumi.com/deletionPropagationPolicy": "background"}


class Ref(NamedTuple):
    """An output of another part of the same component, as an argument of a part that comes after it."""

    role: str
    output: str
    form: str = "{}"
    """The text that the output goes into; by itself it is passed as it is."""


class Secret(NamedTuple):
    """A value that Pulumi keeps as a secret. It becomes an Output when its part is declared, and not before."""

    value: Any


class Cloud(NamedTuple):
    """A resource that is no Kubernetes object, such as a node pool or a Helm release."""

    type: str
    """Its class in the SDK."""
    arguments: Mapping[str, Any]
    """As Python has them; a Ref stands for an output of another part."""


def helm_release(chart: Chart, namespace: str, values: Mapping[str, Any], **more: Any) -> Cloud:
    """A Helm release of a pinned chart; one in an OCI registry goes by its address. ``more`` are further arguments."""
    address = f"{chart.repo}/{chart.name}" if chart.repo.startswith("oci:") else chart.name
    repository = {} if address != chart.name else {"repository_opts": {"repo": chart.repo}}
    release = {"name": chart.name, "chart": address, "version": chart.version, "namespace": namespace, "values": values}
    return Cloud("pulumi_kubernetes.helm.v3.Release", release | repository | more)


@dataclass(frozen=True)
class Part:
    """One child of a component."""

    role: str
    """What it is to the component: the child's name is the component's, a dash, and this."""
    declared: Manifest | Cloud
    after: Sequence[str] = ()
    """The roles of the parts that must be there before it."""
    options: pulumi.ResourceOptions = field(default_factory=pulumi.ResourceOptions)
    """Further options; parent and depends_on follow from the component and ``after``."""

    @property
    def manifest(self) -> Manifest:
        """The Kubernetes object; empty where the part is none."""
        return {} if isinstance(self.declared, Cloud) else self.declared

    def declare(self, name: str, parent: pulumi.Resource, made: Mapping[str, pulumi.Resource]) -> pulumi.Resource:
        """Declare it to Pulumi, as a child of the component of that name; the parts before it are made, by role."""
        ours = pulumi.ResourceOptions(parent=parent, depends_on=[made[role] for role in self.after])
        opts = pulumi.ResourceOptions.merge(ours, self.options)
        declared = self.declared.arguments if isinstance(self.declared, Cloud) else self.declared
        given: dict[str, Any] = mapped(declared, lambda value: _resolved(value, made))
        if isinstance(self.declared, Cloud):
            return class_of(self.declared.type)(f"{name}-{self.role}", **given, opts=opts)
        fields = {to_snake(key): value for key, value in given.items() if key not in ("apiVersion", "kind")}
        if typed := typed_class(given["apiVersion"], given["kind"]):
            return typed(f"{name}-{self.role}", **fields, opts=opts)
        if fields.keys() <= {"metadata", "spec"}:
            return k8s.apiextensions.CustomResource(
                f"{name}-{self.role}", given["apiVersion"], given["kind"], **fields, opts=opts
            )
        # The SDK's CustomResource takes no other fields, such as a snapshot class's driver.
        token = f"kubernetes:{given['apiVersion']}:{given['kind']}"
        return pulumi.CustomResource(token, f"{name}-{self.role}", given, opts)


def typed_class(api_version: str, kind: str) -> Any:
    """The SDK's class of a kind; None for a kind that a controller of somebody else's brings."""
    group, _, version = api_version.rpartition("/")
    domain = group.partition(".")[2]
    module = f"pulumi_kubernetes.{group.partition('.')[0] or 'core'}.{version}"
    return class_of(f"{module}.{kind}") if domain in ("", "k8s.io", "authorization.k8s.io") else None


def _resolved(value: Any, made: Mapping[str, pulumi.Resource]) -> Any:
    """An argument, or the output that a Ref means, or what is secret marked as such."""
    if isinstance(value, Ref):
        output = getattr(made[value.role], value.output)
        return output if value.form == "{}" else pulumi.Output.format(value.form, output)
    return pulumi.Output.secret(value.value) if isinstance(value, Secret) else value
