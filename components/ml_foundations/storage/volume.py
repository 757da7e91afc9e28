"""A claim of storage."""

import re
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from typing_extensions import override

from ml_foundations.catalog.disks import PD_CSI, ClassFacts
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import Name, Quantity, Spec, check, derived
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.storage.classes import GCS_FUSE_CLASS

AccessMode = Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany"]

BUCKET_SIZE = "1Gi"
"""What a claim of a bucket asks for: Kubernetes wants a size, and a bucket has none."""

DISK_ID = re.compile(r"projects/[^/]+/(zones|regions)/([^/]+)/disks/[^/]+")


class VolumeArgs(TypedDict):
    """Arguments of a Volume."""

    namespace: str
    """The namespace of the claim and of the pods that mount it."""
    size: NotRequired[str]
    """How much, such as 500Gi; a bucket needs none. It can grow later where the class allows it, never shrink."""
    storage_class: NotRequired[str]
    """The storage class; a bucket needs none. For GPU workloads: one whose disks attach to their machines."""
    claim_name: NotRequired[str]
    """The name of the claim; default is the component's."""
    access_mode: NotRequired[str]
    """ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany or ReadWriteMany; default ReadWriteOnce, of a bucket
    ReadWriteMany."""
    data: NotRequired[bool]
    """Whether it holds data that must outlive the stack: protected, and kept when it leaves. Default true."""
    snapshot: NotRequired[str]
    """A VolumeSnapshot of the namespace that it starts from."""
    disk: NotRequired[pulumi.Input[str]]
    """A disk that exists: `projects/<project>/zones/<zone>/disks/<name>`. Its class says the disk's type."""
    bucket: NotRequired[pulumi.Input[str]]
    """A Cloud Storage bucket, mounted by Cloud Storage FUSE."""
    mount_options: NotRequired[list[str]]
    """Options of the mount of a disk or bucket, such as implicit-dirs."""


class VolumeSettings(Spec):
    """What a stack file says about a volume."""

    size: Quantity = BUCKET_SIZE
    storage_class: Name = GCS_FUSE_CLASS
    access_mode: AccessMode | None = None
    data: bool = True
    snapshot: Name | None = None
    disk: Any = None
    bucket: Any = None
    mount_options: list[str] = []

    @property
    def mode(self) -> AccessMode:
        """Who may mount it."""
        return self.access_mode or ("ReadWriteOnce" if self.bucket is None else "ReadWriteMany")

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        sources = [name for name in ("snapshot", "disk", "bucket") if getattr(self, name) is not None]
        if len(sources) > 1:
            yield sources[1], f"a volume has one source, and {sources[0]} is given too; leave one out"
        if isinstance(self.disk, str) and not DISK_ID.fullmatch(self.disk):
            yield "disk", f'is "{self.disk}"; it must be projects/<project>/zones/<zone>/disks/<name>'
        if self.bucket is None:
            missing = [field for field in ("size", "storage_class") if field not in self.model_fields_set]
            yield from ((field, "is required, but for a bucket") for field in missing)
        elif "storage_class" in self.model_fields_set and self.storage_class != GCS_FUSE_CLASS:
            yield "storage_class", "is for disks and file systems; a bucket has none, leave it out"
        if self.mode == "ReadOnlyMany" and not sources:
            yield "access_mode", "is ReadOnlyMany, and nothing would ever be in it: give snapshot, disk or bucket"
        if self.mount_options and self.disk is None and self.bucket is None:
            yield "mount_options", "are for a disk or bucket; for others the storage class has them"


class _VolumeSpec(VolumeSettings):
    namespace: Name
    claim_name: Name

    @property
    def volume_name(self) -> str:
        """The PersistentVolume of a disk or bucket; it is no namespace's own, so its name has both."""
        return derived(self.namespace, f"-{self.claim_name}", limit=253)


