"""A Ray cluster by KubeRay: a head without GPUs, and workers."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputText, Name, Quantity, concat
from ml_foundations.kinds.kind_files import package_kinds
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.tenancy.controllers import RAY_NAMESPACE
from ml_foundations.typed_args import RayClusterComponent
from ml_foundations.workloads.fabric import PodFabric
from ml_foundations.workloads.fabric_rules import fabric_errors, fabric_warnings, used_fabric
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.pod_template import pod_template

API_VERSION = "ray.io/v1"
_DASHBOARD_PORT = 8265
_CLIENT_PORT = 10001
"""Ports of the head (Ray, "Configuring Ray", ports of the head node)."""
_TOKEN_VERSION = (2, 52, 0)
"""The oldest Ray with tokens (kuberay v1.6.2, controllers/ray/utils/validation.go)."""
_GROUP = "workers"
_OF_WORKERS: dict[str, Any] = {
    **{"gpus": 0, "gpu": None, "gpu_claim": None, "gpu_fabric": None, "spot": False},
    **{"requests": {}, "limits": {}, "node_selector": {}, "tolerations": []},
    **{"affinity": {}, "compute_class": None, "runtime_class": None, "shared_memory": None},
}
"""The arguments about workers alone, as the head has them."""


class AuthOptions(Spec):
    """The authentication of a Ray cluster, as KubeRay's authOptions define it."""

    mode: Literal["token", "disabled"] = "token"
    """With token, the dashboard, the job API and Ray's client ask for a token. With disabled, they
    ask for nothing. The default is token."""
    secret_name: InputText | None = None
    """The Secret in the namespace whose key auth_token is the token. By default, KubeRay creates
    one with a random token and the name of the RayCluster."""


