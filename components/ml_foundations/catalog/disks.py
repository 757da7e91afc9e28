"""What a storage class can and cannot do: who may mount its volumes, and how small they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

from ml_foundations.catalog.tables import table
from ml_foundations.catalog.versions import NFS_PROVISIONER
from ml_foundations.kubernetes.quantities import milli

PD_CSI = "pd.csi.storage.gke.io"
"""Compute Engine's persistent disk CSI driver, as GKE runs it."""

FILESTORE_CSI = "filestore.csi.storage.gke.io"
LUSTRE_CSI = "lustre.csi.storage.gke.io"
"""Drivers that GKE runs where the cluster's add-ons switch them on."""

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
    """What a class asks for that says nothing; None leaves it to Compute Engine."""


DISK_TYPES = table("disks.csv", _DiskType)

BOOT_DISKS = ("pd-balanced", "pd-standard", "pd-ssd", "hyperdisk-balanced")
"""The types of disks that nodes start from (GKE, "Configuring a custom boot disk")."""


@dataclass(frozen=True)
class FilestoreRange:
    """A range of sizes of a Filestore instance."""

    name: str
    tiers: tuple[str, ...]
    """The service tier, by the names that the CSI driver accepts."""
    smallest: str
    largest: str
    step: str | None
    since: str | None
    """The GKE version from which the range starts at ``smallest``; None if all versions do."""
    smallest_before: str | None
    source: str
    source_date: date


_FILESTORE_RANGES = table("filestore.csv", FilestoreRange)


def filestore_range(tier: str, wanted: int) -> FilestoreRange:
    """Return the range of sizes that holds a wanted size, in thousandths of a byte.

    An unknown tier has the ranges of basic-hdd, the driver's default. A size above all ranges gets the largest range.
    """
    every = _FILESTORE_RANGES.values()
    ranges = [each for each in every if tier in each.tiers] or [_FILESTORE_RANGES["basic-hdd"]]
    return next((each for each in ranges if wanted <= milli(each.largest)), ranges[-1])


LUSTRE_STEPS = {"125": "72000Gi", "250": "36000Gi", "500": "18000Gi", "1000": "9000Gi"}
"""The sizes of Managed Lustre by throughput in MB/s for each TiB: the smallest, and its multiples (Google Cloud
Managed Lustre, "Performance tiers"). Its driver leaves a size as it is, and the service refuses others."""


class ClassFacts(NamedTuple):
    """What is known of a storage class before it makes a volume."""

    access_modes: tuple[str, ...]
    """Of volumes that are mounted; block devices may have more."""
    smallest: str | None = None
    raises: bool = False
    """Whether its driver makes a larger volume where a smaller one is asked for."""
    step: str | None = None
    """Of what a size must be a multiple."""
    largest: str | None = None


def class_facts(
    provisioner: Any, parameters: Mapping[str, Any], wanted: int = 0, begins_before: Callable[[str], bool] | None = None
) -> ClassFacts | None:
    """Return what is known of a storage class, or None for a driver that is not one of these.

    Args:
        provisioner: The driver of the class.
        parameters: The parameters of the class.
        wanted: The size that a claim requests, in thousandths of a byte; a Filestore tier may have two ranges of sizes.
        begins_before: Returns whether the cluster may be older than a version of GKE; None if that is not known.

    Sources: Google Compute Engine, "About regional Persistent Disk"; GKE, "Accelerate AI/ML data loading with
    Hyperdisk ML"; the controllers of kubernetes-sigs/gcp-filestore-csi-driver and
    GoogleCloudPlatform/lustre-csi-driver; Filestore, "Service tiers" (its steps).
    """
    disk, regional = DISK_TYPES.get(parameters.get("type", "")), parameters.get("replication-type") == "regional-pd"
    if provisioner == PD_CSI and disk is not None:
        if parameters.get("enable-multi-zone-provisioning") == "true":
            return ClassFacts(("ReadOnlyMany",), disk.smallest)
        is_standard = parameters["type"] == "pd-standard"
        return ClassFacts(disk.access_modes, "200Gi" if regional and is_standard else disk.smallest)
    if provisioner == FILESTORE_CSI:
        if parameters.get("multishare") == "true":
            return ClassFacts(_SHARED, raises=True)
        sizes = filestore_range(str(parameters.get("tier")).lower(), wanted)
        is_old = sizes.since is not None and begins_before is not None and begins_before(sizes.since)
        smallest = sizes.smallest_before if is_old else sizes.smallest
        return ClassFacts(_SHARED, smallest, raises=True, step=sizes.step, largest=sizes.largest)
    if provisioner == LUSTRE_CSI:
        step = LUSTRE_STEPS.get(str(parameters.get("perUnitStorageThroughput")), LUSTRE_STEPS["1000"])
        return ClassFacts(_SHARED, step, step=step)
    return ClassFacts(_SHARED) if provisioner == f"cluster.local/{NFS_PROVISIONER.name}" else None
