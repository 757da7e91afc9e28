"""Node pools: what is refused with the way out, and what GKE is told."""

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
WINDOW = {"count": 2, "use": "block"}

REFUSED = {
    "spot and a reservation": (
        L4,
        {"spot": True, "reservation": "r", "zones": ["us-central1-a"]},
        "reservation",
        "spot",
    ),
    "flex-start and a reservation": (
        L4,
        {"flex_start": True, "reservation": "any"},
        "reservation",
        "flex_start",
    ),
    "queued and a reservation": (
        L4,
        {"queued_provisioning": True, "reservation": "any"},
        "reservation",
        "queued",
    ),
    "flex-start and spot": (L4, {"flex_start": True, "spot": True}, "flex_start", "choose one"),
    "queued and spot": (
        L4,
        {"queued_provisioning": True, "spot": True},
        "queued_provisioning",
        "choose one",
    ),
    "queued with a minimum": (
        L4,
        {"queued_provisioning": True, "min_nodes": 1},
        "min_nodes",
        "set it to 0",
    ),
    "queued and compact": (
        L4,
        {"queued_provisioning": True, "compact_placement": True, "zones": ["us-central1-a"]},
        "compact_placement",
        "queued_provisioning",
    ),
    "queued and balanced": (
        L4,
        {"queued_provisioning": True, "location_policy": "BALANCED"},
        "location_policy",
        "ANY",
    ),
    "queued with limits per zone": (
        L4,
        {"queued_provisioning": True, "limits": "zone", "zones": ["us-central1-a"]},
        "limits",
        "total",
    ),
    "a tag with an underscore": (
        L4,
        {"network_tags": ["gpu_nodes"]},
        "network_tags[0]",
        "lower case letters",
    ),
    "flex-start with repair": (
        L4,
        {"flex_start": True, "auto_repair": True},
        "auto_repair",
        "leave it out",
    ),
    "queued with repair": (
        L4,
        {"queued_provisioning": True, "auto_repair": True},
        "auto_repair",
        "leave it out",
    ),
    "flex-start with a minimum": (
        L4,
        {"flex_start": True, "min_nodes": 1},
        "min_nodes",
        "set it to 0",
    ),
    "flex-start for too long": (
        L4,
        {"flex_start": True, "max_run_seconds": 604801},
        "max_run_seconds",
        "604800",
    ),
    "flex-start and compact": (
        L4,
        {"flex_start": True, "compact_placement": True, "zones": ["us-central1-a"]},
        "compact_placement",
        "a3-ultragpu",
    ),
    "a reservation without a zone": (L4, {"reservation": "mine"}, "zones", "one zone"),
    "a reservation in no form": (
        L4,
        {"reservation": "a/b", "zones": ["us-central1-a"]},
        "reservation",
        "projects/PROJECT",
    ),
    "compact on a family that is never": (
        T4,
        {"compact_placement": True, "zones": ["us-central1-a"]},
        "compact_placement",
        "not for n1-standard-8",
    ),
    "an upgrade of flex-start nodes": (
        L4,
        {"flex_start": True, "upgrade": {"max_surge": 1}},
        "upgrade",
        "SHORT_LIVED",
    ),
    "compact in two zones": (
        L4,
        {"compact_placement": True, "zones": ["us-central1-a", "us-central1-b"]},
        "compact_placement",
        "name it in zones",
    ),
    "compact and blue-green": (
        L4,
        {
            "compact_placement": True,
            "zones": ["us-central1-a"],
            "upgrade": {"strategy": "BLUE_GREEN"},
        },
        "compact_placement",
        "SURGE",
    ),
    "a policy without compact placement": (
        L4,
        {"placement_policy": "p"},
        "placement_policy",
        "compact_placement",
    ),
    "an upgrade of no node": (
        L4,
        {"upgrade": {"max_surge": 0, "max_unavailable": 0}},
        "upgrade.max_unavailable",
        "raise",
    ),
    "an upgrade of too many": (L4, {"upgrade": {"max_surge": 21}}, "upgrade.max_surge", "20"),
    "surge in blue-green": (
        L4,
        {"upgrade": {"strategy": "BLUE_GREEN", "max_surge": 1}},
        "upgrade.max_surge",
        "change the strategy",
    ),
    "fewer nodes in blue-green": (
        L4,
        {"upgrade": {"strategy": "BLUE_GREEN", "max_unavailable": 0}},
        "upgrade.max_unavailable",
        "is not for the strategy BLUE_GREEN",
    ),
    "blue-green in surge": (
        L4,
        {"upgrade": {"batch_nodes": 1}},
        "upgrade.batch_nodes",
        "change the strategy",
    ),
    "a pause between batches in surge": (
        L4,
        {"upgrade": {"batch_soak_seconds": 0}},
        "upgrade.batch_soak_seconds",
        "is not for the strategy SURGE",
    ),
    "a pause at the end in surge": (
        L4,
        {"upgrade": {"soak_seconds": 0}},
        "upgrade.soak_seconds",
        "is not for the strategy SURGE",
    ),
    "a machine that is never on demand": (
        COMMON | {"machine_type": "a4-highgpu-8g", "max_nodes": 1},
        {},
        "machine_type",
        "spot",
    ),
    "a machine that is never sold on demand": (
        COMMON | {"machine_type": "a3-highgpu-1g", "max_nodes": 1},
        {"spot": False},
        "machine_type",
        "set spot or flex_start",
    ),
    "a shutdown of nodes that stay": (
        L4,
        {"kubelet": {"shutdown_grace_period_seconds": 120}},
        "kubelet.shutdown_grace_period_seconds",
        "set spot, or leave it out",
    ),
    "a shutdown that is too long": (
        L4,
        {"spot": True, "kubelet": {"shutdown_grace_period_seconds": 60}},
        "kubelet.shutdown_grace_period_seconds",
        "30 or 120",
    ),
    "critical pods that take all of a shutdown": (
        L4,
        {
            "spot": True,
            "kubelet": {
                "shutdown_grace_period_seconds": 30,
                "shutdown_grace_period_critical_pods_seconds": 30,
            },
        },
        "kubelet.shutdown_grace_period_critical_pods_seconds",
        "must be less than shutdown_grace_period_seconds (30)",
    ),
    "MIG of another GPU": (
        A100,
        {"mig_partition": "1g.10gb"},
        "mig_partition",
        "1g.5gb, 2g.10gb, 3g.20gb, 7g.40gb",
    ),
    "MIG of a GPU that has none": (
        L4,
        {"mig_partition": "1g.5gb"},
        "mig_partition",
        "cannot be partitioned",
    ),
    "MIG with the operator": (
        A100,
        {"mig_partition": "1g.5gb", "driver": "operator"},
        "mig_partition",
        "GpuOperator",
    ),
    "sharing with the operator": (
        L4,
        {"sharing": {"strategy": "MPS", "clients": 4}, "driver": "installer"},
        "sharing",
        "device_plugin.sharing",
    ),
    "too many clients": (
        L4,
        {"sharing": {"strategy": "MPS", "clients": 49}},
        "sharing.clients",
        "48",
    ),
    "one client": (L4, {"sharing": {"strategy": "MPS", "clients": 1}}, "sharing.clients", "2"),
    "an unknown way to share": (
        L4,
        {"sharing": {"strategy": "TIME", "clients": 2}},
        "sharing.strategy",
        "TIME_SHARING",
    ),
    "the operator's driver on COS": (L4, {"driver": "operator", "image": "cos"}, "image", "ubuntu"),
    "the operator's driver with secure boot": (
        L4,
        {"driver": "operator", "secure_boot": True},
        "secure_boot",
        "signed",
    ),
    "the latest driver on Ubuntu": (
        L4,
        {"driver": "latest", "image": "ubuntu"},
        "driver",
        "default",
    ),
    "a disk that does not attach": (
        L4,
        {"disk_type": "hyperdisk-balanced"},
        "disk_type",
        "pd-balanced",
    ),
    "too many local SSDs": (L4, {"local_ssd": {"count": 3}}, "local_ssd", "accepts 1 or 2"),
    "local SSDs in a number that the machine does not take": (
        COMMON | {"machine_type": "n2-standard-64", "max_nodes": 1},
        {"local_ssd": {"count": 4}},
        "local_ssd",
        "accepts 8 or 16 or 24",
    ),
    "a boot disk that is none": (
        A100,
        {"disk_type": "hyperdisk-ml"},
        "disk_type",
        "pd-balanced or pd-standard or pd-ssd",
    ),
    "no number of local SSDs": (L4, {"local_ssd": {}}, "local_ssd", "count"),
    "another number of local SSDs": (H100, {"local_ssd": {"count": 4}}, "local_ssd", "has 16"),
    "no local SSDs": (
        COMMON | {"machine_type": "g4-standard-6", "max_nodes": 1},
        {"local_ssd": {"count": 1}},
        "local_ssd",
        "accepts no local SSD",
    ),
    "streaming on Ubuntu": (
        L4,
        {"image_streaming": True, "image": "ubuntu"},
        "image_streaming",
        "cos",
    ),
    "images on disk on Ubuntu": (
        L4,
        {"secondary_boot_disks": [{"disk_image": "global/images/i"}], "image": "ubuntu"},
        "secondary_boot_disks",
        "cos",
    ),
    "images on disk without streaming": (
        L4,
        {"secondary_boot_disks": [{"disk_image": "global/images/i"}], "image_streaming": False},
        "image_streaming",
        "leave it out",
    ),
    "a family of images": (
        L4,
        {"secondary_boot_disks": [{"disk_image": "global/images/family/f"}]},
        "secondary_boot_disks[0].disk_image",
        "one image",
    ),
    "no gVNIC": (L4, {"gvnic": False}, "gvnic", "no other"),
    "gVNIC on Ubuntu": (L4, {"gvnic": True, "image": "ubuntu"}, "gvnic", "leave it out"),
    "claimed GPUs whose driver GKE installs": (
        L4,
        {"dra": True, "driver": "default"},
        "driver",
        "operator or installer",
    ),
    "fast socket on Ubuntu": (L4, {"fast_socket": True, "image": "ubuntu"}, "fast_socket", "cos"),
    "too few networks": (H100, {"additional_networks": NETWORKS[:3]}, "additional_networks", "4"),
    "networks twice": (
        H100,
        {"additional_networks": NETWORKS[:4], "gpu_network": "multi-network"},
        "additional_networks",
        "leave one",
    ),
    "limits per zone without zones": (L4, {"limits": "zone"}, "zones", "are needed"),
    "a zone of another region": (L4, {"zones": ["europe-west4-a"]}, "zones", "us-central1"),
    "NUMA memory without topology": (
        L4,
        {"kubelet": {"memory_manager": "Static"}},
        "kubelet.memory_manager",
        "restricted",
    ),
    "NUMA memory with no topology": (
        L4,
        {"kubelet": {"memory_manager": "Static", "topology_manager": "none"}},
        "kubelet.memory_manager",
        "restricted",
    ),
    "more nodes at least than at most": (
        L4,
        {"min_nodes": 5},
        "min_nodes",
        "is 5, above max_nodes (4)",
    ),
    "an empty list of zones": (L4, {"zones": []}, "zones", "at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(case: str) -> None:
    base, changes, field, way_out = REFUSED[case]
    kind = CpuNodePoolSpec if base["machine_type"].startswith("n2-") else GpuNodePoolSpec
    check(kind, "GpuNodePool p", base | _bought(base) | {"pool_name": "p"})
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        check(kind, "GpuNodePool p", base | changes | {"pool_name": "p"})
    lines = [
        line for line in str(caught.value).splitlines() if line.strip().startswith(f"{field}: ")
    ]
    assert any(way_out in line for line in lines), str(caught.value)


def _bought(base: Any) -> Any:
    """A way to buy the machine of a base, so that the base by itself is right."""
    ways = MACHINE_TYPES[base["machine_type"]].purchase
    if "on-demand" in ways:
        return {}
    return {"spot": True} if "spot" in ways else {"reservation": "r", "zones": ["us-central1-a"]}


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
    "settings that such nodes have": {
        "gvnic": True,
        "auto_repair": True,
        "secure_boot": True,
        "image": "cos",
        "image_streaming": True,
    },
    "the operator's driver on its own image": {"driver": "operator", "secure_boot": False},
    "any open reservation in any zone": {"reservation": "any-or-fail"},
    "a reservation that is not known yet": {
        "reservation": pulumi.Output.from_input("r"),
        "zones": ["us-central1-a"],
    },
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_next_to_a_refusal_is_allowed(case: str) -> None:
    assert check(GpuNodePoolSpec, "GpuNodePool p", L4 | ALLOWED[case] | {"pool_name": "p"})


def test_all_errors_come_at_once() -> None:
    wrong = L4 | {
        "flex_start": True,
        "spot": True,
        "compact_placement": True,
        "fast_socket": True,
        "image": "ubuntu",
    }
    with pytest.raises(pulumi.InputPropertiesError, match="4 invalid arguments"):
        check(GpuNodePoolSpec, "GpuNodePool p", wrong | {"pool_name": "p"})


def pool(arguments: Any) -> dict[str, Any]:
    return inputs(declared(lambda: GpuNodePool("p", arguments))["p-pool"])


def test_the_taint_of_gpus_is_first_whatever_else_is_declared() -> None:
    taints = pool(L4 | {"taints": [{"key": "team", "value": "a", "effect": "NO_EXECUTE"}]})[
        "nodeConfig"
    ]["taints"]
    assert taints == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},
        {"key": "team", "value": "a", "effect": "NO_EXECUTE"},
    ]


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
    assert config["guestAccelerators"][0]["gpuSharingConfig"] == {
        "gpuSharingStrategy": "TIME_SHARING",
        "maxSharedClientsPerGpu": 3,
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"spot": True}, {"consumeReservationType": "NO_RESERVATION"}),
        ({"reservation": "none"}, {"consumeReservationType": "NO_RESERVATION"}),
        ({"reservation": "any"}, {"consumeReservationType": "ANY_RESERVATION"}),
        ({}, None),
        (
            {
                "reservation": "projects/shared/reservations/r/reservationBlocks/b",
                "zones": ["us-central1-a"],
            },
            {
                "consumeReservationType": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": ["projects/shared/reservations/r/reservationBlocks/b"],
            },
        ),
    ],
)
def test_reservations(arguments: Any, expected: Any) -> None:
    assert pool(L4 | arguments)["nodeConfig"].get("reservationAffinity") == expected


