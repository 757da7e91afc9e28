"""The arguments that all node pools share, and how a pool is declared to GKE."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.disks import BOOT_DISKS
from ml_foundations.catalog.locations import zone_fault
from ml_foundations.catalog.pools import NODE_POOL, TAINT_EFFECTS
from ml_foundations.component.children import ChildResource, cloud_child
from ml_foundations.component.objects import ObjectArgument
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.types import InputName, InputStr, InputText, Name
from ml_foundations.gke.node_pools.capacity import (
    CapacitySpec,
    capacity_arguments,
    purchase_arguments,
)
from ml_foundations.gke.node_pools.disks import (
    LocalSsd,
    SecondaryBootDisk,
    secondary_disk_arguments,
    ssd_arguments,
    ssd_errors,
)
from ml_foundations.gke.node_pools.tuning import Kubelet, Linux, tuning_arguments
from ml_foundations.gke.node_pools.upgrades import Upgrade, upgrade_arguments
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_nulls

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
"""IAM decides what nodes may do; scopes leave that to it (GKE, "Use least privilege service
accounts")."""

_ONE_THREAD = {"t2d", "h3", "h4d"}
"""Families with one thread on each core (Compute Engine, "Set the number of threads per core")."""

CLUSTER = ObjectArgument(
    ("GkeCluster",),
    "The GkeCluster. It sets project, location, cluster_name and node_service_account.",
    {name: name for name in ("project", "location", "cluster_name", "node_service_account")},
)
"""The cluster of a node pool."""


class Taint(Spec):
    """A taint of every node of a pool."""

    key: str = Field(min_length=1)
    """The taint's key."""
    value: str = ""
    """The taint's value."""
    effect: Literal["NO_SCHEDULE", "PREFER_NO_SCHEDULE", "NO_EXECUTE"] = "NO_SCHEDULE"
    """The effect: NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE. The default is NO_SCHEDULE."""


class NodePoolSpec(CapacitySpec, ComponentSpec):
    """Arguments that node pools have.

    They set the cluster, and the disks, operating system, upgrades and labels of the nodes.
    """

    name_field = "pool_name"
    objects = {"cluster": CLUSTER}
    config_defaults = {"project": "gcp:project"}

    project: InputText
    """The Google Cloud project."""
    location: str
    """The cluster's region."""
    cluster_name: InputStr
    """The name of the cluster, such as GkeCluster.cluster_name."""
    node_service_account: InputStr
    """The service account of the nodes, such as GkeCluster.node_service_account."""
    pool_name: Name = Field(max_length=40)
    """The pool's name in GKE. By default, the name of the component."""
    image: Literal["cos", "ubuntu"] | None = None
    """The operating system: cos (Container-Optimized OS) or ubuntu. The default is cos. If the GPU
    Operator installs the driver, it is ubuntu."""
    disk_size_gb: int = Field(100, ge=10, le=65536)
    """The size of the boot disk in GB. The default is 100."""
    disk_type: str | None = None
    """The type of the boot disk. By default, GKE chooses it for the machine type."""
    disk_key: InputStr = None
    """The Cloud KMS key that encrypts the boot disks. By default, Google's own."""
    local_ssd: LocalSsd | None = None
    """Local SSDs. By default, attached SSDs of the machine type back its ephemeral storage."""
    secondary_boot_disks: list[SecondaryBootDisk] = []
    """Disks with container images or data that nodes have from the start. They switch on image
    streaming."""
    image_streaming: bool | None = None
    """Stream images from Artifact Registry, so that containers start before the pull ends. The
    default is false.

    It needs the image cos and the Container File System API in the project.
    """
    gvnic: bool | None = None
    """Use Google Virtual NIC. The default is true with the image cos. Otherwise the machine type
    decides."""
    upgrade: Upgrade = Upgrade()
    """How the nodes are upgraded."""
    auto_repair: bool | None = None
    """Replace broken nodes. The default is true. With flex_start or queued_provisioning, it is
    false."""
    auto_upgrade: bool = True
    """Upgrade the nodes to the cluster's version. The default is true. Release channels accept only
    true."""
    no_minor_upgrades: bool = False
    """Keep the minor version of the pool as long as GKE supports it. The default is false."""
    host_maintenance: Literal["AS_NEEDED", "PERIODIC"] | None = None
    """How often Google maintains the hosts: AS_NEEDED or PERIODIC. By default, the machine type
    decides."""
    max_pods: int | None = Field(None, ge=8, le=256)
    """The most pods of a node, 8 to 256. By default, the cluster decides."""
    threads_per_core: Literal[1, 2] | None = None
    """Threads on each core: 1 switches simultaneous multithreading off, 2 keeps it on. By default,
    the machine type decides."""
    kubelet: Kubelet | None = None
    """Settings of the kubelet."""
    linux: Linux | None = None
    """Settings of the Linux kernel."""
    secure_boot: bool | None = None
    """Load only signed kernel modules. The default is true. If the GPU Operator installs the
    driver, it is false."""
    scopes: list[str] = _SCOPES
    """OAuth scopes of the nodes. The default is cloud-platform, so that only IAM decides."""
    node_type: str = Field("system", min_length=1)
    """The purpose of the nodes, as the label node-type. The default is system."""
    labels: dict[str, str] = {}
    """More labels of the nodes."""
    taints: list[Taint] = []
    """Taints of the nodes. GPU pools always have the GPU taint."""
    compute_class: Name | None = None
    """The ComputeClass of the pool, such as ComputeClass.compute_class. The nodes get its label and
    its taint. Only pods of the class run there then."""
    resource_labels: dict[str, InputText] = {}
    """Labels of the machines in Compute Engine and on the bill."""
    network_tags: list[InputName] = []
    """Tags of the machines, for firewall rules."""

    @property
    def image_name(self) -> str:
        """The operating system of the nodes: cos or ubuntu."""
        return self.image or "cos"

    @property
    def uses_gvnic(self) -> bool:
        """Return whether GKE is asked to use gVNIC. On Ubuntu, the machine type decides."""
        return self.image_name == "cos" if self.gvnic is None else self.gvnic

    @property
    def declared_taints(self) -> list[Taint]:
        """The taints that the pool declares to GKE."""
        name = self.compute_class
        return [*self.taints, *([Taint(key=labels.COMPUTE_CLASS, value=name)] if name else [])]

    @property
    def tolerations(self) -> list[dict[str, str]]:
        """The tolerations for the nodes: declared taints, and GKE's for queued and Arm nodes."""
        queued = [Taint(key=labels.GKE_QUEUED, value="true")] if self.queued_provisioning else []
        arm = [Taint(key=labels.ARCH, value="arm64")] if self.shape.arch == "arm64" else []
        tolerations: list[dict[str, str]] = []
        for taint in (*self.declared_taints, *queued, *arm):
            effect = TAINT_EFFECTS[taint.effect]
            equal = {"key": taint.key, "operator": "Equal", "value": taint.value}
            tolerations.append({**equal, "effect": effect})
        return tolerations

    @property
    def node_selector(self) -> dict[str, str]:
        """Labels that select the nodes."""
        return {labels.GKE_NODE_POOL: self.pool_name}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        machine = self.shape
        for zone in self.zones or []:
            if fault := zone_fault(zone, self.location):
                yield "zones", fault
        fitting = [disk for disk in BOOT_DISKS if machine.attaches(disk) is not False]
        if self.disk_type not in (None, *fitting):
            fix = f"set {' or '.join(fitting)}"
            yield "disk_type", f"{self.disk_type} is not a boot disk of {machine.name}; {fix}"
        yield from ssd_errors(machine, self.local_ssd)
        grace = self.kubelet and self.kubelet.shutdown_grace_period_seconds
        if grace is not None and not self.spot:
            reason = "is for Spot nodes only; set spot, or leave it out"
            yield "kubelet.shutdown_grace_period_seconds", reason
        if self.is_short_lived and self.auto_repair:
            reason = "is true, but flex_start and queued nodes are not repaired; leave it out"
            yield "auto_repair", reason
        if self.is_short_lived and self.upgrade.model_fields_set:
            reason = "is GKE's choice (SHORT_LIVED) for flex_start and queued nodes; leave it out"
            yield "upgrade", reason
        if self.compact_placement and self.upgrade.strategy == "BLUE_GREEN":
            reason = "cannot be combined with BLUE_GREEN upgrades; set upgrade.strategy to SURGE"
            yield "compact_placement", reason
        if self.gvnic and self.image_name == "ubuntu":
            yield "gvnic", "is true, but GKE switches it on for the image cos only; leave it out"
        if self.gvnic is False and self.shape.gpu is not None:
            reason = f"is false, but {self.shape.name} has no other network interface; leave it out"
            yield "gvnic", reason
        if self.image_streaming is False and self.secondary_boot_disks:
            yield "image_streaming", "is false, but secondary_boot_disks need it; leave it out"
        if self.image_name != "cos" and (self.image_streaming or self.secondary_boot_disks):
            field = "image_streaming" if self.image_streaming else "secondary_boot_disks"
            yield field, f"needs the image cos, and the nodes have {self.image_name}"
        if self.threads_per_core is not None:
            name = machine.name
            is_arm = machine.arch == "arm64" and not machine.is_declared
            if is_arm or machine.family in _ONE_THREAD or machine.vcpus == 1:
                reason = f"cannot be set: {name} has one thread on each core; leave it out"
                yield "threads_per_core", reason
            if machine.shared_core:
                reason = f"cannot be set: the cores of {name} are shared; leave it out"
                yield "threads_per_core", reason


def join_cluster(
    pool: pulumi.ComponentResource, objects: Mapping[str, pulumi.ComponentResource]
) -> list[pulumi.ComponentResource]:
    """Add a pool to the cluster among its arguments, and return the cluster's earlier pools."""
    if "cluster" not in objects:
        return []
    pools: list[pulumi.ComponentResource] = cast("Any", objects["cluster"]).node_pools
    earlier = list(pools)
    pools.append(pool)
    return earlier


def pool_child(
    spec: NodePoolSpec,
    node_config: Mapping[str, Any],
    *,
    spare: bool,
    network_config: Mapping[str, Any] | None = None,
    protect: bool | None = None,
    depends_on: Sequence[str] = (),
) -> ChildResource:
    """Return the pool as it is declared to GKE, with further networks of its nodes if it has any.

    ``spare`` machines are usually available. ``depends_on`` are suffixes of earlier children.
    """
    # Google sets --no-enable-autorepair for both (GKE, "Run a large-scale workload").
    repair = not spec.is_short_lived if spec.auto_repair is None else spec.auto_repair
    kept = [{"exclusionUntilEndOfSupports": [{"enabled": True}]}]
    pool: dict[str, Any] = {
        "name": spec.pool_name,
        "project": spec.project,
        "location": spec.location,
        "cluster": spec.cluster_name,
        **capacity_arguments(spec),
        "maxPodsPerNode": spec.max_pods,
        "nodeConfig": node_config,
        "networkConfig": network_config,
        # Pods' disruption budgets then hold while the pool is deleted, for an hour at most.
        "nodeDrainConfigs": None if spare else [{"respectPdbDuringNodePoolDeletion": True}],
        "management": {"autoRepair": repair, "autoUpgrade": spec.auto_upgrade},
        "maintenancePolicies": kept if spec.no_minor_upgrades else None,
    }
    # GKE upgrades flex-start and queued nodes in its own way (SHORT_LIVED).
    if not spec.is_short_lived:
        pool["upgradeSettings"] = upgrade_arguments(
            spec.upgrade, surges=spare or not spec.takes_reservation
        )
    # GKE reports the number of nodes that the autoscaler has made.
    ignored = ["initialNodeCount"]
    inputs = without_nulls(pool)
    return cloud_child(
        "pool",
        NODE_POOL,
        inputs,
        depends_on=depends_on,
        ignore_changes=ignored,
        protect=protect,
    )


def node_arguments(
    spec: NodePoolSpec, node_labels: Mapping[str, str] | None = None, *, secure_boot: bool = True
) -> dict[str, Any]:
    """Return the node_config of a pool, without GPUs, with labels and secure boot of its kind."""
    declared = {labels.NODE_TYPE: spec.node_type, **(node_labels or {})}
    queued = {labels.GKE_QUEUED: "true"} if spec.queued_provisioning else {}
    of_class = {labels.COMPUTE_CLASS: spec.compute_class} if spec.compute_class else {}
    streaming = spec.image_streaming or bool(spec.secondary_boot_disks)
    taints = [taint.model_dump() for taint in spec.declared_taints]
    maintenance = {"maintenanceInterval": spec.host_maintenance}
    threads = {"threadsPerCore": spec.threads_per_core}
    return {
        **purchase_arguments(spec),
        **tuning_arguments(spec.kubelet, spec.linux),
        **ssd_arguments(spec.shape, spec.local_ssd),
        "diskSizeGb": spec.disk_size_gb,
        "diskType": spec.disk_type,
        "bootDiskKmsKey": spec.disk_key,
        "imageType": f"{spec.image_name.upper()}_CONTAINERD",
        "hostMaintenancePolicy": maintenance if spec.host_maintenance else None,
        "serviceAccount": spec.node_service_account,
        "oauthScopes": spec.scopes,
        "labels": {**declared, **queued, **of_class, **spec.capacity_labels, **spec.labels},
        "taints": taints or None,
        "resourceLabels": spec.resource_labels or None,
        "tags": spec.network_tags or None,
        "metadata": {"disable-legacy-endpoints": "true"},
        "shieldedInstanceConfig": {
            "enableIntegrityMonitoring": True,
            "enableSecureBoot": secure_boot if spec.secure_boot is None else spec.secure_boot,
        },
        "workloadMetadataConfig": {"mode": "GKE_METADATA"},
        "advancedMachineFeatures": threads if spec.threads_per_core else None,
        "secondaryBootDisks": secondary_disk_arguments(spec.secondary_boot_disks),
        "gcfsConfig": {"enabled": True} if streaming else None,
        "gvnic": {"enabled": spec.uses_gvnic} if spec.image_name == "cos" else None,
    }
