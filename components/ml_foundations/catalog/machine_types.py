"""The catalog of GKE's machine types and GPUs, read from the CSV files of this package.

Every row names its source and date there. What is not known is None, never a guess and never zero.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import MappingProxyType

from ml_foundations.catalog.tables import rows, table
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import text_of
from ml_foundations.kubernetes.words import alternatives

MAX_PODS = 110
"""Pods that GKE allows on a node by default."""


class UnknownNameError(KeyError, ValueError):
    """A machine type or GPU that the catalog does not have; its text names the nearest ones."""

    def __init__(self, what: str, name: str, known: Iterable[str], fix: str) -> None:
        # Letters decide here, not words as in kubernetes/spelling.py: a2-highgpu-3g means another
        # a2-highgpu, although a3-highgpu has the word 3.
        lowered = {candidate.lower(): candidate for candidate in sorted(known)}
        matches = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)
        near = alternatives(lowered[match] for match in matches)
        hint = f"Did you mean {near}? " if matches else ""
        super().__init__(f"{what} {name!r} is not in the catalog. {hint}{fix}")

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU model, by its names in GKE, Compute Engine and GPU Feature Discovery.

    The defaults are those of a declared model.
    """

    accelerator_type: str
    """Compute Engine's name, also the value of cloud.google.com/gke-accelerator."""
    product: str
    """The nvidia.com/gpu.product label that GPU Feature Discovery publishes for a whole GPU."""
    memory_gb: int
    memory_label_mib: int | None
    """The nvidia.com/gpu.memory label, where a node or driver was seen to report it."""
    cuda_gib_low: Fraction | None = None
    """The least that cudaMemGetInfo was seen to report as its total memory."""
    cuda_gib_high: Fraction | None = None
    """The most. Without a figure, it is below ``memory_gb`` as GiB."""
    mig_gib: Mapping[str, Fraction] = field(default_factory=dict[str, Fraction])
    """The memory of its MIG profiles, at most, where known."""
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    mig_profiles: Mapping[str, int] = field(default_factory=dict[str, int])
    """MIG profiles that GKE accepts, with the most instances of each that one GPU holds."""
    n1_limits: tuple[tuple[int, ...], ...] = ()
    """For a number of GPUs: the most vCPUs and GiB of memory of an N1 machine to which they may be
    attached."""
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model that people use."""
        return self.accelerator_type, self.product, *self.aliases


@dataclass(frozen=True)
class _DiskSupport:
    """The types of disks that attach to a machine family."""

    family: str
    disk_types: tuple[str, ...]
    from_vcpus: Mapping[str, int]
    """Of types that attach to large machines only: the fewest vCPUs."""
    regional_pd: bool
    complete: bool
    """Whether ``disk_types`` lists every type: otherwise a type that is not listed is
    undetermined."""


@dataclass(frozen=True, kw_only=True)
class MachineType:
    """A Compute Engine machine type as a GKE node. GPUs of N1 hosts are attached, not built in.

    Defaults are of one that is declared.
    """

    name: str
    family: str
    arch: str
    vcpus: int
    memory_gib: Fraction
    shared_core: bool = False
    """Whether its vCPUs are parts of a core, for bursts."""
    gpu: str | None = None
    """The accelerator type that is built in."""
    gpu_count: int = 0
    local_ssd: str = "optional"
    """attached (part of the machine), optional or none."""
    local_ssd_gib: int | None = None
    """What is attached or, where optional, the most that can be."""
    nic_gbps: int | None = None
    network: str = "gvnic"
    purchase: tuple[str, ...] = ("on-demand", "spot", "flex-start", "reservation")
    missing: str = ""
    """Why the components cannot use it; empty if they can."""

    @property
    def is_declared(self) -> bool:
        """Return whether its shape is declared, because the catalog lacks it."""
        return self.name not in MACHINE_TYPES

    @property
    def has_part_of_gpu(self) -> bool:
        """Return whether its GPU is a fraction of the model in its name (G4, vGPU)."""
        return self.family == "g4" and self.vcpus < 48

    @property
    def takes_gpus(self) -> bool:
        """Return whether a pool sets the GPUs of its nodes, because the machine type does not."""
        return self.family == "n1" or self.is_declared

    def gpu_counts(self, accelerator_type: str) -> tuple[int, ...]:
        """Return the numbers of GPUs of a type that a node of this machine type can have."""
        if self.gpu is not None:
            return (self.gpu_count,) if self.gpu == accelerator_type else ()
        if self.is_declared:
            return tuple(range(1, _MOST_GPUS + 1))
        if accelerator_type not in GPUS or not self.takes_gpus:
            return ()
        counts: list[int] = []
        for gpus, vcpus, gib in GPUS[accelerator_type].n1_limits:
            if self.vcpus <= vcpus and self.memory_gib <= gib:
                counts.append(gpus)
        return tuple(counts)

    @property
    def interface_gbps(self) -> int | None:
        """The most that one interface carries; None if a machine has only one.

        200 Gbps: of A3 High five share 1,000 Gbps, of A3 Mega nine 1,800; A3 Ultra and A4 have two
        of them and eight of 400 for RDMA, A4X two and four (Compute Engine, "Networking and
        GPU machines").
        """
        return None if self.network in ("", "gvnic") else 200

    @property
    def disk_types(self) -> tuple[str, ...]:
        """The zonal disk types that are known to attach."""
        support = DISKS.get(self.family)
        if support is None:
            return ()
        fewest = support.from_vcpus
        return tuple(disk for disk in support.disk_types if self.vcpus >= fewest.get(disk, 0))

    def attaches(self, disk_type: str, *, regional: bool = False) -> bool | None:
        """Return whether a type of disk attaches to this machine type, or None if unknown."""
        support = DISKS.get(self.family)
        if support is None:
            return None
        is_persistent = disk_type.startswith("pd-")
        if regional and is_persistent and not support.regional_pd:
            return False
        if disk_type in self.disk_types:
            return True
        # A family with any known Persistent Disk is not one of Hyperdisk only.
        has_persistent = any(known.startswith("pd-") for known in support.disk_types)
        only_hyperdisk = is_persistent and not has_persistent
        is_known = support.complete or only_hyperdisk or disk_type in support.from_vcpus
        return False if is_known else None

    def price(
        self, region: str, gpu: str | None = None, gpu_count: int = 0, *, spot: bool = False
    ) -> Decimal | None:
        """Return the hourly list price of a node with its GPUs in a region, or None if unknown."""
        host = list_price(self.name, region, spot=spot)
        if self.gpu is not None or not gpu_count or gpu is None or host is None:
            return host
        per_gpu = list_price(gpu, region, spot=spot)
        return None if per_gpu is None else host + per_gpu * gpu_count


def list_price(name: str, region: str, *, spot: bool = False) -> Decimal | None:
    """Return US dollars per hour, on demand or as Spot VM, or None if the list has no price.

    The name is of a machine type or of the accelerator type of an attached GPU. The price of a Spot
    VM is the one at the date of the list. No other region is used instead.
    """
    amount = _prices().get((name, "spot" if spot else "on-demand"), {}).get(region)
    return Decimal(amount) if amount else None


def priced_regions() -> list[str]:
    """Return the regions with list prices."""
    return [column for column in next(iter(_prices().values())) if column[-1].isdecimal()]


@cache
def _prices() -> Mapping[tuple[str, str], Mapping[str, str]]:
    return {(row["name"], row["purchase"]): row for row in rows("prices.csv")}


GPUS = table("gpus.csv", Gpu)
"""GPUs by accelerator type."""

DISKS = table("disk_types.csv", _DiskSupport)
"""Attachable disks by machine family."""

MACHINE_TYPES = table("machine_types.csv", MachineType)
"""Machine types by name."""


def machine_type(name: str, node_labels: Mapping[str, str] = MappingProxyType({})) -> MachineType:
    """Return the machine type of a name, from the catalog or from the labels of its nodes.

    Raises:
        UnknownNameError: The catalog does not have it, and no labels declare it.
    """
    if name in MACHINE_TYPES:
        return MACHINE_TYPES[name]
    vcpus = text_of(node_labels, labels.VCPUS)
    memory = text_of(node_labels, labels.MEMORY_GIB)
    if not (vcpus.isdecimal() and re.fullmatch(r"\d+(\.\d+)?", memory)):
        raise UnknownNameError("machine type", name, MACHINE_TYPES, _DECLARE_IT)
    return MachineType(
        name=name,
        family=name.partition("-")[0],
        arch=node_labels.get(labels.DECLARED_ARCH, "amd64"),
        vcpus=int(vcpus),
        memory_gib=Fraction(memory),
    )


def gpu_model(accelerator_type: str, node_labels: Mapping[str, str]) -> Gpu | None:
    """Return a GPU model from the catalog or from the labels that its node pool declares."""
    product = str(node_labels.get(labels.GPU_PRODUCT, ""))
    mib = str(node_labels.get(labels.GPU_MEMORY, ""))
    if accelerator_type in GPUS or not (product and mib.isdecimal()):
        return GPUS.get(accelerator_type)
    return declared_gpu(accelerator_type, _parts(product)["name"] or "", int(mib))


def declared_gpu(accelerator_type: str, product: str, memory_mib: int) -> Gpu:
    """Return a GPU model that the catalog lacks. Nothing is known about its generation."""
    return Gpu(
        accelerator_type=accelerator_type,
        product=product,
        memory_gb=memory_mib // 1024,
        memory_label_mib=memory_mib,
    )


_MOST_GPUS = 16
"""The most GPUs that a machine of Compute Engine has (a2-megagpu-16g)."""
_SEE_GPUS = "Their names are in components/ml_foundations/catalog/gpus.csv"
_DECLARE_IT = "If it is another machine type, declare its shape as machine of its pool"


def _normalised(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_PRODUCTS: dict[str, tuple[Gpu, ...]] = {}
for _gpu in GPUS.values():
    _PRODUCTS[_gpu.product] = (*_PRODUCTS.get(_gpu.product, ()), _gpu)
_GPU_NAMES = {_normalised(product): models for product, models in _PRODUCTS.items()}
for _gpu in GPUS.values():
    for _name in (_gpu.accelerator_type, *_gpu.aliases):
        _GPU_NAMES[_normalised(_name)] = (_gpu,)
"""GPUs by their names: several types may have one product label (A3 High and A3 Mega)."""

_SUFFIX = re.compile(
    r"(?P<name>.+?)(?:-MIG-(?P<profile>\d+g\.\d+gb[^-]*))?(?P<shared>-SHARED)?", re.IGNORECASE
)
"""GPU Feature Discovery's marks of a partition and of a shared GPU (k8s-device-plugin,
internal/lm/resource.go)."""


@dataclass(frozen=True)
class Accelerator:
    """GPUs as people name them: of one type, or of all types with a product label."""

    models: tuple[Gpu, ...]
    """The type, or all types with the product label, the plain one first."""
    partition: str | None = None
    """The profile of a MIG partition."""
    shared: bool = False
    """Whether pods share the GPU, or the partition."""

    @property
    def product(self) -> str:
        """The value of the label nvidia.com/gpu.product on its nodes."""
        return with_suffix(self.models[0].product, self.partition, shared=self.shared)

    @property
    def types(self) -> list[str]:
        """The values of GKE's label cloud.google.com/gke-accelerator that its nodes may have."""
        return [model.accelerator_type for model in self.models]

    @property
    def typed_name(self) -> str:
        """The name by accelerator type, or the product label of several types."""
        name = self.types[0] if len(self.models) == 1 else self.models[0].product
        return with_suffix(name, self.partition, shared=self.shared)

    @property
    def name(self) -> str:
        """The product label, or a name by the type if other types have the same label."""
        alike = _PRODUCTS.get(self.models[0].product, self.models)
        return self.product if self.models == alike else self.typed_name

    @property
    def is_plain(self) -> bool:
        """Return whether its product label is enough to find it; A3 Mega shares that of A3 High."""
        return self.models[0] is _PRODUCTS[self.models[0].product][0]


