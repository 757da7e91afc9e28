"""The weights of a model, once for all servers: in a bucket, on a disk or in an image."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.injections import FILE_CACHE, SCAN_ROLE, SERVICE_AGENT
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, cloud_child
from ml_foundations.component.objects import TEAM_OF_PODS, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec, Spec, check
from ml_foundations.component.tolerations import Toleration
from ml_foundations.component.types import (
    BucketName,
    InputName,
    InputText,
    Name,
    NonEmpty,
    Quantity,
    concat,
)
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.quantities import milli, parse_quantity
from ml_foundations.storage.classes import (
    GCS_FUSE_SERVING,
    LARGEST_SOURCE,
    WEIGHTS,
    WEIGHTS_SOURCE,
)
from ml_foundations.storage.volume import VolumeSpec
from ml_foundations.typed_args import ModelCacheComponent
from ml_foundations.workloads.environment import Key
from ml_foundations.workloads.training_job import TrainingJobSpec

_OPTIONS = [
    *("implicit-dirs", "metadata-cache:ttl-secs:-1", f"{FILE_CACHE}-1"),
    *("file-cache:enable-parallel-downloads:true", "read_ahead_kb=1024"),
]
"""Mount options for weights: files do not change, and one file is read by several downloads (GKE,
"Optimize Cloud Storage FUSE CSI driver for GKE performance")."""
_CACHE_ZONES = "anywhereCacheZones"
"""The attribute with the zones in which GKE caches the bucket, for a price that no estimate of this
package has (gcs-fuse-csi-driver@5fcdc04a, pkg/profiles/scanner.go)."""
_MIB = 1 << 20
_SNAPSHOT_API = "snapshot.storage.k8s.io/v1"
_MOST_NAME = 40
"""With the hash of the content and the names of the parts, a name stays within 63 characters."""


class ModelDownload(Spec):
    """The Job that writes the weights to the disk, at the path of the cache."""

    image: NonEmpty
    """The container image, such as one with huggingface_hub or the Google Cloud CLI."""
    command: list[str] = Field(min_length=1)
    """The command, such as ["gcloud", "storage", "cp", "-r", "gs://my-models/r1", "/models"]."""
    env: dict[str, str] = {}
    """Environment variables."""
    secret_env: dict[str, Key] = {}
    """Environment variables from keys of Secrets, such as {"HF_TOKEN": {"name": "hugging-face",
    "key": "token"}}."""
    service_account: str | None = None
    """The service account of its pod. By default, service_account of the cache."""
    cpu: Quantity = "4"
    """CPU of its pod. The default is 4."""
    memory: Quantity = "16Gi"
    """Memory of its pod. The default is 16Gi."""
    seconds: int = Field(7200, ge=1)
    """The most seconds that it may run on its node. The default is 7200."""
    node_selector: dict[str, str] = {}
    """Labels that its node must have, such as CpuNodePool.node_selector. Its pod runs on nodes
    without GPUs, and Hyperdisk ML attaches to C3, C3D, C4A and N4A machines."""
    tolerations: list[Toleration] = []
    """Taints that its pod tolerates, such as CpuNodePool.tolerations."""


class ModelCacheSpec(ComponentSpec):
    """Arguments of a ModelCache."""

    objects = {
        "team": TEAM_OF_PODS,
        "cluster": ObjectArgument(
            ("GkeCluster",), "The GkeCluster. It sets location.", {"location": "location"}
        ),
    }

    name_field = "cache_name"

    cache_name: Name = Field(max_length=_MOST_NAME)
    """The name of the cache. By default, the name of the component."""
    namespace: InputName
    """The namespace of the servers."""
    path: str = Field("/models", pattern="^/")
    """The path of the weights in servers. The default is /models."""
    bucket: BucketName | None = None
    """Source: a Cloud Storage bucket with the weights."""
    bucket_location: str | None = None
    """The location of the bucket, such as us-east4. With the cluster, it is checked: reading from
    another region is slow and billed."""
    serving_profile: bool = False
    """For a bucket: use GKE's profile for serving, which sizes the caches of Cloud Storage FUSE by
    the node. It needs GKE 1.35.1-gke.1616000, and a bucket in the region of the cluster. The
    default is false.

    GKE's service agent then scans the bucket, and until it has done so, no pod starts (see grant).
    GKE creates no Anywhere Cache.
    """
    project_number: InputText | None = None
    """The number of the cluster's project, with serving_profile."""
    grant: bool = True
    """With serving_profile, grant GKE's service agent the role that the scan needs, on the bucket.
    The default is true. Set it to false if you may not change IAM policies, and have
    roles/storage.legacyBucketReader granted."""
    file_cache: Quantity | None = None
    """For a bucket without serving_profile: the most of the node's disk for copies of its files,
    such as 200Gi. By default, there is no limit, for nodes whose local SSDs are larger than the
    weights."""
    image: NonEmpty | None = None
    """Source: an OCI image with the weights, such as one by digest, which nodes pull once."""
    size: Quantity | None = None
    """Source: a Hyperdisk ML disk of this size, such as 1Ti, at most 6Ti. All servers mount it
    read-only.

    A Job fills a disk, and a snapshot of it becomes a disk in each zone of the class ``weights``
    (``dataset_zones`` of StorageClasses). Another size, image, command or environment of the
    download creates new disks and deletes the old ones.
    """
    download: ModelDownload | None = None
    """For a disk: the Job that fills it."""
    service_account: InputText | None = None
    """For a disk: the service account of the pod that fills it. By default, that of team, or else
    the account default of the namespace."""
    filled: str | None = None
    """For a disk: the claim that servers mount, once it exists. The disk that was filled, which
    costs money and is read by nobody, is then deleted with its Job."""
    location: str | None = None
    """The region or zone of the cluster, such as GkeCluster.location."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        sources = [name for name in ("bucket", "image", "size") if getattr(self, name) is not None]
        if len(sources) != 1:
            given = " and ".join(sources) or "no source"
            yield "bucket", f"a cache has {given}; set exactly one of bucket, image and size"
        if (self.size is None) != (self.download is None):
            yield "download", "size and download go together; set both, or neither"
        if self.size is not None and milli(self.size) > milli(LARGEST_SOURCE):
            yield "size", f"is {self.size}, and a disk to fill has {LARGEST_SOURCE} at most"
        if self.filled is not None and self.download is None:
            yield "filled", "is for a disk; set size and download, or leave it out"
        if self.bucket is None:
            for field in ("bucket_location", "serving_profile", "file_cache"):
                if getattr(self, field):
                    yield field, "is for a bucket; set bucket, or leave it out"
        elif self.serving_profile:
            yield from self._profile_errors()
        if self._is_far:
            reason = f"is {self.bucket_location}, and the cluster is in {self.location}"
            yield "bucket_location", f"{reason}: copy the weights to a bucket in its region"

    def _profile_errors(self) -> Iterator[tuple[str, str]]:
        if self.bucket_location is None:
            reason = "is required with serving_profile, whose bucket is in the cluster's region"
            yield "bucket_location", f"{reason}; set it to the bucket's location"
        if self.grant and self.project_number is None:
            reason = "is required with serving_profile: GKE's service agent, which it names, scans"
            yield "project_number", f"{reason} the bucket; set it, or grant to false"
        if self.file_cache is not None:
            yield "file_cache", "is GKE's own with serving_profile; leave one of them out"

    @property
    def _is_far(self) -> bool:
        """Return whether the bucket is in another region than the cluster, if both are known."""
        if not (isinstance(self.location, str) and self.bucket_location):
            return False
        # A cluster may be in a zone, and a bucket in several regions.
        bucket = self.bucket_location.lower()
        is_region = bucket.count("-") == 1 and bucket[-1].isdigit()
        is_near = is_region and f"{self.location}-".startswith(f"{bucket}-")
        return not is_near and (is_region or self.serving_profile)

    @property
    def claim_name(self) -> str:
        """The claim that servers mount; empty for an image."""
        if self.download is None or self.size is None:
            return "" if self.bucket is None else self.cache_name
        # Another machine or deadline fills no new disk.
        fields = {"image", "command", "env", "secret_env"}
        content = f"{self.size} {self.path} {self.download.model_dump_json(include=fields)}"
        return f"{self.cache_name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"

    @property
    def model_cache(self) -> dict[str, Any]:
        """The mount of a server."""
        mount = {"path": self.path, "name": self.cache_name, "read_only": True}
        if self.image is not None:
            return {**mount, "image": self.image}
        return {**mount, "claim": self.claim_name, "fuse": self.bucket is not None}

    @override
    def children(self) -> Iterator[ChildResource]:
        if self.bucket is not None:
            yield from self._bucket()
        elif self.download is not None and self.size is not None:
            yield from self._disk(self.download, self.size)

    def _bucket(self) -> Iterator[ChildResource]:
        """Yield the volume of a bucket, after the role with which GKE scans it for its profile."""
        options = _OPTIONS
        if self.file_cache is not None:
            size = f"{FILE_CACHE}{parse_quantity(self.file_cache) // _MIB}"
            options = [size if FILE_CACHE in option else option for option in _OPTIONS]
        fields: dict[str, Any] = {"mount_options": options}
        if self.serving_profile:
            fields = {"storage_class": GCS_FUSE_SERVING, "attributes": {_CACHE_ZONES: "none"}}
        if self.serving_profile and self.grant:
            member = concat("serviceAccount:service-", self.project_number, SERVICE_AGENT)
            access = {"bucket": self.bucket, "role": SCAN_ROLE, "member": member}
            yield cloud_child("scan", "gcp:storage/bucketIAMMember:BucketIAMMember", access)
        yield from self._volume(self.claim_name, bucket=self.bucket, **fields).children()

    def _volume(self, claim_name: str, **more: Any) -> VolumeSpec:
        named = {"claim_name": claim_name, "namespace": self.namespace, "data": False}
        return check(VolumeSpec, "Volume", {**named, "access_mode": "ReadOnlyMany", **more})

    def _disk(self, download: ModelDownload, size: Quantity) -> Iterator[ChildResource]:
        """Yield a disk with its Job, its snapshot, and the claim of its copies."""
        name = self.claim_name
        source = f"{name}-source"
        is_filled = self.filled == name
        yield from () if is_filled else self._fill(download, size, source)
        ready = {"pulumi.com/waitFor": "jsonpath={.status.readyToUse}=true"}
        metadata = {"name": name, "namespace": self.namespace, "annotations": ready}
        of_source = {"persistentVolumeClaimName": source}
        spec = {"volumeSnapshotClassName": WEIGHTS, "source": of_source}
        snapshot = api_object(_SNAPSHOT_API, "VolumeSnapshot", metadata, spec=spec)
        yield ChildResource("snapshot", snapshot, [] if is_filled else ["fill"])
        copies = {"size": size, "storage_class": WEIGHTS, "snapshot": name}
        [claim] = self._volume(name, **copies).children()
        yield replace(claim, depends_on=["snapshot"])

    def _fill(
        self, download: ModelDownload, size: Quantity, source: str
    ) -> Iterator[ChildResource]:
        """Yield the disk that is filled, and its Job."""
        written = {"size": size, "access_mode": "ReadWriteOnce", "storage_class": WEIGHTS_SOURCE}
        [disk] = self._volume(source, **written).children()
        yield replace(disk, suffix="source")
        job = {
            "service_account": self.service_account,
            **download.model_dump(exclude={"seconds"}, exclude_none=True),
            "job_name": f"{self.claim_name}-fill",
            "namespace": self.namespace,
            # That of a Job would also count the time until its node is there.
            "pod_overrides": {"activeDeadlineSeconds": download.seconds},
            "wait_for_completion": True,
            "mounts": [{"claim": source, "path": self.path}],
        }
        [fill] = check(TrainingJobSpec, "TrainingJob", job).children()
        yield replace(fill, suffix="fill", depends_on=["source"])


class ModelCache(ModelCacheComponent[ModelCacheSpec]):
    """The weights of a model, once for all servers. Servers accept it as ``model_cache``.

    They mount it read-only, and start when it is filled. A bucket costs least, a disk loads
    fastest, and an image needs no other service.
    """

    model_cache: KnownOutput[dict[str, Any]]
    """The mount of a server. InferenceService and ShardedSet accept it as model_cache."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    claim = OptionalChild("claim")
    """The claim that servers mount. None for an image."""
    fill = OptionalChild("fill")
    """The Job that fills the disk. None for a bucket or an image, and if the disk is filled."""
