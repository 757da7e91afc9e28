"""Nodes as the scheduler will find them: classes of nodes that are alike, from Node manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ml_foundations.catalog.pools import SPOT_GRACE_SECONDS
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    section,
)
from ml_foundations.kubernetes.quantities import Amounts, millis, scheduled, whole_number
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.model.refusals import UnknownFact

if TYPE_CHECKING:
    from ml_foundations.catalog.machine_types import MachineType

MAX_NODES = "ml-foundations/max-nodes"
"""The annotation that makes a Node a template for that many nodes, each with its own name."""
MIN_NODES = "ml-foundations/min-nodes"
"""The annotation with the fewest nodes of such a template; default 0."""
BOOT_DISK_GIB = "ml-foundations/boot-disk-gib"
"""The annotation with the size of the disk that each node starts from."""
SHARED_HOSTNAME = f"{labels.HOSTNAME} (shared)"
"""Stands for the label of the host name where it does not tell the nodes apart."""
_PRESSURES = {
    "MemoryPressure": "memory-pressure",
    "DiskPressure": "disk-pressure",
    "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network-unavailable",
}
"""The taints that conditions of nodes bring."""
_UNREADY = {"False": "not-ready", "Unknown": "unreachable"}
"""Those by the status of the condition Ready; a node that does not show it is taken to be ready."""
_CONDITIONS = (*_PRESSURES.values(), "unschedulable")
_BROUGHT = frozenset(f"node.kubernetes.io/{name}" for name in _CONDITIONS)


@dataclass(frozen=True)
class NodeUpgrade:
    """When GKE may drain the nodes of a pool for an upgrade."""

    when: str
    """The maintenance window in words, such as "at any time"."""
    excluded_seconds: float
    """How long an exclusion keeps upgrades away at most."""


@dataclass(eq=False)
class NodeClass:
    """Nodes that are alike: one Node, or the most nodes of a template."""

    name: str
    """The node's or the pool's name, for messages."""
    manifest: Manifest
    """A Node manifest; of a template, its name and host name are ``UNKNOWN``."""
    count: int = 1
    """How many such nodes there are at most."""
    fewest: int = 1
    """How many there are at least."""
    allocatable: Amounts = field(default_factory=dict[str, int])
    """What one node offers to pods, in thousandths."""
    zones: tuple[str, ...] = ()
    """The zones in which a pool's nodes may be, if there are several: theirs is ``UNKNOWN``."""
    most_per_zone: int = 0
    """How many such nodes there are at most in each of these zones."""
    unknown: tuple[UnknownFact, ...] = ()
    """What is not known of the pool yet: then nobody knows which pods it accepts."""
    made_by: str = ""
    """What has them made for pods that wait; then only their labels are known."""
    lacks: frozenset[str] = frozenset()
    """Extended resources and device classes that none of the nodes has for certain."""
    shutdown_grace: int = SPOT_GRACE_SECONDS
    """Seconds that pods have to end when Google takes a Spot node back."""
    surge: int = 0
    """The most nodes that an upgrade of the pool adds for a while."""
    upgrade: NodeUpgrade | None = None
    """None if GKE drains no node for an upgrade, or if its cluster is not known."""
    disk_gib: int = 0
    """The size of a node's boot disk; 0 if it is not known."""
    local_ssd_gib: int = 0
    """The size of a node's local SSDs; 0 if it is not known."""

    def __post_init__(self) -> None:
        self.labels = labels_of(self.manifest)
        # Nodes that do not exist yet have no names.
        self.is_template = MAX_NODES in annotations_of(self.manifest)

    @cached_property
    def taints(self) -> list[Manifest]:
        """The taints of the nodes; a cordoned node has one for that."""
        is_cordoned = section(self.manifest, "spec").get("unschedulable")
        return self.declared_taints + ([labels.UNSCHEDULABLE_TAINT] if is_cordoned else [])

    @cached_property
    def declared_taints(self) -> list[Manifest]:
        """The taints of the nodes and their conditions (pkg/controller/nodelifecycle)."""
        taints = [*items(section(self.manifest, "spec"), "taints")]
        for condition in items(section(self.manifest, "status"), "conditions"):
            type_ = condition.get("type", "")
            status = condition.get("status", "")
            key = _PRESSURES.get(type_) if status == "True" else None
            if key := _UNREADY.get(status) if type_ == "Ready" else key:
                taints.append({"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"})
        return taints

    @property
    def is_unready(self) -> bool:
        """Return whether it reports that it is not ready."""
        conditions = items(section(self.manifest, "status"), "conditions")
        return any(
            condition.get("type") == "Ready" and condition.get("status") in _UNREADY
            for condition in conditions
        )

    def keeps(self, taint: Manifest) -> bool:
        """Return whether a taint stays."""
        if taint.get("effect") != "NoSchedule" or str(taint.get("key")) not in _BROUGHT:
            return True
        # The node controller removes the taint of a condition that the nodes do not have.
        of_conditions = self.taints[len(items(section(self.manifest, "spec"), "taints")) :]
        return taint.get("key") in [present.get("key") for present in of_conditions]

    def domain(self, key: str) -> Any:
        """Return the nodes' topology domain by a key; None if they have none, or each its own."""
        return None if key == labels.HOSTNAME else self.labels.get(key)


