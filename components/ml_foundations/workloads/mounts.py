"""Volumes of a workload: where they come from, and where they are mounted."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.objects import ObjectArgument
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import BucketName, Name, NonEmpty, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import Manifest

_NAMED = ("claim", "secret", "config_map", "bucket")
_SOURCES = (*_NAMED, "scratch", "image", "checkpoints", "volume")


class Mount(Spec):
    """A volume of a workload: exactly one source, and a path in the container."""

    objects = {
        "volume": ObjectArgument(
            ("Volume",),
            "A Volume. It sets claim and fuse.",
            {"claim": "claim_name", "fuse": "fuse"},
        ),
        "checkpoints": ObjectArgument(
            ("CheckpointConfiguration",),
            "A CheckpointConfiguration. It must exist before the pods.",
            {"checkpoints": "checkpoints"},
        ),
    }

    path: str | None = Field(None, pattern="^/")
    """The path in the container. Without it, only init and side containers can mount the volume, by
    its name."""
    claim: Name | None = None
    """Source: the name of a claim, such as Volume.claim_name."""
    fuse: bool = False
    """For a claim: the claim is of a bucket, such as Volume.fuse. Pods then get GKE's sidecar for
    Cloud Storage FUSE."""
    secret: NonEmpty | None = None
    """Source: the name of a Secret."""
    config_map: NonEmpty | None = None
    """Source: the name of a ConfigMap."""
    bucket: BucketName | None = None
    """Source: the name of a Cloud Storage bucket, mounted by GKE's Cloud Storage FUSE CSI
    driver."""
    scratch: Quantity | None = None
    """Source: an empty volume on the node's disk, of at most this size, such as 100Gi."""
    image: NonEmpty | None = None
    """Source: an OCI image or artifact, mounted read-only, such as a model."""
    checkpoints: Literal[True] | None = None
    """Source: the memory of the node that a CheckpointConfiguration reserves for checkpoints."""
    volume: dict[str, Any] | None = None
    """Source: any other volume in Kubernetes' form, such as {"nfs": {"server": "…", "path":
    "/"}}."""
    name: Name | None = None
    """The volume's name. By default, it follows from the source. Two mounts of one volume must have
    the same source."""
    read_only: bool = False
    """Mount it read-only. The default is false."""
    sub_path: str | None = Field(None, min_length=1)
    """The part of the volume to mount. By default, all of it."""
    mount_options: str | None = None
    """For a bucket: options of Cloud Storage FUSE. The default is implicit-dirs."""
    attributes: dict[str, str] = {}
    """For a bucket: more volumeAttributes of the driver, such as {"fileCacheCapacity": "100Gi"}."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.volume is not None and self.name is None:
            yield "name", "is required with volume"
        if self.path is None and self.sub_path is not None:
            yield "sub_path", "is for a path; set path, or leave it out"
        if self.fuse and self.claim is None:
            yield "fuse", "is for a claim; set claim, or leave it out"
        for field in ("mount_options", "attributes"):
            if getattr(self, field) and self.bucket is None:
                yield field, "are for a bucket; set bucket, or leave them out"
        given = [source for source in _SOURCES if getattr(self, source) is not None]
        if len(given) != 1:
            sources = " and ".join(given) or "no source"
            yield "path", f"has {sources}; set exactly one of {', '.join(_SOURCES)}"

    @property
    def volume_name(self) -> str:
        """The volume's name: the set one, or one from the source, without dots and underscores."""
        if self.name is not None:
            return self.name
        # An invalid mount may have no source, which another error reports.
        kind = next((name for name in _SOURCES if getattr(self, name) is not None), "volume")
        source = getattr(self, kind)
        # An output's name is not known yet, and a quantity or an image names nothing.
        named = source if kind in _NAMED and isinstance(source, str) else kind
        return named.replace(".", "-").replace("_", "-")

    def source(self) -> dict[str, Any]:
        """Return the volume without its name, as Kubernetes writes it."""
        options = self.mount_options or "implicit-dirs"
        bucket = {"bucketName": self.bucket, "mountOptions": options, **self.attributes}
        sources = {
            "claim": {"persistentVolumeClaim": {"claimName": self.claim}},
            "secret": {"secret": {"secretName": self.secret}},
            "config_map": {"configMap": {"name": self.config_map}},
            "bucket": {"csi": {"driver": labels.GCS_FUSE_DRIVER, "volumeAttributes": bucket}},
            "scratch": {"emptyDir": {"sizeLimit": self.scratch}},
            "image": {"image": {"reference": self.image}},
            "checkpoints": {"csi": {"driver": labels.CHECKPOINT_DRIVER}},
            "volume": self.volume,
        }
        given = (made for name, made in sources.items() if getattr(self, name) is not None)
        return next(given, None) or {}


def mount_errors(mounts: Sequence[Mount], taken: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """Yield paths that are used twice, and names of volumes with two sources.

    ``taken`` are the component's volumeMounts.
    """
    paths: set[str | None] = {mount["mountPath"] for mount in taken}
    names = {mount["name"] for mount in taken}
    sources: dict[str, Any] = {}
    for index, mount in enumerate(mounts):
        name = mount.volume_name
        if mount.path is not None and mount.path in paths:
            yield f"mounts[{index}].path", f"{mount.path} is taken; choose another"
        paths.add(mount.path)
        where = f"mounts[{index}].name"
        if name in names:
            yield where, f"{name} is a volume of the component; choose another name"
        elif sources.setdefault(name, mount.source()) != mount.source():
            yield where, f"two volumes are called {name}; rename one of them"


def mount_manifests(mounts: Sequence[Mount]) -> list[dict[str, Any]]:
    """Return the container's volumeMounts."""
    manifests: list[dict[str, Any]] = []
    for mount in (mount for mount in mounts if mount.path is not None):
        fields = {"name": mount.volume_name, "mountPath": mount.path, "subPath": mount.sub_path}
        manifests.append(without_none(fields | {"readOnly": mount.read_only or None}))
    return manifests


def volume_manifests(mounts: Sequence[Mount]) -> list[dict[str, Any]]:
    """Return the pod's volumes, each once."""
    sources = {mount.volume_name: mount.source() for mount in mounts}
    return [{"name": name} | source for name, source in sources.items()]
