"""A claim of storage."""

import re
from collections.abc import Iterator
from typing import Any, Literal

import pulumi
from typing_extensions import override

from ml_foundations.catalog.disks import PD_CSI
from ml_foundations.component.base import Child, OptionalChild
from ml_foundations.component.children import ChildResource
from ml_foundations.component.objects import IN_CLUSTER, TEAM
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import (
    BucketName,
    InputName,
    InputStr,
    InputText,
    Name,
    Quantity,
    derived,
)
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.storage.classes import GCS_FUSE_CLASS, GCS_FUSE_SERVING
from ml_foundations.typed_args import VolumeComponent

_AccessMode = Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany"]

_BUCKET_SIZE = "1Gi"
"""What a claim of a bucket asks for: Kubernetes wants a size, and a bucket has none."""

DEFAULT_CLASS = "standard-rwo"
"""The default class of GKE clusters: balanced persistent disks (catalog/storage_classes.yaml)."""

_DISK_ID = re.compile(r"projects/[^/]+/(zones|regions)/([^/]+)/disks/[^/]+")


class VolumeSpec(ComponentSpec):
    """Arguments of a Volume."""

    objects = {"cluster": IN_CLUSTER, "team": TEAM}

    name_field = "claim_name"

    namespace: InputName
    """The namespace of the claim and of the pods that mount it."""
    size: Quantity = _BUCKET_SIZE
    """The size, such as 500Gi. A bucket needs none. It can grow later if the class allows it. It
    cannot shrink."""
    storage_class: Name | None = None
    """The storage class. A bucket needs none. The default is standard-rwo, which every GKE cluster
    has. For GPU workloads, choose a class whose disks attach to their machines."""
    claim_name: Name
    """The name of the claim. By default, the name of the component."""
    access_mode: _AccessMode | None = None
    """The access mode: ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany or ReadWriteMany. The default
    is ReadWriteOnce. For a bucket, it is ReadWriteMany."""
    data: bool = True
    """Protect the volume, and keep it when it is removed from the program, because its data must
    outlive the stack. The default is true."""
    snapshot: InputName | None = None
    """A VolumeSnapshot in the namespace that is the initial content."""
    disk: InputStr = None
    """An existing disk: `projects/<project>/zones/<zone>/disks/<name>`. Set storage_class to a
    class of its type."""
    bucket: BucketName | None = None
    """A Cloud Storage bucket, mounted by Cloud Storage FUSE."""
    labels: dict[str, InputText] = {}
    """Labels of the claim."""
    mount_options: list[str] = []
    """Mount options of a disk or bucket, such as implicit-dirs."""
    attributes: dict[str, str] = {}
    """For a bucket: more volumeAttributes of the driver, such as {"fileCacheCapacity": "100Gi"}."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created objects, by kind, such as {"PersistentVolume": {"spec": {…}}}. They are
    merged over the component's: maps are merged, lists are replaced, and null removes a field."""

    @property
    def fuse(self) -> bool:
        """Return whether the volume is a bucket, which pods mount by a sidecar."""
        return self.bucket is not None

    @property
    def class_name(self) -> str:
        """The name of the storage class."""
        return self.storage_class or (DEFAULT_CLASS if self.bucket is None else GCS_FUSE_CLASS)

    @property
    def mode(self) -> _AccessMode:
        """The access mode: the set one, or the default of the volume's source."""
        return self.access_mode or ("ReadWriteOnce" if self.bucket is None else "ReadWriteMany")

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        names = ("bucket", "disk", "snapshot")
        sources = [name for name in names if getattr(self, name) is not None]
        if len(sources) > 1:
            field, second = sources[-2:]
            yield field, f"a volume has one source, but {second} is set too; leave one out"
        if self.mode == "ReadOnlyMany" and not sources:
            reason = "is ReadOnlyMany, so it would stay empty; set snapshot, disk or bucket"
            yield "access_mode", reason
        if self.attributes and self.bucket is None:
            yield "attributes", "are for a bucket; set bucket, or leave them out"
        if self.mount_options and self.disk is None and self.bucket is None:
            yield "mount_options", "are for a disk or bucket; for others the storage class has them"
        if self.bucket is None and "size" not in self.model_fields_set:
            yield "size", "is required, unless bucket is set"
        if self.disk is not None and self.storage_class is None:
            yield "storage_class", "is required for an existing disk: it names the type of the disk"
        if self.bucket is not None and self.storage_class not in (
            None,
            GCS_FUSE_CLASS,
            GCS_FUSE_SERVING,
        ):
            yield "storage_class", "is for disks and file systems; a bucket has none, leave it out"
        if isinstance(self.disk, str) and not _DISK_ID.fullmatch(self.disk):
            reason = f'is "{self.disk}"; it must be projects/<project>/zones/<zone>/disks/<name>'
            yield "disk", reason

    @property
    def volume_name(self) -> str:
        """The PersistentVolume of a disk or bucket; it has no namespace, so its name has both."""
        return derived(self.namespace, f"-{self.claim_name}", limit=253)

    @override
    def children(self) -> Iterator[ChildResource]:
        # Pulumi waits for a claim that binds at once. A large Filestore needs more than 5 minutes.
        waits = pulumi.CustomTimeouts(create="30m")
        keep = self.data
        kept = pulumi.ResourceOptions(protect=keep, retain_on_delete=keep, custom_timeouts=waits)
        exists = self.disk is not None or self.bucket is not None
        if exists:
            yield ChildResource("volume", _volume(self), options=kept)
        yield ChildResource("claim", _claim(self), ["volume"] if exists else [], kept)


