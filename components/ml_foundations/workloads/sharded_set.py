"""Servers that each hold a shard, as a StatefulSet, such as parameter servers."""

from collections.abc import Iterator
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.nodes import NEW_NODE_SECONDS
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.errors import duplicates
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import MAX_LABEL, InputText, Name, Quantity, concat
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import ShardedSetComponent
from ml_foundations.workloads.environment import env_rendezvous
from ml_foundations.workloads.pod_template import pod_template
from ml_foundations.workloads.serving import PROBE, ServerSpec

_MAX_NAME = MAX_LABEL - len("-5d9f8c7b64")
"""The controller labels each pod with the set's name and a hash of at most ten characters."""
_RANK = "metadata.labels['apps.kubernetes.io/pod-index']"


class ShardVolume(Spec):
    """A volume. Each shard has a separate one."""

    name: Name
    """The volume's name. The claim of shard 0 is `<name>-<set>-0`."""
    size: Quantity
    """The size, such as 500Gi. An existing set keeps its initial size."""
    storage_class: str = Field(min_length=1)
    """The storage class."""
    path: str = Field(pattern="^/")
    """The path in the container."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteOncePod"] = "ReadWriteOnce"
    """ReadWriteOnce or ReadWriteOncePod. The default is ReadWriteOnce."""
    labels: dict[str, InputText] = {}
    """Labels of its claims."""


class ShardedSetSpec(ServerSpec):
    """Arguments of a ShardedSet."""

    name_field = "set_name"

    shards: int = Field(ge=1)
    """The number of shards. Each shard has it as WORLD_SIZE, so a change restarts all shards."""
    set_name: Name = Field(max_length=_MAX_NAME)
    """The name of the StatefulSet and its Service, 52 characters at most. By default, the name of
    the component."""
    service_name: Name | None = None
    """The name of the headless Service. By default, set_name."""
    volumes: list[ShardVolume] = []
    """Volumes. Each shard gets a separate one and keeps it."""
    data: bool = True
    """Keep the claims of the volumes, because they hold data. Pulumi then refuses to delete or
    replace the set. The default is true."""
    env: dict[str, InputText] = {}
    """Environment variables. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set unless they are
    in env."""
    rendezvous_port: int = Field(29500, ge=1, le=65535)
    """The port of shard 0 for the rendezvous, MASTER_PORT. The default is 29500."""
    health_path: str | None = Field(None, pattern=PROBE)
    """The path that answers when a shard is loaded, or tcp if a connection is enough. By default,
    there is no probe, because not every shard listens."""
    grace_seconds: int = Field(60, ge=0)
    """Seconds that a stopping shard has to write its state. The default is 60."""
    max_unavailable: int = Field(1, ge=1)
    """Shards that a rollout or a drain of nodes may stop at once. The default is 1. More than 1
    needs Kubernetes 1.35."""

    @property
    @override
    def own_mounts(self) -> list[dict[str, Any]]:
        mounts = [{"name": volume.name, "mountPath": volume.path} for volume in self.volumes]
        return super().own_mounts + mounts

    @property
    @override
    def timeout(self) -> int:
        """The seconds that Pulumi waits for a rollout, which replaces shards one after another."""
        steps = -(-self.shards // self.max_unavailable)
        rollout = steps * (self.load_seconds + self.grace_seconds) + NEW_NODE_SECONDS
        return self.timeout_seconds or rollout

    @property
    def headless_service(self) -> str:
        """The headless Service, through which the shards have names."""
        return self.service_name or self.set_name

    @property
    def hosts(self) -> list[pulumi.Input[str]]:
        """The shards' names in the cluster's DNS, by rank."""
        domain = concat(".", self.namespace, ".svc.cluster.local")
        return [concat(self.host(rank), domain) for rank in range(self.shards)]

    def host(self, rank: int) -> str:
        """Return a shard's host name in the namespace."""
        return f"{self.set_name}-{rank}.{self.headless_service}"

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from self.peer_name_errors()
        if self.timeout < self.load_seconds:
            load = f"a shard may load for {self.load_seconds} s (load_seconds)"
            reason = f"is {self.timeout}, but {load}; set it to more"
            yield "timeout_seconds", reason
        if self.rendezvous_port in self.port_numbers.values():
            reason = f"is {self.rendezvous_port}, which serves already; choose another"
            yield "rendezvous_port", reason
        names = [service.name for service in self.services]
        yield from duplicates("services[{}].name", names, [self.headless_service])
        yield from duplicates("volumes[{}].name", [volume.name for volume in self.volumes])
        yield from duplicates("volumes[{}].path", [volume.path for volume in self.volumes])

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        # Shards meet before any of them is ready.
        headless = {"clusterIP": "None", "publishNotReadyAddresses": True}
        yield self.service_child(self.headless_service, self.port_numbers, headless)
        options = pulumi.ResourceOptions(
            delete_before_replace=True,
            protect=bool(self.volumes) and self.data,
            custom_timeouts=self.timeouts,
        )
        yield ChildResource("set", _stateful_set(self), ["service", *depends_on], options)
        yield from self.surrounding_children()


class ShardedSet(ShardedSetComponent[ShardedSetSpec]):
    """A StatefulSet whose pods start together, each with a name, a rank and separate volumes.

    A set whose volumes hold data is protected. The preview refuses changes that would replace it,
    such as a new name or another size of a volume. A new name would mean empty volumes, and claims
    keep their size.
    """

    set_name: KnownOutput[str]
    """The name of the StatefulSet."""
    hosts: KnownOutput[list[str]]
    """The shards' names in the cluster's DNS, by rank."""
    stateful_set = Child("set")
    """The StatefulSet."""
    service = Child("service")
    """The headless Service."""


def _stateful_set(spec: ShardedSetSpec) -> dict[str, Any]:
    """Return the StatefulSet. Its shards start in parallel, because they wait for each other."""
    kept = "Retain" if spec.data else "Delete"
    ranks = env_rendezvous(_RANK, spec.shards, spec.host(0), spec.rendezvous_port)
    body: dict[str, Any] = {
        "replicas": spec.shards,
        "serviceName": spec.headless_service,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": spec.app_labels},
        "updateStrategy": {"type": "RollingUpdate"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": kept, "whenScaled": kept},
        "template": pod_template(spec, "Always", spec.container(), ranks),
    }
    if spec.max_unavailable > 1:
        body["updateStrategy"]["rollingUpdate"] = {"maxUnavailable": spec.max_unavailable}
    if spec.volumes:
        body["volumeClaimTemplates"] = [_volume_claim_template(volume) for volume in spec.volumes]
    return api_object("apps/v1", "StatefulSet", spec.metadata(), spec=body)


def _volume_claim_template(volume: ShardVolume) -> dict[str, Any]:
    spec = {
        "accessModes": [volume.access_mode],
        "storageClassName": volume.storage_class,
        "resources": {"requests": {"storage": volume.size}},
    }
    metadata = without_none({"name": volume.name, "labels": volume.labels or None})
    return {"metadata": metadata, "spec": spec}
