"""ModelCache: weights in a bucket, on a disk or in an image, mounted read-only by all servers."""

from typing import Any

import pytest
from ml_foundations.component.children import CloudResource
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.spec import check
from ml_foundations.storage.classes import StorageClassesSpec
from ml_foundations.workloads.inference_service import InferenceServiceSpec
from ml_foundations.workloads.model_cache import ModelCacheSpec

from tests.support.declaring import declared, inputs

DOWNLOAD = {"image": "google/cloud-sdk:slim", "command": ["gcloud", "storage", "cp"]}
DISK: dict[str, Any] = {"size": "1Ti", "download": DOWNLOAD}
BUCKET = {"bucket": "my-models"}
PROFILE: dict[str, Any] = {"serving_profile": True, "project_number": "12345"}
PROFILE |= {"bucket_location": "us-east4"}


def cache(**args: Any) -> ModelCacheSpec:
    return check(ModelCacheSpec, "ModelCache", {"cache_name": "r1", "namespace": "ml"} | args)


def server(**args: Any) -> dict[str, Any]:
    least = {"service_name": "chat", "namespace": "ml", "image": "i", "gpu": "H100"}
    made = check(InferenceServiceSpec, "InferenceService", least | args).manifests()[0]
    return made["spec"]["template"]


@pytest.mark.parametrize(
    ("args", "source"),
    [
        (BUCKET, {"persistentVolumeClaim": {"claimName": "r1"}}),
        ({"image": "m@sha256:0"}, {"image": {"reference": "m@sha256:0"}}),
        (DISK, {"persistentVolumeClaim": {"claimName": cache(**DISK).claim_name}}),
    ],
)
def test_servers_mount_it_read_only(args: dict[str, Any], source: dict[str, Any]) -> None:
    template = server(model_cache=cache(**args).model_cache)
    assert {"name": "r1"} | source in template["spec"]["volumes"]
    mount = {"name": "r1", "mountPath": "/models", "readOnly": True}
    assert mount in template["spec"]["containers"][0]["volumeMounts"]
    annotated = template["metadata"].get("annotations", {}).get("gke-gcsfuse/volumes")
    assert annotated == ("true" if args is BUCKET else None)


def test_a_disk_is_filled_copied_and_then_mounted() -> None:
    source, job, snapshot, claim = cache(**DISK).manifests()
    assert source["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert source["spec"]["storageClassName"] == "weights-source"
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/models"
    assert snapshot["spec"]["source"] == {"persistentVolumeClaimName": source["metadata"]["name"]}
    assert claim["spec"]["dataSource"]["name"] == snapshot["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadOnlyMany"]
    assert claim["spec"]["storageClassName"] == "weights"


def test_a_disk_that_was_copied_is_deleted_and_another_is_filled() -> None:
    name = cache(**DISK).claim_name
    snapshot, claim = cache(**DISK, filled=name).manifests()
    assert {each["metadata"]["name"] for each in (snapshot, claim)} == {name}
    made = cache(**DISK, filled=name).children()
    waits = {child.suffix: list(child.depends_on) for child in made}
    assert waits == {"snapshot": [], "claim": ["snapshot"]}
    other = DISK | {"size": "2Ti"}
    assert len(cache(**other, filled=name).manifests()) == 4


def test_all_that_weights_need_is_deleted_with_their_claims() -> None:
    zones = ["us-central1-a", "us-central1-b"]
    storage = check(StorageClassesSpec, "s", {"dataset_zones": zones, "retain": True})
    named = {(each["kind"], each["metadata"]["name"]): each for each in storage.manifests()}
    source, _, snapshot, claim = cache(**DISK).manifests()
    for manifest in (source, claim):
        used = named["StorageClass", manifest["spec"]["storageClassName"]]
        assert used.get("reclaimPolicy", "Delete") == "Delete"
    used = named["VolumeSnapshotClass", snapshot["spec"]["volumeSnapshotClassName"]]
    assert used["deletionPolicy"] == "Delete"
    assert named["StorageClass", "datasets"]["reclaimPolicy"] == "Retain"
    speed = named["StorageClass", "weights-source"]["parameters"]
    assert speed["provisioned-throughput-on-create"] == "800Mi"


def test_another_download_is_another_disk() -> None:
    other = DOWNLOAD | {"command": ["gcloud", "version"]}
    assert cache(**DISK).claim_name != cache(**DISK | {"download": other}).claim_name
    assert cache(**DISK).claim_name != cache(**DISK | {"size": "2Ti"}).claim_name
    longer = DOWNLOAD | {"seconds": 9000, "cpu": "8"}
    assert cache(**DISK).claim_name == cache(**DISK | {"download": longer}).claim_name


FAR = BUCKET | {"location": "us-central1"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "bucket: a cache has no source"),
        (BUCKET | {"image": "i"}, "bucket: a cache has bucket and image"),
        ({"size": "1Ti"}, "download: size and download go together"),
        (DISK | {"size": "7Ti"}, "size: is 7Ti, and a disk to fill has 6Ti at most"),
        (BUCKET | {"filled": "r1"}, "filled: is for a disk"),
        ({"image": "i", "serving_profile": True}, "serving_profile: is for a bucket"),
        (BUCKET | {"serving_profile": True}, "bucket_location: is required"),
        (BUCKET | {"serving_profile": True, "bucket_location": "us-east4"}, "project_number: is"),
        (BUCKET | PROFILE | {"file_cache": "1Ti"}, "file_cache: is GKE's own with serving_prof"),
        ({"image": "i", "file_cache": "1Ti"}, "file_cache: is for a bucket"),
        (FAR | {"bucket_location": "us-east4"}, "is us-east4, and the cluster is in us-central1"),
        (FAR | PROFILE | {"bucket_location": "US"}, "bucket_location: is US"),
    ],
)
def test_what_contradicts_itself_is_refused(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentsError, match=message):
        cache(**args)


