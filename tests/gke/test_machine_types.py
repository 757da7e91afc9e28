"""The catalog: complete, sourced, and right where real nodes were measured."""

import subprocess
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from ml_foundations.catalog.disks import DISK_TYPES
from ml_foundations.catalog.machine_types import (
    DISKS,
    GPUS,
    MACHINE_TYPES,
    UnknownNameError,
    accelerator,
    gpu_by_name,
    machine_type,
)
from ml_foundations.catalog.node_resources import (
    allocatable,
    ephemeral_storage_gib,
    system_daemonsets,
)
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.quantities import parse_quantity


@pytest.mark.parametrize(
    ("name", "cpu_millis", "memory_kib"),
    [("a3-highgpu-8g", 207410, 1885812064), ("g2-standard-4", 3920, 13594692)],
)
def test_allocatable_is_that_of_measured_nodes(name: str, cpu_millis: int, memory_kib: int) -> None:
    node = allocatable(machine_type(name))
    assert node.cpu_millis == cpu_millis
    assert node.memory_kib == pytest.approx(memory_kib, abs=1024)


def test_more_pods_than_the_default_cost_cpu() -> None:
    machine = machine_type("n2-standard-8")
    assert allocatable(machine).cpu_millis - allocatable(machine, max_pods=256).cpu_millis == 400


def test_ephemeral_storage() -> None:
    assert ephemeral_storage_gib(100) == (100, Fraction(90) - 41)
    assert ephemeral_storage_gib(1000) == (1000, Fraction(900) - 100)
    assert ephemeral_storage_gib(100, local_ssds=2) == (750, Fraction(675) - 75)


@pytest.mark.parametrize(
    "name", ["machine_types.csv", "gpus.csv", "disk_types.csv", "system_daemonsets.csv"]
)
def test_every_row_names_its_source_and_date(name: str) -> None:
    for row in rows(name):
        assert row["source"], row
        assert date.fromisoformat(row["source_date"]).year >= 2024, row


def test_every_machine_type_has_its_gpu_and_disks() -> None:
    for machine in MACHINE_TYPES.values():
        assert machine.family in DISKS, machine.name
        assert (machine.gpu is None) == (machine.gpu_count == 0), machine.name
        assert machine.gpu is None or machine.gpu in GPUS, machine.name


def test_every_price_is_of_something_in_the_catalog() -> None:
    known = MACHINE_TYPES.keys() | GPUS.keys() | DISK_TYPES.keys()
    for row in rows("prices.csv"):
        assert row["name"] in known, row["name"]
        assert row["source"], row["name"]
        assert date.fromisoformat(row["source_date"]).year >= 2026, row["name"]
        amounts = [Decimal(row[region]) for region in row if region.count("-") == 1 and row[region]]
        assert amounts, row["name"]
        assert min(amounts) > 0, row["name"]


@pytest.mark.parametrize(
    ("machine", "region", "usd"),
    [
        ("a3-megagpu-8g", "us-east4", "92.9376"),
        ("a3-megagpu-8g", "asia-northeast1", "119.2764"),
        ("a3-megagpu-8g", "us-central1", None),
        ("a3-ultragpu-8g", "us-central1", None),
        ("e2-medium", "us-central1", "0.0335"),
    ],
)
def test_a_price_is_that_of_the_region_or_unknown(
    machine: str, region: str, usd: str | None
) -> None:
    assert machine_type(machine).price(region) == (None if usd is None else Decimal(usd))


def test_the_price_of_attached_gpus_is_added_in_their_region() -> None:
    host = machine_type("n1-standard-8")
    two = ("nvidia-tesla-t4", 2)
    assert host.price("us-central1", *two) == Decimal("0.38") + 2 * Decimal("0.35")
    assert host.price("australia-southeast1", *two) == Decimal("0.5392") + 2 * Decimal("0.44")
    assert host.price("us-central1", *two, spot=True) == Decimal("0.134") + 2 * Decimal("0.175")
    assert host.price("us-south1", *two) is None


_FAMILIES = (
    *("e2", "n1", "n2", "n2d", "n4", "c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d"),
    *("t2d", "t2a", "h3", "h4d", "z3"),
)


@pytest.mark.parametrize("family", _FAMILIES)
def test_the_catalog_has_every_family_that_gke_offers(family: str) -> None:
    assert [machine for machine in MACHINE_TYPES.values() if machine.family == family]


def test_shared_cores_leave_less_to_pods() -> None:
    assert allocatable(machine_type("e2-medium")).cpu_millis == 940
    assert allocatable(machine_type("e2-standard-2")).cpu_millis == 1930


def test_a_shape_that_is_declared_is_a_machine_type() -> None:
    shape = {"vcpus": "96", "memory-gib": "7.5", "arch": "arm64"}
    declared = {f"ml-foundations/{key}": value for key, value in shape.items()}
    machine = machine_type("z9-standard-96", declared)
    assert (machine.vcpus, machine.memory_gib, machine.arch) == (96, Fraction(15, 2), "arm64")
    assert 8 in machine.gpu_counts("nvidia-b200")
    assert machine.attaches("pd-ssd") is None
    assert machine_type("e2-medium", declared).vcpus == 2
    unknown = r"z9-standard-96' is not in the catalog.* declare its shape"
    for wrong in ({"ml-foundations/vcpus": "many"}, {"ml-foundations/memory-gib": "7.5G"}):
        with pytest.raises(UnknownNameError, match=unknown):
            machine_type("z9-standard-96", declared | wrong)
    with pytest.raises(UnknownNameError, match=unknown):
        machine_type("z9-standard-96", {})


