"""Node pools: what is refused with the way out, and what GKE is told."""

import re
from decimal import Decimal
from typing import Any

import pulumi
import pytest
from ml_foundations import CpuNodePool, GpuNodePool
from ml_foundations.catalog.machine_types import GPUS, MACHINE_TYPES, MachineType
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.component.spec import check
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.gpu.driver_installer import driver_installer_manifest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.node_pools import from_node_pool
from ml_foundations.planning.verdict.cost import price_of
from ml_foundations.rehearsal.cloud import dra
from ml_foundations.rehearsal.cloud.nodes import new_node
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation
from ml_foundations.rehearsal.plugins.gcp.node_pool import node_pool

from tests.support.declaring import declared, inputs
from tests.support.refusing import lines_about, refusal

COMMON: Any = {
    "project": "project",
    "location": "us-central1",
    "cluster_name": "c",
    "node_service_account": "s",
}
L4: Any = COMMON | {"machine_type": "g2-standard-24", "max_nodes": 4}
H100: Any = COMMON | {"machine_type": "a3-highgpu-8g", "max_nodes": 4}
A100: Any = COMMON | {"machine_type": "a2-highgpu-1g", "max_nodes": 4}
T4: Any = COMMON | {"machine_type": "n1-standard-8", "max_nodes": 4, "gpu": "T4", "gpus": 1}
NETWORKS = [{"network": f"gpu-{index}", "subnetwork": f"gpu-{index}"} for index in range(8)]
ZONE = ["us-central1-a"]

QUEUED, FLEX = {"queued_provisioning": True}, {"flex_start": True}
COMPACT = {"compact_placement": True, "zones": ZONE}
UBUNTU: Any = {"image": "ubuntu"}
IMAGE = {"disk_image": "global/images/i"}


def of(machine_type: str) -> Any:
    """The arguments of one node of a machine type."""
    return COMMON | {"machine_type": machine_type, "max_nodes": 1}


def shutdown(seconds: int | None, critical: int | None = None) -> dict[str, int]:
    """The kubelet's time for all pods, and of it for the critical ones."""
    key = "shutdown_grace_period"
    given = {f"{key}_seconds": seconds, f"{key}_critical_pods_seconds": critical}
    return {name: value for name, value in given.items() if value is not None}


def refused(field: str, way_out: str, base: Any = L4, **changes: Any) -> tuple[Any, Any, str, str]:
    """A row: what is right, what makes it wrong, and the argument that is refused with a fix."""
    return base, changes, field, way_out


