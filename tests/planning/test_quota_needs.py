"""The quotas of Google Cloud that declared resources take from, on both sides of what counts."""

import json
from datetime import date
from typing import Any

import pytest
from ml_foundations.catalog.disks import BOOT_DISKS, DISK_TYPES
from ml_foundations.catalog.machine_types import GPUS, MACHINE_TYPES
from ml_foundations.catalog.quotas import quota
from ml_foundations.catalog.services import needed_apis
from ml_foundations.catalog.tables import rows
from ml_foundations.component.children import CloudResource
from ml_foundations.gke.cluster import GkeClusterSpec
from ml_foundations.kubernetes import labels
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.program import CLUSTER, NAT, NETWORK, NODE_POOL, Resource
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.quota_needs import QuotaNeed, quota_needs
from ml_foundations.planning.verdict.report import as_json, as_summary

REGION = "us-central1"
EVERYWHERE = "all regions"
H100 = "GPUS-PER-GPU-FAMILY-per-project-region gpu_family=NVIDIA_H100"


def cluster(**inputs: Any) -> Resource:
    return CLUSTER, {"name": "c", "location": REGION, "nodePools": [{"nodeCount": 0}], **inputs}


def pool(machine: str, scaling: Any = None, config: Any = None, **inputs: Any) -> Resource:
    limits = {"totalMinNodeCount": 1, "totalMaxNodeCount": 4} | (scaling or {})
    nodes = {"machineType": machine, "diskSizeGb": 100, **(config or {})}
    upgrade = {"upgradeSettings": {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1}}
    given = {"name": "p", "location": REGION, "autoscaling": limits, "nodeConfig": nodes}
    return NODE_POOL, given | upgrade | inputs


def gpus(type_: str, count: int, **config: Any) -> dict[str, Any]:
    return {"guestAccelerators": [{"type": type_, "count": count}], **config}


def found(*resources: Resource) -> dict[str, tuple[int, int]]:
    return {need.name: (need.at_least, need.at_most) for need in quota_needs(resources)}


def named(name: str, *resources: Resource) -> QuotaNeed:
    [need] = [need for need in quota_needs(resources) if need.name == name]
    return need


def storage_class(name: str, driver: str, **parameters: str) -> Resource:
    fields = {"metadata": {"name": name}, "provisioner": driver, "parameters": parameters}
    return of_kind("storage.k8s.io/v1", "StorageClass", **fields)


def of_kind(version: str, kind: str, **fields: Any) -> Resource:
    return f"kubernetes:{version}:{kind}", {"apiVersion": version, "kind": kind, **fields}


def claim_spec(class_name: str, size: Any) -> dict[str, Any]:
    return {"storageClassName": class_name, "resources": {"requests": {"storage": size}}}


def claim(class_name: str, size: Any, **spec: Any) -> Resource:
    metadata = {"name": f"{class_name}-claim", "namespace": "ml"}
    return of_kind(
        "v1", "PersistentVolumeClaim", metadata=metadata, spec=claim_spec(class_name, size) | spec
    )


PD, FILESTORE, LUSTRE = (f"{name}.csi.storage.gke.io" for name in ("pd", "filestore", "lustre"))


@pytest.mark.parametrize(
    ("machine", "config", "name", "amounts"),
    [
        ("n2-standard-8", {}, "N2_CPUS", (8, 32)),
        ("e2-standard-4", {}, "CPUS", (4, 16)),
        ("c4-standard-8", {}, "CPUS-PER-VM-FAMILY-per-project-region vm_family=C4", (8, 32)),
        ("n2-standard-8", {"spot": True}, "PREEMPTIBLE_CPUS", (8, 32)),
        ("n2-standard-8", {"advancedMachineFeatures": {"threadsPerCore": 1}}, "N2_CPUS", (8, 32)),
        ("g2-standard-8", gpus("nvidia-l4", 1), "NVIDIA_L4_GPUS", (1, 4)),
        ("g2-standard-8", gpus("nvidia-l4", 1, spot=True), "PREEMPTIBLE_NVIDIA_L4_GPUS", (1, 4)),
        ("g2-standard-8", gpus("nvidia-l4", 1, flexStart=True), "PREEMPTIBLE_NVIDIA_L4_GPUS", (1, 4)),
        ("a3-highgpu-8g", gpus("nvidia-h100-80gb", 8), H100, (8, 32)),
        ("a3-highgpu-8g", gpus("nvidia-h100-80gb", 8), "LOCAL_SSD_TOTAL_GB_PER_VM_FAMILY vm_family=A3", (6000, 24000)),
        ("n2-standard-8", {}, "SSD_TOTAL_GB", (100, 400)),
        ("n2-standard-8", {"diskType": "pd-standard"}, "DISKS_TOTAL_GB", (100, 400)),
        ("n4-standard-8", {"diskType": "hyperdisk-balanced"}, "HDB_TOTAL_GB", (100, 400)),
        ("n2-standard-8", {"localNvmeSsdBlockConfig": {"localSsdCount": 2}},
         "LOCAL_SSD_TOTAL_GB_PER_VM_FAMILY vm_family=N2", (750, 3000)),
        ("n2-standard-8", {}, "INSTANCES", (1, 4)),
        ("n2-standard-8", {}, "CPUS_ALL_REGIONS", (8, 32)),
        ("g2-standard-8", gpus("nvidia-l4", 1, spot=True), "GPUS_ALL_REGIONS", (1, 4)),
    ],
)  # fmt: skip
def test_node_quota_follows_from_machine_and_provisioning(
    machine: str, config: dict[str, Any], name: str, amounts: tuple[int, int]
) -> None:
    assert found(cluster(), pool(machine, config=config))[name] == amounts


