"""Storage classes: those of the seeds, those of every kind of disk and file system, and what is known of each."""

from typing import Any

import pytest
import yaml
from ml_foundations import StorageClasses
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.component.spec import check
from ml_foundations.storage.classes import StorageClassesSpec

from tests.support.declaring import declared, inputs
from tests.support.refusing import assert_refused

NFS = {"server": "nfs.example.internal", "path": "/export"}


def spec_of(**given: Any) -> StorageClassesSpec:
    return check(StorageClassesSpec, "StorageClasses", given)


def classes(**given: Any) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in of_kind("StorageClass", **given)}


def of_kind(kind: str, **given: Any) -> list[dict[str, Any]]:
    return [item for item in spec_of(**given).manifests() if item["kind"] == kind]


def test_the_seeds_class_with_its_zones() -> None:
    assert classes(fast_ssd_zones=["a", "b"])["fast-ssd"] == yaml.safe_load("""
        apiVersion: storage.k8s.io/v1
        kind: StorageClass
        metadata: {name: fast-ssd}
        provisioner: pd.csi.storage.gke.io
        parameters: {type: pd-ssd, replication-type: regional-pd}
        volumeBindingMode: WaitForFirstConsumer
        allowVolumeExpansion: true
        allowedTopologies: [{matchLabelExpressions: [{key: topology.gke.io/zone, values: [a, b]}]}]
    """)


DISKS = {
    "zonal-ssd": {"type": "pd-ssd"},
    "zonal-balanced": {"type": "pd-balanced"},
    "regional-balanced": {"type": "pd-balanced", "replication-type": "regional-pd"},
    "hyperdisk-balanced": {"type": "hyperdisk-balanced"},
    "hyperdisk-ha": {"type": "hyperdisk-balanced-high-availability"},
    "hyperdisk-extreme": {"type": "hyperdisk-extreme"},
    "hyperdisk-throughput": {"type": "hyperdisk-throughput"},
    "hyperdisk-ml": {"type": "hyperdisk-ml", "provisioned-throughput-on-create": "2400Mi"},
}


@pytest.mark.parametrize("name", DISKS)
def test_a_class_of_disks(name: str) -> None:
    found = classes()[name]
    assert found["parameters"] == DISKS[name]
    assert found["volumeBindingMode"] == "WaitForFirstConsumer"
    assert found["allowVolumeExpansion"] is (name != "hyperdisk-ml")


def test_there_is_no_shared_class_that_nobody_asked_for() -> None:
    assert set(classes()) == set(DISKS) | {"fast-ssd"}


def test_datasets_are_copies_of_a_snapshot_in_every_zone() -> None:
    found = classes(dataset_zones=["a", "b"])["datasets"]
    everywhere = {"enable-multi-zone-provisioning": "true"}
    assert found["parameters"] == DISKS["hyperdisk-ml"] | everywhere
    assert found["volumeBindingMode"] == "Immediate"


def test_a_class_of_ones_own() -> None:
    speed = {"iops": 10000, "throughput": "600Mi"}
    mine = {"type": "hyperdisk-balanced", "zones": ["a"], "retain": True, **speed}
    found = classes(disks={"checkpoints": mine})["checkpoints"]
    assert found["parameters"] == {
        "type": "hyperdisk-balanced",
        "provisioned-iops-on-create": "10000",
        "provisioned-throughput-on-create": "600Mi",
    }
    assert found["reclaimPolicy"] == "Retain"


@pytest.mark.parametrize(
    ("tier", "parameter"),
    [("basic-hdd", "standard"), *((name, name) for name in ("zonal", "regional", "enterprise"))],
)
def test_a_filestore_class_for_each_tier(tier: str, parameter: str) -> None:
    found = classes(filestore={"tiers": [tier]}, network="ml")[f"filestore-{tier}"]
    assert found["provisioner"] == "filestore.csi.storage.gke.io"
    assert found["parameters"] == {"tier": parameter, "network": "ml"}


@pytest.mark.parametrize(
    ("zones", "mode"),
    [(["a"], "Immediate"), (["a", "b"], "WaitForFirstConsumer"), ([], "WaitForFirstConsumer")],
)
def test_filestore_in_one_zone_does_not_wait_for_a_node(zones: list[str], mode: str) -> None:
    found = classes(filestore={"zones": zones})["filestore-zonal"]
    topology = {"matchLabelExpressions": [{"key": "topology.gke.io/zone", "values": zones}]}
    assert found["volumeBindingMode"] == mode
    assert found.get("allowedTopologies", []) == ([topology] if zones else [])


def test_filestore_in_a_shared_vpc() -> None:
    network = "projects/host/global/networks/shared"
    found = classes(filestore={"reserved_range": "google-services"}, network=network)
    parameters = found["filestore-zonal"]["parameters"]
    assert parameters["connect-mode"] == "PRIVATE_SERVICE_ACCESS"
    assert parameters["reserved-ip-range"] == "google-services"