def accelerator(name: str) -> Accelerator:
    """Return the GPUs of a name: accelerator type, product label or a common short form.

    Case and separators do not matter; ``-MIG-1g.5gb`` is a partition and ``-SHARED`` a shared GPU.
    A bare ``A100`` is the 40 GB model, whose accelerator type (nvidia-tesla-a100) carries no size
    either; the 80 GB model needs its size: ``A100-80GB``. A bare ``H100`` is the 80 GB SXM model;
    ``H100-MEGA`` is the one of a3-megagpu machines.

    Raises:
        UnknownNameError: No GPU in the catalog goes by that name, or GKE does not cut it so.
    """
    parts = _parts(name)
    models = _GPU_NAMES.get(_normalised(parts["name"] or ""))
    if models is None:
        known = {known for gpu in GPUS.values() for known in gpu.names}
        raise UnknownNameError("GPU", name, known, _SEE_GPUS)
    profile = parts["profile"] and parts["profile"].lower()
    if profile is not None and profile not in models[0].mig_profiles:
        whole = models[0].product
        known = {
            with_suffix(whole, known_profile, shared=False)
            for known_profile in models[0].mig_profiles
        }
        raise UnknownNameError("GPU", name, known | {whole}, _SEE_GPUS)
    return Accelerator(models, profile, shared=parts["shared"] is not None)


def gpu_by_name(name: str) -> Gpu:
    """Return the GPU model of a name. Of several types with one product label, the plain one."""
    return accelerator(name).models[0]


def with_suffix(name: str, mig_profile: str | None, *, shared: bool) -> str:
    """Return the name of a GPU's partitions, and of GPUs that pods share, as in product labels."""
    partition = "" if mig_profile is None else f"-MIG-{mig_profile}"
    return f"{name}{partition}{'-SHARED' if shared else ''}"


def _parts(name: str) -> Mapping[str, str | None]:
    """Return a GPU's name, and its suffix: ``profile`` of a partition, or ``shared``."""
    match = _SUFFIX.fullmatch(name)
    return match.groupdict() if match else {"name": name, "profile": None, "shared": None}
