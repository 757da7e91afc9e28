"""The disks of a pool's nodes besides the boot disk: local SSDs, and disks with images or data."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import MachineType
from ml_foundations.catalog.node_resources import LOCAL_SSD_GIB
from ml_foundations.catalog.tables import rows
from ml_foundations.component.spec import Spec


class LocalSsd(Spec):
    """The local SSDs of a node. Their data is lost with the node."""

    use: Literal["ephemeral", "block"] = "ephemeral"
    """How the SSDs are used. ephemeral: they back emptyDir volumes, images and logs. block: they
    are raw NVMe devices, which the pods format. The default is ephemeral."""
    count: int | None = Field(None, ge=1)
    """The number of SSDs, of 375 GiB each. Machine types with attached local SSDs have a fixed
    number."""


class SecondaryBootDisk(Spec):
    """A disk with container images or data that every node has from the start."""

    disk_image: str = Field(pattern=r"^(projects/[^/]+/)?global/images/(family/)?[^/]+$")
    """The disk image, as global/images/NAME or projects/PROJECT/global/images/NAME."""
    mode: Literal["CONTAINER_IMAGE_CACHE", "DATA"] = "CONTAINER_IMAGE_CACHE"
    """What is on the disk: DATA, or CONTAINER_IMAGE_CACHE (images that start without a pull). The
    default is CONTAINER_IMAGE_CACHE."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if "/family/" in self.disk_image:
            reason = "names a family of images, but GKE accepts a single image; name one image"
            yield "disk_image", reason


def ssd_errors(machine: MachineType, ssd: LocalSsd | None) -> Iterator[tuple[str, str]]:
    """Yield why nodes of a machine type cannot have these local SSDs."""
    if ssd is None:
        return
    here = "local_ssd"
    attached = _ssds_of(machine)
    if machine.local_ssd == "attached":
        if attached is not None and ssd.count not in (None, attached):
            yield here, f"has count {ssd.count}, but {machine.name} has {attached}; leave count out"
    elif machine.local_ssd == "none" or machine.local_ssd_gib == 0:
        yield here, f"{machine.name} accepts no local SSD; leave it out, or change machine_type"
    elif ssd.count is None:
        yield here, f"needs a count: {machine.name} has none by default"
    elif (counts := _counts(machine)) and ssd.count not in counts:
        accepted = " or ".join(map(str, counts))
        yield here, f"has count {ssd.count}, but {machine.name} accepts {accepted}"


def ssd_arguments(machine: MachineType, ssd: LocalSsd | None) -> dict[str, Any]:
    """Return the part of a pool's node_config about local SSDs."""
    is_block = ssd is not None and ssd.use == "block"
    use = "localNvmeSsdBlockConfig" if is_block else "ephemeralStorageLocalSsdConfig"
    count = (ssd.count if ssd else None) or _ssds_of(machine)
    return {use: {"localSsdCount": count}} if count else {}


def secondary_disk_arguments(disks: list[SecondaryBootDisk]) -> list[dict[str, Any]] | None:
    """Return the secondary_boot_disks of a pool. A disk with data has no mode."""
    arguments = [
        {"diskImage": disk.disk_image, "mode": None if disk.mode == "DATA" else disk.mode}
        for disk in disks
    ]
    return arguments or None


def _counts(machine: MachineType) -> list[int]:
    """Return the numbers of local SSDs that a machine may have; none if that is unknown."""
    if machine.local_ssd_gib is not None:
        return [*range(1, machine.local_ssd_gib // LOCAL_SSD_GIB + 1)]
    fitting = [row for row in rows("local_ssds.csv") if row["family"] == machine.family]
    counts = [row["counts"] for row in fitting if int(row["vcpus"]) <= machine.vcpus]
    return [*map(int, counts[-1].split())] if counts else []


def _ssds_of(machine: MachineType) -> int | None:
    """Return the number of local SSDs that a machine type includes, or None if that is unknown."""
    if machine.local_ssd != "attached" or machine.arch == "arm64":
        # The SSDs of A4X are larger than 375 GiB; how GKE counts them is not documented.
        return None
    return (machine.local_ssd_gib or 0) // LOCAL_SSD_GIB
