"""A team's namespace: quota, limits, network policy, access."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.types import Name, Quantity
from ml_foundations.tenancy.identity import (
    ServiceAccount,
    ServiceAccountArgs,
    group_binding_manifest,
    pull_secret_manifest,
    service_account_manifest,
    workload_identity_member,
)
from ml_foundations.tenancy.network import MONITORING_NAMESPACES, Internet, Openings, network_policy_manifests
from ml_foundations.tenancy.quota import (
    MAX_PRIORITY,
    QuotaArgs,
    QuotaSettings,
    limit_range_manifest,
    model_policy_binding_manifest,
    model_policy_manifest,
    priority_class_manifests,
    quota_manifests,
)

PodSecurity = Literal["privileged", "baseline", "restricted"]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}$")]


class TeamNamespaceArgs(QuotaArgs):
    """Arguments of a TeamNamespace."""

    namespace: NotRequired[str]
    """The namespace's name; default is the component's."""
    default_cpu: NotRequired[str]
    """What a container gets that asks for no CPU; default 500m."""
    default_memory: NotRequired[str]
    """What a container gets that asks for no memory; default 1Gi."""
    largest_volume: NotRequired[str]
    """The most storage that one claim may request."""
    pod_security: NotRequired[str]
    """The Pod Security level that is enforced: privileged, baseline or restricted; default baseline."""
    group: NotRequired[str]
    """The group that may work in the namespace, such as ml-research@example.com."""
    viewers: NotRequired[str]
    """The group that may look at what is in it, but for secrets."""
    service_account: NotRequired[ServiceAccountArgs]
    """A service account for the team's pods."""
    priorities: NotRequired[dict[str, int]]
    """PriorityClasses, each as `<namespace>-<name>`: a pod of a higher one may displace pods of a lower one."""
    internet: NotRequired[str]
    """What the pods may reach outside of private networks: none, https or any; default https."""
    ingress_namespaces: NotRequired[list[str]]
    """Namespaces whose pods may connect; default those of Managed Service for Prometheus."""
    ingress_load_balancers: NotRequired[bool]
    """Whether Google's load balancers and their health checks may connect; default false."""
    egress_networks: NotRequired[list[str]]
    """Private networks that the pods may reach, as CIDR blocks: the control plane, a database."""


class TeamNamespaceSettings(Spec):
    """What a stack file says about a team's namespace, beside its quota."""

    default_cpu: Quantity = "500m"
    default_memory: Quantity = "1Gi"
    largest_volume: Quantity | None = None
    pod_security: PodSecurity = "baseline"
    group: str | None = None
    viewers: str | None = None
    service_account: ServiceAccount | None = None
    priorities: dict[Name, Priority] = {}
    internet: Internet = "https"
    ingress_namespaces: list[Name] = list(MONITORING_NAMESPACES)
    ingress_load_balancers: bool = False
    egress_networks: list[Cidr] = []

    @property
    def openings(self) -> Openings:
        """What the team's network is open to."""
        sources = tuple(self.ingress_namespaces)
        return Openings(sources, self.ingress_load_balancers, self.internet, tuple(self.egress_networks))


class _TeamNamespaceSpec(QuotaSettings, TeamNamespaceSettings):
    namespace: Name

    @property
    def priority_classes(self) -> dict[str, str]:
        """The names of the team's PriorityClasses, by model or by the name that was asked for."""
        return {key: f"{self.namespace}-{key}" for key in (*self.gpus_by_model, *self.priorities)}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        for name in self.priorities.keys() & self.gpus_by_model.keys():
            yield f"priorities.{name}", "is the class of a GPU model already; choose another name"


