"""Servers that each hold a part, as a StatefulSet: parameter servers, and models that are too large for one pod."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.parts import NOT_AWAITED
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.types import MAX_LABEL, Name, Quantity
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.pod import app_labels
from ml_foundations.workloads.pod_template import pod_template
from ml_foundations.workloads.serving import (
    PROBE,
    ServerArgs,
    ServerSettings,
    ServerSpec,
    declare_around,
    metadata,
    server_container,
    service_ports,
)

MAX_NAME = MAX_LABEL - len("-5d9f8c7b64")
"""The controller labels each pod with the set's name and a hash of at most ten characters."""
MARGIN_SECONDS = 300
"""Time for new nodes and the image, on top of the shards' load time."""
RANK_LABEL = "apps.kubernetes.io/pod-index"


class ShardVolumeArgs(TypedDict):
    """A volume that each shard has for itself."""

    name: str
    """The volume's name; the claim of shard 0 is `<name>-<set>-0`."""
    size: str
    """Its size, such as 500Gi. A set that exists keeps the size it was made with."""
    storage_class: str
    """The storage class."""
    path: str
    """Where it is mounted."""
    access_mode: NotRequired[str]
    """ReadWriteOnce or ReadWriteOncePod; default ReadWriteOnce."""


class ShardVolume(Spec):
    """A checked ShardVolumeArgs."""

    name: Name
    size: Quantity
    storage_class: str = Field(min_length=1)
    path: str = Field(pattern="^/")
    access_mode: Literal["ReadWriteOnce", "ReadWriteOncePod"] = "ReadWriteOnce"


class ShardedSetArgs(ServerArgs):
    """Arguments of a ShardedSet."""

    shards: int
    """How many shards there are. Each learns it as WORLD_SIZE, so that all restart when it changes."""
    set_name: NotRequired[str]
    """The name of the StatefulSet and its Service, 52 characters at most; default is the component's."""
    service_name: NotRequired[str]
    """The name of the headless Service; default is set_name."""
    volumes: NotRequired[list[ShardVolumeArgs]]
    """Volumes of which each shard gets its own, and keeps it for life."""
    data: NotRequired[bool]
    """Whether the volumes hold data: claims are kept, and Pulumi refuses to delete or replace the set. Default true."""
    env: NotRequired[dict[str, str]]
    """Environment variables; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are there unless given here."""
    health_path: NotRequired[str]
    """The path that answers when a shard is loaded, or tcp where a connection is enough; default tcp."""
    grace_seconds: NotRequired[int]
    """Seconds that a shard has to write its state when it is stopped; default 60."""
    max_unavailable: NotRequired[int]
    """Shards that a rollout, or a drain of nodes, may stop at once; default 1. More than 1 needs Kubernetes 1.35."""


