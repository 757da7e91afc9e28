"""What a storage class can and cannot do: its disk type, who may mount it, how small and large its volumes are."""

from typing import NamedTuple

PD_CSI = "pd.csi.storage.gke.io"
"""Compute Engine's persistent disk CSI driver, as GKE runs it."""

FILESTORE_CSI = "filestore.csi.storage.gke.io"
LUSTRE_CSI = "lustre.csi.storage.gke.io"
"""Drivers that GKE runs where the cluster's add-ons switch them on."""

_ONE_NODE = ("ReadWriteOnce", "ReadWriteOncePod")
ONE_WRITER = (*_ONE_NODE, "ReadOnlyMany")
SHARED = (*ONE_WRITER, "ReadWriteMany")


class _DiskType(NamedTuple):
    """A type of Compute Engine disk.

    Sources: Google Compute Engine, "About Google Cloud Hyperdisk" and "Persistent Disk"; access modes:
    kubernetes-sigs/gcp-compute-persistent-disk-csi-driver, pkg/gce-pd-csi-driver/controller.go.
    """

    access_modes: tuple[str, ...]
    smallest: str
    expands: bool = True
    """Whether a volume can grow."""
    always_regional: bool = False
    """Whether it is in two zones by its nature."""
    throughput: str | None = None
    """What a class asks for that says nothing; None leaves it to Compute Engine."""


DISK_TYPES = {
    "pd-standard": _DiskType(ONE_WRITER, "10Gi"),
    "pd-balanced": _DiskType(ONE_WRITER, "10Gi"),
    "pd-ssd": _DiskType(ONE_WRITER, "10Gi"),
    "hyperdisk-balanced": _DiskType(ONE_WRITER, "4Gi"),
    "hyperdisk-balanced-high-availability": _DiskType(_ONE_NODE, "4Gi", always_regional=True),
    "hyperdisk-extreme": _DiskType(_ONE_NODE, "64Gi"),
    "hyperdisk-throughput": _DiskType(_ONE_NODE, "2Ti"),
    "hyperdisk-ml": _DiskType(ONE_WRITER, "4Gi", expands=False, throughput="2400Mi"),
}


class ClassFacts(NamedTuple):
    """What is known of a storage class before it exists."""

    access_modes: tuple[str, ...]
    smallest: str | None = None
    disk_type: str | None = None
    """None for what is mounted over the network: it needs no machine that its disk attaches to."""
    regional: bool = False
    from_snapshot: bool = False
    """Whether its volumes are made from a snapshot only."""
