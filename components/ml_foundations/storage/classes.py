"""Storage classes for GPU and CPU workloads."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.disks import (
    DISK_TYPES,
    FILESTORE_CSI,
    LUSTRE_CSI,
    ONE_WRITER,
    PD_CSI,
    SHARED,
    ClassFacts,
)
from ml_foundations.catalog.versions import NFS_PROVISIONER
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.types import Name, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none

DiskTypeName = Literal[
    "pd-standard",
    "pd-balanced",
    "pd-ssd",
    "hyperdisk-balanced",
    "hyperdisk-balanced-high-availability",
    "hyperdisk-extreme",
    "hyperdisk-throughput",
    "hyperdisk-ml",
]
FilestoreTier = Literal["basic-hdd", "zonal", "enterprise"]

NFS_CLASS = "nfs-client"
DATASET_CLASS = "datasets"
LUSTRE_CLASS = "lustre"
GCS_FUSE_CLASS = "gcs-fuse"
"""The class that volumes of buckets name. Nothing is provisioned: there is no such object."""

IMMUTABLE = ["reclaimPolicy", "volumeBindingMode"]
"""Fields that a StorageClass keeps: the provider does not make it anew for these by itself."""

REGIONAL_STANDARD_SMALLEST = "200Gi"
"""The smallest regional pd-standard disk (GKE, "Regional persistent disks")."""

_TIERS = {"basic-hdd": "standard", "zonal": "zonal", "enterprise": "enterprise"}
"""Filestore tiers as the CSI driver names them (kubernetes-sigs/gcp-filestore-csi-driver, README)."""


class NfsServerArgs(TypedDict):
    """An NFS server behind ReadWriteMany volumes."""

    server: str
    """Its address; a Filestore instance has one too."""
    path: str
    """The exported folder."""


class DiskClassArgs(TypedDict):
    """A storage class of one's own."""

    type: str
    """pd-standard, pd-balanced, pd-ssd, or hyperdisk- with balanced, balanced-high-availability, extreme, throughput,
    ml."""
    regional: NotRequired[bool]
    """Whether the disk is in two zones. Persistent disks only; they attach to E2, N1, N2 and N2D machines."""
    zones: NotRequired[list[str]]
    """Where disks are made; by default in the zone of the pod that mounts them first."""
    iops: NotRequired[int]
    """Operations per second of each disk, for Hyperdisk."""
    throughput: NotRequired[str]
    """Bytes per second of each disk, for Hyperdisk, such as 600Mi."""
    retain: NotRequired[bool]
    """Whether a disk outlives its claim; default as for all classes."""


class FilestoreArgs(TypedDict):
    """Filestore, for ReadWriteMany volumes of 1Ti and more: an instance for each."""

    tiers: NotRequired[list[str]]
    """basic-hdd, zonal or enterprise (in several zones): a class `filestore-<tier>` for each. Default zonal."""
    reserved_range: NotRequired[str]
    """The name of the address range of private service access, for a shared VPC; default direct peering."""


class LustreArgs(TypedDict):
    """Managed Lustre, for ReadWriteMany volumes of 9000Gi and more."""

    zones: list[str]
    """The zones of the instances: those of the nodes that mount them."""
    throughput: NotRequired[int]
    """MB/s for each TiB: 125, 250, 500 or 1000. Default 500."""


class StorageClassesArgs(TypedDict):
    """Arguments of StorageClasses."""

    fast_ssd_zones: NotRequired[list[str]]
    """The two zones of the regional fast-ssd disks; by default the pod's zone and another of the region."""
    dataset_zones: NotRequired[list[str]]
    """The zones of datasets: volumes that many pods read at once. Without zones there is no such class."""
    disks: NotRequired[dict[str, DiskClassArgs]]
    """More classes of disks, by name."""
    retain: NotRequired[bool]
    """Whether volumes outlive their claims (reclaim policy Retain); default false. Snapshots follow."""
    encryption_key: NotRequired[pulumi.Input[str]]
    """The Cloud KMS key that encrypts disks; by default Google's own."""
    snapshots: NotRequired[bool]
    """Whether there are snapshot classes; default true. Their CRDs come with GKE."""
    filestore: NotRequired[FilestoreArgs]
    """Filestore; the cluster's add-on must be on."""
    lustre: NotRequired[LustreArgs]
    """Managed Lustre; the cluster's add-on must be on."""
    network: NotRequired[pulumi.Input[str]]
    """The network of Filestore and Lustre instances: the cluster's. By default the one that is named default."""
    nfs: NotRequired[NfsServerArgs]
    """The NFS server behind the class nfs-client; without it there is no such class."""


