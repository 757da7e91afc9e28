"""Queues for training, by Kueue: the share of each team, and what it may borrow."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pulumi
import yaml
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog import kueue
from ml_foundations.catalog.gpu_labels import flavor_labels
from ml_foundations.catalog.machine_types import accelerator
from ml_foundations.catalog.nodes import NEW_NODE_SECONDS
from ml_foundations.catalog.versions import KUEUE
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.data import yaml_file
from ml_foundations.component.errors import duplicates
from ml_foundations.component.objects import IN_CLUSTER, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.tolerations import (
    Toleration,
    class_selector,
    class_tolerations,
    toleration_manifest,
)
from ml_foundations.component.topology import TopologyLevel, level_label
from ml_foundations.component.types import GpuName, Name, Quantity
from ml_foundations.kinds.kind_files import queue_of
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import merged, without_none
from ml_foundations.kubernetes.objects import Manifest, api_object
from ml_foundations.kubernetes.quantities import canonical_quantity
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.typed_args import TrainingQueueComponent

_COMPUTE = "compute"
"""The flavor of CPU and memory, which are the same on all nodes: GPUs alone decide between
flavors."""

_QUEUED = "queued-provisioning"
"""The AdmissionCheck of flavors whose nodes come by ProvisioningRequests, and its configuration."""

_TOPOLOGY = "topology"
"""The role of the Topology, which has the name of the cohort."""

_AWAITED = {"annotations": {"pulumi.com/waitFor": "condition=Active"}}
_POLICIES = {"never": "Never", "lower_priority": "LowerPriority", "any": "Any"}
"""Kueue's names of whose workloads are stopped."""
_FUNGIBILITY = {True: "MayStopSearch", False: "TryNextFlavor"}
"""Kueue's names for staying with a flavor, and for going on to the next one."""


class FlavorSettings(Spec):
    """The use of a flavor's nodes."""

    topology: list[TopologyLevel] = []
    """The levels of the topology that its nodes have. Set [hostname] for Spot and flex-start nodes,
    on which GKE's labels may be missing. By default, those of the queue."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from _level_errors(self.topology)


class Flavor(FlavorSettings):
    """A kind of GPU node with a separate quota, such as a node pool."""

    objects = {
        "pool": ObjectArgument(
            ("GpuNodePool",),
            "The GpuNodePool. It sets gpu, node_selector, tolerations and queued_provisioning. "
            "You may add to node_selector and tolerations.",
            {name: name for name in ("gpu", "node_selector", "tolerations", "queued_provisioning")},
        )
    }

    name: Name
    """The flavor's name, such as the pool's."""
    gpu: GpuName | None = None
    """The GPU model of its nodes, by any of its names, such as GpuNodePool.gpu. It is required
    unless node_selector implies the model."""
    node_selector: dict[str, str] = {}
    """Labels that select its nodes, such as GpuNodePool.node_selector."""
    tolerations: list[Toleration] = []
    """Taints of its nodes, such as GpuNodePool.tolerations. Kueue adds them to the workloads that
    it starts there."""
    compute_class: Name | None = None
    """The ComputeClass of its nodes, such as ComputeClass.compute_class. GKE then chooses between
    the pools of the class."""
    queued_provisioning: bool = False
    """Create nodes only for a ProvisioningRequest, as GpuNodePool.queued_provisioning does. Kueue
    creates a request for each workload of this flavor. It starts the workload when all its nodes
    are ready. The default is false."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.gpu is None and not self.node_selector and not self.compute_class:
            yield "gpu", "is required, or node_selector, or compute_class: they select its nodes"


class TeamQueue(Spec):
    """The resources that a team may use at once."""

    objects = {
        "team": ObjectArgument(
            ("TeamNamespace",), "The TeamNamespace. It sets namespace.", {"namespace": "namespace"}
        )
    }

    namespace: Name
    """The team's namespace. Its ClusterQueue has the same name."""
    cpu: Quantity
    """The team's CPU, such as 256. In a queue with a topology, it counts for each flavor."""
    memory: Quantity
    """The team's memory, such as 2Ti. In a queue with a topology, it counts for each flavor."""
    gpus: dict[Name, int] = {}
    """The team's own GPUs of each flavor."""
    borrow_gpus: dict[Name, int] = {}
    """The most GPUs of each flavor that it may borrow when other teams do not use them. By default,
    all."""
    borrow_cpu: Quantity | None = None
    """The most CPU that it may borrow when other teams do not use it. By default, all."""
    borrow_memory: Quantity | None = None
    """The most memory that it may borrow when other teams do not use it. By default, all."""
    lend_gpus: dict[Name, int] = {}
    """The most GPUs of each flavor that other teams may borrow from it when it does not use them.
    By default, all."""

    @property
    def flavors(self) -> set[str]:
        """The flavors that it uses: as its own, or to borrow."""
        return self.gpus.keys() | self.borrow_gpus.keys()

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        for field in ("gpus", "borrow_gpus", "lend_gpus"):
            for flavor, count in getattr(self, field).items():
                if count < 0:
                    yield f"{field}.{flavor}", f"is {count}; GPUs are counted from 0 on"
        for flavor, count in self.lend_gpus.items():
            if count > self.gpus.get(flavor, 0):
                reason = f"is {count}, more than its own ({self.gpus.get(flavor, 0)})"
                yield f"lend_gpus.{flavor}", reason