def test_flex_start_and_queued_nodes() -> None:
    flex = pool(L4 | {"flex_start": True, "queued_provisioning": True, "max_run_seconds": 3600})
    assert flex["management"] == {"autoRepair": False, "autoUpgrade": True}
    assert pool(L4 | {"queued_provisioning": True})["management"]["autoRepair"] is False
    assert flex["queuedProvisioning"] == {"enabled": True}
    assert flex["initialNodeCount"] == 0
    assert flex["autoscaling"] == {
        "totalMinNodeCount": 0,
        "totalMaxNodeCount": 4,
        "locationPolicy": "ANY",
    }
    assert (flex["nodeConfig"]["flexStart"], flex["nodeConfig"]["maxRunDuration"]) == (
        True,
        "3600s",
    )
    assert flex["nodeConfig"]["labels"]["cloud.google.com/gke-queued"] == "true"
    assert flex["nodeConfig"]["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}


def test_workloads_learn_of_the_taint_of_queued_nodes() -> None:
    seen: list[Any] = []
    declared(
        lambda: seen.extend(GpuNodePool("p", L4 | {"queued_provisioning": True}).tolerations.value)
    )
    assert [toleration["key"] for toleration in seen] == [
        "nvidia.com/gpu",
        "cloud.google.com/gke-queued",
    ]


@pytest.mark.parametrize(
    ("arguments", "autoscaling", "initial"),
    [
        ({"min_nodes": 1}, {"totalMinNodeCount": 1, "totalMaxNodeCount": 4}, 1),
        ({"min_nodes": 1, "max_nodes": 1}, {"totalMinNodeCount": 1, "totalMaxNodeCount": 1}, 0),
        (
            {"min_nodes": 4, "zones": ["us-central1-a"]},
            {"totalMinNodeCount": 4, "totalMaxNodeCount": 4},
            4,
        ),
        (
            {"min_nodes": 2, "limits": "zone", "zones": ["us-central1-a", "us-central1-b"]},
            {"minNodeCount": 2, "maxNodeCount": 4},
            2,
        ),
    ],
)
def test_limits(arguments: Any, autoscaling: Any, initial: int) -> None:
    found = pool(L4 | arguments)
    assert found["autoscaling"] == autoscaling | {"locationPolicy": "ANY"}
    assert found["initialNodeCount"] == initial


@pytest.mark.parametrize(
    ("arguments", "ephemeral", "block"),
    [
        (H100, 16, None),
        (H100 | {"local_ssd": {"use": "block"}}, None, 16),
        (L4, None, None),
        (L4 | {"local_ssd": {"count": 2}}, 2, None),
        (COMMON | {"machine_type": "a3-ultragpu-8g", "max_nodes": 1, "spot": True}, 32, None),
    ],
)
def test_local_ssds(arguments: Any, ephemeral: int | None, block: int | None) -> None:
    config = pool(arguments)["nodeConfig"]
    assert config.get("ephemeralStorageLocalSsdConfig") == (
        ephemeral and {"localSsdCount": ephemeral}
    )
    assert config.get("localNvmeSsdBlockConfig") == (block and {"localSsdCount": block})


def test_images_from_disk_and_by_streaming() -> None:
    disks = [
        {"disk_image": "global/images/cache"},
        {"disk_image": "projects/p/global/images/data", "mode": "DATA"},
    ]
    config = pool(L4 | {"secondary_boot_disks": disks})["nodeConfig"]
    assert config["gcfsConfig"] == {"enabled": True}
    assert config["secondaryBootDisks"] == [
        {"diskImage": "global/images/cache", "mode": "CONTAINER_IMAGE_CACHE"},
        {"diskImage": "projects/p/global/images/data"},
    ]
    assert "gcfsConfig" not in pool(L4)["nodeConfig"]


def test_networks_between_gpus() -> None:
    assert "networkConfig" not in pool(H100)
    four = pool(H100 | {"additional_networks": NETWORKS[:4], "fast_socket": True})
    assert four["networkConfig"] == {"additionalNodeNetworkConfigs": NETWORKS[:4]}
    assert four["nodeConfig"]["fastSocket"] == {"enabled": True}


@pytest.mark.parametrize(
    ("component", "base", "upgrade", "expected"),
    [
        (GpuNodePool, L4, {}, {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0}),
        (
            CpuNodePool,
            COMMON | {"machine_type": "n2-standard-8", "max_nodes": 2},
            {},
            {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
        ),
        (
            GpuNodePool,
            L4,
            {"max_surge": 2},
            {"strategy": "SURGE", "maxSurge": 2, "maxUnavailable": 0},
        ),
        (
            GpuNodePool,
            L4,
            {"max_unavailable": 0},
            {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
        ),
        (
            GpuNodePool,
            L4,
            {"strategy": "BLUE_GREEN", "batch_nodes": 2, "soak_seconds": 600},
            {
                "strategy": "BLUE_GREEN",
                "blueGreenSettings": {
                    "standardRolloutPolicy": {"batchNodeCount": 2},
                    "nodePoolSoakDuration": "600s",
                },
            },
        ),
    ],
)
def test_upgrades(component: Any, base: Any, upgrade: Any, expected: Any) -> None:
    assert (
        inputs(declared(lambda: component("p", base | {"upgrade": upgrade}))["p-pool"])[
            "upgradeSettings"
        ]
        == expected
    )


def test_the_rest_of_what_gke_is_told() -> None:
    found = pool(
        L4
        | {
            "compact_placement": True,
            "placement_policy": "close",
            "zones": ["us-central1-a"],
            "host_maintenance": "PERIODIC",
            "max_pods": 64,
            "no_minor_upgrades": True,
            "threads_per_core": 1,
            "disk_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
            "resource_labels": {"team": "ml"},
            "network_tags": ["gpu"],
            "kubelet": {
                "cpu_manager": "static",
                "topology_manager": "restricted",
                "memory_manager": "Static",
            },
            "linux": {"sysctls": {"net.core.somaxconn": "4096"}, "hugepages": {"2Mi": 512}},
        }
    )
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
    assert config["linuxNodeConfig"] == {
        "sysctls": {"net.core.somaxconn": "4096"},
        "hugepagesConfig": {"hugepageSize2m": 512},
    }


SUPPORTED = [machine for machine in MACHINE_TYPES.values() if not machine.missing]
WITH_GPUS = [machine for machine in SUPPORTED if machine.gpu or machine.family == "n1"]


def pool_of(machine: MachineType, **arguments: Any) -> dict[str, Any]:
    """Return the arguments of a pool of a machine type, bought as that allows."""
    base = COMMON | {"machine_type": machine.name, "max_nodes": 1, "pool_name": "p"}
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
    new = COMMON | {
        "machine_type": "a9-highgpu-8g",
        "max_nodes": 2,
        "pool_name": "p",
        "gpu": "B200",
        "gpus": 8,
    }
    with pytest.raises(
        pulumi.InputPropertiesError,
        match=r"'a9-highgpu-8g' is not in the catalog.*declare its shape",
    ):
        check(GpuNodePoolSpec, "p", new)
    declared_shape = {"machine": {"vcpus": 224, "memory_gib": 3968}, "node_price": 98.5}
    config = pool(new | declared_shape)["nodeConfig"]
    assert config["machineType"] == "a9-highgpu-8g"
    wanted = {"vcpus": "224", "memory-gib": "3968", "arch": "amd64", "usd-per-hour": "98.5"}
    assert {f"ml-foundations/{key}": value for key, value in wanted.items()}.items() <= config[
        "labels"
    ].items()
    with pytest.raises(
        pulumi.InputPropertiesError,
        match="machine: declares g2-standard-24, which is in the catalog",
    ):
        check(
            GpuNodePoolSpec, "p", L4 | {"pool_name": "p", "machine": {"vcpus": 1, "memory_gib": 1}}
        )


R100 = {"accelerator_type": "nvidia-r100", "product": "NVIDIA-R100", "memory_gib": 288}
NEW = COMMON | {
    "machine_type": "a9-highgpu-8g",
    "machine": {"vcpus": 224, "memory_gib": 3968, "gpu": R100},
    "gpus": 8,
    "node_price": 98.5,
    "max_nodes": 2,
    "zones": ["us-central1-a"],
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
    beside = Operator.of(
        {"driver": {"enabled": False}, "toolkit": {"enabled": False}}
    ).with_daemon_sets([driver_installer_manifest("cos")])
    operator = None if sharing else beside
    proved = from_node_pool(made, None, operator)
    assert (proved.unknown, proved.labels["nvidia.com/gpu.product"]) == ((), product)
    assert proved.allocatable["nvidia.com/gpu"] == (16 if sharing else 8) * 1000
    assert price_of(proved) == Decimal("98.5")
    assert all(proved.labels[key] is UNKNOWN for key in labels.GKE_TOPOLOGY)
    simulated = node_pool(made, GcpLocation("p", "us-central1", ""), {"name": "c"})
    node = new_node(simulated, "us-central1-a", operator)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == ("16" if sharing else "8")
    shown = {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": "294912",
        "nvidia.com/gpu.count": "8",
    }
    given = shown | ({"nvidia.com/gpu.count": None} if sharing else {})
    assert {key: node["metadata"]["labels"].get(key) for key in given} == given
    assert [d["attributes"]["productName"]["string"] for d in dra._devices(simulated)] == [
        "NVIDIA R100"
    ] * 8


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"gpu": "B200"}, "machine.gpu: declares nvidia-r100, but gpu is in the catalog"),
        (
            {"machine": {**NEW["machine"], "gpu": R100 | {"accelerator_type": "nvidia-b200"}}},
            "machine.gpu: declares",
        ),
        ({"gpus": None}, "set gpu and gpus"),
        ({"gpus": 17}, "gpus: a9-highgpu-8g can have 1 or 2"),
        (
            {"mig_partition": "1g.36gb", "driver": "default"},
            "NVIDIA-R100: it cannot be partitioned",
        ),
    ],
)
def test_a_gpu_that_is_declared_wrongly_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        check(GpuNodePoolSpec, "p", {**NEW, "pool_name": "p", **more})
    assert message in str(caught.value)