class NfsServer(Spec):
    """A checked NfsServerArgs."""

    server: str
    path: str


class DiskClass(Spec):
    """A checked DiskClassArgs."""

    type: DiskTypeName
    regional: bool = False
    zones: list[str] = []
    iops: int | None = Field(default=None, ge=1)
    throughput: Quantity | None = None
    retain: bool | None = None

    @property
    def is_regional(self) -> bool:
        """Whether a disk is in two zones."""
        return self.regional or DISK_TYPES[self.type].always_regional

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        hyperdisk = self.type.startswith("hyperdisk-")
        if self.regional and hyperdisk:
            yield "regional", f"is for persistent disks, not {self.type}; take hyperdisk-balanced-high-availability"
        if self.is_regional and self.zones and len(self.zones) != 2:
            yield "zones", f"has {len(self.zones)} entries, and a regional disk is in 2 zones"
        for field in ("iops", "throughput"):
            if getattr(self, field) is not None and not hyperdisk:
                yield field, f"is for Hyperdisk; of {self.type} it follows from the size"


class Filestore(Spec):
    """A checked FilestoreArgs."""

    tiers: list[FilestoreTier] = ["zonal"]
    reserved_range: str | None = None


class Lustre(Spec):
    """A checked LustreArgs."""

    zones: list[str] = Field(min_length=1)
    throughput: Literal[125, 250, 500, 1000] = 500


BUILT_IN = {
    "fast-ssd": DiskClass(type="pd-ssd", regional=True),
    "regional-balanced": DiskClass(type="pd-balanced", regional=True),
    "zonal-ssd": DiskClass(type="pd-ssd"),
    "zonal-balanced": DiskClass(type="pd-balanced"),
    "hyperdisk-balanced": DiskClass(type="hyperdisk-balanced"),
    "hyperdisk-ha": DiskClass(type="hyperdisk-balanced-high-availability"),
    "hyperdisk-ml": DiskClass(type="hyperdisk-ml"),
    "hyperdisk-extreme": DiskClass(type="hyperdisk-extreme"),
    "hyperdisk-throughput": DiskClass(type="hyperdisk-throughput"),
}
"""The classes of disks that are always there.

A regional persistent disk attaches to E2, N1, N2 and N2D machines only: ``fast-ssd`` is for CPU workloads and N1 GPU
hosts. GPU workloads on A2, A3 and G2 take a zonal class, and on A3 Ultra, A4 and G4 a Hyperdisk.
"""


class StorageClassesSettings(Spec):
    """What a stack file says about storage classes."""

    fast_ssd_zones: list[str] = []
    dataset_zones: list[str] = []
    disks: dict[Name, DiskClass] = {}
    retain: bool = False
    encryption_key: Any = None
    snapshots: bool = True
    filestore: Filestore | None = None
    lustre: Lustre | None = None
    network: Any = None
    nfs: NfsServer | None = None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        taken = {*class_facts(self.model_copy(update={"disks": {}})), GCS_FUSE_CLASS}
        for name in self.disks.keys() & taken:
            yield f"disks.{name}", "is the name of a class that is there already; choose another"
        if self.fast_ssd_zones and len(self.fast_ssd_zones) != 2:
            yield "fast_ssd_zones", f"has {len(self.fast_ssd_zones)} entries, and a regional disk is in 2 zones"

    @property
    def disk_classes(self) -> dict[str, DiskClass]:
        """Every class of disks by its name, but the datasets'."""
        fast_ssd = BUILT_IN["fast-ssd"].model_copy(update={"zones": self.fast_ssd_zones})
        return {**BUILT_IN, "fast-ssd": fast_ssd, **self.disks}

    @property
    def add_ons(self) -> list[str]:
        """What the cluster must switch on for these classes: filestore, lustre."""
        return [name for name in ("filestore", "lustre") if getattr(self, name) is not None]