QueuedKind = Literal[
    "Job",
    "JobSet",
    "TrainJob",
    "RayCluster",
    "RayJob",
    "RayService",
    "Pod",
    "Deployment",
    "StatefulSet",
    "LeaderWorkerSet",
]
"""A kind of workload that Kueue can manage: one of ``kinds/`` with a queue."""


class Queues(Spec):
    """The sharing of GPUs between teams by Kueue."""

    borrowing: bool = True
    """Let teams borrow resources that other teams do not use. The default is true."""
    reclaim: Literal["never", "lower_priority", "any"] = "any"
    """The borrowers' workloads that are stopped when a team needs its own resources again: never,
    lower_priority or any. The default is any."""
    preempt: Literal["never", "lower_priority"] = "lower_priority"
    """The workloads that are stopped for another workload of the same team: never or
    lower_priority. The default is lower_priority."""
    before_next_flavor: list[Literal["borrow", "preempt"]] = ["borrow"]
    """What a workload tries in a flavor before the next flavor: borrow (GPUs of other teams) and
    preempt (stop other workloads). The default is borrow. An empty list tries the next flavor first
    of all."""
    ready_seconds: int = Field(default=NEW_NODE_SECONDS, ge=1)
    """Seconds from the start of a workload until all its pods must run. After that, Kueue stops all
    of them and queues the workload again. The default is 1200, which is enough for new nodes, their
    driver and the image."""
    kinds: list[QueuedKind] = Field(default=["Job", "JobSet"], min_length=1)
    """The kinds of workloads that may wait in queues: Job, JobSet, TrainJob, RayCluster,
    RayJob, RayService, Pod, Deployment, StatefulSet or LeaderWorkerSet. The default is Job and
    JobSet. A stack file adds the kinds of its workloads with a queue. If Kueue does not answer, its
    webhooks for the last four kinds block the pods of their namespaces."""
    queue_name: Name = "training"
    """The name of each team's LocalQueue. Workloads set it as queue. The default is training."""
    topology: list[TopologyLevel] = []
    """The levels of the nodes' topology, the biggest domains first: block, sub-block, host and
    hostname, or keys of other node labels. Kueue then starts workloads on chosen nodes, and they
    may set topology. A node without the label of a level is not used. By default, the scheduler
    chooses the nodes."""
    install: bool = True
    """Install Kueue by its Helm chart. The default is true. Set it to false if the cluster has it
    already. Then waitForPodsReady in the configuration of that Kueue decides when an incomplete
    workload is stopped."""
    values: dict[str, Any] = {}
    """More values of the chart, merged over the component's."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created objects, by kind (ResourceFlavor, ClusterQueue, LocalQueue). They are
    merged over the component's: maps are merged, lists are replaced, and null removes a field."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from _level_errors(self.topology)
        reason = "is for an installed Kueue, but install is false; configure the existing Kueue"
        for field in ("ready_seconds", "values"):
            if not self.install and field in self.model_fields_set:
                yield field, reason


class TrainingQueueSpec(Queues, ComponentSpec):
    """Arguments of a TrainingQueue."""

    objects = {"cluster": IN_CLUSTER}

    name_field = "cohort"

    flavors: list[Flavor]
    """The kinds of GPU nodes."""
    teams: list[TeamQueue] = Field(min_length=1)
    """The resources that each team may use at once."""
    cohort: Name
    """The name of the cohort, in which teams borrow from each other. By default, the name of the
    component."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        names = [flavor.name for flavor in self.flavors]
        yield from duplicates("flavors[{}].name", names, [_COMPUTE])
        for index, flavor in enumerate(self.flavors):
            if flavor.topology and not self.topology:
                reason = "is for a queue with a topology; set topology, or leave it out"
                yield f"flavors[{index}].topology", reason
        namespaces = [team.namespace for team in self.teams]
        for index, team in enumerate(self.teams):
            if team.namespace in namespaces[:index]:
                yield f"teams[{index}].namespace", f"{team.namespace} has a queue already"
            for flavor in sorted((team.flavors | team.lend_gpus.keys()) - set(names)):
                yield f"teams[{index}].gpus.{flavor}", not_among(flavor, "flavor", names)
            for field in ("borrow_gpus", "borrow_cpu", "borrow_memory", "lend_gpus"):
                if getattr(team, field) and not self.borrowing:
                    reason = "has no effect: borrowing is false; leave one out"
                    yield f"teams[{index}].{field}", reason

    @override
    def warnings(self) -> Iterator[str]:
        blind = "Kueue then ignores taints and adds up the free GPUs of several nodes"
        for levels in filter(None, [self.topology, *(flavor.topology for flavor in self.flavors)]):
            if level_label(levels[-1]) != labels.HOSTNAME:
                yield f"the last level of topology is {levels[-1]}: {blind}. Add hostname"

    def topology_name(self, flavor: Flavor) -> str | None:
        """Return the name of the Topology of a flavor, or None if it has none."""
        name = f"{self.cohort}-{flavor.name}" if flavor.topology else self.cohort
        return name if self.topology else None

    @override
    def children(self) -> Iterator[ChildResource]:
        # Kueue keeps a queue until nothing in it runs any more.
        options = pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(delete="300s"))
        if self.install:
            more: dict[str, Any] = {"createNamespace": True, "timeout": 600}
            yield helm_child("kueue", KUEUE, kueue.NAMESPACE, _chart_values(self), **more)
        contents: dict[str, dict[str, Any]] = {_COMPUTE: {}}
        contents |= {flavor.name: _flavor_spec(self, flavor) for flavor in self.flavors}
        made: dict[str, Manifest] = {}
        after: dict[str, list[str]] = {}
        if self.topology:
            made[_TOPOLOGY] = _topology(self.cohort, self.topology)
        for flavor in self.flavors:
            if flavor.topology:
                name = f"{self.cohort}-{flavor.name}"
                made[f"{flavor.name}-topology"] = _topology(name, flavor.topology)
        topologies = list(made)
        for name, content in contents.items():
            made[f"{name}-flavor"] = _object("ResourceFlavor", {"name": name}, content)
            if topologies:  # Kueue keeps them until no flavor has them
                after[f"{name}-flavor"] = topologies
        roles = list(made)
        if any(flavor.queued_provisioning for flavor in self.flavors):
            made |= yaml_file(
                "tenancy",
                "provisioning.yaml",
                check=_QUEUED,
                api_version=kueue.API_VERSION,
                provisioning_class=kueue.PROVISIONING_CLASS,
                own_nodes=labels.GKE_REQUEST,
                gpus=labels.GPU_RESOURCE,
            )
            roles.append("requests-check")
            after["requests-check"] = ["requests"]
        kueue_itself = ["kueue"] if self.install else []
        for role, manifest in made.items():
            yield ChildResource(role, manifest, after.get(role, kueue_itself), options)
        for team in self.teams:
            name = f"{team.namespace}-cluster-queue"
            yield ChildResource(name, _cluster_queue(self, team), roles, options)
            metadata = {"name": self.queue_name, "namespace": team.namespace, **_AWAITED}
            queue = _object("LocalQueue", metadata, {"clusterQueue": team.namespace})
            yield ChildResource(f"{team.namespace}-queue", queue, [name], options)


