"""Volumes: claims, what exists already, and data that stays."""

from typing import Any

import pulumi
import pytest
from ml_foundations import Volume
from ml_foundations.component.spec import check
from ml_foundations.planning import judge
from ml_foundations.storage.classes import StorageClassesSpec
from ml_foundations.storage.volume import VolumeSpec

from tests.support.declaring import declared
from tests.support.refusing import assert_refused

DISK = "projects/p/zones/us-central1-a/disks/corpus"


def spec_of(**given: Any) -> VolumeSpec:
    return check(VolumeSpec, "Volume", {"namespace": "ml", "claim_name": "data", **given})


def made(**given: Any) -> dict[str, dict[str, Any]]:
    """The spec of each object, by its kind."""
    return {manifest["kind"]: manifest["spec"] for manifest in spec_of(**given).manifests()}


def test_a_claim_of_a_class() -> None:
    assert made(size="500Gi", storage_class="zonal-ssd") == {
        "PersistentVolumeClaim": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "zonal-ssd",
            "resources": {"requests": {"storage": "500Gi"}},
        }
    }


def test_a_dataset_starts_from_a_snapshot() -> None:
    found = made(
        size="1Ti", storage_class="datasets", access_mode="ReadOnlyMany", snapshot="corpus"
    )
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "corpus"}
    assert found["PersistentVolumeClaim"]["dataSource"] == source


def test_an_existing_disk_is_mounted_and_never_deleted() -> None:
    spec = spec_of(size="1Ti", storage_class="hyperdisk-ml", access_mode="ReadOnlyMany", disk=DISK)
    volume, claim = spec.manifests()
    body = volume["spec"]
    source = {"driver": "pd.csi.storage.gke.io", "volumeHandle": DISK}
    assert body["csi"] == source | {"fsType": "ext4", "readOnly": True}
    assert body["persistentVolumeReclaimPolicy"] == "Retain"
    assert body["claimRef"] == {"namespace": "ml", "name": "data"}
    [term] = body["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["us-central1-a"]
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "ml-data"


@pytest.mark.parametrize("where", ["zones/multi-zone", "regions/us-central1"])
def test_a_disk_in_several_zones_binds_to_none(where: str) -> None:
    found = made(size="1Ti", storage_class="x", disk=f"projects/p/{where}/disks/d")
    assert "nodeAffinity" not in found["PersistentVolume"]


def test_a_bucket_needs_neither_size_nor_class() -> None:
    found = made(bucket="my-bucket", mount_options=["implicit-dirs"])
    volume = found["PersistentVolume"]
    assert volume["csi"] == {"driver": "gcsfuse.csi.storage.gke.io", "volumeHandle": "my-bucket"}
    assert volume["mountOptions"] == ["implicit-dirs"]
    assert found["PersistentVolumeClaim"]["accessModes"] == ["ReadWriteMany"]


def test_whatever_a_volume_has_can_be_said() -> None:
    secret = {"name": "n", "namespace": "m"}
    overrides = {"PersistentVolume": {"spec": {"csi": {"nodePublishSecretRef": secret}}}}
    attributes = {"fileCacheCapacity": "100Gi"}
    volumes = made(bucket="my-models", attributes=attributes, overrides=overrides)
    csi = volumes["PersistentVolume"]["csi"]
    assert csi["volumeAttributes"] == attributes
    assert csi["volumeHandle"] == "my-models"
    assert csi["nodePublishSecretRef"] == secret


def test_a_bucket_of_another_resource_may_be_unknown_at_preview() -> None:
    def program() -> None:
        bucket = pulumi.Output.from_input("b").apply(lambda b: b)
        Volume("data", {"namespace": "ml", "bucket": bucket})

    assert any(
        urn.endswith("::data-volume") for urn in declared(program)["data-claim"].dependencies
    )


@pytest.mark.parametrize("data", [True, False])
def test_data_is_protected_and_stays_and_scratch_space_is_not(data: bool) -> None:
    requests = declared(lambda: Volume("x", {"namespace": "ml", "bucket": "bbb", "data": data}))
    for name in ("x-claim", "x-volume"):
        assert requests[name].protect is data
        assert requests[name].retainOnDelete is data


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing said": ({}, ["size: is required"]),
    "a disk without a class": (
        {"size": "1Ti", "disk": DISK},
        ["storage_class: is required for an existing disk"],
    ),
    "two sources": (
        {"size": "1Ti", "storage_class": "x", "disk": DISK, "snapshot": "s"},
        ["1 invalid argument:", "disk: a volume has one source, but snapshot is set too"],
    ),
    "a bucket and a snapshot": (
        {"bucket": pulumi.Output.from_input("b"), "snapshot": "s"},
        ["1 invalid argument:", "bucket: a volume has one source, but snapshot is set too"],
    ),
    "a bucket and a disk": (
        {"bucket": "bbb", "disk": DISK, "storage_class": "gcs-fuse"},
        ["1 invalid argument:", "bucket: a volume has one source, but disk is set too"],
    ),
    "three sources": (
        {"bucket": "bbb", "disk": DISK, "storage_class": "gcs-fuse", "snapshot": "s"},
        ["1 invalid argument:", "disk: a volume has one source, but snapshot is set too"],
    ),
    "a class of a bucket": (
        {"bucket": "bbb", "storage_class": "zonal-ssd"},
        ["storage_class: is for disks"],
    ),
    "no disk": (
        {"size": "1Ti", "storage_class": "x", "disk": "corpus"},
        ['disk: is "corpus"; it must be projects/'],
    ),
    "read only and empty": (
        {"size": "1Ti", "storage_class": "x", "access_mode": "ReadOnlyMany"},
        ["access_mode: is ReadOnlyMany, so it would stay empty"],
    ),
    "options of a class": (
        {"size": "1Ti", "storage_class": "x", "mount_options": ["ro"]},
        ["mount_options: are for a disk or bucket"],
    ),
    "attributes of a disk": (
        {"size": "1Gi", "storage_class": "c", "attributes": {"a": "b"}},
        ["attributes: are for a bucket; set bucket, or leave them out"],
    ),
    "an override of no field": (
        {"bucket": "bbb", "overrides": {"PersistentVolume": {"spec": {"csii": {}}}}},
        ["overrides.PersistentVolume.spec.csii"],
    ),
}


