"""Storage classes: those of the seeds, those of every kind of disk and file system, and what is known of each."""

from typing import Any

import pulumi
import pytest
from ml_foundations import StorageClasses
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.component.spec import check
from ml_foundations.storage.classes import StorageClassesSpec

from tests.support.declaring import declared, inputs

NFS = {"server": "nfs.example.internal", "path": "/export"}


def spec_of(**given: Any) -> StorageClassesSpec:
    return check(StorageClassesSpec, "StorageClasses", given)


def classes(**given: Any) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in of_kind("StorageClass", **given)}


def of_kind(kind: str, **given: Any) -> list[dict[str, Any]]:
    return [item for item in spec_of(**given).manifests() if item["kind"] == kind]


def test_the_seeds_class_with_its_zones() -> None:
    assert classes(fast_ssd_zones=["a", "b"])["fast-ssd"] == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast-ssd"},
        "provisioner": "pd.csi.storage.gke.io",
        "parameters": {"type": "pd-ssd", "replication-type": "regional-pd"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "topology.gke.io/zone", "values": ["a", "b"]}]}
        ],
    }


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
    assert found["parameters"] == {
        "type": "hyperdisk-ml",
        "provisioned-throughput-on-create": "2400Mi",
        "enable-multi-zone-provisioning": "true",
    }
    assert found["volumeBindingMode"] == "Immediate"


def test_a_class_of_ones_own() -> None:
    mine = {
        "type": "hyperdisk-balanced",
        "iops": 10000,
        "throughput": "600Mi",
        "zones": ["a"],
        "retain": True,
    }
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
    found = classes(
        filestore={"reserved_range": "google-services"},
        network="projects/host/global/networks/shared",
    )
    assert found["filestore-zonal"]["parameters"]["connect-mode"] == "PRIVATE_SERVICE_ACCESS"
    assert found["filestore-zonal"]["parameters"]["reserved-ip-range"] == "google-services"


def test_the_speed_of_hyperdisk_ml_is_chosen() -> None:
    throughput = "provisioned-throughput-on-create"
    for given, wanted in (({}, "2400Mi"), ({"ml_throughput": "600Mi"}, "600Mi")):
        made = classes(dataset_zones=["a"], **given)
        assert {made[name]["parameters"][throughput] for name in ("hyperdisk-ml", "datasets")} == {
            wanted
        }


def test_lustre_is_in_the_zones_of_its_nodes() -> None:
    found = classes(lustre={"zones": ["a"], "throughput": 1000}, network="ml")["lustre"]
    assert found["parameters"] == {"perUnitStorageThroughput": "1000", "network": "ml"}
    assert found["volumeBindingMode"] == "Immediate"
    assert found["allowedTopologies"][0]["matchLabelExpressions"][0]["values"] == ["a"]


def test_volumes_and_snapshots_outlive_their_claims_if_asked() -> None:
    given: dict[str, Any] = {
        "retain": True,
        "nfs": NFS,
        "filestore": {},
        "disks": {"scratch": {"type": "pd-ssd"}},
    }
    assert {item.get("reclaimPolicy") for item in classes(**given).values()} == {"Retain"}
    assert {item["deletionPolicy"] for item in of_kind("VolumeSnapshotClass", **given)} == {
        "Retain"
    }
    given["disks"]["scratch"]["retain"] = False
    assert "reclaimPolicy" not in classes(**given)["scratch"]


def test_disks_are_encrypted_with_the_given_key() -> None:
    found = classes(encryption_key="k", filestore={"tiers": ["zonal", "basic-hdd"]})
    assert found["zonal-ssd"]["parameters"]["disk-encryption-kms-key"] == "k"
    assert found["filestore-zonal"]["parameters"]["instance-encryption-kms-key"] == "k"
    assert "instance-encryption-kms-key" not in found["filestore-basic-hdd"]["parameters"]


def test_snapshot_classes() -> None:
    assert [item["driver"] for item in of_kind("VolumeSnapshotClass", filestore={})] == [
        "pd.csi.storage.gke.io",
        "filestore.csi.storage.gke.io",
    ]
    assert not of_kind("VolumeSnapshotClass", snapshots=False)
    requests = declared(lambda: StorageClasses("x", {}))
    request = requests["x-disk-snapshots"]
    assert request.type == "kubernetes:snapshot.storage.k8s.io/v1:VolumeSnapshotClass"
    assert inputs(request)["driver"] == "pd.csi.storage.gke.io"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is taken": (
        {"disks": {"fast-ssd": {"type": "pd-ssd"}}},
        "disks.fast-ssd: is the name of another class",
    ),
    "a regional Hyperdisk": (
        {"disks": {"x": {"type": "hyperdisk-balanced", "regional": True}}},
        "disks.x.regional: is not for hyperdisk-balanced; set type to hyperdisk-balanced-high-availability",
    ),
    "one zone of a regional disk": (
        {"disks": {"x": {"type": "pd-ssd", "regional": True, "zones": ["a"]}}},
        "disks.x.zones: has 1 entries, and a regional disk is in 2 zones",
    ),
    "three zones of fast-ssd": (
        {"fast_ssd_zones": ["a", "b", "c"]},
        "fast_ssd_zones: has 3 entries",
    ),
    "operations of a persistent disk": (
        {"disks": {"x": {"type": "pd-ssd", "iops": 3}}},
        "disks.x.iops: is for Hyperdisk; of pd-ssd it follows from the size",
    ),
    "no such disk": ({"disks": {"x": {"type": "pd-fast"}}}, "disks.x.type"),
    "no such tier": ({"filestore": {"tiers": ["premium"]}}, "filestore.tiers[0]"),
    "no such throughput": ({"lustre": {"zones": ["a"], "throughput": 300}}, "lustre.throughput"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(case: str) -> None:
    given, reason = REFUSED[case]
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec_of(**given)
    assert reason in str(caught.value)


GPU_FAMILIES = {
    "a2-highgpu-1g": "zonal-ssd",
    "a3-highgpu-8g": "zonal-ssd",
    "a3-ultragpu-8g": "hyperdisk-balanced",
    "a4-highgpu-8g": "hyperdisk-balanced",
    "a4x-highgpu-4g": "hyperdisk-balanced",
    "g2-standard-8": "zonal-ssd",
    "g4-standard-48": "hyperdisk-balanced",
}


@pytest.mark.parametrize("machine", GPU_FAMILIES)
def test_every_gpu_family_has_a_class_and_fast_ssd_is_not_it(machine: str) -> None:
    parameters = {name: found["parameters"] for name, found in classes().items()}
    attaching = {
        name
        for name, each in parameters.items()
        if MACHINE_TYPES[machine].attaches(
            each["type"], regional=each.get("replication-type") == "regional-pd"
        )
    }
    assert GPU_FAMILIES[machine] in attaching
    assert "fast-ssd" not in attaching


def test_the_add_ons_that_classes_need() -> None:
    assert spec_of(filestore={}, lustre={"zones": ["a"]}).add_ons == ["filestore", "lustre"]
    assert spec_of(nfs=NFS).add_ons == []
