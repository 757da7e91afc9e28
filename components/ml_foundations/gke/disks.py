"""The disks of a pool's nodes beside the boot disk: local SSDs, and disks that come with images or data on them."""

from collections.abc import Iterator
from typing import Literal, NotRequired, TypedDict

import pulumi_gcp as gcp
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import MachineType
from ml_foundations.component.spec import Spec

LOCAL_SSD_GIB = 375
"""The size of a local SSD (Compute Engine, "About Local SSD disks")."""


class LocalSsdArgs(TypedDict):
    """The local SSDs of a node. What is on them goes with the node."""

    use: NotRequired[str]
    """ephemeral: they back emptyDir volumes, images and logs; block: raw NVMe devices, for the pods to format."""
    count: NotRequired[int]
    """How many, of 375 GiB each. Machines that come with local SSDs have as many as they have."""


class LocalSsd(Spec):
    """A checked LocalSsdArgs."""

    use: Literal["ephemeral", "block"] = "ephemeral"
    count: int | None = Field(None, ge=1)


class SecondaryBootDiskArgs(TypedDict):
    """A disk that every node has from the start, with container images or data on it."""

    disk_image: str
    """The disk image, as global/images/NAME or projects/PROJECT/global/images/NAME."""
    mode: NotRequired[str]
    """CONTAINER_IMAGE_CACHE (container images, found without a pull) or DATA; default CONTAINER_IMAGE_CACHE."""


class SecondaryBootDisk(Spec):
    """A checked SecondaryBootDiskArgs."""

    disk_image: str = Field(pattern=r"^(projects/[^/]+/)?global/images/(family/)?[^/]+$")
    mode: Literal["CONTAINER_IMAGE_CACHE", "DATA"] = "CONTAINER_IMAGE_CACHE"

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if "/family/" in self.disk_image:
            yield "disk_image", "names a family of images; GKE takes one image: name it"


def local_ssds_of(machine: MachineType) -> int | None:
    """How many local SSDs the machine type comes with; None where that is unknown."""
    if machine.local_ssd != "attached" or machine.arch == "arm64":
        # The SSDs of A4X are larger than 375 GiB; how GKE counts them is not documented.
        return None
    return (machine.local_ssd_gib or 0) // LOCAL_SSD_GIB


def ssd_errors(machine: MachineType, ssd: LocalSsd | None) -> Iterator[tuple[str, str]]:
    """Why nodes of a machine type cannot have these local SSDs."""
    if ssd is None:
        return
    here = "local_ssd"
    attached = local_ssds_of(machine)
    if machine.local_ssd == "attached":
        if attached is not None and ssd.count not in (None, attached):
            yield here, f"has count {ssd.count}, but {machine.name} comes with {attached}; leave count out"
    elif machine.local_ssd == "none" or machine.local_ssd_gib == 0:
        yield here, f"{machine.name} takes no local SSD; leave it out, or take another machine_type"
    elif ssd.count is None:
        yield here, f"needs a count: {machine.name} comes with none"
    elif machine.local_ssd_gib is not None and ssd.count * LOCAL_SSD_GIB > machine.local_ssd_gib:
        most = machine.local_ssd_gib // LOCAL_SSD_GIB
        yield here, f"has count {ssd.count}, but {machine.name} takes {most} at the most"


def ephemeral_ssds(machine: MachineType, ssd: LocalSsd | None) -> int:
    """How many local SSDs back the ephemeral storage of a node."""
    if ssd is not None and ssd.use == "block":
        return 0
    return (ssd.count if ssd else None) or local_ssds_of(machine) or 0


def block_ssds(machine: MachineType, ssd: LocalSsd | None) -> int:
    """How many local SSDs are raw devices."""
    return (ssd.count or local_ssds_of(machine) or 0) if ssd and ssd.use == "block" else 0


def secondary_disk_arguments(
    disks: list[SecondaryBootDisk],
) -> list[gcp.container.NodePoolNodeConfigSecondaryBootDiskArgsDict] | None:
    """The secondary_boot_disks of a pool. A disk of data has no mode of its own."""
    found: list[gcp.container.NodePoolNodeConfigSecondaryBootDiskArgsDict] = [
        {"disk_image": disk.disk_image, "mode": None if disk.mode == "DATA" else disk.mode} for disk in disks
    ]
    return found or None