@pytest.mark.parametrize(("given", "reasons"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(
    given: dict[str, Any], reasons: list[str]
) -> None:
    assert_refused(VolumeSpec, {"namespace": "ml", "claim_name": "data", **given}, *reasons)


OF_CLASSES = StorageClassesSpec(
    dataset_zones=["a"],
    filestore={"tiers": ["basic-hdd", "zonal", "regional", "enterprise"]},  # pyright: ignore[reportArgumentType]
    lustre={"zones": ["a"]},  # pyright: ignore[reportArgumentType]
    disks={"two-zones": {"type": "pd-standard", "regional": True}},  # pyright: ignore[reportArgumentType]
)


def refusals(**given: Any) -> list[tuple[str, str]]:
    """What the proof says to a claim of a class: severity and field."""
    volume = spec_of(**{"size": "1Ti", **given})
    found = judge([*OF_CLASSES.manifests(), *volume.manifests()]).findings
    return [(f.severity, f.path) for f in found if f.rule == "volume-class"]


MODE, SIZE = "spec.accessModes", "spec.resources.requests.storage"
MANY_WRITERS = {"access_mode": "ReadWriteMany"}
MANY_READERS = {"access_mode": "ReadOnlyMany", "snapshot": "s"}
NOT_GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    "many writers of a disk": ({"storage_class": "zonal-ssd", **MANY_WRITERS}, MODE),
    "many readers of hyperdisk-extreme": (
        {"storage_class": "hyperdisk-extreme", **MANY_READERS},
        MODE,
    ),
    "many readers of hyperdisk-ha": ({"storage_class": "hyperdisk-ha", **MANY_READERS}, MODE),
    "little Lustre": ({"storage_class": "lustre", "size": "9000Gi"}, SIZE),
    "Lustre between two steps": ({"storage_class": "lustre", "size": "20000Gi"}, SIZE),
    "a little hyperdisk-throughput": ({"storage_class": "hyperdisk-throughput"}, SIZE),
    "a little regional pd-standard": ({"storage_class": "two-zones", "size": "100Gi"}, SIZE),
    "a writer of a dataset": ({"storage_class": "datasets", "snapshot": "s"}, MODE),
    "many writers of a disk that exists": (
        {"storage_class": "zonal-ssd", "disk": DISK, **MANY_WRITERS},
        MODE,
    ),
}


@pytest.mark.parametrize(("given", "field"), NOT_GIVEN.values(), ids=NOT_GIVEN)
def test_what_a_class_cannot_give(given: dict[str, Any], field: str) -> None:
    assert refusals(**given) == [("error", field)]


@pytest.mark.parametrize(
    ("tier", "size", "is_told"),
    [
        *(("basic-hdd", size, True) for size in ("99Gi", "64Ti")),
        *(("basic-hdd", size, False) for size in ("100Gi", "63.9Ti")),
        *(("zonal", size, True) for size in ("1023Gi", "9985Gi", "11Ti", "101Ti")),
        *(("zonal", size, False) for size in ("1Ti", "9984Gi", "12800Gi")),
        ("regional", "99Gi", True),
        *(("regional", size, False) for size in ("100Gi", "300Gi")),
        *(("enterprise", size, True) for size in ("500Gi", "11Ti")),
        ("enterprise", "10Ti", False),
    ],
)
def test_the_sizes_of_filestore_by_tier(tier: str, size: str, is_told: bool) -> None:
    found = refusals(storage_class=f"filestore-{tier}", size=size, access_mode="ReadWriteMany")
    assert found == [("warning", SIZE)] * is_told


@pytest.mark.parametrize(
    "given",
    [
        {"storage_class": "of-somebody-else", **MANY_WRITERS},
        {"storage_class": "zonal-ssd", "size": "5Gi"},
        {"storage_class": "datasets", **MANY_READERS},
        {"storage_class": "filestore-zonal", **MANY_WRITERS},
        {"storage_class": "hyperdisk-throughput", "disk": DISK},
        # Lustre comes in steps.
        {"storage_class": "lustre", "size": "36000Gi", **MANY_WRITERS},
    ],
    ids=lambda given: given["storage_class"],
)
def test_what_a_class_can_give(given: dict[str, Any]) -> None:
    assert refusals(**given) == []
