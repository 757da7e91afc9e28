"""What the node pools share: how a pool of a machine type is declared to GKE."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

from pydantic import Field
from typing_extensions import override

from ml_foundations import labels
from ml_foundations._spec import MachineTypeName, Name, Spec
from ml_foundations._tolerations import TolerationArgs

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""IAM decides what nodes may do; scopes leave that to it (GKE, "Use least privilege service accounts")."""


class TaintArgs(TypedDict):
    """A taint of every node of a pool."""

    key: str
    """The taint's key."""
    value: NotRequired[str]
    """The taint's value."""
    effect: NotRequired[str]
    """NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE; default NO_SCHEDULE."""


class Taint(Spec):
    """A taint of every node of a pool."""

    key: str = Field(min_length=1)
    value: str = ""
    effect: Literal["NO_SCHEDULE", "PREFER_NO_SCHEDULE", "NO_EXECUTE"] = "NO_SCHEDULE"


class NodePoolSettings(Spec):
    """What a stack file says about a node pool of either kind."""

    machine_type: MachineTypeName
    min_nodes: int = Field(0, ge=0, le=1000)
    max_nodes: int = Field(ge=1, le=1000)
    zones: list[str] | None = None
    disk_size_gb: int = Field(100, ge=10, le=65536)
    disk_type: str | None = None
    spot: bool = False
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    node_type: str = Field(min_length=1)

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.min_nodes > self.max_nodes:
            yield "min_nodes", f"is {self.min_nodes}, above max_nodes ({self.max_nodes})"


class NodePoolSpec(NodePoolSettings):
    """The checked arguments that both kinds of node pool have."""

    pool_name: Name = Field(max_length=40)
    project: str
    location: str
    cluster_name: Any
    node_service_account: Any


def node_pool_arguments(spec: NodePoolSpec) -> dict[str, Any]:
    """Arguments of gcp.container.NodePool that do not depend on GPUs."""
    return {
        "name": spec.pool_name,
        "project": spec.project,
        "location": spec.location,
        "cluster": spec.cluster_name,
        "node_locations": spec.zones,
        "initial_node_count": initial_nodes_per_zone(spec),
        "autoscaling": {
            "total_min_node_count": spec.min_nodes,
            "total_max_node_count": spec.max_nodes,
            "location_policy": "ANY",
        },
        "management": {"auto_repair": True, "auto_upgrade": True},
        "upgrade_settings": {"strategy": "SURGE", "max_surge": 1, "max_unavailable": 0},
    }


def initial_nodes_per_zone(spec: NodePoolSpec) -> int:
    """GKE counts the first nodes per zone; the autoscaler then keeps the total."""
    zones = len(spec.zones or []) or 3
    return -(-spec.min_nodes // zones)


def node_arguments(spec: NodePoolSpec, node_labels: dict[str, str], image_type: str) -> dict[str, Any]:
    """The node_config of a pool."""
    return {
        "machine_type": spec.machine_type,
        "disk_size_gb": spec.disk_size_gb,
        "disk_type": spec.disk_type,
        "image_type": image_type,
        "spot": spec.spot,
        "service_account": spec.node_service_account,
        "oauth_scopes": list(SCOPES),
        "labels": {labels.NODE_TYPE: spec.node_type, **node_labels, **spec.labels},
        "metadata": {"disable-legacy-endpoints": "true"},
        "shielded_instance_config": {"enable_integrity_monitoring": True, "enable_secure_boot": True},
        "workload_metadata_config": {"mode": "GKE_METADATA"},
    }


EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
"""The effects of taints, as the GKE API and as Kubernetes spell them."""


def tolerations(taints: list[Taint]) -> list[TolerationArgs]:
    """What a workload must tolerate to run on nodes with these taints."""
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": EFFECTS[taint.effect]}
        for taint in taints
    ]


def taint_arguments(taints: list[Taint]) -> list[dict[str, str]]:
    """Taints as the GKE API spells them."""
    return [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]