@pytest.mark.parametrize("location", ["us-central1", "us-central1-a"])
def test_a_bucket_in_the_region_of_the_cluster_is_near(location: str) -> None:
    near = {"bucket_location": "US-CENTRAL1", "location": location}
    _, claim = cache(**BUCKET | PROFILE | near).manifests()
    assert claim["spec"]["storageClassName"] == "gcsfusecsi-serving"
    # A bucket in several regions is valid, and its traffic is billed.
    cache(**BUCKET, bucket_location="US", location=location)


def test_gke_may_scan_a_bucket_for_its_profile() -> None:
    """Otherwise the pods keep the gate of the scan for ever."""
    scan, volume, _ = cache(**BUCKET | PROFILE).children()
    assert isinstance(scan.declared, CloudResource)
    assert scan.declared.type == "gcp:storage/bucketIAMMember:BucketIAMMember"
    assert scan.declared.inputs == {
        "bucket": "my-models",
        "role": "roles/storage.legacyBucketReader",
        "member": "serviceAccount:service-12345@container-engine-robot.iam.gserviceaccount.com",
    }
    # An Anywhere Cache in each zone would be billed, and no estimate has it.
    attributes = volume.manifest["spec"]["csi"]["volumeAttributes"]
    assert attributes == {"anywhereCacheZones": "none"}
    assert len([*cache(**BUCKET | PROFILE | {"grant": False}).children()]) == 2


LIMIT = {"file_cache": "200Gi"}


def test_the_copies_on_a_node_have_a_limit_if_one_is_set() -> None:
    sizes = [
        [option for option in volume["spec"]["mountOptions"] if "max-size" in option]
        for volume, _ in (cache(**BUCKET, **limit).manifests() for limit in ({}, LIMIT))
    ]
    assert sizes == [["file-cache:max-size-mb:-1"], ["file-cache:max-size-mb:204800"]]


def test_a_mount_at_its_path_is_refused() -> None:
    mount = {"path": "/models", "scratch": "1Gi"}
    with pytest.raises(ArgumentsError, match="/models is taken"):
        server(mounts=[mount], model_cache=cache(**BUCKET).model_cache)


def test_servers_wait_for_the_claim() -> None:
    def program() -> None:
        from ml_foundations import InferenceService, ModelCache

        disk: Any = {"namespace": "ml", **DISK}
        made = ModelCache("r1", disk)
        InferenceService("chat", namespace="ml", image="i", gpu="H100", model_cache=made)

    made = declared(program)
    name = cache(**DISK).claim_name
    volumes = inputs(made["chat-deployment"])["spec"]["template"]["spec"]["volumes"]
    assert {"name": "r1", "persistentVolumeClaim": {"claimName": name}} in volumes
    assert any(urn.endswith("::r1-claim") for urn in made["chat-deployment"].dependencies)