@pytest.mark.parametrize(
    ("typed", "accelerator_type"),
    [
        ("H100", "nvidia-h100-80gb"),
        ("h100-sxm5-80gb", "nvidia-h100-80gb"),
        ("nvidia-h100-80gb", "nvidia-h100-80gb"),
        ("NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb"),
        ("H100-MEGA", "nvidia-h100-mega-80gb"),
        ("A100", "nvidia-tesla-a100"),
        ("A100-SXM4-40GB", "nvidia-tesla-a100"),
        ("A100-SXM4-80GB", "nvidia-a100-80gb"),
        ("a100 80gb", "nvidia-a100-80gb"),
        ("L4", "nvidia-l4"),
        ("Tesla-T4", "nvidia-tesla-t4"),
    ],
)
def test_names_that_people_type(typed: str, accelerator_type: str) -> None:
    assert gpu_by_name(typed).accelerator_type == accelerator_type


@pytest.mark.parametrize("suffix", ["", "-MIG-1g.10gb", "-SHARED", "-MIG-1g.10gb-SHARED"])
@pytest.mark.parametrize(
    "accelerator_type", ["nvidia-h100-80gb", "nvidia-h100-mega-80gb", "nvidia-a100-80gb"]
)
def test_the_one_name_of_an_accelerator_leads_back_to_it(
    accelerator_type: str, suffix: str
) -> None:
    gpus = accelerator(accelerator_type + suffix)
    assert gpus.types == [accelerator_type]
    assert accelerator(gpus.name) == accelerator(gpus.typed_name.lower()) == gpus
    assert gpus.product == GPUS[accelerator_type].product + suffix


def test_every_name_of_accelerators_leads_to_all_of_their_types() -> None:
    for gpu in GPUS.values():
        for name in gpu.names:
            assert accelerator(accelerator(name).typed_name.lower()) == accelerator(name), name


def test_every_alias_names_its_own_gpu() -> None:
    for gpu in GPUS.values():
        for alias in (gpu.accelerator_type, *gpu.aliases):
            assert gpu_by_name(alias) is gpu, alias


def test_an_unknown_machine_type_is_a_key_error_with_near_names() -> None:
    unknown = r"machine type 'a3-highgpu-9g' is not in the catalog\. Did you mean .*a3-highgpu-8g"
    with pytest.raises(KeyError, match=unknown):
        machine_type("a3-highgpu-9g")
    with pytest.raises(UnknownNameError, match="declare its shape"):
        machine_type("?")
    with pytest.raises(UnknownNameError, match=r"Did you mean .*A100-80GB"):
        gpu_by_name("A100-88GB")


@pytest.mark.parametrize(
    ("machine", "gpu", "counts"),
    [
        ("g2-standard-24", "nvidia-l4", (2,)),
        ("g2-standard-24", "nvidia-tesla-t4", ()),
        ("n1-standard-4", "nvidia-tesla-t4", (1, 2, 4)),
        ("n1-standard-32", "nvidia-tesla-v100", (4, 8)),
        ("n2-standard-8", "nvidia-tesla-t4", ()),
        ("g4-standard-6", "nvidia-rtx-pro-6000", (1,)),
    ],
)
def test_gpu_counts(machine: str, gpu: str, counts: tuple[int, ...]) -> None:
    assert machine_type(machine).gpu_counts(gpu) == counts


@pytest.mark.parametrize(
    ("machine", "disk", "regional", "attaches"),
    [
        ("n1-standard-8", "pd-ssd", True, True),
        ("n2-standard-8", "pd-ssd", True, True),
        ("g2-standard-8", "pd-ssd", True, False),
        ("g2-standard-8", "pd-ssd", False, True),
        ("a2-highgpu-1g", "hyperdisk-balanced", False, False),
        ("a3-ultragpu-8g", "pd-ssd", False, False),
        ("a3-highgpu-1g", "hyperdisk-extreme", False, False),
        ("a3-highgpu-8g", "hyperdisk-extreme", False, True),
        ("g4-standard-48", "hyperdisk-extreme", False, False),
        ("g4-standard-96", "hyperdisk-extreme", False, True),
        ("c3-standard-44", "hyperdisk-extreme", False, False),
        ("c3-standard-88", "hyperdisk-extreme", False, True),
        ("c4-standard-48", "hyperdisk-extreme", False, False),
        ("m1-ultramem-40", "hyperdisk-extreme", False, False),
        ("n2-standard-8", "hyperdisk-ml", False, None),
        ("c4-standard-8", "pd-balanced", False, False),
        ("c4-standard-8", "hyperdisk-balanced", False, True),
        ("n2d-standard-8", "pd-ssd", True, True),
    ],
)
def test_disks(machine: str, disk: str, regional: bool, attaches: bool | None) -> None:
    assert machine_type(machine).attaches(disk, regional=regional) is attaches


def test_system_daemonsets_have_quantities() -> None:
    for daemonset in system_daemonsets():
        for quantity in filter(None, (daemonset.cpu, daemonset.memory)):
            assert parse_quantity(quantity) > 0, daemonset.name


def test_the_catalog_needs_no_pulumi() -> None:
    probe = "import sys, ml_foundations.catalog.machine_types; sys.exit('pulumi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