class StorageClasses(pulumi.ComponentResource):
    """Classes of disks, always; and of shared file systems, snapshots and datasets where they are asked for.

    Give it a kubernetes provider in its options. docs/storage.md says which class is for which machine.
    """

    class_names: list[str]
    """The names of the classes."""

    def __init__(self, name: str, args: StorageClassesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the classes."""
        spec = check(StorageClassesSettings, f"StorageClasses {name}", args)
        super().__init__("ml-foundations:index:StorageClasses", name, {}, opts)
        manifests = storage_class_manifests(spec)
        for manifest in manifests:
            k8s.storage.v1.StorageClass(
                f"{name}-{manifest['metadata']['name']}",
                **arguments(manifest),
                opts=child_options(self, replace_on_changes=IMMUTABLE, delete_before_replace=True),
            )
        for manifest in snapshot_class_manifests(spec):
            # The SDK's CustomResource has no fields beside spec, and a snapshot class has no spec.
            token = f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}"
            pulumi.CustomResource(token, f"{name}-{manifest['metadata']['name']}", manifest, child_options(self))
        if spec.nfs is not None:
            _nfs_provisioner(self, name, spec.nfs)
        self.class_names = [manifest["metadata"]["name"] for manifest in manifests]
        self.register_outputs({"class_names": self.class_names})


def class_facts(spec: StorageClassesSettings) -> Mapping[str, ClassFacts]:
    """What can be said of every class before it exists, by its name."""
    facts = {name: _disk_facts(disk) for name, disk in spec.disk_classes.items()}
    if spec.dataset_zones:
        smallest = DISK_TYPES["hyperdisk-ml"].smallest
        facts[DATASET_CLASS] = ClassFacts(("ReadOnlyMany",), smallest, "hyperdisk-ml", from_snapshot=True)
    for tier in spec.filestore.tiers if spec.filestore else []:
        facts[f"filestore-{tier}"] = ClassFacts(SHARED, "1Ti")
    if spec.lustre:
        facts[LUSTRE_CLASS] = ClassFacts(SHARED, "9000Gi")
    if spec.nfs:
        facts[NFS_CLASS] = ClassFacts(SHARED)
    return facts


def _disk_facts(disk: DiskClass) -> ClassFacts:
    kind = DISK_TYPES[disk.type]
    smallest = REGIONAL_STANDARD_SMALLEST if (disk.type, disk.regional) == ("pd-standard", True) else kind.smallest
    modes = tuple(mode for mode in kind.access_modes if mode in ONE_WRITER)
    return ClassFacts(modes, smallest, disk.type, disk.is_regional)


def storage_class_manifests(spec: StorageClassesSettings) -> list[dict[str, Any]]:
    """All classes: the disks, and shared file systems where there are any."""
    found = [_disk_class(name, disk, spec) for name, disk in spec.disk_classes.items()]
    if spec.dataset_zones:
        found.append(_dataset_class(spec))
    for tier in spec.filestore.tiers if spec.filestore else []:
        found.append(_filestore_class(tier, spec.filestore or Filestore(), spec))
    if spec.lustre:
        found.append(_lustre_class(spec.lustre, spec))
    if spec.nfs:
        found.append(_nfs_class(spec))
    return found


def snapshot_class_manifests(spec: StorageClassesSettings) -> list[dict[str, Any]]:
    """The classes of snapshots, one for each driver that makes some."""
    if not spec.snapshots:
        return []
    found = [_snapshot_class("disk-snapshots", PD_CSI, spec, {})]
    if spec.filestore:
        found.append(_snapshot_class("filestore-backups", FILESTORE_CSI, spec, {"type": "backup"}))
    return found


def _class(
    name: str,
    provisioner: str,
    parameters: dict[str, Any],
    *,
    retain: bool,
    binding: str = "WaitForFirstConsumer",
    expands: bool = True,
    zones: list[str] | None = None,
) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "parameters": parameters,
        "volumeBindingMode": binding,
        "allowVolumeExpansion": expands,
    }
    if retain:
        manifest["reclaimPolicy"] = "Retain"
    if zones:
        terms = [{"key": labels.GKE_ZONE, "values": zones}]
        manifest["allowedTopologies"] = [{"matchLabelExpressions": terms}]
    return manifest


def _disk_class(name: str, disk: DiskClass, spec: StorageClassesSettings) -> dict[str, Any]:
    kind = DISK_TYPES[disk.type]
    parameters = without_none(
        {
            "type": disk.type,
            "replication-type": "regional-pd" if disk.regional else None,
            "provisioned-iops-on-create": None if disk.iops is None else str(disk.iops),
            "provisioned-throughput-on-create": disk.throughput or kind.throughput,
            "disk-encryption-kms-key": spec.encryption_key,
        }
    )
    retain = spec.retain if disk.retain is None else disk.retain
    return _class(name, PD_CSI, parameters, retain=retain, expands=kind.expands, zones=disk.zones)


def _dataset_class(spec: StorageClassesSettings) -> dict[str, Any]:
    """A read-only copy of a snapshot in every zone, under one claim (GKE, "Accelerate AI/ML data loading")."""
    kind = DISK_TYPES["hyperdisk-ml"]
    parameters = without_none(
        {
            "type": "hyperdisk-ml",
            "provisioned-throughput-on-create": kind.throughput,
            "enable-multi-zone-provisioning": "true",
            "disk-encryption-kms-key": spec.encryption_key,
        }
    )
    return _class(
        DATASET_CLASS,
        PD_CSI,
        parameters,
        retain=spec.retain,
        binding="Immediate",
        expands=kind.expands,
        zones=spec.dataset_zones,
    )


def _filestore_class(tier: FilestoreTier, filestore: Filestore, spec: StorageClassesSettings) -> dict[str, Any]:
    shared_vpc = filestore.reserved_range is not None
    parameters = without_none(
        {
            "tier": _TIERS[tier],
            "network": spec.network,
            "connect-mode": "PRIVATE_SERVICE_ACCESS" if shared_vpc else None,
            "reserved-ip-range": filestore.reserved_range,
            # Basic tiers take no key of one's own.
            "instance-encryption-kms-key": None if tier == "basic-hdd" else spec.encryption_key,
        }
    )
    return _class(f"filestore-{tier}", FILESTORE_CSI, parameters, retain=spec.retain)


def _lustre_class(lustre: Lustre, spec: StorageClassesSettings) -> dict[str, Any]:
    parameters = without_none({"perUnitStorageThroughput": str(lustre.throughput), "network": spec.network})
    return _class(
        LUSTRE_CLASS,
        LUSTRE_CSI,
        parameters,
        retain=spec.retain,
        binding="Immediate",
        zones=lustre.zones,
    )


def _nfs_class(spec: StorageClassesSettings) -> dict[str, Any]:
    """The class is declared here rather than by the chart, so that claims need not wait for the chart."""
    provisioner = f"cluster.local/{NFS_PROVISIONER.name}"
    return _class(NFS_CLASS, provisioner, {"archiveOnDelete": "true"}, retain=spec.retain, binding="Immediate")


def _snapshot_class(name: str, driver: str, spec: StorageClassesSettings, parameters: dict[str, str]) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": name},
        "driver": driver,
        "deletionPolicy": "Retain" if spec.retain else "Delete",
    }
    return manifest | ({"parameters": parameters} if parameters else {})


def _nfs_provisioner(parent: StorageClasses, name: str, nfs: NfsServer) -> None:
    k8s.helm.v3.Release(
        f"{name}-nfs-provisioner",
        name=NFS_PROVISIONER.name,
        chart=NFS_PROVISIONER.name,
        version=NFS_PROVISIONER.version,
        repository_opts={"repo": NFS_PROVISIONER.repo},
        namespace="kube-system",
        values={"nfs": {"server": nfs.server, "path": nfs.path}, "storageClass": {"create": False}},
        opts=child_options(parent),
    )