@pytest.mark.parametrize("name", ["hyperdisk-ml", "datasets"])
@pytest.mark.parametrize(
    ("given", "wanted"), [({}, "2400Mi"), ({"ml_throughput": "600Mi"}, "600Mi")]
)
def test_the_speed_of_hyperdisk_ml_is_chosen(given: Any, wanted: str, name: str) -> None:
    made = classes(dataset_zones=["a"], **given)[name]
    assert made["parameters"]["provisioned-throughput-on-create"] == wanted


def test_lustre_is_in_the_zones_of_its_nodes() -> None:
    found = classes(lustre={"zones": ["a"], "throughput": 1000}, network="ml")["lustre"]
    assert found["parameters"] == {"perUnitStorageThroughput": "1000", "network": "ml"}
    assert found["volumeBindingMode"] == "Immediate"
    assert found["allowedTopologies"][0]["matchLabelExpressions"][0]["values"] == ["a"]


def test_volumes_and_snapshots_outlive_their_claims_if_asked() -> None:
    given: dict[str, Any] = {"retain": True, "nfs": NFS, "filestore": {}}
    kept = given | {"disks": {"scratch": {"type": "pd-ssd"}}}
    assert {item.get("reclaimPolicy") for item in classes(**kept).values()} == {"Retain"}
    snapshots = of_kind("VolumeSnapshotClass", **kept)
    assert {item["deletionPolicy"] for item in snapshots} == {"Retain"}
    lost = given | {"disks": {"scratch": {"type": "pd-ssd", "retain": False}}}
    assert "reclaimPolicy" not in classes(**lost)["scratch"]


def test_disks_are_encrypted_with_the_given_key() -> None:
    found = classes(encryption_key="k", filestore={"tiers": ["zonal", "basic-hdd"]})
    assert found["zonal-ssd"]["parameters"]["disk-encryption-kms-key"] == "k"
    assert found["filestore-zonal"]["parameters"]["instance-encryption-kms-key"] == "k"
    assert "instance-encryption-kms-key" not in found["filestore-basic-hdd"]["parameters"]


def test_snapshot_classes() -> None:
    drivers = ["pd.csi.storage.gke.io", "filestore.csi.storage.gke.io"]
    assert [each["driver"] for each in of_kind("VolumeSnapshotClass", filestore={})] == drivers
    assert not of_kind("VolumeSnapshotClass", snapshots=False)
    request = declared(lambda: StorageClasses("x", {}))["x-disk-snapshots"]
    assert request.type == "kubernetes:snapshot.storage.k8s.io/v1:VolumeSnapshotClass"
    assert inputs(request)["driver"] == drivers[0]


def disk(**given: Any) -> dict[str, Any]:
    return {"disks": {"x": given}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is taken": (
        {"disks": {"fast-ssd": {"type": "pd-ssd"}}},
        "disks.fast-ssd: is the name of another class",
    ),
    "a regional Hyperdisk": (
        disk(type="hyperdisk-balanced", regional=True),
        "disks.x.regional: is not for hyperdisk-balanced; set type to hyperdisk-balanced-high-availability",
    ),
    "one zone of a regional disk": (
        disk(type="pd-ssd", regional=True, zones=["a"]),
        "disks.x.zones: has 1 entries, and a regional disk is in 2 zones",
    ),
    "three zones of fast-ssd": (
        {"fast_ssd_zones": ["a", "b", "c"]},
        "fast_ssd_zones: has 3 entries",
    ),
    "operations of a persistent disk": (
        disk(type="pd-ssd", iops=3),
        "disks.x.iops: is for Hyperdisk; of pd-ssd it follows from the size",
    ),
    "no such disk": (disk(type="pd-fast"), "disks.x.type"),
    "no such tier": ({"filestore": {"tiers": ["premium"]}}, "filestore.tiers[0]"),
    "no such throughput": ({"lustre": {"zones": ["a"], "throughput": 300}}, "lustre.throughput"),
}


@pytest.mark.parametrize(("given", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    assert_refused(StorageClassesSpec, given, reason)


GPU_FAMILIES = {
    "a2-highgpu-1g": "zonal-ssd",
    "a3-highgpu-8g": "zonal-ssd",
    "a3-ultragpu-8g": "hyperdisk-balanced",
    "a4-highgpu-8g": "hyperdisk-balanced",
    "a4x-highgpu-4g": "hyperdisk-balanced",
    "g2-standard-8": "zonal-ssd",
    "g4-standard-48": "hyperdisk-balanced",
}


@pytest.mark.parametrize(("machine", "name"), GPU_FAMILIES.items())
def test_every_gpu_family_has_a_class_and_fast_ssd_is_not_it(machine: str, name: str) -> None:
    def attaches(disk: dict[str, str]) -> bool | None:
        regional = disk.get("replication-type") == "regional-pd"
        return MACHINE_TYPES[machine].attaches(disk["type"], regional=regional)

    attaching = {name for name, made in classes().items() if attaches(made["parameters"])}
    assert name in attaching
    assert "fast-ssd" not in attaching


def test_the_add_ons_that_classes_need() -> None:
    assert spec_of(filestore={}, lustre={"zones": ["a"]}).add_ons == ["filestore", "lustre"]
    assert spec_of(nfs=NFS).add_ons == []