class TrainingQueue(TrainingQueueComponent[TrainingQueueSpec]):
    """Kueue's queues: a flavor for each node pool, and queues for each team, in one cohort.

    A workload with ``queue`` waits until all its pods can start, and then runs on the nodes of one
    flavor. Let workloads depend on the queue (``depends_on``), so that they are deleted first.
    Kueue keeps a queue as long as something in it runs.
    """

    queue_name: KnownOutput[str]
    """The name of each team's LocalQueue."""
    release = OptionalChild("kueue")
    """The Helm release of Kueue. None if it is not installed here."""


def _object(kind: str, metadata: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    return api_object(kueue.API_VERSION, kind, metadata, spec=content)


def _cluster_queue(spec: TrainingQueueSpec, team: TeamQueue) -> dict[str, Any]:
    content: dict[str, Any] = {
        "cohortName": spec.cohort if spec.borrowing else None,
        "namespaceSelector": {"matchLabels": {labels.NAMESPACE_NAME: team.namespace}},
        "preemption": {
            "reclaimWithinCohort": _POLICIES[spec.reclaim] if spec.borrowing else "Never",
            "withinClusterQueue": _POLICIES[spec.preempt],
        },
        "resourceGroups": _resource_groups(spec, team),
    }
    flavors = [flavor for flavor in spec.flavors if flavor.name in team.flavors]
    if queued := [flavor.name for flavor in flavors if flavor.queued_provisioning]:
        checks = [{"name": _QUEUED, "onFlavors": queued}]
        content["admissionChecksStrategy"] = {"admissionChecks": checks}
    if set(spec.before_next_flavor) != {"borrow"}:
        content["flavorFungibility"] = {
            "whenCanBorrow": _FUNGIBILITY["borrow" in spec.before_next_flavor],
            "whenCanPreempt": _FUNGIBILITY["preempt" in spec.before_next_flavor],
        }
    metadata = {"name": team.namespace, **_AWAITED}
    return _object("ClusterQueue", metadata, without_none(content))


def _chart_values(spec: TrainingQueueSpec) -> dict[str, Any]:
    frameworks = dict.fromkeys(name for kind in spec.kinds for name in queue_of(kind).frameworks)
    names = [team.namespace for team in spec.teams]
    namespaces = {"key": labels.NAMESPACE_NAME, "operator": "In", "values": names}
    # Pods of other namespaces do not wait for Kueue's webhooks, and two replicas answer them.
    config = yaml_file("tenancy", "kueue_config.yaml") | {
        "integrations": {"frameworks": list(frameworks)},
        "managedJobsNamespaceSelector": {"matchExpressions": [namespaces]},
        # Otherwise half of a gang would hold its nodes for as long as the other half finds none.
        "waitForPodsReady": {"timeout": f"{spec.ready_seconds}s"},
    }
    port = {"port": 443, "protocol": "TCP", "targetPort": config["webhook"]["port"]}
    budget = {"enabled": True, "minAvailable": 1}
    values = {
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(config, sort_keys=False)},
        "controllerManager": {"replicas": 2, "podDisruptionBudget": budget},
        "webhookService": {"ports": [port]},
    }
    return merged(values, spec.values)


