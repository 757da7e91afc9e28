"""Facts about what GKE adds to pods: injections.yaml."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ml_foundations.kubernetes.packaged_yaml import packaged_yaml

SIDECAR = "bucket-sidecar"
PREFETCH = "bucket-prefetch"
SCAN = "bucket-scan"
INTERFACES = "interfaces"
"""Keys of the injections."""

PREFETCHES = "gcsfuseMetadataPrefetchOnMount"
"""The attribute of a bucket whose metadata is read when it is mounted."""
FILE_CACHE = "file-cache:max-size-mb:"
"""How the mount option begins that has the MiB of a bucket's files that a node keeps; -1 means all
of them."""
NCCL_PLUGIN = "/nccl-plugin-"
"""What is in the names of the images that install NCCL's plugin."""
SERVICE_AGENT = "@container-engine-robot.iam.gserviceaccount.com"
"""The end of the account that scans buckets for pods with the gate: GKE's service agent
(cluster-toolkit@104708037, modules/file-system/gke-persistent-volume/README.md)."""
SCAN_ROLE = "roles/storage.legacyBucketReader"
"""The smallest role with storage.buckets.get and storage.objects.list, which a scan needs."""

_UNLIMITED = {"cpu": "32", "memory": "4Ti"}
"""Limits that no sidecar reaches: GKE sets none, and "0" would let a LimitRange set its default.

A profile takes a memory limit below that of the node as the budget of its caches
(gcs-fuse-csi-driver, pkg/profiles/recommender.go): no node has 4Ti."""


class Injection(NamedTuple):
    """An addition of GKE to some pods: one of the fields from ``container`` on."""

    by: str
    """Who adds it."""
    stage: Literal["webhook", "node"]
    """When: while the API server stores the pod, or on its node."""
    when: str
    """The pods that get it, in words."""
    source: str
    """The source of that."""
    container: str = ""
    """The name of a container that runs as long as the pod."""
    annotations: str = ""
    """The prefix of the annotations that set its resources."""
    requests: Mapping[str, str] = {}
    """Its requests."""
    limits: Mapping[str, str] = {}
    """Its limits. A LimitRange adds its own defaults to them."""
    gate: str = ""
    """A scheduling gate, which somebody has to remove."""
    resources: Sequence[str] = ()
    """Resources that the first container requests, for the name of each network."""
    selector: str = ""
    """The node label that they then select."""
    toleration: str = ""
    """The taint that they then tolerate."""
    folder: str = ""
    """A folder of the node that pods mount."""
    os: str = ""
    """The distribution that nodes with the folder have, in the words of GKE's label."""
    installer: str = ""
    """A part of the image of the DaemonSet that makes the folder."""

    def resources_of(self, annotations: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """Return the resources of the container of a pod with these annotations.

        If only one of request and limit is set, it is both; "0" removes a limit
        (gcs-fuse-csi-driver, pkg/webhook/config.go).
        """
        requests: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        for name, default in self.requests.items():
            request = annotations.get(f"{self.annotations}{name}-request")
            limit = annotations.get(f"{self.annotations}{name}-limit")
            if limit is None:
                limit = self.limits.get(name) if request is None else request
                request = request or default
            if limit not in (None, "0"):
                limits[name] = limit
            requests[name] = request or limits.get(name, default)
        return {"requests": requests, "limits": limits}


@cache
def injections() -> Mapping[str, Injection]:
    """Return what GKE adds to pods, by a short name, in the order in which it does."""
    text = Path(__file__).with_name("injections.yaml").read_text()
    return {name: Injection(**fields) for name, fields in packaged_yaml(text).items()}


def sidecar_resources(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    """Return annotations with which the sidecar of a bucket is not limited by a LimitRange.

    Its requests stay GKE's. What the annotations set already stays as it is.
    """
    sidecar = injections()[SIDECAR]
    added = dict[str, str]()
    for name, limit in _UNLIMITED.items():
        request_key = f"{sidecar.annotations}{name}-request"
        limit_key = f"{sidecar.annotations}{name}-limit"
        if request_key not in annotations and limit_key not in annotations:
            added |= {request_key: sidecar.requests[name], limit_key: limit}
    return added