REFUSED = {
    "spot and a reservation": refused(
        "reservation", "spot", spot=True, reservation="r", zones=ZONE
    ),
    "flex-start and a reservation": refused("reservation", "flex_start", **FLEX, reservation="any"),
    "queued and a reservation": refused("reservation", "queued", **QUEUED, reservation="any"),
    "flex-start and spot": refused("flex_start", "choose one", **FLEX, spot=True),
    "queued and spot": refused("queued_provisioning", "choose one", **QUEUED, spot=True),
    "queued with a minimum": refused("min_nodes", "set it to 0", **QUEUED, min_nodes=1),
    "queued and compact": refused("compact_placement", "queued_provisioning", **QUEUED, **COMPACT),
    "queued and balanced": refused("location_policy", "ANY", **QUEUED, location_policy="BALANCED"),
    "queued with limits per zone": refused("limits", "total", **QUEUED, limits="zone", zones=ZONE),
    "a tag with an underscore": refused(
        "network_tags[0]", "lower case letters", network_tags=["gpu_nodes"]
    ),
    "flex-start with repair": refused("auto_repair", "leave it out", **FLEX, auto_repair=True),
    "queued with repair": refused("auto_repair", "leave it out", **QUEUED, auto_repair=True),
    "flex-start with a minimum": refused("min_nodes", "set it to 0", **FLEX, min_nodes=1),
    "flex-start for too long": refused("max_run_seconds", "604800", **FLEX, max_run_seconds=604801),
    "flex-start and compact": refused("compact_placement", "a3-ultragpu", **FLEX, **COMPACT),
    "a reservation without a zone": refused("zones", "one zone", reservation="mine"),
    "a reservation in no form": refused(
        "reservation", "projects/PROJECT", reservation="a/b", zones=ZONE
    ),
    "compact on a family that is never": refused(
        "compact_placement", "not for n1-standard-8", base=T4, **COMPACT
    ),
    "an upgrade of flex-start nodes": refused(
        "upgrade", "SHORT_LIVED", **FLEX, upgrade={"max_surge": 1}
    ),
    "compact in two zones": refused(
        "compact_placement",
        "name it in zones",
        compact_placement=True,
        zones=[*ZONE, "us-central1-b"],
    ),
    "compact and blue-green": refused(
        "compact_placement", "SURGE", **COMPACT, upgrade={"strategy": "BLUE_GREEN"}
    ),
    "a policy without compact placement": refused(
        "placement_policy", "compact_placement", placement_policy="p"
    ),
    "an upgrade of no node": refused(
        "upgrade.max_unavailable", "raise", upgrade={"max_surge": 0, "max_unavailable": 0}
    ),
    "an upgrade of too many": refused("upgrade.max_surge", "20", upgrade={"max_surge": 21}),
    "surge in blue-green": refused(
        "upgrade.max_surge",
        "change the strategy",
        upgrade={"strategy": "BLUE_GREEN", "max_surge": 1},
    ),
    "fewer nodes in blue-green": refused(
        "upgrade.max_unavailable",
        "is not for the strategy BLUE_GREEN",
        upgrade={"strategy": "BLUE_GREEN", "max_unavailable": 0},
    ),
    "blue-green in surge": refused(
        "upgrade.batch_nodes", "change the strategy", upgrade={"batch_nodes": 1}
    ),
    "a pause between batches in surge": refused(
        "upgrade.batch_soak_seconds",
        "is not for the strategy SURGE",
        upgrade={"batch_soak_seconds": 0},
    ),
    "a pause at the end in surge": refused(
        "upgrade.soak_seconds", "is not for the strategy SURGE", upgrade={"soak_seconds": 0}
    ),
    "a machine that is never on demand": refused("machine_type", "spot", base=of("a4-highgpu-8g")),
    "a machine that is never sold on demand": refused(
        "machine_type", "set spot or flex_start", base=of("a3-highgpu-1g"), spot=False
    ),
    "a shutdown of nodes that stay": refused(
        "kubelet.shutdown_grace_period_seconds", "set spot, or leave it out", kubelet=shutdown(120)
    ),
    "a shutdown that is too long": refused(
        "kubelet.shutdown_grace_period_seconds", "30 or 120", spot=True, kubelet=shutdown(60)
    ),
    "critical pods that take all of a shutdown": refused(
        "kubelet.shutdown_grace_period_critical_pods_seconds",
        "must be less than shutdown_grace_period_seconds (30)",
        spot=True,
        kubelet=shutdown(30, 30),
    ),
    "MIG of another GPU": refused(
        "mig_partition", "1g.5gb, 2g.10gb, 3g.20gb, 7g.40gb", base=A100, mig_partition="1g.10gb"
    ),
    "MIG of a GPU that has none": refused(
        "mig_partition", "cannot be partitioned", mig_partition="1g.5gb"
    ),
    "MIG with the operator": refused(
        "mig_partition", "GpuOperator", base=A100, mig_partition="1g.5gb", driver="operator"
    ),
    "sharing with the operator": refused(
        "sharing",
        "device_plugin.sharing",
        sharing={"strategy": "MPS", "clients": 4},
        driver="installer",
    ),
    "too many clients": refused(
        "sharing.clients", "48", sharing={"strategy": "MPS", "clients": 49}
    ),
    "one client": refused("sharing.clients", "2", sharing={"strategy": "MPS", "clients": 1}),
    "an unknown way to share": refused(
        "sharing.strategy", "TIME_SHARING", sharing={"strategy": "TIME", "clients": 2}
    ),
    "the operator's driver on COS": refused("image", "ubuntu", driver="operator", image="cos"),
    "the operator's driver with secure boot": refused(
        "secure_boot", "signed", driver="operator", secure_boot=True
    ),
    "the latest driver on Ubuntu": refused("driver", "default", driver="latest", **UBUNTU),
    "a disk that does not attach": refused(
        "disk_type", "pd-balanced", disk_type="hyperdisk-balanced"
    ),
    "too many local SSDs": refused("local_ssd", "accepts 1 or 2", local_ssd={"count": 3}),
    "local SSDs in a number that the machine does not take": refused(
        "local_ssd", "accepts 8 or 16 or 24", base=of("n2-standard-64"), local_ssd={"count": 4}
    ),
    "a boot disk that is none": refused(
        "disk_type", "pd-balanced or pd-standard or pd-ssd", base=A100, disk_type="hyperdisk-ml"
    ),
    "no number of local SSDs": refused("local_ssd", "count", local_ssd={}),
    "another number of local SSDs": refused(
        "local_ssd", "has 16", base=H100, local_ssd={"count": 4}
    ),
    "no local SSDs": refused(
        "local_ssd", "accepts no local SSD", base=of("g4-standard-6"), local_ssd={"count": 1}
    ),
    "streaming on Ubuntu": refused("image_streaming", "cos", image_streaming=True, **UBUNTU),
    "images on disk on Ubuntu": refused(
        "secondary_boot_disks", "cos", secondary_boot_disks=[IMAGE], **UBUNTU
    ),
    "images on disk without streaming": refused(
        "image_streaming", "leave it out", secondary_boot_disks=[IMAGE], image_streaming=False
    ),
    "a family of images": refused(
        "secondary_boot_disks[0].disk_image",
        "one image",
        secondary_boot_disks=[{"disk_image": "global/images/family/f"}],
    ),
    "no gVNIC": refused("gvnic", "no other", gvnic=False),
    "gVNIC on Ubuntu": refused("gvnic", "leave it out", gvnic=True, **UBUNTU),
    "claimed GPUs whose driver GKE installs": refused(
        "driver", "operator or installer", dra=True, driver="default"
    ),
    "fast socket on Ubuntu": refused("fast_socket", "cos", fast_socket=True, **UBUNTU),
    "too few networks": refused(
        "additional_networks", "4", base=H100, additional_networks=NETWORKS[:3]
    ),
    "networks twice": refused(
        "additional_networks",
        "leave one",
        base=H100,
        additional_networks=NETWORKS[:4],
        gpu_network="multi-network",
    ),
    "limits per zone without zones": refused("zones", "are needed", limits="zone"),
    "a zone of another region": refused("zones", "us-central1", zones=["europe-west4-a"]),
    "NUMA memory without topology": refused(
        "kubelet.memory_manager", "restricted", kubelet={"memory_manager": "Static"}
    ),
    "NUMA memory with no topology": refused(
        "kubelet.memory_manager",
        "restricted",
        kubelet={"memory_manager": "Static", "topology_manager": "none"},
    ),
    "more nodes at least than at most": refused(
        "min_nodes", "is 5, above max_nodes (4)", min_nodes=5
    ),
    "an empty list of zones": refused("zones", "at least 1", zones=[]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(case: str) -> None:
    base, changes, field, way_out = REFUSED[case]
    kind = CpuNodePoolSpec if base["machine_type"].startswith("n2-") else GpuNodePoolSpec
    check(kind, "GpuNodePool p", base | _bought(base) | {"pool_name": "p"})
    message = refusal(check, kind, "GpuNodePool p", base | changes | {"pool_name": "p"})
    assert any(way_out in line for line in lines_about(field, message)), message


def _bought(base: Any) -> Any:
    """A way to buy the machine of a base, so that the base by itself is right."""
    ways = MACHINE_TYPES[base["machine_type"]].purchase
    if "on-demand" in ways:
        return {}
    return {"spot": True} if "spot" in ways else {"reservation": "r", "zones": ZONE}


ALLOWED = {
    "as many nodes at least as at most": {"min_nodes": 4},
    "flex-start for seven days": {"flex_start": True, "max_run_seconds": 604800},
    "other nodes that run for longer": {"max_run_seconds": 604801},
    "one node missing and none more": {"upgrade": {"max_surge": 0, "max_unavailable": 1}},
    "one node more and none missing": {"upgrade": {"max_surge": 1, "max_unavailable": 0}},
    "no pause at the end in blue-green": {"upgrade": {"strategy": "BLUE_GREEN", "soak_seconds": 0}},
    "NUMA memory with a topology": {
        "kubelet": {"memory_manager": "Static", "topology_manager": "restricted"}
    },
    "settings that such nodes have": {"image": "cos"}
    | dict.fromkeys(("gvnic", "auto_repair", "secure_boot", "image_streaming"), True),
    "the operator's driver on its own image": {"driver": "operator", "secure_boot": False},
    "any open reservation in any zone": {"reservation": "any-or-fail"},
    "a reservation that is not known yet": {
        "reservation": pulumi.Output.from_input("r"),
        "zones": ZONE,
    },
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_next_to_a_refusal_is_allowed(case: str) -> None:
    assert check(GpuNodePoolSpec, "GpuNodePool p", L4 | ALLOWED[case] | {"pool_name": "p"})


def test_all_errors_come_at_once() -> None:
    wrong = L4 | dict.fromkeys(("flex_start", "spot", "compact_placement", "fast_socket"), True)
    wrong |= {"image": "ubuntu", "pool_name": "p"}
    assert "4 invalid arguments" in refusal(check, GpuNodePoolSpec, "GpuNodePool p", wrong)


def pool(arguments: Any) -> dict[str, Any]:
    return inputs(declared(lambda: GpuNodePool("p", arguments))["p-pool"])


def test_the_taint_of_gpus_is_declared_once() -> None:
    own = {"key": "team", "value": "a", "effect": "NO_EXECUTE"}
    of_gpus = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
    assert pool(L4 | {"taints": [own]})["nodeConfig"]["taints"] == [of_gpus, own]
    assert pool(L4 | {"taints": [own, of_gpus]})["nodeConfig"]["taints"] == [own, of_gpus]


@pytest.mark.parametrize(
    ("driver", "version", "image", "secure_boot", "opted_out"),
    [
        ("default", "DEFAULT", "COS_CONTAINERD", True, False),
        ("latest", "LATEST", "COS_CONTAINERD", True, False),
        ("operator", "INSTALLATION_DISABLED", "UBUNTU_CONTAINERD", False, True),
        ("installer", "INSTALLATION_DISABLED", "COS_CONTAINERD", True, True),
    ],
)
def test_who_installs_the_driver(
    driver: str, version: str, image: str, secure_boot: bool, opted_out: bool
) -> None:
    config = pool(L4 | {"driver": driver})["nodeConfig"]
    assert config["guestAccelerators"][0]["gpuDriverInstallationConfig"] == {
        "gpuDriverVersion": version
    }
    assert config["imageType"] == image
    assert config["shieldedInstanceConfig"]["enableSecureBoot"] is secure_boot
    assert ("gke-no-default-nvidia-gpu-device-plugin" in config["labels"]) is opted_out


def test_partitions_and_shared_gpus_differ_by_their_label() -> None:
    found: dict[str, Any] = {}

    def program() -> None:
        sharing = {"strategy": "TIME_SHARING", "clients": 3}
        made = GpuNodePool("p", A100 | {"mig_partition": "3g.20gb", "sharing": sharing})
        found.update(
            gpu=made.gpu.value,
            gpus=made.gpus_per_node.value,
            resources=made.gpu_resources_per_node.value,
        )

    config = inputs(declared(program)["p-pool"])["nodeConfig"]
    assert found == {"gpu": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb-SHARED", "gpus": 1, "resources": 6}
    assert config["labels"]["nvidia.com/gpu.product"] == found["gpu"]
    assert config["guestAccelerators"][0]["gpuPartitionSize"] == "3g.20gb"
    shared = {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": 3}
    assert config["guestAccelerators"][0]["gpuSharingConfig"] == shared


BLOCK = "projects/shared/reservations/r/reservationBlocks/b"
SUB_BLOCK = "r/reservationBlocks/b/reservationSubBlocks/s"


def of_reservation(name: str) -> dict[str, Any]:
    key = "compute.googleapis.com/reservation-name"
    return {"consumeReservationType": "SPECIFIC_RESERVATION", "key": key, "values": [name]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"spot": True}, {"consumeReservationType": "NO_RESERVATION"}),
        ({"reservation": "none"}, {"consumeReservationType": "NO_RESERVATION"}),
        ({"reservation": "any"}, {"consumeReservationType": "ANY_RESERVATION"}),
        ({"reservation": "any-or-fail"}, {"consumeReservationType": "ANY_RESERVATION_THEN_FAIL"}),
        ({}, None),
        ({"reservation": BLOCK, "zones": ZONE}, of_reservation(BLOCK)),
        ({"reservation": SUB_BLOCK, "zones": ZONE}, of_reservation(SUB_BLOCK)),
    ],
)
def test_reservations(arguments: Any, expected: Any) -> None:
    assert pool(L4 | arguments)["nodeConfig"].get("reservationAffinity") == expected


def limits(least: int, most: int) -> dict[str, Any]:
    return {"totalMinNodeCount": least, "totalMaxNodeCount": most, "locationPolicy": "ANY"}


def test_flex_start_and_queued_nodes() -> None:
    flex = pool(L4 | {"flex_start": True, "queued_provisioning": True, "max_run_seconds": 3600})
    assert flex["management"] == {"autoRepair": False, "autoUpgrade": True}
    assert pool(L4 | {"queued_provisioning": True})["management"]["autoRepair"] is False
    assert flex["queuedProvisioning"] == {"enabled": True}
    assert flex["initialNodeCount"] == 0
    assert flex["autoscaling"] == limits(0, 4)
    config = flex["nodeConfig"]
    assert (config["flexStart"], config["maxRunDuration"]) == (True, "3600s")
    assert config["labels"]["cloud.google.com/gke-queued"] == "true"
    assert config["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}


def test_workloads_learn_of_the_taint_of_queued_nodes() -> None:
    seen: list[Any] = []
    declared(lambda: seen.extend(GpuNodePool("p", L4 | QUEUED).tolerations.value))
    keys = [toleration["key"] for toleration in seen]
    assert keys == ["nvidia.com/gpu", "cloud.google.com/gke-queued"]


@pytest.mark.parametrize(
    ("arguments", "autoscaling", "initial"),
    [
        ({"min_nodes": 1}, limits(1, 4), 1),
        ({"min_nodes": 1, "max_nodes": 1}, limits(1, 1), 0),
        ({"min_nodes": 4, "zones": ZONE}, limits(4, 4), 4),
        (
            {"min_nodes": 2, "limits": "zone", "zones": [*ZONE, "us-central1-b"]},
            {"minNodeCount": 2, "maxNodeCount": 4, "locationPolicy": "ANY"},
            2,
        ),
    ],
)
def test_limits(arguments: Any, autoscaling: Any, initial: int) -> None:
    found = pool(L4 | arguments)
    assert found["autoscaling"] == autoscaling
    assert found["initialNodeCount"] == initial


BLOCK_DEVICES = "localNvmeSsdBlockConfig"


@pytest.mark.parametrize(
    ("arguments", "ephemeral", "block"),
    [
        (H100, 16, None),
        (H100 | {"local_ssd": {"use": "block"}}, None, 16),
        (L4, None, None),
        (L4 | {"local_ssd": {"count": 2}}, 2, None),
        (of("a3-ultragpu-8g") | {"spot": True}, 32, None),
    ],
)
def test_local_ssds(arguments: Any, ephemeral: int | None, block: int | None) -> None:
    config = pool(arguments)["nodeConfig"]
    for key, count in (("ephemeralStorageLocalSsdConfig", ephemeral), (BLOCK_DEVICES, block)):
        assert config.get(key) == (count and {"localSsdCount": count})


def test_images_from_disk_and_by_streaming() -> None:
    data = "projects/p/global/images/data"
    disks = [IMAGE, {"disk_image": data, "mode": "DATA"}]
    config = pool(L4 | {"secondary_boot_disks": disks})["nodeConfig"]
    assert config["gcfsConfig"] == {"enabled": True}
    cache = {"diskImage": IMAGE["disk_image"], "mode": "CONTAINER_IMAGE_CACHE"}
    assert config["secondaryBootDisks"] == [cache, {"diskImage": data}]
    assert "gcfsConfig" not in pool(L4)["nodeConfig"]


def test_networks_between_gpus() -> None:
    assert "networkConfig" not in pool(H100)
    four = pool(H100 | {"additional_networks": NETWORKS[:4], "fast_socket": True})
    assert four["networkConfig"] == {"additionalNodeNetworkConfigs": NETWORKS[:4]}
    assert four["nodeConfig"]["fastSocket"] == {"enabled": True}


def surge(nodes: int) -> dict[str, Any]:
    return {"strategy": "SURGE", "maxSurge": nodes, "maxUnavailable": 0}


BATCHES = {"standardRolloutPolicy": {"batchNodeCount": 2}, "nodePoolSoakDuration": "600s"}


@pytest.mark.parametrize(
    ("component", "base", "upgrade", "expected"),
    [
        (GpuNodePool, L4, {}, surge(1)),
        (CpuNodePool, of("n2-standard-8"), {}, surge(1)),
        (GpuNodePool, L4, {"max_surge": 2}, surge(2)),
        (GpuNodePool, L4, {"max_unavailable": 0}, surge(1)),
        (
            GpuNodePool,
            L4,
            {"strategy": "BLUE_GREEN", "batch_nodes": 2, "soak_seconds": 600},
            {"strategy": "BLUE_GREEN", "blueGreenSettings": BATCHES},
        ),
    ],
)
def test_upgrades(component: Any, base: Any, upgrade: Any, expected: Any) -> None:
    made = declared(lambda: component("p", base | {"upgrade": upgrade}))["p-pool"]
    assert inputs(made)["upgradeSettings"] == expected


def test_the_rest_of_what_gke_is_told() -> None:
    kubelet = {"cpu_manager": "static", "topology_manager": "restricted"}
    sysctls = {"net.core.somaxconn": "4096"}
    given = {
        **COMPACT,
        "placement_policy": "close",
        "host_maintenance": "PERIODIC",
        "max_pods": 64,
        "no_minor_upgrades": True,
        "threads_per_core": 1,
        "disk_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
        "resource_labels": {"team": "ml"},
        "network_tags": ["gpu"],
        "kubelet": kubelet | {"memory_manager": "Static"},
        "linux": {"sysctls": sysctls, "hugepages": {"2Mi": 512}},
    }
    found = pool(L4 | given)
    config = found["nodeConfig"]
    assert found["placementPolicy"] == {"type": "COMPACT", "policyName": "close"}
    assert found["maxPodsPerNode"] == 64
    assert found["maintenancePolicies"] == [{"exclusionUntilEndOfSupports": [{"enabled": True}]}]
    assert config["hostMaintenancePolicy"] == {"maintenanceInterval": "PERIODIC"}
    assert config["advancedMachineFeatures"] == {"threadsPerCore": 1}
    assert config["bootDiskKmsKey"].endswith("/k")
    assert (config["resourceLabels"], config["tags"]) == ({"team": "ml"}, ["gpu"])
    assert config["kubeletConfig"] == {
        "insecureKubeletReadonlyPortEnabled": "FALSE",
        "cpuManagerPolicy": "static",
        "memoryManager": {"policy": "Static"},
        "topologyManager": {"policy": "restricted"},
    }
    pages = {"hugepageSize2m": 512}
    assert config["linuxNodeConfig"] == {"sysctls": sysctls, "hugepagesConfig": pages}


SUPPORTED = [machine for machine in MACHINE_TYPES.values() if not machine.missing]
WITH_GPUS = [machine for machine in SUPPORTED if machine.gpu or machine.family == "n1"]


def pool_of(machine: MachineType, **arguments: Any) -> dict[str, Any]:
    """Return the arguments of a pool of a machine type, bought as that allows."""
    base = of(machine.name) | {"pool_name": "p"}
    if machine.family == "n1":
        base |= {"gpu": "T4", "gpus": machine.gpu_counts("nvidia-tesla-t4")[0]}
    return base | _bought(base) | arguments


@pytest.mark.parametrize(
    "machine", [each for each in SUPPORTED if not each.gpu], ids=lambda machine: machine.name
)
def test_a_machine_type_makes_a_pool_without_gpus(machine: MachineType) -> None:
    assert check(CpuNodePoolSpec, "p", pool_of(machine, gpu=None, gpus=None))


@pytest.mark.parametrize("machine", WITH_GPUS, ids=lambda machine: machine.name)
def test_a_machine_type_makes_a_pool_with_gpus(machine: MachineType) -> None:
    spec = check(GpuNodePoolSpec, "p", pool_of(machine))
    gpu = GPUS[spec.model.accelerator_type]
    assert spec.gpus_per_node in machine.gpu_counts(spec.model.accelerator_type)
    for profile in gpu.mig_profiles:
        partitioned = check(GpuNodePoolSpec, "p", pool_of(machine, mig_partition=profile))
        assert partitioned.product == f"{gpu.product}-MIG-{profile}"


def test_a_pool_may_declare_a_machine_outside_the_catalog() -> None:
    new = of("a9-highgpu-8g") | {"pool_name": "p", "gpu": "B200", "gpus": 8}
    message = refusal(check, GpuNodePoolSpec, "p", new)
    assert re.search(r"'a9-highgpu-8g' is not in the catalog.*declare its shape", message)
    declared_shape = {"machine": {"vcpus": 224, "memory_gib": 3968}, "node_price": 98.5}
    config = pool(new | declared_shape)["nodeConfig"]
    assert config["machineType"] == "a9-highgpu-8g"
    wanted = {"vcpus": "224", "memory-gib": "3968", "arch": "amd64", "usd-per-hour": "98.5"}
    wanted = {f"ml-foundations/{key}": value for key, value in wanted.items()}
    assert wanted.items() <= config["labels"].items()
    known = L4 | {"pool_name": "p", "machine": {"vcpus": 1, "memory_gib": 1}}
    message = refusal(check, GpuNodePoolSpec, "p", known)
    assert "machine: declares g2-standard-24, which is in the catalog" in message


R100 = {"accelerator_type": "nvidia-r100", "product": "NVIDIA-R100", "memory_gib": 288}
NEW = COMMON | {
    "machine_type": "a9-highgpu-8g",
    "machine": {"vcpus": 224, "memory_gib": 3968, "gpu": R100},
    "gpus": 8,
    "node_price": 98.5,
    "max_nodes": 2,
    "zones": ZONE,
    "driver": "installer",
}


@pytest.mark.parametrize("sharing", [None, {"strategy": "TIME_SHARING", "clients": 2}])
def test_a_gpu_outside_the_catalog_is_proved_and_rehearsed(
    sharing: dict[str, Any] | None,
) -> None:
    """What the pool declares is all that the proof and the simulated GKE know of it."""
    made = pool(NEW | ({"sharing": sharing, "driver": "default"} if sharing else {}))
    product = "NVIDIA-R100-SHARED" if sharing else "NVIDIA-R100"
    assert made["nodeConfig"]["guestAccelerators"][0]["type"] == "nvidia-r100"
    off = {"enabled": False}
    beside = Operator.of({"driver": off, "toolkit": off})
    operator = None if sharing else beside.with_daemon_sets([driver_installer_manifest("cos")])
    proved = from_node_pool(made, None, operator)
    assert (proved.unknown, proved.labels["nvidia.com/gpu.product"]) == ((), product)
    assert proved.allocatable["nvidia.com/gpu"] == (16 if sharing else 8) * 1000
    assert price_of(proved) == Decimal("98.5")
    assert all(proved.labels[key] is UNKNOWN for key in labels.GKE_TOPOLOGY)
    simulated = node_pool(made, GcpLocation("p", "us-central1", ""), {"name": "c"})
    node = new_node(simulated, "us-central1-a", operator)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == ("16" if sharing else "8")
    count = None if sharing else "8"
    shown = {"product": product, "memory": "294912", "count": count}
    own = node["metadata"]["labels"]
    assert {key: own.get(f"nvidia.com/gpu.{key}") for key in shown} == shown
    names = [device["attributes"]["productName"] for device in dra._devices(simulated)]
    assert names == [{"string": "NVIDIA R100"}] * 8


B200 = NEW["machine"] | {"gpu": R100 | {"accelerator_type": "nvidia-b200"}}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"gpu": "B200"}, "machine.gpu: declares nvidia-r100, but gpu is in the catalog"),
        ({"machine": B200}, "machine.gpu: declares"),
        ({"gpus": None}, "set gpu and gpus"),
        ({"gpus": 17}, "gpus: a9-highgpu-8g can have 1 or 2"),
        ({"mig_partition": "1g.36gb", "driver": "default"}, "R100: it cannot be partitioned"),
    ],
)
def test_a_gpu_that_is_declared_wrongly_is_refused(more: dict[str, Any], message: str) -> None:
    assert message in refusal(check, GpuNodePoolSpec, "p", {**NEW, "pool_name": "p", **more})


