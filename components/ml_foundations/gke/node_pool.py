"""What the node pools share: how a pool of a machine type is declared to GKE."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.component.spec import Spec
from ml_foundations.component.tolerations import TolerationArgs
from ml_foundations.component.types import MachineTypeName, Name
from ml_foundations.gke import capacity as _capacity
from ml_foundations.gke.arguments import said
from ml_foundations.gke.disks import (
    LocalSsd,
    LocalSsdArgs,
    SecondaryBootDisk,
    SecondaryBootDiskArgs,
    block_ssds,
    ephemeral_ssds,
    secondary_disk_arguments,
    ssd_errors,
)
from ml_foundations.gke.interfaces import uses_gvnic
from ml_foundations.gke.tuning import Kubelet, KubeletArgs, Linux, LinuxArgs, kubelet_arguments, linux_arguments
from ml_foundations.gke.upgrades import Upgrade, UpgradeArgs, upgrade_arguments
from ml_foundations.kubernetes import labels

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
"""IAM decides what nodes may do; scopes leave that to it (GKE, "Use least privilege service accounts")."""

REGION_ZONES = 3
"""The zones of a region in which GKE puts nodes, where nobody says which."""


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


class NodePoolArgs(TypedDict):
    """Arguments that pools of either kind have."""

    project: str
    """The Google Cloud project."""
    location: str
    """The cluster's region."""
    cluster_name: pulumi.Input[str]
    """The cluster, as GkeCluster.cluster_name gives it."""
    node_service_account: pulumi.Input[str]
    """The nodes' identity, as GkeCluster.node_service_account gives it."""
    pool_name: NotRequired[str]
    """The pool's name in GKE; default is the component's."""
    machine_type: str
    """The machine type, such as n2-standard-8 or g2-standard-8; it implies GPU type and count, but for N1."""
    max_nodes: int
    """The most nodes of the pool, over all zones."""
    min_nodes: NotRequired[int]
    """The fewest nodes of the pool, over all zones; default 0. As many as max_nodes: the size is fixed."""
    limits: NotRequired[str]
    """total or zone: whether max_nodes and min_nodes are of the whole pool or of each zone; default total."""
    location_policy: NotRequired[str]
    """ANY (wherever there are machines) or BALANCED (zones alike). Default ANY for GPU pools, else BALANCED."""
    zones: NotRequired[list[str]]
    """The zones of the nodes; by default the cluster's. GPUs are in few zones of a region."""
    image: NotRequired[str]
    """cos (Container-Optimized OS) or ubuntu; default cos, but ubuntu where the GPU Operator installs its driver."""
    disk_size_gb: NotRequired[int]
    """Size of the boot disk in GB; default 100."""
    disk_type: NotRequired[str]
    """Type of the boot disk; by default GKE's own choice for the machine type."""
    disk_key: NotRequired[pulumi.Input[str]]
    """The Cloud KMS key that encrypts the boot disks; by default Google's own."""
    local_ssd: NotRequired[LocalSsdArgs]
    """Local SSDs. By default those that a machine comes with back its ephemeral storage."""
    secondary_boot_disks: NotRequired[list[SecondaryBootDiskArgs]]
    """Disks with container images or data that nodes have from the start; they switch image streaming on."""
    image_streaming: NotRequired[bool]
    """Whether images from Artifact Registry are streamed, so that containers start before the pull ends.

    Needs the image cos and the Container File System API in the project. Default false.
    """
    gvnic: NotRequired[bool]
    """Whether nodes have a Google Virtual NIC; default true with the image cos, else as the machine type has it."""
    spot: NotRequired[bool]
    """Whether the nodes are Spot VMs; default false."""
    reservation: NotRequired[str]
    """The reservation that the nodes come from: any, none, its name, or projects/PROJECT/reservations/NAME.

    /reservationBlocks/BLOCK after it names a block of it. By default any open one that matches.
    """
    flex_start: NotRequired[bool]
    """Whether the nodes come by Dynamic Workload Scheduler, flex-start mode; default false."""
    queued_provisioning: NotRequired[bool]
    """Whether nodes come only for a ProvisioningRequest, all at once; default false."""
    max_run_seconds: NotRequired[int]
    """After how long a node is taken away again; with flex_start 7 days at the most, which is its default."""
    compact_placement: NotRequired[bool]
    """Whether nodes are put close to each other, in one zone; default false."""
    placement_policy: NotRequired[str]
    """A resource policy of one's own for compact placement."""
    upgrade: NotRequired[UpgradeArgs]
    """How the nodes are upgraded."""
    auto_repair: NotRequired[bool]
    """Whether a broken node is replaced; default true, but not with flex_start."""
    auto_upgrade: NotRequired[bool]
    """Whether nodes follow the cluster's version; default true. Release channels allow nothing else."""
    no_minor_upgrades: NotRequired[bool]
    """Whether the pool keeps its minor version for as long as GKE supports it; default false."""
    host_maintenance: NotRequired[str]
    """AS_NEEDED or PERIODIC: how often Google maintains the hosts; by default as the machine type has it."""
    max_pods: NotRequired[int]
    """The most pods of a node, 8 to 256; by default the cluster's."""
    threads_per_core: NotRequired[int]
    """1 switches simultaneous multithreading off, 2 leaves it on; by default as the machine type has it."""
    kubelet: NotRequired[KubeletArgs]
    """Settings of the kubelet."""
    linux: NotRequired[LinuxArgs]
    """Settings of the Linux kernel."""
    secure_boot: NotRequired[bool]
    """Whether nodes load signed kernel modules only; default true, but not where the GPU Operator has its own."""
    scopes: NotRequired[list[str]]
    """OAuth scopes of the nodes; by default cloud-platform, so that IAM alone decides."""
    node_type: NotRequired[str]
    """What the nodes are for, as the label node-type; default training for GPU pools, else system."""
    labels: NotRequired[dict[str, str]]
    """More labels of the nodes."""
    taints: NotRequired[list[TaintArgs]]
    """Taints of the nodes; GPU pools have the GPU taint anyway."""
    resource_labels: NotRequired[dict[str, str]]
    """Labels of the machines in Compute Engine and on the bill."""
    network_tags: NotRequired[list[str]]
    """Tags of the machines, for firewall rules."""


