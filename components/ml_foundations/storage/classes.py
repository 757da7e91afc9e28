"""Storage classes for GPU and CPU workloads."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import pulumi
from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import override

from ml_foundations.catalog.disks import DISK_TYPES, FILESTORE_CSI, LUSTRE_CSI, PD_CSI
from ml_foundations.catalog.versions import NFS_PROVISIONER
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.data import yaml_file
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.types import InputStr, Name, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.typed_args import StorageClassesComponent


def _disk_type(name: str) -> str:
    if name not in DISK_TYPES:
        raise ValueError(not_among(name, "disk type", DISK_TYPES))
    return name


_DiskTypeName = Annotated[
    str, AfterValidator(_disk_type), WithJsonSchema({"type": "string", "enum": [*DISK_TYPES]})
]
_FilestoreTier = Literal["basic-hdd", "zonal", "regional", "enterprise"]
_TIERS: dict[str, str] = {"basic-hdd": "standard"}
"""Filestore tiers that the CSI driver names otherwise (kubernetes-sigs/gcp-filestore-csi-driver,
README)."""

NFS_CLASS = "nfs-client"
GCS_FUSE_SERVING = "gcsfusecsi-serving"
"""GKE's class for buckets with weights, whose caches GKE sizes (GKE, "Cloud Storage FUSE
profiles")."""
WEIGHTS = "weights"
WEIGHTS_SOURCE = "weights-source"
"""The classes of a ModelCache, and the class of its snapshots. They delete what they make: weights
can be downloaded again."""
_SOURCE_THROUGHPUT = "800Mi"
LARGEST_SOURCE = "6Ti"
"""The speed of a disk that is only filled, and the largest disk that may have so little. The least
is 400 MiB/s, and more for large disks (Compute Engine, "About Hyperdisk ML"): 0.12 MiB/s for each
GiB, which is unverified."""
GCS_FUSE_CLASS = "gcs-fuse"
"""The class that volumes of buckets name. Nothing is provisioned: there is no such object."""


class NfsServer(Spec):
    """An NFS server behind ReadWriteMany volumes."""

    server: str
    """Its address. A Filestore instance also has one."""
    path: str
    """The exported folder."""