DECLARED = {key: value for key, value in NEW.items() if key not in ("gpus", "driver")}
HAS_GPUS = "has GPUs; use a GpuNodePool"
NO_HYPERMEM = "does not work .*GKE does not support"
NO_A4X = "does not work with these components: .*NVLink"


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        (CpuNodePoolSpec, of("g2-standard-24"), f"machine_type: g2-standard-24 {HAS_GPUS}"),
        (CpuNodePoolSpec, of("a2-highgpu-1g"), f"machine_type: a2-highgpu-1g {HAS_GPUS}"),
        (CpuNodePoolSpec, DECLARED, HAS_GPUS),
        (GpuNodePoolSpec, of("a4x-highgpu-4g"), f"a4x-highgpu-4g {NO_A4X}"),
        (GpuNodePoolSpec, of("a4x-maxgpu-4g-metal"), f"a4x-maxgpu-4g-metal {NO_A4X}"),
        (CpuNodePoolSpec, of("m4-hypermem-16"), f"m4-hypermem-16 {NO_HYPERMEM}"),
        (CpuNodePoolSpec, of("m4-hypermem-32"), f"m4-hypermem-32 {NO_HYPERMEM}"),
        (CpuNodePoolSpec, of("m4-hypermem-64"), f"m4-hypermem-64 {NO_HYPERMEM}"),
    ],
)
def test_a_machine_that_a_pool_cannot_have_is_refused(
    spec: Any, arguments: Any, message: str
) -> None:
    assert re.search(message, refusal(check, spec, "p", arguments | {"pool_name": "p"}))