class ShardedSetSettings(ServerSettings):
    """What a stack file says about a ShardedSet."""

    shards: int = Field(ge=1)
    service_name: Name | None = None
    volumes: list[ShardVolume] = []
    data: bool = True
    health_path: str = Field("tcp", pattern=PROBE)

    @property
    @override
    def own_kinds(self) -> tuple[str, ...]:
        return ("StatefulSet",)

    @property
    def timeout(self) -> int:
        """Seconds that Pulumi waits: for a rollout that goes from one shard, or few of them, to the next."""
        steps = -(-self.shards // self.max_unavailable)
        return self.timeout_seconds or steps * (self.startup_seconds + self.grace_seconds) + MARGIN_SECONDS

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.timeout < self.startup_seconds:
            yield (
                "timeout_seconds",
                f"is {self.timeout}, but a shard may load for {self.startup_seconds} s (load_seconds): make it more",
            )
        paths = [volume.path for volume in self.volumes]
        names = [volume.name for volume in self.volumes]
        for index, volume in enumerate(self.volumes):
            if volume.name in names[:index]:
                yield f"volumes[{index}].name", f"{volume.name} is taken; choose another"
            if volume.path in paths[:index]:
                yield f"volumes[{index}].path", f"{volume.path} is taken; choose another"

    @property
    @override
    def own_paths(self) -> set[str]:
        return {volume.path for volume in self.volumes}

    @property
    @override
    def own_volumes(self) -> set[str]:
        return {volume.name for volume in self.volumes}


class _ShardedSetSpec(ShardedSetSettings, ServerSpec):
    set_name: Name = Field(max_length=MAX_NAME)

    @property
    def workload_name(self) -> str:
        return self.set_name

    @property
    def subdomain(self) -> str:
        """The headless Service, through which the shards have names."""
        return self.service_name or self.set_name


class ShardedSet(pulumi.ComponentResource):
    """A StatefulSet whose pods start together, each with a name, a rank and volumes of its own.

    Give it a kubernetes provider in its options. With volumes of data it is protected: what would replace it, a new
    name or another size of a volume above all, is refused at preview, since new names mean empty volumes and claims
    keep the size they have.
    """

    set_name: str
    """The name of the StatefulSet."""
    hosts: list[str]
    """The shards' names in the cluster's DNS, by rank."""

    def __init__(self, name: str, args: ShardedSetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the StatefulSet, its Service and what goes with them."""
        spec = check(_ShardedSetSpec, f"ShardedSet {name}", {"set_name": name, **args})
        super().__init__("ml-foundations:index:ShardedSet", name, {}, opts)
        service = k8s.core.v1.Service(f"{name}-service", **arguments(service_manifest(spec)), opts=child_options(self))
        timeout = f"{spec.timeout}s"
        k8s.apps.v1.StatefulSet(
            f"{name}-set",
            **arguments(stateful_set_manifest(spec)),
            opts=child_options(
                self,
                depends_on=[service, *declare_claim_template(self, name, spec)],
                delete_before_replace=True,
                protect=bool(spec.volumes) and spec.data,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=timeout, update=timeout, delete=f"{spec.grace_seconds + MARGIN_SECONDS}s"
                ),
            ),
        )
        declare_around(self, name, spec)
        self.set_name = spec.workload_name
        self.hosts = [f"{_host(spec, rank)}.{spec.namespace}.svc.cluster.local" for rank in range(spec.shards)]
        self.register_outputs({"set_name": self.set_name, "hosts": self.hosts})


def stateful_set_manifest(spec: _ShardedSetSpec) -> dict[str, Any]:
    """The StatefulSet. Its shards wait for each other, so that none may wait for another to be ready first."""
    kept = "Retain" if spec.data else "Delete"
    template = pod_template(spec, "Always", server_container(spec), _ranks(spec))
    if spec.volumes:
        main = template["spec"]["containers"][0]
        own = [{"name": volume.name, "mountPath": volume.path} for volume in spec.volumes]
        main["volumeMounts"] = [*main.get("volumeMounts", []), *own]
    manifest: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(spec),
        "spec": {
            "replicas": spec.shards,
            "serviceName": spec.subdomain,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": app_labels(spec)},
            "updateStrategy": {"type": "RollingUpdate"},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": kept, "whenScaled": kept},
            "template": template,
        },
    }
    if spec.max_unavailable > 1:
        manifest["spec"]["updateStrategy"]["rollingUpdate"] = {"maxUnavailable": spec.max_unavailable}
    if spec.volumes:
        manifest["spec"]["volumeClaimTemplates"] = [_claim_template(volume) for volume in spec.volumes]
    return overridden(manifest, spec.overrides)


def service_manifest(spec: _ShardedSetSpec) -> dict[str, Any]:
    """The headless Service: shards find each other by name before any of them is ready."""
    return overridden(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(spec) | {"name": spec.subdomain, "annotations": NOT_AWAITED},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": app_labels(spec),
                "ports": service_ports(spec, spec.port),
            },
        },
        spec.overrides,
    )


def _claim_template(volume: ShardVolume) -> dict[str, Any]:
    return {
        "metadata": {"name": volume.name},
        "spec": {
            "accessModes": [volume.access_mode],
            "storageClassName": volume.storage_class,
            "resources": {"requests": {"storage": volume.size}},
        },
    }


def _ranks(spec: _ShardedSetSpec) -> dict[str, dict[str, Any]]:
    """Who a shard is and where rank 0 is, under the names that torch.distributed reads."""
    return {
        "RANK": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{RANK_LABEL}']"}}},
        "WORLD_SIZE": {"value": str(spec.shards)},
        "MASTER_ADDR": {"value": _host(spec, 0)},
        "MASTER_PORT": {"value": str(spec.port)},
    }


def _host(spec: _ShardedSetSpec, rank: int) -> str:
    return f"{spec.workload_name}-{rank}.{spec.subdomain}"