class Volume(pulumi.ComponentResource):
    """A PersistentVolumeClaim; for a disk or bucket that exists, with its PersistentVolume.

    What holds data is protected and is never deleted by an update. Give it a kubernetes provider in its options.
    """

    claim_name: str
    """The claim's name; workloads take it."""
    size: str
    """The size that was asked for."""

    def __init__(self, name: str, args: VolumeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the claim."""
        spec = check(_VolumeSpec, f"Volume {name}", {"claim_name": name, **args})
        super().__init__("ml-foundations:index:Volume", name, {}, opts)
        kept = {"protect": spec.data, "retain_on_delete": spec.data}
        before: list[pulumi.Resource] = []
        if (manifest := volume_manifest(spec)) is not None:
            before.append(
                k8s.core.v1.PersistentVolume(f"{name}-volume", **arguments(manifest), opts=child_options(self, **kept))
            )
        k8s.core.v1.PersistentVolumeClaim(
            f"{name}-claim", **arguments(claim_manifest(spec)), opts=child_options(self, depends_on=before, **kept)
        )
        self.claim_name = spec.claim_name
        self.size = spec.size
        self.register_outputs({"claim_name": self.claim_name, "size": self.size})


def claim_manifest(spec: _VolumeSpec) -> dict[str, Any]:
    """The PersistentVolumeClaim."""
    body: dict[str, Any] = {
        "accessModes": [spec.mode],
        "storageClassName": spec.storage_class,
        "resources": {"requests": {"storage": spec.size}},
    }
    if spec.snapshot is not None:
        body["dataSource"] = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": spec.snapshot}
    if spec.disk is not None or spec.bucket is not None:
        body["volumeName"] = spec.volume_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": spec.claim_name, "namespace": spec.namespace},
        "spec": body,
    }


def volume_manifest(spec: _VolumeSpec) -> dict[str, Any] | None:
    """The PersistentVolume of a disk or bucket that exists; None where the class makes one."""
    if spec.disk is None and spec.bucket is None:
        return None
    body: dict[str, Any] = {
        "capacity": {"storage": spec.size},
        "accessModes": [spec.mode],
        "storageClassName": spec.storage_class,
        # Whose disk or bucket it is decides about its end.
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": spec.namespace, "name": spec.claim_name},
        "csi": _source(spec),
    }
    if spec.mount_options:
        body["mountOptions"] = spec.mount_options
    if zone := _zone(spec.disk):
        term = {"matchExpressions": [{"key": labels.GKE_ZONE, "operator": "In", "values": [zone]}]}
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": spec.volume_name}, "spec": body}


def _source(spec: _VolumeSpec) -> dict[str, Any]:
    read_only = {"readOnly": True} if spec.mode == "ReadOnlyMany" else {}
    if spec.bucket is not None:
        return {"driver": labels.GCS_FUSE_DRIVER, "volumeHandle": spec.bucket, **read_only}
    return {"driver": PD_CSI, "volumeHandle": spec.disk, "fsType": "ext4", **read_only}


def _zone(disk: Any) -> str | None:
    """The zone of a disk, where it is known before the disk exists."""
    found = DISK_ID.fullmatch(disk) if isinstance(disk, str) else None
    return found[2] if found and found[1] == "zones" and found[2] != "multi-zone" else None


def class_mismatch(volume: VolumeSettings, facts: ClassFacts) -> Iterator[tuple[str, str]]:
    """Why a class cannot give a volume, by field."""
    if volume.mode not in facts.access_modes:
        yield "access_mode", f"is {volume.mode}; {volume.storage_class} gives {' or '.join(facts.access_modes)}"
    if facts.smallest is not None and parse_quantity(volume.size) < parse_quantity(facts.smallest):
        yield "size", f"is {volume.size}, and a volume of {volume.storage_class} has at least {facts.smallest}"
    if facts.from_snapshot and volume.snapshot is None:
        yield "snapshot", f"is required: {volume.storage_class} makes volumes from snapshots"