@pytest.mark.parametrize("machine", ["g2-standard-24", "a2-highgpu-1g"])
def test_a_pool_without_gpus_has_no_machines_with_gpus(machine: str) -> None:
    given = COMMON | {"machine_type": machine, "max_nodes": 1, "pool_name": "p"}
    with pytest.raises(
        pulumi.InputPropertiesError, match=f"machine_type: {machine} has GPUs; use a GpuNodePool"
    ):
        check(CpuNodePoolSpec, "p", given)


def test_a_pool_without_gpus_declares_none() -> None:
    given = {key: value for key, value in NEW.items() if key not in ("gpus", "driver")}
    with pytest.raises(pulumi.InputPropertiesError, match="has GPUs; use a GpuNodePool"):
        check(CpuNodePoolSpec, "p", given | {"pool_name": "p"})


@pytest.mark.parametrize("short_lived", ["flex_start", "queued_provisioning"])
def test_nodes_that_gke_removes_have_no_upgrade_settings(short_lived: str) -> None:
    base = L4 | {"location_policy": "ANY"}
    assert "upgradeSettings" in pool(base)
    assert "upgradeSettings" not in pool(base | {short_lived: True})


@pytest.mark.parametrize(
    ("reservation", "kind"),
    [
        ("any", "ANY_RESERVATION"),
        ("any-or-fail", "ANY_RESERVATION_THEN_FAIL"),
        ("r/reservationBlocks/b/reservationSubBlocks/s", "SPECIFIC_RESERVATION"),
    ],
)
def test_a_reservation_is_taken_as_it_says(reservation: str, kind: str) -> None:
    affinity = pool(L4 | {"reservation": reservation, "zones": ["us-central1-a"]})["nodeConfig"][
        "reservationAffinity"
    ]
    assert affinity["consumeReservationType"] == kind