def node_class(node: Manifest) -> NodeClass:
    """Return the class of one Node manifest, without what its pods take."""
    name = name_of(node)
    annotations = annotations_of(node)
    status = section(node, "status")
    # Without it, the API server takes the capacity (pkg/apis/core/v1/defaults.go).
    offered = section(status, "capacity" if status.get("allocatable") is None else "allocatable")
    allocatable = scheduled(millis(offered))
    node = _with_labels(node, _given_by_gke(labels_of(node)))
    if MAX_NODES not in annotations:
        return NodeClass(name, _with_labels(node, {labels.HOSTNAME: name}), allocatable=allocatable)
    anonymous = _with_labels(node, {}, {labels.HOSTNAME: UNKNOWN})
    anonymous = {**anonymous, "metadata": {**section(anonymous, "metadata"), "name": UNKNOWN}}
    count, fewest = (whole_number(annotations.get(key)) for key in (MAX_NODES, MIN_NODES))
    return NodeClass(name, anonymous, count, fewest, allocatable)


EXPENDABLE_BELOW = -10
"""The autoscaler makes no node for pods of a lower priority.

Source: kubernetes/autoscaler, FAQ, expendable-pods-priority-cutoff.
"""


def comes_on_request(node: NodeClass) -> bool:
    """Return whether nodes do not exist yet, and come for a ProvisioningRequest only."""
    return node.is_template and any(taint.get("key") == labels.GKE_QUEUED for taint in node.taints)


def machine_of(node: NodeClass) -> MachineType | None:
    """Return the machine type of nodes, if their label names one of the catalog."""
    name = node.labels.get(labels.INSTANCE_TYPE)
    if not isinstance(name, str):
        return None
    # Reading the catalog takes a third of the start-up time.
    from ml_foundations.catalog.machine_types import UnknownNameError, machine_type

    try:
        return machine_type(name, node.labels)
    except UnknownNameError:
        return None


def by_zone(node: NodeClass, *, most: bool = False) -> list[NodeClass]:
    """Return the nodes of a pool in each of its zones."""
    if not node.zones:
        return [node]
    parts: list[NodeClass] = []
    for index, zone in enumerate(node.zones):
        manifest = _with_labels(node.manifest, {}, dict.fromkeys(labels.ZONES, zone))
        # They are split evenly; with ``most``, each zone has as many as it may ever have.
        count = node.most_per_zone if most else _part(node.count, index, len(node.zones))
        fewest = _part(node.fewest, index, len(node.zones))
        parts.append(replace(node, manifest=manifest, count=count, fewest=fewest))
    return parts


def by_host(nodes: Sequence[NodeClass]) -> list[NodeClass]:
    """Return the nodes; each by itself if some share a host name."""
    # Their host name is then a topology label like any other, so they are no longer alike.
    hosts = [node.labels.get(labels.HOSTNAME) for node in nodes if not node.is_template]
    if len(set(hosts)) == len(hosts):
        return list(nodes)
    single: list[NodeClass] = []
    for node in nodes:
        for index in range(node.count):
            host = f"{node.name} {index}" if node.is_template else node.labels[labels.HOSTNAME]
            manifest = _with_labels(node.manifest, {SHARED_HOSTNAME: host})
            fewest = int(index < node.fewest)
            single.append(replace(node, manifest=manifest, count=1, fewest=fewest))
    return single


def _given_by_gke(shown: Manifest) -> Manifest:
    """Return the label of the zone that GKE's disks read, for a node of GKE that shows its zone.

    The driver of Persistent Disks gives it to each node, so a Node written by hand may leave it out
    (gcp-compute-persistent-disk-csi-driver, pkg/gce-pd-csi-driver/node.go: NodeGetInfo).
    """
    if labels.GKE_NODE_POOL not in shown or labels.ZONE not in shown:
        return {}
    return {labels.GKE_ZONE: shown[labels.ZONE]}


def _part(whole: int, index: int, parts: int) -> int:
    return whole // parts + (index < whole % parts)


def _with_labels(
    node: Manifest, under: Mapping[str, Any], over: Mapping[str, Any] | None = None
) -> Manifest:
    # Its own labels replace those of ``under``; those of ``over`` replace its own.
    if not over and under.keys() <= labels_of(node).keys():
        return node
    all_labels = {**under, **labels_of(node), **(over or {})}
    return {**node, "metadata": {**section(node, "metadata"), "labels": all_labels}}