class NodePoolSettings(Spec):
    """What a stack file says about a node pool of either kind."""

    machine_type: MachineTypeName
    min_nodes: int = Field(0, ge=0, le=1000)
    max_nodes: int = Field(ge=1, le=1000)
    limits: Literal["total", "zone"] = "total"
    location_policy: Literal["ANY", "BALANCED"] = "BALANCED"
    zones: list[str] | None = Field(None, min_length=1)
    image: Literal["cos", "ubuntu"] | None = None
    disk_size_gb: int = Field(100, ge=10, le=65536)
    disk_type: str | None = None
    disk_key: Any = None
    local_ssd: LocalSsd | None = None
    secondary_boot_disks: list[SecondaryBootDisk] = []
    image_streaming: bool | None = None
    gvnic: bool | None = None
    spot: bool = False
    reservation: str | None = None
    flex_start: bool = False
    queued_provisioning: bool = False
    max_run_seconds: int | None = Field(None, ge=600)
    compact_placement: bool = False
    placement_policy: str | None = None
    upgrade: Upgrade = Upgrade()
    auto_repair: bool | None = None
    auto_upgrade: bool = True
    no_minor_upgrades: bool = False
    host_maintenance: Literal["AS_NEEDED", "PERIODIC"] | None = None
    max_pods: int | None = Field(None, ge=8, le=256)
    threads_per_core: Literal[1, 2] | None = None
    kubelet: Kubelet | None = None
    linux: Linux | None = None
    secure_boot: bool | None = None
    scopes: list[str] = SCOPES
    node_type: str = Field(min_length=1)
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    resource_labels: dict[str, str] = {}
    network_tags: list[str] = []

    @property
    def image_name(self) -> str:
        """The operating system of the nodes: cos or ubuntu."""
        return self.image or "cos"

    @property
    def most_nodes(self) -> int:
        """The most nodes of the whole pool."""
        return self.max_nodes * len(self.zones or [""]) if self.limits == "zone" else self.max_nodes

    @property
    def all_taints(self) -> list[Taint]:
        """The taints that the nodes will have: those that are declared, and GKE's own for queued nodes."""
        queued = Taint(key=labels.GKE_QUEUED, value="true")
        return [*self.taints, queued] if self.queued_provisioning else self.taints

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        machine = MACHINE_TYPES[self.machine_type]
        if self.min_nodes > self.max_nodes:
            yield "min_nodes", f"is {self.min_nodes}, above max_nodes ({self.max_nodes})"
        if self.limits == "zone" and not self.zones:
            yield "zones", "are needed where limits are per zone: the size of the pool follows from them"
        if self.disk_type is not None and machine.attaches(self.disk_type) is False:
            yield "disk_type", f"{self.disk_type} attaches to no {machine.name}; take {' or '.join(machine.disk_types)}"
        if self.gvnic and self.image_name == "ubuntu":
            yield "gvnic", "is true, but GKE switches it on for the image cos only; leave it out"
        yield from ssd_errors(machine, self.local_ssd)
        yield from _capacity.errors(self)
        yield from self._image_errors()

    def _image_errors(self) -> Iterator[tuple[str, str]]:
        streaming = self.image_streaming or bool(self.secondary_boot_disks)
        if self.image_streaming is False and self.secondary_boot_disks:
            yield "image_streaming", "is false, but secondary_boot_disks need it; leave it out"
        if streaming and self.image_name != "cos":
            field = "image_streaming" if self.image_streaming else "secondary_boot_disks"
            yield field, f"needs the image cos, and the nodes have {self.image_name}"


