"""The children of a component, each declared once for Pulumi, planning and tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import pulumi

from ml_foundations.catalog.versions import RANDOM_PROVIDER, Chart
from ml_foundations.kubernetes.objects import RELEASE, Manifest, api_object
from ml_foundations.kubernetes.trees import map_leaves

# What is not awaited must be gone at once when it is deleted, or its replacement would meet it.
NOT_AWAITED = {"pulumi.com/skipAwait": "true", "pulumi.com/deletionPropagationPolicy": "background"}

_SECRET_OUTPUTS = {
    "gcp:compute/globalAddress:GlobalAddress": ["effectiveLabels", "pulumiLabels"],
    "gcp:container/cluster:Cluster": ["effectiveLabels", "pulumiLabels"],
    "kubernetes:core/v1:Secret": ["data", "stringData"],
}
"""What Pulumi keeps as a secret, by type, as in the SDKs' own classes."""


class Ref(NamedTuple):
    """An output of an earlier child of the same component, used as an argument of a later child."""

    suffix: str
    output: str
    form: str = "{}"
    """The text that the output goes into; by itself it is passed as it is."""


class Secret(NamedTuple):
    """A value that Pulumi keeps as a secret. It becomes an Output when its child is declared."""

    value: Any


class CloudResource(NamedTuple):
    """A resource that is no Kubernetes object, such as a node pool or a Helm release."""

    type: str
    """Its type in Pulumi."""
    inputs: Mapping[str, Any]
    """As the provider names them; a Ref is replaced by an output of another child."""
    outputs: Sequence[str] = ()
    """Its outputs that other children use, in addition to its inputs."""


@dataclass(frozen=True)
class ChildResource:
    """One child of a component."""

    suffix: str
    """The end of its name, after the component's name and a dash."""
    declared: Manifest | CloudResource
    depends_on: Sequence[str] = ()
    """The suffixes of the children that it depends on."""
    options: pulumi.ResourceOptions = field(default_factory=pulumi.ResourceOptions)
    """Further options; parent and depends_on are set by ``declare``. False leaves an option to the
    user, the parent and the provider."""

    @property
    def manifest(self) -> Manifest:
        """The Kubernetes object; empty for a CloudResource."""
        return {} if isinstance(self.declared, CloudResource) else self.declared

    def declare(
        self,
        name: str,
        parent: pulumi.Resource,
        made: Mapping[str, pulumi.Resource],
        depends_on: Sequence[pulumi.Resource] = (),
    ) -> pulumi.CustomResource:
        """Declare it to Pulumi as a child of the component with a name.

        ``made`` are the earlier children by suffix, and ``depends_on`` are resources outside of the
        component.
        """
        before = [*(made[suffix] for suffix in self.depends_on), *depends_on]
        ours = pulumi.ResourceOptions(parent=parent, depends_on=before)
        opts = pulumi.ResourceOptions.merge(ours, _without_false(self.options))
        declared = self.declared
        if not isinstance(declared, CloudResource):
            api_version = declared["apiVersion"]
            group = api_version if "/" in api_version else f"core/{api_version}"
            declared = CloudResource(f"kubernetes:{group}:{declared['kind']}", declared)
        type_, inputs, outputs = declared
        # Not the SDK's class: to import its module takes half of the time of a program.
        opts.version = opts.version or _sdk_version(type_.partition(":")[0])
        secrets = opts.additional_secret_outputs or ()
        opts.additional_secret_outputs = [*secrets, *_SECRET_OUTPUTS.get(type_, ())]
        given = map_leaves(inputs, lambda value: _resolved(value, made))
        props = {**dict.fromkeys(outputs), **given}
        return pulumi.CustomResource(type_, f"{name}-{self.suffix}", props, opts)


def cloud_child(
    suffix: str,
    type_: str,
    inputs: Mapping[str, Any],
    outputs: Sequence[str] = (),
    depends_on: Sequence[str] = (),
    **options: Any,
) -> ChildResource:
    """Return a child that is no Kubernetes object, with ``options`` of ``ResourceOptions``."""
    declared = CloudResource(type_, inputs, outputs)
    return ChildResource(suffix, declared, depends_on, pulumi.ResourceOptions(**options))


def helm_child(
    suffix: str,
    chart: Chart,
    namespace: str,
    values: Mapping[str, Any],
    depends_on: Sequence[str] = (),
    **more: Any,
) -> ChildResource:
    """Return a Helm release of a pinned chart, with ``more`` arguments of the release."""
    names = {"name": chart.name, "version": chart.version, "namespace": namespace}
    # A chart in an OCI registry is named by its address.
    source: dict[str, Any] = {"chart": f"{chart.repo}/{chart.name}"}
    if not chart.repo.startswith("oci:"):
        source = {"chart": chart.name, "repositoryOpts": {"repo": chart.repo}}
    release = {"compat": "true", **names, "values": values, **source, **more}
    return cloud_child(suffix, RELEASE, release, depends_on=depends_on)


@cache
def _sdk_version(provider: str) -> str:
    return RANDOM_PROVIDER if provider == "random" else version(f"pulumi-{provider}")


def _without_false(options: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Return options without the false ones: they would override a parent's true.

    A child inherits ``protect`` and ``retain_on_delete`` only if it has none itself, and a false
    ``delete_before_replace`` overrides the provider, which knows that a name is taken.
    Source: Pulumi, pkg/resource/deploy, inheritFromParent and step_generator.go.
    """
    left = pulumi.ResourceOptions.merge(None, options)
    for option in ("protect", "retain_on_delete", "delete_before_replace"):
        setattr(left, option, getattr(left, option) or None)
    return left


def _resolved(value: Any, made: Mapping[str, pulumi.Resource]) -> Any:
    """Return an argument, with a Ref replaced by its output and a Secret marked as secret."""
    if isinstance(value, Ref):
        output = getattr(made[value.suffix], value.output)
        return output if value.form == "{}" else pulumi.Output.format(value.form, output)
    return pulumi.Output.secret(value.value) if isinstance(value, Secret) else value


def node_daemon_set(name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DaemonSet that prepares nodes, by critical pods of these fields.

    A changed pod prepares new nodes. On an existing node it waits until somebody deletes the old
    pod: all pods of a running workload must find the same libraries (container-engine-accelerators,
    gpudirect-tcpxo/README.md, "How to upgrade to a new release").
    """
    selector = {"k8s-app": name}
    # Critical pods need no separate quota in kube-system.
    metadata = {"name": name, "namespace": "kube-system", "labels": selector}
    # They need minutes on each node, and a pool may have no node yet.
    metadata |= {"annotations": NOT_AWAITED}
    daemon_set = {
        "selector": {"matchLabels": selector},
        "updateStrategy": {"type": "OnDelete"},
        # A privileged pod on every node is no place for a token that it does not use.
        "template": {
            "metadata": {"labels": selector},
            "spec": {"automountServiceAccountToken": False, **pod},
        },
    }
    return api_object("apps/v1", "DaemonSet", metadata, spec=daemon_set)
