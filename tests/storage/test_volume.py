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
    assert found["PersistentVolumeClaim"]["dataSource"] == {
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": "VolumeSnapshot",
        "name": "corpus",
    }


def test_an_existing_disk_is_mounted_and_never_deleted() -> None:
    spec = spec_of(size="1Ti", storage_class="hyperdisk-ml", access_mode="ReadOnlyMany", disk=DISK)
    volume, claim = spec.manifests()
    body = volume["spec"]
    assert body["csi"] == {
        "driver": "pd.csi.storage.gke.io",
        "volumeHandle": DISK,
        "fsType": "ext4",
        "readOnly": True,
    }
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
    given: dict[str, Any] = {
        "namespace": "ml",
        "claim_name": "models",
        "bucket": "my-models",
        "attributes": {"fileCacheCapacity": "100Gi"},
        "overrides": {
            "PersistentVolume": {
                "spec": {"csi": {"nodePublishSecretRef": {"name": "n", "namespace": "m"}}}
            }
        },
    }
    [volume, _] = check(VolumeSpec, "Volume", given).manifests()
    csi = volume["spec"]["csi"]
    assert (csi["volumeAttributes"], csi["volumeHandle"]) == (
        {"fileCacheCapacity": "100Gi"},
        "my-models",
    )
    assert csi["nodePublishSecretRef"] == {"name": "n", "namespace": "m"}
    wrong = {**given, "overrides": {"PersistentVolume": {"spec": {"csii": {}}}}}
    with pytest.raises(
        pulumi.InputPropertiesError, match=r"overrides\.PersistentVolume\.spec\.csii"
    ):
        check(VolumeSpec, "Volume", wrong)
    disk = {
        "namespace": "ml",
        "claim_name": "d",
        "size": "1Gi",
        "storage_class": "c",
        "attributes": {"a": "b"},
    }
    with pytest.raises(
        pulumi.InputPropertiesError,
        match="attributes: are for a bucket; set bucket, or leave them out",
    ):
        check(VolumeSpec, "Volume", disk)


def test_a_bucket_of_another_resource_may_be_unknown_at_preview() -> None:
    requests = declared(
        lambda: Volume(
            "data", {"namespace": "ml", "bucket": pulumi.Output.from_input("b").apply(lambda b: b)}
        )
    )
    assert any(urn.endswith("::data-volume") for urn in requests["data-claim"].dependencies)


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
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(case: str) -> None:
    given, reasons = REFUSED[case]
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec_of(**given)
    for reason in reasons:
        assert reason in str(caught.value)


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
NOT_GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    "many writers of a disk": (
        {"storage_class": "zonal-ssd", "access_mode": "ReadWriteMany"},
        MODE,
    ),
    "many readers of hyperdisk-extreme": (
        {"storage_class": "hyperdisk-extreme", "access_mode": "ReadOnlyMany", "snapshot": "s"},
        MODE,
    ),
    "many readers of hyperdisk-ha": (
        {"storage_class": "hyperdisk-ha", "access_mode": "ReadOnlyMany", "snapshot": "s"},
        MODE,
    ),
    "little Lustre": ({"storage_class": "lustre", "size": "9000Gi"}, SIZE),
    "Lustre between two steps": ({"storage_class": "lustre", "size": "20000Gi"}, SIZE),
    "a little hyperdisk-throughput": ({"storage_class": "hyperdisk-throughput"}, SIZE),
    "a little regional pd-standard": ({"storage_class": "two-zones", "size": "100Gi"}, SIZE),
    "a writer of a dataset": ({"storage_class": "datasets", "snapshot": "s"}, MODE),
    "many writers of a disk that exists": (
        {"storage_class": "zonal-ssd", "access_mode": "ReadWriteMany", "disk": DISK},
        MODE,
    ),
}


@pytest.mark.parametrize("case", NOT_GIVEN)
def test_what_a_class_cannot_give(case: str) -> None:
    given, field = NOT_GIVEN[case]
    assert refusals(**given) == [("error", field)]


def test_lustre_comes_in_steps() -> None:
    assert refusals(storage_class="lustre", size="36000Gi", access_mode="ReadWriteMany") == []


@pytest.mark.parametrize(
    ("tier", "size", "is_told"),
    [
        ("basic-hdd", "99Gi", True),
        ("basic-hdd", "100Gi", False),
        ("basic-hdd", "63.9Ti", False),
        ("basic-hdd", "64Ti", True),
        ("zonal", "1023Gi", True),
        ("zonal", "1Ti", False),
        ("zonal", "9984Gi", False),
        ("zonal", "9985Gi", True),
        ("zonal", "12800Gi", False),
        ("zonal", "11Ti", True),
        ("zonal", "101Ti", True),
        ("regional", "99Gi", True),
        ("regional", "100Gi", False),
        ("regional", "300Gi", False),
        ("enterprise", "500Gi", True),
        ("enterprise", "10Ti", False),
        ("enterprise", "11Ti", True),
    ],
)
def test_the_sizes_of_filestore_by_tier(tier: str, size: str, is_told: bool) -> None:
    found = refusals(storage_class=f"filestore-{tier}", size=size, access_mode="ReadWriteMany")
    assert found == [("warning", SIZE)] * is_told


@pytest.mark.parametrize(
    "given",
    [
        {"storage_class": "of-somebody-else", "access_mode": "ReadWriteMany"},
        {"storage_class": "zonal-ssd", "size": "5Gi"},
        {"storage_class": "datasets", "access_mode": "ReadOnlyMany", "snapshot": "s"},
        {"storage_class": "filestore-zonal", "access_mode": "ReadWriteMany"},
        {"storage_class": "hyperdisk-throughput", "disk": DISK, "size": "1Ti"},
    ],
)
def test_what_a_class_can_give(given: dict[str, Any]) -> None:
    assert refusals(**given) == []