@pytest.mark.parametrize("short_lived", ["flex_start", "queued_provisioning"])
def test_nodes_that_gke_removes_have_no_upgrade_settings(short_lived: str) -> None:
    base = L4 | {"location_policy": "ANY"}
    assert "upgradeSettings" in pool(base)
    assert "upgradeSettings" not in pool(base | {short_lived: True})


def test_gpu_pools_are_guarded_against_deletion_and_replacement() -> None:
    made = declared(lambda: GpuNodePool("l4", L4))["l4-pool"]
    assert made.protect
    assert inputs(made)["nodeDrainConfigs"] == [{"respectPdbDuringNodePoolDeletion": True}]
    unguarded = L4 | {"deletion_protection": False}
    assert not declared(lambda: GpuNodePool("l4", unguarded))["l4-pool"].protect
    assert not declared(lambda: CpuNodePool("cpu", of("e2-medium")))["cpu-pool"].protect


SHAPE = {"machine": {"vcpus": 8, "memory_gib": 32}}
ARM_SHAPE = {"machine": {"vcpus": 8, "memory_gib": 32, "arch": "arm64"}}


@pytest.mark.parametrize(
    ("machine", "changes", "field"),
    [
        ("n2-standard-8", {"flex_start": True}, "flex_start"),
        ("n1-standard-8", {"flex_start": True}, "flex_start"),
        ("h4d-standard-192", {"flex_start": True}, None),
        ("h4d-standard-192", {"queued_provisioning": True}, "queued_provisioning"),
        ("n2-standard-8", {"queued_provisioning": True}, "queued_provisioning"),
        ("x9-standard-8", SHAPE | {"flex_start": True}, None),
        ("x9-standard-8", SHAPE | {"queued_provisioning": True, "location_policy": "ANY"}, None),
        ("x9-standard-8", ARM_SHAPE | {"threads_per_core": 1}, None),
        ("h4d-standard-192", COMPACT | {"flex_start": True}, None),
        ("c4-standard-8", COMPACT, None),
        ("n4-standard-8", COMPACT, "compact_placement"),
        ("z3-highmem-88-highlssd", COMPACT, "compact_placement"),
        ("n2-standard-8", {"threads_per_core": 1}, None),
        ("e2-medium", {"threads_per_core": 1}, "threads_per_core"),
        ("n1-standard-1", {"threads_per_core": 2}, "threads_per_core"),
        ("t2d-standard-8", {"threads_per_core": 1}, "threads_per_core"),
        ("c4a-standard-8", {"threads_per_core": 1}, "threads_per_core"),
        ("h3-standard-88", {"threads_per_core": 1}, "threads_per_core"),
        ("h4d-standard-192", {"threads_per_core": 1}, "threads_per_core"),
    ],
)
def test_a_pool_without_gpus_has_what_its_machines_have(
    machine: str, changes: Any, field: str | None
) -> None:
    given = of(machine) | {"pool_name": "p"} | changes
    if field is None:
        assert check(CpuNodePoolSpec, "p", given)
    else:
        message = refusal(check, CpuNodePoolSpec, "p", given)
        assert re.search(f"{field}: .*{machine}.*leave it out", message)


def test_pods_for_arm_nodes_tolerate_the_taint_of_gke() -> None:
    arm = check(CpuNodePoolSpec, "p", of("c4a-standard-8") | {"pool_name": "p"})
    taint = {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64"}
    assert arm.tolerations == [taint | {"effect": "NoSchedule"}]


def test_a_pool_whose_gpus_are_claimed_has_the_labels_of_dra() -> None:
    claimed = pool(L4 | {"driver": "installer", "dra": True})
    assert labels.DRA_POOL_LABELS.items() <= claimed["nodeConfig"]["labels"].items()


@pytest.mark.parametrize(
    ("whole", "critical", "left"), [(None, None, 15), (120, None, 105), (30, 10, 20)]
)
def test_spot_nodes_leave_their_pods_a_time(
    whole: int | None, critical: int | None, left: int
) -> None:
    made = pool(L4 | {"spot": True, "kubelet": shutdown(whole, critical)})
    assert made["nodeConfig"]["kubeletConfig"].get("shutdownGracePeriodSeconds") == whole
    assert from_node_pool(made).shutdown_grace == left
    simulated = node_pool(made, GcpLocation("p", "us-central1", ""), {"name": "c"})
    assert simulated.shutdown_grace == left