def test_queued_nodes_take_the_quota_of_spot() -> None:
    queued = pool(
        "g2-standard-8", config=gpus("nvidia-l4", 1), queuedProvisioning={"enabled": True}
    )
    assert found(cluster(), queued)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (1, 4)


def test_a_shared_gpu_is_one_gpu() -> None:
    sharing = {
        "gpuSharingConfig": {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": 4}
    }
    config = {"guestAccelerators": [{"type": "nvidia-l4", "count": 1, **sharing}]}
    assert found(cluster(), pool("g2-standard-8", config=config))["NVIDIA_L4_GPUS"] == (1, 4)


def test_a_reservation_is_a_row_of_its_own() -> None:
    affinity = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k", "values": ["block"]}
    reserved = gpus("nvidia-l4", 1, reservationAffinity=affinity)
    both = [
        cluster(),
        pool("g2-standard-8", config=reserved),
        pool("g2-standard-8", config=gpus("nvidia-l4", 1)),
    ]
    needs = [need for need in quota_needs(both) if need.name == "NVIDIA_L4_GPUS"]
    assert [(need.at_most, "reservation" in need.note) for need in needs] == [(4, False), (4, True)]


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"strategy": "SURGE", "maxSurge": 2.0}, 6),
        ({"strategy": "SURGE", "maxSurge": 0}, 4),
        ({"strategy": "BLUE_GREEN"}, 8),
        (None, 5),
        (UNKNOWN, 5),
    ],
)
def test_an_upgrade_adds_nodes_at_most(settings: Any, most: int) -> None:
    found_ = found(cluster(), pool("n2-standard-8", upgradeSettings=settings))
    assert found_["INSTANCES"] == (1, most)


def test_nodes_of_flex_start_are_not_upgraded_so() -> None:
    flex = pool("g2-standard-8", config=gpus("nvidia-l4", 1, flexStart=True), upgradeSettings=None)
    assert found(cluster(), flex)["INSTANCES"] == (1, 4)


def test_a_limit_for_each_zone_counts_in_every_zone() -> None:
    zones = {
        "autoscaling": {"minNodeCount": 1, "maxNodeCount": 2},
        "nodeLocations": [f"{REGION}-{z}" for z in "ab"],
    }
    assert found(cluster(), pool("n2-standard-8", **zones))["N2_CPUS"] == (16, 32)


def test_the_removed_default_pool_needs_quota_first() -> None:
    """GKE's default disk in three zones: the 300 GB of terraform-google-kubernetes-engine issue 1795."""
    alone = found(cluster(nodePools=None, removeDefaultNodePool=True, initialNodeCount=1))
    assert alone["SSD_TOTAL_GB"] == (300, 300)
    beside = [cluster(nodePools=None, removeDefaultNodePool=True), pool("n2-standard-8")]
    assert found(*beside)["SSD_TOTAL_GB"] == (300, 400)
    kept = [cluster(nodePools=None, initialNodeCount=1), pool("n2-standard-8")]
    assert found(*kept)["SSD_TOTAL_GB"] == (400, 800)


def test_our_own_cluster_begins_within_a_new_projects_quota() -> None:
    spec = GkeClusterSpec(name="c", project="project", location=REGION)
    [made] = [part.declared for part in spec.children() if part.suffix == "cluster"]
    assert isinstance(made, CloudResource)
    needs = found((made.type, made.inputs))
    assert "SSD_TOTAL_GB" not in needs
    assert needs["DISKS_TOTAL_GB"] == (90, 90)
    assert needs["CPUS"] == (6, 6)


