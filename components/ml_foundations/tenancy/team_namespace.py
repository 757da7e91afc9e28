"""A team's namespace: quota, limits, network policy, access."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations import labels
from ml_foundations._manifest import arguments, child_options
from ml_foundations._spec import Name, Quantity, Spec, check, quantity

PodSecurity = Literal["privileged", "baseline", "restricted"]


class TeamNamespaceArgs(TypedDict):
    """Arguments of a TeamNamespace."""

    namespace: NotRequired[str]
    """The namespace's name; default is the component's."""
    gpus: int
    """The most GPUs that the team's pods may request at once; 0 for none."""
    cpu: str
    """The most CPU that they may request, such as 64."""
    memory: str
    """The most memory that they may request, such as 512Gi."""
    storage: str
    """The most storage that claims may request, such as 4Ti."""
    volumes: NotRequired[int]
    """The most claims; default 20."""
    jobs: NotRequired[int]
    """The most Jobs; default 100."""
    pods: NotRequired[int]
    """The most pods; default 200."""
    default_cpu: NotRequired[str]
    """What a container gets that asks for no CPU; default 500m."""
    default_memory: NotRequired[str]
    """What a container gets that asks for no memory; default 1Gi."""
    pod_security: NotRequired[str]
    """The Pod Security level that is enforced: privileged, baseline or restricted; default baseline."""
    group: NotRequired[str]
    """The group that may work in the namespace, such as ml-research@example.com."""
    extra_quota: NotRequired[dict[str, str]]
    """More quota items, such as fast-ssd.storageclass.storage.k8s.io/requests.storage: 1Ti."""


class QuotaSettings(Spec):
    """What a stack file says about a team's quota."""

    gpus: int = Field(ge=0)
    cpu: Quantity
    memory: Quantity
    storage: Quantity
    volumes: int = Field(20, ge=0)
    jobs: int = Field(100, ge=0)
    pods: int = Field(200, ge=1)
    extra_quota: dict[str, Quantity] = {}

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        if f"limits.{labels.GPU_RESOURCE}" in self.extra_quota:
            yield (
                f"extra_quota.limits.{labels.GPU_RESOURCE}",
                "is no quota: for extended resources Kubernetes counts requests only. Set gpus",
            )


class TeamNamespaceSettings(Spec):
    """What a stack file says about a team's namespace, beside its quota."""

    default_cpu: Quantity = "500m"
    default_memory: Quantity = "1Gi"
    pod_security: PodSecurity = "baseline"
    group: str | None = None


class _TeamNamespaceSpec(QuotaSettings, TeamNamespaceSettings):
    namespace: Name


class TeamNamespace(pulumi.ComponentResource):
    """A namespace with a ResourceQuota, a LimitRange with defaults, a NetworkPolicy and, where named, a group's access.

    Give it a kubernetes provider in its options. The quota's name differs from the one that GKE itself puts into
    namespaces (gke-resource-quotas).
    """

    namespace: str
    """The namespace's name, known at preview."""

    def __init__(self, name: str, args: TeamNamespaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the namespace and what is in it."""
        spec = check(_TeamNamespaceSpec, f"TeamNamespace {name}", {"namespace": name, **args})
        super().__init__("ml-foundations:index:TeamNamespace", name, {}, opts)
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace", **arguments(namespace_manifest(spec)), opts=child_options(self)
        )
        inside = child_options(self, depends_on=[namespace])
        k8s.core.v1.ResourceQuota(f"{name}-quota", **arguments(quota_manifest(spec)), opts=inside)
        k8s.core.v1.LimitRange(f"{name}-limits", **arguments(limit_range_manifest(spec)), opts=inside)
        k8s.networking.v1.NetworkPolicy(
            f"{name}-network-policy", **arguments(network_policy_manifest(spec)), opts=inside
        )
        if spec.group is not None:
            k8s.rbac.v1.RoleBinding(
                f"{name}-editors", **arguments(role_binding_manifest(spec, spec.group)), opts=inside
            )
        self.namespace = spec.namespace
        self.register_outputs({"namespace": self.namespace})


def namespace_manifest(spec: _TeamNamespaceSpec) -> dict[str, Any]:
    """The namespace, with its Pod Security level enforced and the strictest one warned about."""
    security = "pod-security.kubernetes.io"
    levels = {
        f"{security}/enforce": spec.pod_security,
        f"{security}/warn": "restricted",
        f"{security}/audit": "restricted",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.namespace, "labels": levels}}


def quota_manifest(spec: _TeamNamespaceSpec) -> dict[str, Any]:
    """The ResourceQuota: compute, storage and object counts."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team-quota", "namespace": spec.namespace},
        "spec": {
            "hard": {
                f"requests.{labels.GPU_RESOURCE}": quantity(spec.gpus),
                "requests.cpu": spec.cpu,
                "requests.memory": spec.memory,
                "requests.storage": spec.storage,
                "persistentvolumeclaims": quantity(spec.volumes),
                "count/jobs.batch": quantity(spec.jobs),
                "pods": quantity(spec.pods),
                **spec.extra_quota,
            }
        },
    }


def limit_range_manifest(spec: _TeamNamespaceSpec) -> dict[str, Any]:
    """The LimitRange: a quota on CPU and memory refuses pods that ask for none, so they get a default."""
    default = {"cpu": spec.default_cpu, "memory": spec.default_memory}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "team-limits", "namespace": spec.namespace},
        "spec": {"limits": [{"type": "Container", "default": default, "defaultRequest": default}]},
    }


def network_policy_manifest(spec: _TeamNamespaceSpec) -> dict[str, Any]:
    """Pods take connections from their own namespace only."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "same-namespace", "namespace": spec.namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]},
    }


def role_binding_manifest(spec: _TeamNamespaceSpec, group: str) -> dict[str, Any]:
    """The group may edit what is in the namespace, but neither its quota nor its access."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "team-editors", "namespace": spec.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }
