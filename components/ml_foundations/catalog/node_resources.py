"""The resources that a node offers to pods, and what GKE's own pods use of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ml_foundations.catalog.machine_types import MAX_PODS, MachineType
from ml_foundations.catalog.tables import table
from ml_foundations.kubernetes.objects import section

GIB = 1024**3
KIB = 1024
LOCAL_SSD_GIB = 375
"""The size of a local SSD (Compute Engine, "About Local SSD disks")."""


@dataclass(frozen=True)
class Allocatable:
    """The resources of a node: for pods, or before GKE's reservations."""

    cpu_millis: int
    memory_kib: int


def capacity(machine: MachineType) -> Allocatable:
    """Return the capacity that the kubelet reports: the machine's, less the kernel's memory.

    The kernel's share is the straight line through two GKE nodes that were measured
    (g2-standard-4 and a3-highgpu-8g); it is mostly the page tables, which grow with memory.
    """
    nominal = machine.memory_gib * GIB // KIB
    kernel = _KERNEL_BASE_KIB + nominal * _KERNEL_SHARE
    return Allocatable(cpu_millis=machine.vcpus * 1000, memory_kib=int(nominal - kernel))


_KERNEL_BASE_KIB = Fraction(126_716)
_KERNEL_SHARE = Fraction(1588, 100_000)

_CPU_TIERS = (
    (1, Fraction(6, 100)),
    (1, Fraction(1, 100)),
    (2, Fraction(5, 1000)),
    (None, Fraction(25, 10_000)),
)
"""What GKE reserves of each next slice of cores; the last tier has no end."""

_SHARED_CORE_MILLIS = 1060
_MANY_PODS_MILLIS = 400
"""What it reserves of a machine with shared cores, and more of one with more than the default pods
(GKE, "Plan GKE Standard node sizes")."""

_MEMORY_TIERS = [
    (gib, Fraction(part, 100)) for gib, part in ((4, 25), (4, 20), (8, 10), (112, 6), (None, 2))
]
"""What GKE reserves of each next slice of memory, in GiB."""

_EVICTION_KIB = 100 * 1024


def _reserved(amount: Fraction, tiers: Iterable[tuple[int | None, Fraction]]) -> Fraction:
    reserved = Fraction(0)
    for size, share in tiers:
        part = amount if size is None else min(amount, Fraction(size))
        reserved += part * share
        amount -= part
    return reserved


def allocatable(machine: MachineType, max_pods: int = MAX_PODS, huge_kib: int = 0) -> Allocatable:
    """Return what GKE leaves to pods on a node, after its reservations and huge pages."""
    whole = capacity(machine)
    tiers = _reserved(Fraction(machine.vcpus), _CPU_TIERS) * 1000
    cpu = _SHARED_CORE_MILLIS if machine.shared_core else tiers
    cpu += _MANY_PODS_MILLIS if max_pods > MAX_PODS else 0
    of_memory = _reserved(Fraction(whole.memory_kib * KIB, GIB), _MEMORY_TIERS) * GIB / KIB
    memory_kib = whole.memory_kib - of_memory - _EVICTION_KIB - huge_kib
    return Allocatable(cpu_millis=int(whole.cpu_millis - cpu), memory_kib=int(memory_kib))


def ephemeral_storage_gib(boot_disk_gib: int, local_ssds: int = 0) -> tuple[int, Fraction]:
    """Return capacity and allocatable of a node's ephemeral storage, in GiB."""
    if local_ssds:
        size = LOCAL_SSD_GIB * local_ssds
        return size, size * Fraction(9, 10) - (50, 75, 100)[min(local_ssds, 3) - 1]
    held = min(Fraction(boot_disk_gib, 2), boot_disk_gib * Fraction(35, 100) + 6, Fraction(100))
    return boot_disk_gib, boot_disk_gib * Fraction(9, 10) - held


@dataclass(frozen=True)
class SystemDaemonSet:
    """A DaemonSet that GKE itself runs, and what its pod requests of each node it runs on."""

    name: str
    cpu: str | None
    memory: str | None
    runs_where: str
    """always, dataplane-v2, kube-proxy, workload-identity, node-local-dns, managed-gpu."""
    image: str


def system_daemonsets() -> tuple[SystemDaemonSet, ...]:
    """Return GKE's DaemonSets that use part of every node, with their measured requests."""
    return tuple(table("system_daemonsets.csv", SystemDaemonSet).values())


def cluster_features(cluster: Mapping[str, Any]) -> set[str]:
    """Return the features that decide which DaemonSets GKE runs (``SystemDaemonSet.runs_where``).

    The cluster's properties are named as by the gcp provider.
    """
    dataplane_v2 = cluster.get("datapathProvider") == "ADVANCED_DATAPATH"
    features = {"always", "dataplane-v2" if dataplane_v2 else "kube-proxy"}
    if cluster.get("workloadIdentityConfig"):
        features.add("workload-identity")
    if section(cluster, "addonsConfig", "dnsCacheConfig").get("enabled"):
        features.add("node-local-dns")
    return features