@pytest.mark.parametrize(
    ("resources", "name", "amounts"),
    [
        ([storage_class("fast", PD, type="pd-ssd"), claim("fast", "10Gi")], "SSD_TOTAL_GB", (10, 10)),
        ([storage_class("fast", PD, type="pd-ssd"), claim("fast", "10.5Gi")], "SSD_TOTAL_GB", (11, 11)),
        ([storage_class("r", PD, type="pd-ssd", **{"replication-type": "regional-pd"}), claim("r", "10Gi")],
         "SSD_TOTAL_GB", (10, 20)),
        ([claim("standard-rwo", "10Gi")], "SSD_TOTAL_GB", (10, 10)),
        ([storage_class("b", PD, type="hyperdisk-balanced"), claim("b", "1Gi")], "HDB_TOTAL_GB", (4, 4)),
        ([storage_class("z", FILESTORE, tier="zonal"), claim("z", "1100Gi")],
         "EnterpriseStorageGibPerRegion", (1280, 1280)),
        ([storage_class("l", LUSTRE, perUnitStorageThroughput="1000"), claim("l", "9001Gi")],
         "Managed Lustre capacity", (18000, 18000)),
        ([claim("standard", "10Gi")], "DISKS_TOTAL_GB", (10, 10)),
        ([storage_class("nfs", FILESTORE, tier="standard"), claim("nfs", "100Gi")],
         "StandardStorageGbPerRegion", (1024, 1024)),
        ([storage_class("nfs", FILESTORE, tier="zonal"), claim("nfs", "2Ti")],
         "EnterpriseStorageGibPerRegion", (2048, 2048)),
        ([storage_class("ml", PD, type="hyperdisk-ml", **{"provisioned-throughput-on-create": "2400Mi"}),
          claim("ml", "10Gi")], "HDML_TOTAL_THROUGHPUT", (2400, 2400)),
    ],
)  # fmt: skip
def test_claims_take_the_quota_of_their_class(
    resources: list[Resource], name: str, amounts: tuple[int, int]
) -> None:
    assert found(cluster(), *resources)[name] == amounts


def test_a_dataset_is_a_disk_in_each_zone() -> None:
    name, made = storage_class(
        "data", PD, type="hyperdisk-ml", **{"enable-multi-zone-provisioning": "true"}
    )
    zones = [{"key": labels.GKE_ZONE, "values": [f"{REGION}-a", f"{REGION}-b"]}]
    made = {**made, "allowedTopologies": [{"matchLabelExpressions": zones}]}
    assert found(cluster(), (name, made), claim("data", "100Gi"))["HDML_TOTAL_GB"] == (200, 200)
    made["parameters"] |= {
        "enable-multi-zone-provisioning": "false",
        "provisioned-throughput-on-create": UNKNOWN,
    }
    assert found(cluster(), (name, made), claim("data", "100Gi"))["HDML_TOTAL_GB"] == (100, 100)


def test_a_stateful_set_makes_a_claim_for_each_replica() -> None:
    template = {"metadata": {"name": "data"}, "spec": claim_spec("fast", "10Gi")}
    spec = {"replicas": 3.0, "volumeClaimTemplates": [template]}
    made = of_kind("apps/v1", "StatefulSet", metadata={"name": "s"}, spec=spec)
    disks = storage_class("fast", PD, type="pd-standard")
    assert found(cluster(), disks, made)["DISKS_TOTAL_GB"] == (30, 30)


def test_a_volume_that_exists_takes_no_more() -> None:
    volume = of_kind("v1", "PersistentVolume", metadata={"name": "v"}, spec={"capacity": {"storage": "10Gi"},
        "claimRef": {"namespace": "ml", "name": "fast-claim"}, "storageClassName": "fast"})  # fmt: skip
    disks = [
        storage_class("fast", PD, type="pd-standard"),
        claim("fast", "10Gi", volumeName="v"),
        volume,
    ]
    assert "DISKS_TOTAL_GB" not in found(cluster(), *disks)


@pytest.mark.parametrize("size", [UNKNOWN, None, "much"])
def test_a_size_that_is_not_known_is_not_counted(size: Any) -> None:
    disks = [storage_class("fast", PD, type="pd-standard"), claim("fast", size)]
    assert "DISKS_TOTAL_GB" not in found(cluster(), *disks)


def test_cloud_nat_reserves_an_address() -> None:
    need = named("STATIC_ADDRESSES", cluster(), (NAT, {"region": REGION}))
    assert (need.at_least, need.note[:10]) == (1, "unverified")


@pytest.mark.parametrize(("count", "needed"), [(0, None), (1, None), (2, 2), (9, 9)])
def test_more_than_one_network_needs_a_quota(count: int, needed: int | None) -> None:
    networks = [(NETWORK, {"name": f"n{index}"}) for index in range(count)]
    need = found(cluster(), *networks).get("NETWORKS")
    assert need == (needed and (needed, needed))
    if needed:
        assert named("NETWORKS", cluster(), *networks).region == EVERYWHERE


