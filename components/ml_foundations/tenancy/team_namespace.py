"""A team's namespace: quota, limits, network policy, access."""

from collections.abc import Iterator
from typing import Annotated, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import InputText, Name, Quantity
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.tenancy.identity import ServiceAccount, group_child, identity_children
from ml_foundations.tenancy.network import TeamNetwork, network_children
from ml_foundations.tenancy.quota import (
    MAX_PRIORITY,
    TeamQuota,
    priority_class_name,
    quota_children,
)
from ml_foundations.typed_args import TeamNamespaceComponent

_RESERVED = ("kube-", "gke-", "gmp-")
"""How the names of namespaces of Kubernetes and GKE begin."""
_Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


class Tenancy(TeamNetwork):
    """Settings of a team in addition to its quota."""

    default_cpu: Quantity = "500m"
    """The CPU of a container that requests none. The default is 500m."""
    default_memory: Quantity = "1Gi"
    """The memory of a container that requests none. The default is 1Gi."""
    largest_volume: Quantity | None = None
    """The most storage that one claim may request."""
    pod_security: Literal["privileged", "baseline", "restricted"] = "baseline"
    """The enforced Pod Security level: privileged, baseline or restricted. The default is
    baseline."""
    group: InputText | None = None
    """The group that may work in the namespace, such as ml-research@example.com."""
    viewers: InputText | None = None
    """The group that may read everything in the namespace except Secrets."""
    service_account: ServiceAccount | None = None
    """A service account for the team's pods."""
    priorities: dict[Name, _Priority] = {}
    """The values of PriorityClasses, by name. Each class is called `<namespace>-<name>`. Pods of a
    higher priority may preempt pods of a lower one."""


class TeamNamespaceSpec(Tenancy, TeamQuota, ComponentSpec):
    """Arguments of a TeamNamespace."""

    objects = {"cluster": IN_CLUSTER}

    name_field = "namespace"

    namespace: Name
    """The namespace's name. By default, the name of the component."""
    data: bool = False
    """Protect the namespace, and keep it when it is removed from the program, because its claims
    hold data. The default is false."""

    @property
    def service_account_name(self) -> str:
        """The service account of the team's pods."""
        return self.service_account.name if self.service_account else "default"

    @property
    def priority_classes(self) -> dict[str, str]:
        """The names of the team's PriorityClasses, by model or by the name that was asked for."""
        keys = (*self.gpus_by_model, *self.priorities)
        return {key: priority_class_name(self.namespace, key) for key in keys}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.namespace == "default" or self.namespace.startswith(_RESERVED):
            reason = f"{self.namespace} is in every cluster already; choose another name"
            yield "namespace", reason
        for name in self.priorities.keys() & self.gpus_by_model.keys():
            yield f"priorities.{name}", "is the class of a GPU model already; choose another name"

    @override
    def children(self) -> Iterator[ChildResource]:
        # The namespace enforces its level, and warns about what the strictest refuses.
        security = "pod-security.kubernetes.io"
        levels = {
            f"{security}/enforce": self.pod_security,
            f"{security}/warn": "restricted",
            f"{security}/audit": "restricted",
        }
        namespace = api_object("v1", "Namespace", {"name": self.namespace, "labels": levels})
        kept = pulumi.ResourceOptions(protect=self.data, retain_on_delete=self.data)
        yield ChildResource("namespace", namespace, options=kept)
        yield from quota_children(self.namespace, self, self.priorities)
        # A default for pods that the quota would reject. A maximum for containers would become the
        # default of all of them, and one for pods would refuse those that ask for none.
        default = {"cpu": self.default_cpu, "memory": self.default_memory}
        limits = [{"type": "Container", "default": default, "defaultRequest": default}]
        if self.largest_volume is not None:
            largest = {"storage": self.largest_volume}
            limits.append({"type": "PersistentVolumeClaim", "max": largest})
        metadata = {"name": "team-limits", "namespace": self.namespace}
        limit_range = api_object("v1", "LimitRange", metadata, spec={"limits": limits})
        yield ChildResource("limits", limit_range, depends_on=["namespace"])
        yield from network_children(self.namespace, self)
        if self.group is not None:
            yield group_child(self.namespace, "editors", "edit", self.group)
        if self.viewers is not None:
            yield group_child(self.namespace, "viewers", "view", self.viewers)
        if self.service_account is not None:
            yield from identity_children(self.namespace, self.service_account)


class TeamNamespace(TeamNamespaceComponent[TeamNamespaceSpec]):
    """A namespace with quotas, defaults, Pod Security and a closed network.

    Its quotas have other names than the quota that GKE creates in namespaces (gke-resource-quotas).
    """

    namespace: KnownOutput[str]
    """The namespace's name, known at preview."""
    service_account_name: KnownOutput[str]
    """The service account of the team's pods. It is `default` if service_account is not set."""
    priority_classes: KnownOutput[dict[str, str]]
    """The PriorityClasses, by GPU model (its accelerator type) and by the names in priorities."""
    namespace_object = Child("namespace")
    """The Namespace."""
    resource_quota = Child("quota")
    """The ResourceQuota."""
    limit_range = Child("limits")
    """The LimitRange."""