class DiskClass(Spec):
    """A storage class that you define."""

    type: _DiskTypeName
    """The type of the disks: pd-standard, pd-balanced, pd-ssd, hyperdisk-balanced,
    hyperdisk-balanced-high-availability, hyperdisk-extreme, hyperdisk-throughput or
    hyperdisk-ml."""
    regional: bool = False
    """Replicate each disk to two zones. Only for persistent disks, which E2, N1, N2 and N2D
    machines can attach. The default is false."""
    zones: list[str] = []
    """The zones of the disks. By default, the zone of the first pod that mounts the disk."""
    iops: int | None = Field(default=None, ge=1)
    """Operations per second of each Hyperdisk."""
    throughput: Quantity | None = None
    """Bytes per second of each Hyperdisk, such as 600Mi."""
    retain: bool | None = None
    """Keep a disk after its claim is deleted. By default, retain of the component."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        hyperdisk = self.type.startswith("hyperdisk-")
        if self.regional and hyperdisk:
            reason = f"is not for {self.type}; set type to hyperdisk-balanced-high-availability"
            yield "regional", reason
        is_regional = self.regional or DISK_TYPES[self.type].always_regional
        if is_regional and self.zones and len(self.zones) != 2:
            yield "zones", f"has {len(self.zones)} entries, and a regional disk is in 2 zones"
        for field in ("iops", "throughput"):
            if getattr(self, field) is not None and not hyperdisk:
                yield field, f"is for Hyperdisk; of {self.type} it follows from the size"


class Filestore(Spec):
    """Filestore, for ReadWriteMany volumes. Each volume is a separate instance."""

    tiers: list[_FilestoreTier] = ["zonal"]
    """The tiers: basic-hdd, zonal, regional or enterprise. Each has the class `filestore-<tier>`.
    The default is zonal.

    The smallest volume has 1Ti. For regional, and for basic-hdd from GKE 1.33 on, it has 100Gi.
    Instances of regional and enterprise are in several zones. Prefer regional to enterprise, which
    is for existing volumes.
    """
    zones: list[str] = []
    """The zones of the instances: those of the nodes that mount them. By default, the zone of the
    first pod.

    If there is one zone, an instance is created as soon as its volume is declared. Otherwise it is
    created while the first pod, and so its node, waits for it.
    """
    reserved_range: str | None = None
    """The name of the address range of private services access, for a Shared VPC. By default,
    direct peering is used."""


class Lustre(Spec):
    """Managed Lustre, for ReadWriteMany volumes of multiples of 18000Gi.

    See throughput for other sizes.
    """

    zones: list[str] = Field(min_length=1)
    """The zones of the instances: those of the nodes that mount them."""
    throughput: Literal[125, 250, 500, 1000] = 500
    """MB/s for each TiB: 125, 250, 500 or 1000. The default is 500.

    Volumes have multiples of 72000Gi (125), 36000Gi (250), 18000Gi (500) or 9000Gi (1000).
    """


_BUILT_IN = {
    name: DiskClass(**disk) for name, disk in yaml_file("storage", "built_in.yaml").items()
}
"""The classes of disks that are always made."""


class _StorageClass(NamedTuple):
    """A storage class."""

    provisioner: str
    parameters: dict[str, Any]
    retain: bool
    binding: str = "WaitForFirstConsumer"
    expands: bool = True
    zones: list[str] = []

    def manifest(self, name: str) -> dict[str, Any]:
        """Return the StorageClass."""
        topology = {"matchLabelExpressions": [{"key": labels.GKE_ZONE, "values": self.zones}]}
        fields = {
            "provisioner": self.provisioner,
            "parameters": without_none(self.parameters),
            "volumeBindingMode": self.binding,
            "allowVolumeExpansion": self.expands,
            "reclaimPolicy": "Retain" if self.retain else None,
            "allowedTopologies": [topology] if self.zones else None,
        }
        given = without_none(fields)
        return api_object("storage.k8s.io/v1", "StorageClass", {"name": name}, **given)


class StorageClassesSpec(ComponentSpec):
    """Arguments of StorageClasses."""

    objects = {
        "cluster": IN_CLUSTER._replace(
            description=f"{IN_CLUSTER.description} Its network is the default of network.",
            outputs={"network": "network"},
            defaults=("network",),
        )
    }

    fast_ssd_zones: list[str] = []
    """The two zones of the regional fast-ssd disks. By default, the pod's zone and another zone of
    the region."""
    dataset_zones: list[str] = []
    """The zones of datasets, which are volumes that many pods read at once. Without zones, there
    are no classes datasets, weights and weights-source. The last two are for a ModelCache, and
    delete what they make, whatever retain is."""
    disks: dict[Name, DiskClass] = {}
    """More classes of disks, by name."""
    ml_throughput: Quantity = "2400Mi"
    """Bytes per second of each disk of the classes hyperdisk-ml and datasets, for any size. The
    default is 2400Mi.

    Google bills it separately from the size, for each disk, and so for each zone of a dataset.
    """
    retain: bool = False
    """Keep volumes and snapshots after their claims are deleted (reclaim policy Retain). The
    default is false."""
    encryption_key: InputStr = None
    """The Cloud KMS key that encrypts disks. By default, Google's own."""
    snapshots: bool = True
    """Create snapshot classes. The default is true. GKE has their CRDs."""
    filestore: Filestore | None = None
    """Classes for Filestore. The cluster needs filestore."""
    lustre: Lustre | None = None
    """Classes for Managed Lustre. The cluster needs lustre."""
    network: InputStr = None
    """The network of Filestore and Lustre instances, which must be the cluster's. By default, the
    network with the name default."""
    nfs: NfsServer | None = None
    """The NFS server of the class nfs-client. Without it, there is no such class."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        taken = {*_classes(self.model_copy(update={"disks": {}})), GCS_FUSE_CLASS}
        for name in self.disks.keys() & taken:
            yield f"disks.{name}", "is the name of another class; choose another"
        if self.fast_ssd_zones and len(self.fast_ssd_zones) != 2:
            reason = f"has {len(self.fast_ssd_zones)} entries, and a regional disk is in 2 zones"
            yield "fast_ssd_zones", reason

    @property
    def add_ons(self) -> list[str]:
        """The add-ons of the cluster that these classes need: filestore, lustre."""
        return [name for name in ("filestore", "lustre") if getattr(self, name) is not None]

    @property
    def class_names(self) -> list[str]:
        """The names of the classes."""
        return list(_classes(self))

    @property
    def classes(self) -> dict[str, str]:
        """The names of the classes, by name."""
        return {name: name for name in self.class_names}

    @override
    def children(self) -> Iterator[ChildResource]:
        # The provider does not itself replace a class for immutable fields.
        immutable = ["reclaimPolicy", "volumeBindingMode"]
        fixed = pulumi.ResourceOptions(replace_on_changes=immutable, delete_before_replace=True)
        for name, storage_class in _classes(self).items():
            yield ChildResource(name, storage_class.manifest(name), options=fixed)
        if self.snapshots:
            yield _snapshot_class("disk-snapshots", PD_CSI, self.retain)
        if self.snapshots and self.dataset_zones:
            yield replace(_snapshot_class(WEIGHTS, PD_CSI, False), suffix="weights-snapshots")
        if self.snapshots and self.filestore:
            backup = {"parameters": {"type": "backup"}}
            yield _snapshot_class("filestore-backups", FILESTORE_CSI, self.retain, **backup)
        if self.nfs:
            values = {"nfs": self.nfs.model_dump(), "storageClass": {"create": False}}
            yield helm_child("nfs-provisioner", NFS_PROVISIONER, "kube-system", values)


class StorageClasses(StorageClassesComponent[StorageClassesSpec]):
    """Storage classes for disks and, on request, for shared file systems, snapshots and datasets.

    The guide docs/storage.md has the class for each machine.
    """

    class_names: KnownOutput[list[str]]
    """The names of the classes."""
    classes: KnownOutput[dict[str, str]]
    """The same names, by name. A volume with ``classes["filestore-zonal"]`` waits for the class."""


def _classes(spec: StorageClassesSpec) -> dict[str, _StorageClass]:
    fast_ssd = _BUILT_IN["fast-ssd"].model_copy(update={"zones": spec.fast_ssd_zones})
    ml = DiskClass(type="hyperdisk-ml", throughput=spec.ml_throughput)
    disks = {**_BUILT_IN, "fast-ssd": fast_ssd, "hyperdisk-ml": ml, **spec.disks}
    classes = {name: _disk_class(disk, spec) for name, disk in disks.items()}
    if spec.dataset_zones:
        # A read-only copy of a snapshot in every zone, under one claim.
        ml_class = classes["hyperdisk-ml"]
        parameters = ml_class.parameters | {"enable-multi-zone-provisioning": "true"}
        zones = spec.dataset_zones
        datasets = ml_class._replace(parameters=parameters, binding="Immediate", zones=zones)
        slow = ml.model_copy(update={"throughput": _SOURCE_THROUGHPUT, "retain": False})
        classes |= {"datasets": datasets, WEIGHTS: datasets._replace(retain=False)}
        classes[WEIGHTS_SOURCE] = _disk_class(slow, spec)
    if spec.filestore:
        for tier in spec.filestore.tiers:
            classes[f"filestore-{tier}"] = _filestore_class(tier, spec.filestore, spec)
    if spec.lustre:
        classes["lustre"] = _lustre_class(spec.lustre, spec)
    if spec.nfs:
        # Declared here rather than by the chart, so that claims need not wait for the chart.
        provisioner = f"cluster.local/{NFS_PROVISIONER.name}"
        parameters = {"archiveOnDelete": "true"}
        classes[NFS_CLASS] = _StorageClass(provisioner, parameters, spec.retain, "Immediate")
    return classes


def _disk_class(disk: DiskClass, spec: StorageClassesSpec) -> _StorageClass:
    kind = DISK_TYPES[disk.type]
    parameters = {
        "type": disk.type,
        "replication-type": "regional-pd" if disk.regional else None,
        "provisioned-iops-on-create": None if disk.iops is None else str(disk.iops),
        "provisioned-throughput-on-create": disk.throughput or kind.throughput,
        "disk-encryption-kms-key": spec.encryption_key,
    }
    retain = spec.retain if disk.retain is None else disk.retain
    return _StorageClass(PD_CSI, parameters, retain, expands=kind.expands, zones=disk.zones)


def _filestore_class(
    tier: _FilestoreTier, filestore: Filestore, spec: StorageClassesSpec
) -> _StorageClass:
    reserved_range = filestore.reserved_range
    parameters = {
        "tier": _TIERS.get(tier, tier),
        "network": spec.network,
        "connect-mode": None if reserved_range is None else "PRIVATE_SERVICE_ACCESS",
        "reserved-ip-range": reserved_range,
        # Basic tiers take no customer-managed key.
        "instance-encryption-kms-key": None if tier == "basic-hdd" else spec.encryption_key,
    }
    binding = "Immediate" if len(filestore.zones) == 1 else "WaitForFirstConsumer"
    return _StorageClass(FILESTORE_CSI, parameters, spec.retain, binding, zones=filestore.zones)


def _lustre_class(lustre: Lustre, spec: StorageClassesSpec) -> _StorageClass:
    parameters = {"perUnitStorageThroughput": str(lustre.throughput), "network": spec.network}
    return _StorageClass(LUSTRE_CSI, parameters, spec.retain, "Immediate", zones=lustre.zones)


def _snapshot_class(name: str, driver: str, retain: bool, **more: Any) -> ChildResource:
    fields = {"driver": driver, "deletionPolicy": "Retain" if retain else "Delete", **more}
    group = "snapshot.storage.k8s.io/v1"
    metadata = {"name": name}
    return ChildResource(name, api_object(group, "VolumeSnapshotClass", metadata, **fields))