def _level_errors(levels: Sequence[str]) -> Iterator[tuple[str, str]]:
    node_labels = [level_label(level) for level in levels]
    yield from duplicates("topology[{}]", node_labels)
    if labels.HOSTNAME in node_labels[:-1]:
        yield "topology", "has hostname, the smallest domain, before others; put it last"


def _topology(name: str, levels: Sequence[str]) -> Manifest:
    node_labels = [{"nodeLabel": level_label(level)} for level in levels]
    return _object("Topology", {"name": name}, {"levels": node_labels})


def _flavor_spec(spec: TrainingQueueSpec, flavor: Flavor) -> dict[str, Any]:
    # Kueue compares a pod's affinity with these labels, not with those of the nodes.
    gpu_labels = flavor_labels(accelerator(flavor.gpu)) if flavor.gpu else {}
    node_labels = gpu_labels | class_selector(flavor.compute_class) | flavor.node_selector
    tolerated = [*flavor.tolerations, *class_tolerations(flavor.compute_class)]
    tolerations = [toleration_manifest(toleration) for toleration in tolerated]
    fields = {
        "nodeLabels": node_labels,
        "tolerations": tolerations or None,
        "topologyName": spec.topology_name(flavor),
    }
    return without_none(fields)


def _resource_groups(spec: TrainingQueueSpec, team: TeamQueue) -> list[dict[str, Any]]:
    """Return CPU and memory of all nodes, and GPUs of the first flavor with enough of them."""
    cpu = _quota("cpu", team.cpu, team.borrow_cpu)
    memory = _quota("memory", team.memory, team.borrow_memory)
    flavors: list[dict[str, Any]] = []
    for name in (flavor.name for flavor in spec.flavors if flavor.name in team.flavors):
        amounts = (team.gpus.get(name, 0), team.borrow_gpus.get(name), team.lend_gpus.get(name))
        flavors.append({"name": name, "resources": [_quota(labels.GPU_RESOURCE, *amounts)]})
    if flavors and spec.topology:
        # Kueue finds a topology only if one flavor has all resources of a pod.
        for flavor in flavors:
            flavor["resources"] = [cpu, memory, *flavor["resources"]]
        return [{"coveredResources": ["cpu", "memory", labels.GPU_RESOURCE], "flavors": flavors}]
    compute = {"name": _COMPUTE, "resources": [cpu, memory]}
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [compute]}]
    if flavors:
        groups.append({"coveredResources": [labels.GPU_RESOURCE], "flavors": flavors})
    return groups


def _quota(
    resource: str, nominal: str | int, borrowed: str | int | None, lent: int | None = None
) -> dict[str, Any]:
    amounts = without_none(
        {"nominalQuota": nominal, "borrowingLimit": borrowed, "lendingLimit": lent}
    )
    quota = {key: canonical_quantity(amount) for key, amount in amounts.items()}
    return {"name": resource, **quota}