@pytest.mark.parametrize("config", [{"machineType": UNKNOWN}, {"machineType": "x9-standard-4"}])
def test_nodes_of_which_too_little_is_known_are_named(config: dict[str, Any]) -> None:
    need = named("p", cluster(), pool("n2-standard-8", config=config))
    assert (need.at_least, need.unit) == (0, "nodes")
    assert "not counted" in need.note


def test_a_name_without_a_source_says_so() -> None:
    assert named("CPUS", cluster(), pool("g2-standard-8")).note.startswith("unverified")
    assert not named("CPUS", cluster(), pool("e2-standard-8")).note


def test_objects_alone_need_no_quota() -> None:
    assert quota_needs([of_kind("v1", "Namespace", metadata={"name": "ml"})]) == ()
    assert "quotas of Google Cloud" not in as_summary(judge_program([]))


def test_the_proof_says_how_many_quotas_and_the_largest() -> None:
    verdicts = judge_program([cluster(), pool("a3-highgpu-8g", config=gpus("nvidia-h100-80gb", 8))])
    line = f"such as 32 {H100} in us-central1; `ml-foundations quota` lists them all."
    assert line in as_summary(verdicts)
    listed = json.loads(json.dumps(as_json(verdicts)))["quota"]
    assert {
        "region": REGION,
        "name": H100,
        "at_least": 8,
        "at_most": 32,
        "unit": "GPUs",
        "note": "",
    } in listed


def test_the_table_has_what_the_catalog_has() -> None:
    known = {row["what"]: row for row in rows("quotas.csv")}
    assert {f"gpu/{gpu}" for gpu in GPUS} <= known.keys()
    assert {f"disk/{disk}" for disk in BOOT_DISKS} <= known.keys()
    assert all(quota("disk", disk)["standard"] for disk in DISK_TYPES)
    assert all(quota("vcpu", machine.partition("-")[0])["standard"] for machine in MACHINE_TYPES)
    for row in known.values():
        assert row["source"] and date.fromisoformat(row["source_date"]), row
        assert set(row["unverified"].split()) <= {"standard", "preemptible"}, row


API_FIELDS: dict[str, Resource] = {
    "cloudkms": cluster(databaseEncryption={"state": "ENCRYPTED", "keyName": "key"}),
    "containersecurity": cluster(securityPostureConfig={"mode": "BASIC"}),
    "binaryauthorization": cluster(
        binaryAuthorization={"evaluationMode": "PROJECT_SINGLETON_POLICY_ENFORCE"}
    ),
    "file": cluster(addonsConfig={"gcpFilestoreCsiDriverConfig": {"enabled": True}}),
    "lustre": cluster(addonsConfig={"lustreCsiDriverConfig": {"enabled": True}}),
    "parallelstore": cluster(addonsConfig={"parallelstoreCsiDriverConfig": {"enabled": True}}),
    "logging": cluster(loggingConfig={"enableComponents": ["WORKLOADS"]}),
    "monitoring": cluster(monitoringConfig={"enableComponents": ["DCGM"]}),
    "containerfilesystem": pool("n2-standard-8", config={"gcfsConfig": {"enabled": True}}),
    "servicenetworking": storage_class(
        "nfs", FILESTORE, **{"connect-mode": "PRIVATE_SERVICE_ACCESS"}
    ),
    "storage": ("gcp:storage/bucket:Bucket", {}),
    "iamcredentials": cluster(workloadIdentityConfig={"workloadPool": UNKNOWN}),
}


@pytest.mark.parametrize("api", API_FIELDS)
def test_a_field_that_needs_an_api_brings_its_line(api: str) -> None:
    type_, inputs = API_FIELDS[api]
    assert f"{api}.googleapis.com" in needed_apis([(type_, inputs)])
    assert f"{api}.googleapis.com" not in needed_apis([cluster(addonsConfig={"lustreCsiDriverConfig": {"enabled": False}},
        securityPostureConfig={"mode": "DISABLED"}, binaryAuthorization={"evaluationMode": "DISABLED"})])  # fmt: skip


def test_every_api_has_a_source() -> None:
    for row in rows("apis.csv"):
        assert row["api"].endswith(".googleapis.com") and row["reason"] and row["source"], row
        assert date.fromisoformat(row["source_date"]), row


def test_nodes_created_by_gke_are_named_for_new_clusters() -> None:
    made = named("nodes of pools that GKE makes", cluster(clusterAutoscaling={"enabled": True}))
    assert "not counted" in made.note
    pods = of_kind("v1", "Namespace", metadata={"name": "ml"})
    assert (
        next(need.name for need in quota_needs([pods, pool("n2-standard-8")])) == "CPUS_ALL_REGIONS"
    )
    assert quota_needs([pods]) == ()