def test_gpu_pools_are_guarded_against_deletion_and_replacement() -> None:
    made = declared(lambda: GpuNodePool("l4", L4))["l4-pool"]
    assert made.protect
    assert inputs(made)["nodeDrainConfigs"] == [{"respectPdbDuringNodePoolDeletion": True}]
    assert not declared(lambda: GpuNodePool("l4", L4 | {"deletion_protection": False}))[
        "l4-pool"
    ].protect
    cpu = {**COMMON, "machine_type": "e2-medium", "max_nodes": 1}
    assert not declared(lambda: CpuNodePool("cpu", cpu))["cpu-pool"].protect


def test_a4x_is_refused_with_what_is_missing() -> None:
    for name in ("a4x-highgpu-4g", "a4x-maxgpu-4g-metal"):
        with pytest.raises(
            pulumi.InputPropertiesError,
            match=f"{name} does not work with these components: .*NVLink",
        ):
            check(
                GpuNodePoolSpec,
                "p",
                COMMON | {"machine_type": name, "max_nodes": 1, "pool_name": "p"},
            )


def test_a_machine_that_gke_does_not_support_is_refused() -> None:
    for size in (16, 32, 64):
        with pytest.raises(
            pulumi.InputPropertiesError,
            match=f"m4-hypermem-{size} does not work .*GKE does not support",
        ):
            given = {"machine_type": f"m4-hypermem-{size}", "max_nodes": 1, "pool_name": "p"}
            check(CpuNodePoolSpec, "p", COMMON | given)