class RaySpec(WorkloadSpec):
    """Arguments of Ray clusters, whether they serve one job or several.

    The other arguments are about the workers. The head has the same image, environment and volumes.
    """

    kind: ClassVar[str] = "RayCluster"
    """The kind of the object that it makes."""
    workers: int = Field(1, ge=0)
    """The number of workers. The default is 1. If each requests all GPUs of a node, it is the
    number of nodes."""
    head_cpu: Quantity = "4"
    """CPU of the head, which runs no tasks. The default is 4."""
    head_memory: Quantity = "16Gi"
    """Memory of the head. The default is 16Gi."""
    ray_version: str | None = Field(None, pattern=r"^\d+\.\d+\.\d+$")
    """The version of Ray in the image, such as 2.52.0."""
    auth_options: AuthOptions | None = None
    """Ask for a token. It needs a ray_version from 2.52.0. By default, each pod of the namespace
    can run code on the cluster."""
    gpu_fabric: GpuFabric | None = None
    """The network between the GPUs of its nodes, such as GpuNodePool.gpu_fabric. Workers that
    request all GPUs of a node get it, as the pods of a DistributedTraining do."""

    @property
    @override
    def fabric(self) -> PodFabric:
        return used_fabric(self.gpu_fabric, self.workers, self.gpus)

    @property
    def has_token(self) -> bool:
        """Return whether the cluster asks for a token."""
        return self.auth_options is not None and self.auth_options.mode == "token"

    @property
    def version(self) -> tuple[int, ...]:
        """The version of Ray; empty if it is not given."""
        return tuple(map(int, self.ray_version.split("."))) if self.ray_version else ()

    @property
    @override
    def program(self) -> list[str] | None:
        # KubeRay runs it before `ray start` (kuberay v1.6.2, controllers/ray/common/pod.go).
        return [f". {self.fabric.script}"] if self.fabric.script else None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from fabric_errors(self)
        for field in ("command", "arguments", "working_dir", "hostname", "subdomain"):
            if getattr(self, field) is not None:
                reason = "is for other workloads: KubeRay sets how the pods of Ray start"
                yield field, f"{reason}; leave it out, and set entrypoint of a RayJob"
        if self.has_token and self.version < _TOKEN_VERSION:
            needed = ".".join(map(str, _TOKEN_VERSION))
            yield "auth_options", f"needs Ray {needed} or newer; set ray_version to the image's"
        if len(self.workload_name) > (most := package_kinds()[self.kind].longest_name):
            yield self.name_field or "", f"is longer than {most} characters; choose a shorter"

    @override
    def warnings(self) -> Iterator[str]:
        yield from fabric_warnings(self, self.workers)

    def cluster(self) -> dict[str, Any]:
        """Return the spec of the RayCluster."""
        group = {
            "groupName": _GROUP,
            **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), self.workers),
            "rayStartParams": {},
            "template": pod_template(self, "Always", {}),
        }
        cluster: dict[str, Any] = {
            # Without CPU for tasks, Ray runs them all on the workers.
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "0"},
                "template": self.without_gpus(self.head_cpu, self.head_memory, "Always"),
            },
            "workerGroupSpecs": [group],
        }
        auth = self.auth_options and {
            "mode": self.auth_options.mode,
            "secretName": self.auth_options.secret_name,
        }
        return cluster | without_none(
            {"rayVersion": self.ray_version, "authOptions": auth and without_none(auth)}
        )

    def without_gpus(self, cpu: str, memory: str, restart_policy: str) -> dict[str, Any]:
        """Return the template of a pod next to the workers."""
        spec = self.model_copy(update={**_OF_WORKERS, "cpu": cpu, "memory": memory})
        return pod_template(spec, restart_policy, {})

    def operator_policy(self) -> ChildResource:
        """Return the policy by which the operator reaches the head for the state of jobs."""
        name = f"{self.workload_name}-operator"
        metadata = self.metadata(name=name, labels=self.app_labels, annotations=NOT_AWAITED)
        selector = {"matchLabels": {labels.NAMESPACE_NAME: RAY_NAMESPACE}}
        rule = {
            "from": [{"namespaceSelector": selector}],
            "ports": [{"port": _DASHBOARD_PORT, "protocol": "TCP"}],
        }
        # Otherwise it would close the pods to other pods of the namespace.
        spec: dict[str, Any] = {
            "podSelector": {"matchLabels": self.app_labels},
            "policyTypes": ["Ingress"],
            "ingress": [rule, {"from": [{"podSelector": {}}]}],
        }
        manifest = api_object("networking.k8s.io/v1", "NetworkPolicy", metadata, spec=spec)
        return ChildResource("operator-network", manifest)


class RayClusterSpec(RaySpec):
    """Arguments of a RayCluster."""

    name_field = "cluster_name"

    cluster_name: Name
    """The name of the RayCluster. By default, the name of the component."""

    @property
    def address(self) -> pulumi.Input[str]:
        """The address for Ray's client."""
        head = f"ray://{self.cluster_name}-head-svc."
        return concat(head, self.namespace, f".svc.cluster.local:{_CLIENT_PORT}")

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        # In a queue, it may wait for days.
        awaited = {"pulumi.com/waitFor": "condition=RayClusterProvisioned"}
        metadata = self.metadata(annotations=NOT_AWAITED if self.queue is not None else awaited)
        manifest = api_object(API_VERSION, "RayCluster", metadata, spec=self.cluster())
        options = pulumi.ResourceOptions(delete_before_replace=True)
        yield self.operator_policy()
        yield ChildResource("cluster", manifest, [*depends_on, "operator-network"], options)


class RayCluster(RayClusterComponent[RayClusterSpec]):
    """A Ray cluster for several users or programs: a head, and workers on GPU nodes.

    It needs a RayOperator. For one program, use a RayJob, whose cluster ends with it.
    """

    cluster_name: KnownOutput[str]
    """The name of the RayCluster."""
    address: pulumi.Output[str]
    """Its address for Ray's client, inside the cluster."""
    cluster = Child("cluster")
    """The RayCluster."""