class NodePoolSpec(NodePoolSettings):
    """The checked arguments that both kinds of node pool have."""

    pool_name: Name = Field(max_length=40)
    project: str
    location: str
    cluster_name: Any
    node_service_account: Any

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        for zone in self.zones or []:
            if zone.rpartition("-")[0] != self.location:
                yield "zones", f"{zone} is not in {self.location}, where the cluster is"


def node_pool(
    name: str,
    spec: NodePoolSpec,
    node_config: gcp.container.NodePoolNodeConfigArgsDict,
    opts: pulumi.ResourceOptions,
    *,
    spare: bool,
    network_config: gcp.container.NodePoolNetworkConfigArgsDict | None = None,
) -> gcp.container.NodePool:
    """Declare a pool to GKE.

    Args:
        name: The resource's name.
        spec: The pool's checked arguments.
        node_config: What its nodes are.
        opts: Options of the resource.
        spare: Whether machines of this kind are usually to be had.
        network_config: The nodes' interfaces, where they have more than one.
    """
    return gcp.container.NodePool(
        name,
        **pool_arguments(spec, node_config),
        management={
            "auto_repair": not spec.flex_start if spec.auto_repair is None else spec.auto_repair,
            "auto_upgrade": spec.auto_upgrade,
        },
        maintenance_policies=[{"exclusion_until_end_of_supports": [{"enabled": True}]}]
        if spec.no_minor_upgrades
        else None,
        upgrade_settings=said(upgrade_arguments(spec.upgrade, spare=spare)),
        placement_policy=said(_capacity.placement_arguments(spec)),
        network_config=network_config,
        # GKE reports the number of nodes that the autoscaler has made.
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(ignore_changes=["initialNodeCount"])),
    )


def pool_arguments(spec: NodePoolSpec, node_config: gcp.container.NodePoolNodeConfigArgsDict) -> dict[str, Any]:
    """The arguments of a pool that say which nodes there may be: what planning reads too."""
    return {
        "name": spec.pool_name,
        "project": spec.project,
        "location": spec.location,
        "cluster": spec.cluster_name,
        "node_locations": spec.zones,
        "initial_node_count": initial_nodes_per_zone(spec),
        "autoscaling": _autoscaling(spec),
        "queued_provisioning": {"enabled": True} if spec.queued_provisioning else None,
        "max_pods_per_node": spec.max_pods,
        "node_config": said(node_config),
    }


