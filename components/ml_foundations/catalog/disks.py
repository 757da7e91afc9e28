"""Properties of storage classes: access modes, sizes and billing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ml_foundations.catalog.tables import rows, table
from ml_foundations.catalog.versions import NFS_PROVISIONER
from ml_foundations.kubernetes.quantities import milli

PD_CSI = "pd.csi.storage.gke.io"
"""Compute Engine's persistent disk CSI driver, as GKE runs it."""

FILESTORE_CSI = "filestore.csi.storage.gke.io"
LUSTRE_CSI = "lustre.csi.storage.gke.io"
"""Drivers that GKE runs where the cluster's add-ons switch them on."""

BILLED_BY_SPEED = "hyperdisk-ml"
"""The type of disk whose speed has a separate price, for a MiB/s (Compute Engine, "Hyperdisk
ML")."""
SMALL_BASIC_HDD = "filestore-basic-hdd below 1Ti"
"""The fee of a small instance (Filestore pricing)."""
_SHARED = ("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany")


@dataclass(frozen=True)
class _DiskType:
    """A type of Compute Engine disk."""

    name: str
    access_modes: tuple[str, ...]
    smallest: str | None
    """None for persistent disks: the driver makes small ones larger."""
    expands: bool
    """Whether a volume can grow."""
    always_regional: bool
    """Whether it is in two zones by its nature."""
    throughput: str | None
    """The default of classes. If it is None, Compute Engine decides."""


DISK_TYPES = table("disks.csv", _DiskType)

BOOT_DISKS = ("pd-balanced", "pd-standard", "pd-ssd", "hyperdisk-balanced")
"""The types of disks that nodes start from (GKE, "Configuring a custom boot disk")."""


_OF_NODES = {"hyperdisk-type": "hyperdisk-balanced", "pd-type": "pd-balanced"}
"""The parameters of a class with the type that its disks have, as the node can, with defaults."""

_FILESTORE_RANGES = tuple(rows("filestore.csv"))


def filestore_range(tier: str, requested: int) -> Mapping[str, str]:
    """Return the row of ``filestore.csv`` for a size in thousandths of a byte, or the largest."""
    of_tier = [row for row in _FILESTORE_RANGES if tier.lower() in row["tiers"].split()]
    ranges = of_tier or _FILESTORE_RANGES[:1]  # of basic-hdd, the driver's default
    return next((row for row in ranges if requested <= milli(row["largest"])), ranges[-1])


LUSTRE_STEPS = {"125": "72000Gi", "250": "36000Gi", "500": "18000Gi", "1000": "9000Gi"}
"""The sizes of Managed Lustre by throughput in MB/s for each TiB: the smallest, and its multiples
(Google Cloud Managed Lustre, "Performance tiers"). Its driver leaves a size as it is, and the
service refuses others."""


class ClassFacts(NamedTuple):
    """Facts about a storage class."""

    access_modes: tuple[str, ...]
    """Of volumes that are mounted; block devices may have more."""
    smallest: str | None = None
    raises: bool = False
    """Whether its driver makes a larger volume where a smaller one is asked for."""
    step: str | None = None
    """Of what a size must be a multiple."""
    largest: str | None = None


def billed_storage(
    provisioner: Any, parameters: Mapping[str, Any], requested: int
) -> Mapping[str, int]:
    """Return the billed amounts of a volume, by their rows in ``charges.csv``, GiB first.

    They are empty for a driver that is not GKE's. The claim requests the size ``requested``,
    in thousandths of a byte; the driver may make a larger volume.
    """
    facts = class_facts(provisioner, parameters, requested)
    gib = milli("1Gi")
    if facts is None or provisioner not in (PD_CSI, FILESTORE_CSI, LUSTRE_CSI):
        return {}
    step = milli(facts.step) or gib
    size = -(-max(requested, milli(facts.smallest)) // step) * step // gib
    if provisioner == LUSTRE_CSI:
        return {"lustre": size}
    if provisioner == FILESTORE_CSI:
        sizes = filestore_range(str(parameters.get("tier")), requested)
        kind = f"filestore-{sizes['name'].removesuffix('-large')}"
        is_small = kind == "filestore-basic-hdd" and size < 1024
        return {kind: size} | ({SMALL_BASIC_HDD: 1} if is_small else {})
    kind: str = parameters["type"]
    if parameters.get("replication-type") == "regional-pd":
        kind = f"regional {kind}"
    if kind != BILLED_BY_SPEED:
        return {kind: size}
    speed = milli(parameters.get("provisioned-throughput-on-create"))
    return {kind: size} | ({f"{kind} MiB/s": speed // milli("1Mi")} if speed else {})


def disk_types_of(parameters: Mapping[str, Any]) -> list[str]:
    """Return the types that a disk of a class may have: with the type dynamic, its node decides.

    Source: GKE, "About Hyperdisk", automated disk type selection; the default is the driver's.
    """
    type_ = parameters.get("type", "pd-standard")
    if type_ != "dynamic":
        return [type_]
    return [parameters.get(key, default) for key, default in _OF_NODES.items()]


def class_facts(
    provisioner: Any, parameters: Mapping[str, Any], requested: int = 0
) -> ClassFacts | None:
    """Return what is known of a storage class, or None for a driver that is not one of these.

    A Filestore tier may have two ranges of sizes: those that hold the requested size, in
    thousandths of a byte, count.

    Sources: Google Compute Engine, "About regional Persistent Disk"; GKE, "Accelerate AI/ML data
    loading with Hyperdisk ML"; the controllers of kubernetes-sigs/gcp-filestore-csi-driver and
    GoogleCloudPlatform/lustre-csi-driver; Filestore, "Service tiers" (its steps).
    """
    disk = DISK_TYPES.get(str(parameters.get("type", "")))
    regional = parameters.get("replication-type") == "regional-pd"
    if provisioner == PD_CSI and disk is not None:
        if parameters.get("enable-multi-zone-provisioning") == "true":
            return ClassFacts(("ReadOnlyMany",), disk.smallest)
        is_standard = parameters["type"] == "pd-standard"
        return ClassFacts(disk.access_modes, "200Gi" if regional and is_standard else disk.smallest)
    if provisioner == FILESTORE_CSI:
        if parameters.get("multishare") == "true":
            return ClassFacts(_SHARED, raises=True)
        sizes = filestore_range(str(parameters.get("tier")), requested)
        smallest = sizes["smallest"]
        step = sizes["step"] or None
        largest = sizes["largest"]
        return ClassFacts(_SHARED, smallest, raises=True, step=step, largest=largest)
    if provisioner == LUSTRE_CSI:
        throughput = str(parameters.get("perUnitStorageThroughput"))
        step = LUSTRE_STEPS.get(throughput, LUSTRE_STEPS["1000"])
        return ClassFacts(_SHARED, step, step=step)
    return ClassFacts(_SHARED) if provisioner == f"cluster.local/{NFS_PROVISIONER.name}" else None