class Volume(VolumeComponent[VolumeSpec]):
    """A PersistentVolumeClaim and, for an existing disk or bucket, its PersistentVolume.

    A volume with data is protected, and an update never deletes it.
    """

    claim_name: KnownOutput[str]
    """The claim's name. Mounts of workloads accept it."""
    size: KnownOutput[str]
    """The requested size."""
    fuse: KnownOutput[bool]
    """If true, it is a bucket, and pods need GKE's sidecar for Cloud Storage FUSE. Mounts of
    workloads accept it."""
    claim = Child("claim")
    """The PersistentVolumeClaim."""
    persistent_volume = OptionalChild("volume")
    """The PersistentVolume. None if the storage class creates it."""


def _claim(spec: VolumeSpec) -> dict[str, Any]:
    body: dict[str, Any] = {
        "accessModes": [spec.mode],
        "storageClassName": spec.class_name,
        "resources": {"requests": {"storage": spec.size}},
    }
    if spec.snapshot is not None:
        group = "snapshot.storage.k8s.io"
        kind = "VolumeSnapshot"
        body["dataSource"] = {"apiGroup": group, "kind": kind, "name": spec.snapshot}
    if spec.disk is not None or spec.bucket is not None:
        body["volumeName"] = spec.volume_name
    metadata = {"name": spec.claim_name, "namespace": spec.namespace, "labels": spec.labels or None}
    return api_object("v1", "PersistentVolumeClaim", without_none(metadata), spec=body)


def _volume(spec: VolumeSpec) -> dict[str, Any]:
    source: dict[str, Any] = {"driver": PD_CSI, "volumeHandle": spec.disk, "fsType": "ext4"}
    if spec.bucket is not None:
        source = {"driver": labels.GCS_FUSE_DRIVER, "volumeHandle": spec.bucket}
        source |= {"volumeAttributes": spec.attributes} if spec.attributes else {}
    read_only = {"readOnly": True} if spec.mode == "ReadOnlyMany" else {}
    body: dict[str, Any] = {
        "capacity": {"storage": spec.size},
        "accessModes": [spec.mode],
        "storageClassName": spec.class_name,
        # Whose disk or bucket it is decides about its end.
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": spec.namespace, "name": spec.claim_name},
        "csi": source | read_only,
    }
    if spec.mount_options:
        body["mountOptions"] = spec.mount_options
    # The zone of a disk may be known before the disk exists.
    match = _DISK_ID.fullmatch(spec.disk) if isinstance(spec.disk, str) else None
    if match and match[1] == "zones" and match[2] != "multi-zone":
        in_zone = {"key": labels.GKE_ZONE, "operator": "In", "values": [match[2]]}
        term = {"matchExpressions": [in_zone]}
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return api_object("v1", "PersistentVolume", {"name": spec.volume_name}, spec=body)