class TeamNamespace(pulumi.ComponentResource):
    """A namespace with quotas, defaults, Pod Security, a closed network and, where named, access and identity.

    Give it a kubernetes provider in its options. Its quotas' names differ from the one that GKE itself puts into
    namespaces (gke-resource-quotas).
    """

    namespace: str
    """The namespace's name, known at preview."""
    service_account_name: str
    """The service account of the team's pods; default where it has none of its own."""
    priority_classes: dict[str, str]
    """The PriorityClasses, by GPU model (its accelerator type) and by the names that were asked for."""

    def __init__(self, name: str, args: TeamNamespaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the namespace and what is in it."""
        spec = check(_TeamNamespaceSpec, f"TeamNamespace {name}", {"namespace": name, **args})
        super().__init__("ml-foundations:index:TeamNamespace", name, {}, opts)
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace", **arguments(namespace_manifest(spec)), opts=child_options(self)
        )
        inside = child_options(self, depends_on=[namespace])
        _quotas(self, name, spec, inside)
        _network(name, spec, inside)
        _access(name, spec, inside)
        if spec.service_account is not None:
            _service_account(name, spec.namespace, spec.service_account, inside)
        self.namespace = spec.namespace
        self.service_account_name = spec.service_account.name if spec.service_account else "default"
        self.priority_classes = spec.priority_classes
        self.register_outputs(
            {
                "namespace": self.namespace,
                "service_account_name": self.service_account_name,
                "priority_classes": self.priority_classes,
            }
        )


def _quotas(parent: TeamNamespace, name: str, spec: _TeamNamespaceSpec, inside: pulumi.ResourceOptions) -> None:
    for manifest in priority_class_manifests(spec.namespace, spec, spec.priorities):
        child = manifest["metadata"]["name"].removeprefix(f"{spec.namespace}-")
        k8s.scheduling.v1.PriorityClass(
            f"{name}-priority-{child}",
            **arguments(manifest),
            # A priority cannot change, and its class's name is what pods know.
            opts=child_options(parent, replace_on_changes=["value"], delete_before_replace=True),
        )
    for manifest in quota_manifests(spec.namespace, spec):
        child = manifest["metadata"]["name"].removeprefix("team-")
        k8s.core.v1.ResourceQuota(f"{name}-{child}", **arguments(manifest), opts=inside)
    limits = limit_range_manifest(spec.namespace, spec.default_cpu, spec.default_memory, spec.largest_volume)
    k8s.core.v1.LimitRange(f"{name}-limits", **arguments(limits), opts=inside)
    if spec.gpus_by_model:
        policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
            f"{name}-gpu-models",
            **arguments(model_policy_manifest(spec.namespace, spec)),
            opts=child_options(parent),
        )
        k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
            f"{name}-gpu-models-binding",
            **arguments(model_policy_binding_manifest(spec.namespace)),
            opts=child_options(parent, depends_on=[policy]),
        )


def _network(name: str, spec: _TeamNamespaceSpec, inside: pulumi.ResourceOptions) -> None:
    for manifest in network_policy_manifests(spec.namespace, spec.openings):
        child = f"{name}-network-{manifest['metadata']['name']}"
        k8s.networking.v1.NetworkPolicy(child, **arguments(manifest), opts=inside)


def _access(name: str, spec: _TeamNamespaceSpec, inside: pulumi.ResourceOptions) -> None:
    for child, role, group in (("editors", "edit", spec.group), ("viewers", "view", spec.viewers)):
        if group is not None:
            manifest = group_binding_manifest(spec.namespace, f"team-{child}", role, group)
            k8s.rbac.v1.RoleBinding(f"{name}-{child}", **arguments(manifest), opts=inside)


def _service_account(name: str, namespace: str, account: ServiceAccount, inside: pulumi.ResourceOptions) -> None:
    if account.image_pull_secret is not None:
        secret = pull_secret_manifest(namespace, account)
        k8s.core.v1.Secret(f"{name}-image-pull", **arguments(secret), opts=inside)
    manifest = service_account_manifest(namespace, account)
    k8s.core.v1.ServiceAccount(f"{name}-service-account", **arguments(manifest), opts=inside)
    if account.google_account is not None and account.workload_pool is not None:
        gcp.serviceaccount.IAMMember(
            f"{name}-workload-identity",
            service_account_id=pulumi.Output.concat("projects/-/serviceAccounts/", account.google_account),
            role="roles/iam.workloadIdentityUser",
            member=workload_identity_member(namespace, account),
            opts=inside,
        )


def namespace_manifest(spec: _TeamNamespaceSpec) -> dict[str, Any]:
    """The namespace, with its Pod Security level enforced and the strictest one warned about."""
    security = "pod-security.kubernetes.io"
    levels = {
        f"{security}/enforce": spec.pod_security,
        f"{security}/warn": "restricted",
        f"{security}/audit": "restricted",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.namespace, "labels": levels}}
