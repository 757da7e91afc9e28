"""Storage classes for GPU and CPU workloads."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from ml_foundations._manifest import arguments, child_options
from ml_foundations._spec import Spec, check
from ml_foundations._versions import NFS_PROVISIONER

PD_CSI = "pd.csi.storage.gke.io"
"""Compute Engine's persistent disk CSI driver, as GKE runs it."""

DISKS = {"fast-ssd": ("pd-ssd", True), "zonal-ssd": ("pd-ssd", False), "zonal-balanced": ("pd-balanced", False)}
"""The disk type behind each class, and whether the disk is regional.

A regional disk attaches to E2, N1, N2 and N2D machines only: ``fast-ssd`` is for CPU workloads and N1 GPU hosts, and
GPU workloads on A2, A3 and G2 take a zonal class.
"""

NFS_CLASS = "nfs-client"


class NfsServerArgs(TypedDict):
    """An NFS server behind ReadWriteMany volumes."""

    server: str
    """Its address; a Filestore instance has one too."""
    path: str
    """The exported folder."""


class StorageClassesArgs(TypedDict):
    """Arguments of StorageClasses."""

    fast_ssd_zones: NotRequired[list[str]]
    """The two zones of the regional fast-ssd disks; by default the pod's zone and another of the region."""
    nfs: NotRequired[NfsServerArgs]
    """The NFS server behind the class nfs-client; without it there is no such class."""


class NfsServer(Spec):
    """A checked NfsServerArgs."""

    server: str
    path: str


class StorageClassesSettings(Spec):
    """What a stack file says about storage classes."""

    fast_ssd_zones: list[str] = []
    nfs: NfsServer | None = None


class StorageClasses(pulumi.ComponentResource):
    """The classes fast-ssd (regional), zonal-ssd and zonal-balanced, and nfs-client where there is an NFS server.

    Give it a kubernetes provider in its options.
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
                f"{name}-{manifest['metadata']['name']}", **arguments(manifest), opts=child_options(self)
            )
        if spec.nfs is not None:
            _nfs_provisioner(self, name, spec.nfs)
        self.class_names = [manifest["metadata"]["name"] for manifest in manifests]
        self.register_outputs({"class_names": self.class_names})


def storage_class_manifests(spec: StorageClassesSettings) -> list[dict[str, Any]]:
    """All classes: the disks, and NFS where there is a server."""
    disks = [_disk_class(name, disk, regional, spec.fast_ssd_zones) for name, (disk, regional) in DISKS.items()]
    return disks + ([_nfs_class()] if spec.nfs else [])


def _disk_class(name: str, disk_type: str, regional: bool, zones: list[str]) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": PD_CSI,
        "parameters": {"type": disk_type} | ({"replication-type": "regional-pd"} if regional else {}),
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    if regional and zones:
        terms = [{"key": "topology.gke.io/zone", "values": zones}]
        manifest["allowedTopologies"] = [{"matchLabelExpressions": terms}]
    return manifest


def _nfs_class() -> dict[str, Any]:
    """The class is declared here rather than by the chart, so that claims need not wait for the chart."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": NFS_CLASS},
        "provisioner": f"cluster.local/{NFS_PROVISIONER.name}",
        "parameters": {"archiveOnDelete": "true"},
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


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