def initial_nodes_per_zone(spec: NodePoolSpec) -> int:
    """GKE counts the first nodes per zone; the autoscaler then keeps the total within its limits."""
    zones = len(spec.zones or []) or REGION_ZONES
    if spec.limits == "zone":
        return spec.min_nodes
    return min(-(-spec.min_nodes // zones), spec.max_nodes // zones)


def _autoscaling(spec: NodePoolSpec) -> gcp.container.NodePoolAutoscalingArgsDict:
    policy = "ANY" if spec.queued_provisioning else spec.location_policy
    if spec.limits == "zone":
        return {"min_node_count": spec.min_nodes, "max_node_count": spec.max_nodes, "location_policy": policy}
    return {
        "total_min_node_count": spec.min_nodes,
        "total_max_node_count": spec.max_nodes,
        "location_policy": policy,
    }


def node_arguments(
    spec: NodePoolSpec, node_labels: dict[str, str], taints: list[Taint], *, secure_boot: bool = True
) -> gcp.container.NodePoolNodeConfigArgsDict:
    """The node_config of a pool, but for GPUs.

    Args:
        spec: The pool's checked arguments.
        node_labels: Labels of its kind of nodes; those that were asked for win.
        taints: The taints to declare.
        secure_boot: Whether nodes load signed kernel modules only, where nobody says.
    """
    machine = MACHINE_TYPES[spec.machine_type]
    ephemeral, block = ephemeral_ssds(machine, spec.local_ssd), block_ssds(machine, spec.local_ssd)
    queued = {labels.GKE_QUEUED: "true"} if spec.queued_provisioning else {}
    streaming = spec.image_streaming or bool(spec.secondary_boot_disks)
    return {
        "machine_type": spec.machine_type,
        "disk_size_gb": spec.disk_size_gb,
        "disk_type": spec.disk_type,
        "boot_disk_kms_key": spec.disk_key,
        "image_type": f"{spec.image_name.upper()}_CONTAINERD",
        "spot": spec.spot,
        "flex_start": spec.flex_start or None,
        "max_run_duration": f"{spec.max_run_seconds}s" if spec.max_run_seconds else None,
        "reservation_affinity": _capacity.reservation_arguments(spec),
        "host_maintenance_policy": {"maintenance_interval": spec.host_maintenance} if spec.host_maintenance else None,
        "service_account": spec.node_service_account,
        "oauth_scopes": spec.scopes,
        "labels": {labels.NODE_TYPE: spec.node_type, **node_labels, **queued, **spec.labels},
        "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints] or None,
        "resource_labels": spec.resource_labels or None,
        "tags": spec.network_tags or None,
        "metadata": {"disable-legacy-endpoints": "true"},
        "shielded_instance_config": {
            "enable_integrity_monitoring": True,
            "enable_secure_boot": secure_boot if spec.secure_boot is None else spec.secure_boot,
        },
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "advanced_machine_features": {"threads_per_core": spec.threads_per_core} if spec.threads_per_core else None,
        "kubelet_config": kubelet_arguments(spec.kubelet),
        "linux_node_config": linux_arguments(spec.linux),
        "ephemeral_storage_local_ssd_config": {"local_ssd_count": ephemeral} if ephemeral else None,
        "local_nvme_ssd_block_config": {"local_ssd_count": block} if block else None,
        "secondary_boot_disks": secondary_disk_arguments(spec.secondary_boot_disks),
        "gcfs_config": {"enabled": True} if streaming else None,
        "gvnic": {"enabled": uses_gvnic(spec)} if spec.image_name == "cos" else None,
    }


EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
"""The effects of taints, as the GKE API and as Kubernetes spell them."""


def tolerations(taints: list[Taint]) -> list[TolerationArgs]:
    """What a workload must tolerate to run on nodes with these taints."""
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": EFFECTS[taint.effect]}
        for taint in taints
    ]