@pytest.mark.parametrize(
    ("machine", "changes", "field"),
    [
        ("n2-standard-8", {"flex_start": True}, "flex_start"),
        ("n1-standard-8", {"flex_start": True}, "flex_start"),
        ("h4d-standard-192", {"flex_start": True}, None),
        ("h4d-standard-192", {"queued_provisioning": True}, "queued_provisioning"),
        ("n2-standard-8", {"queued_provisioning": True}, "queued_provisioning"),
        ("x9-standard-8", {"flex_start": True, "machine": {"vcpus": 8, "memory_gib": 32}}, None),
        (
            "x9-standard-8",
            {
                "queued_provisioning": True,
                "location_policy": "ANY",
                "machine": {"vcpus": 8, "memory_gib": 32},
            },
            None,
        ),
        (
            "x9-standard-8",
            {"threads_per_core": 1, "machine": {"vcpus": 8, "memory_gib": 32, "arch": "arm64"}},
            None,
        ),
        (
            "h4d-standard-192",
            {"flex_start": True, "compact_placement": True, "zones": ["us-central1-a"]},
            None,
        ),
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
    given = COMMON | {"machine_type": machine, "max_nodes": 1, "pool_name": "p"} | changes
    if field is None:
        assert check(CpuNodePoolSpec, "p", given)
        return
    with pytest.raises(pulumi.InputPropertiesError, match=f"{field}: .*{machine}.*leave it out"):
        check(CpuNodePoolSpec, "p", given)


def test_compact_placement_is_for_the_families_that_take_it() -> None:
    given = COMMON | {
        "max_nodes": 1,
        "pool_name": "p",
        "compact_placement": True,
        "zones": ["us-central1-a"],
    }
    assert check(CpuNodePoolSpec, "p", given | {"machine_type": "c4-standard-8"}).compact_placement
    for name in ("n4-standard-8", "z3-highmem-88-highlssd"):
        with pytest.raises(
            pulumi.InputPropertiesError, match=f"compact_placement: is not for {name}"
        ):
            check(CpuNodePoolSpec, "p", given | {"machine_type": name})


def test_pods_for_arm_nodes_tolerate_the_taint_of_gke() -> None:
    arm = check(
        CpuNodePoolSpec,
        "p",
        COMMON | {"machine_type": "c4a-standard-8", "max_nodes": 1, "pool_name": "p"},
    )
    taint = {
        "key": "kubernetes.io/arch",
        "operator": "Equal",
        "value": "arm64",
        "effect": "NoSchedule",
    }
    assert arm.tolerations == [taint]


def test_a_pool_whose_gpus_are_claimed_has_the_labels_of_dra() -> None:
    claimed = pool(L4 | {"driver": "installer", "dra": True})
    assert labels.DRA_POOL_LABELS.items() <= claimed["nodeConfig"]["labels"].items()


@pytest.mark.parametrize(
    ("kubelet", "left"),
    [
        ({}, 15),
        ({"shutdown_grace_period_seconds": 120}, 105),
        (
            {
                "shutdown_grace_period_seconds": 30,
                "shutdown_grace_period_critical_pods_seconds": 10,
            },
            20,
        ),
    ],
)
def test_spot_nodes_leave_their_pods_a_time(kubelet: dict[str, int], left: int) -> None:
    made = pool(L4 | {"spot": True, "kubelet": kubelet})
    sent = made["nodeConfig"]["kubeletConfig"]
    assert sent.get("shutdownGracePeriodSeconds") == kubelet.get("shutdown_grace_period_seconds")
    assert from_node_pool(made).shutdown_grace == left
    assert (
        node_pool(made, GcpLocation("p", "us-central1", ""), {"name": "c"}).shutdown_grace == left
    )
