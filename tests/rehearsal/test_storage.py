"""Storage on a real control plane: every manifest taken, disks that attach, data that stays, volumes that grow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog.disks import FILESTORE_CSI, LUSTRE_CSI
from ml_foundations.component.spec import check
from ml_foundations.kubernetes import labels
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.cloud import addons, volumes
from ml_foundations.rehearsal.report import contents
from ml_foundations.rehearsal.tools.toolchain import Tools
from ml_foundations.storage.checkpoints import CheckpointConfigurationSpec
from ml_foundations.storage.classes import StorageClassesSpec
from ml_foundations.storage.volume import VolumeSpec

from tests import factories
from tests.support.cluster import Cluster
from tests.support.project import Project
from tests.support.project_steps import waiting_class
from tests.support.simulation import BUCKETS, ONE_L4, ZONES, Cloud, Object, clean
from tests.support.waiting import is_served, until

CONFIGURATIONS = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
WITH_SIDECAR = {"gke-gcsfuse/volumes": "true"}
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
EVERYTHING = {
    "fast_ssd_zones": [*ZONES],
    "dataset_zones": [*ZONES],
    "disks": {
        "checkpoints": {
            **{"type": "hyperdisk-balanced", "iops": 10000, "throughput": "600Mi", "retain": True},
        },
        "archive": {"type": "pd-standard", "regional": True, "zones": [*ZONES]},
    },
    "encryption_key": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    "filestore": {"tiers": ["basic-hdd", "zonal", "enterprise"]},
    "lustre": {"zones": ["us-central1-a"]},
    "network": "ml",
    "nfs": {"server": "nfs.example.internal", "path": "/export"},
}


@pytest.fixture
def cloud(plain_gke: Cloud) -> Iterator[Cloud]:
    plain_gke.store.save_pool(ONE_L4)
    until(lambda: plain_gke.gpus("l4") == [2])
    yield plain_gke
    clean(plain_gke)
    for path in (CLAIMS, volumes.CLASSES, volumes.VOLUMES):
        for item in plain_gke.api.get(path)["items"]:
            plain_gke.api.delete(f"{path}/{item['metadata']['name']}")
    until(lambda: not listed(plain_gke))


def make_classes(cloud: Cloud, **given: Any) -> None:
    for manifest in classes("StorageClass", given):
        cloud.api.create(volumes.CLASSES, manifest)


def classes(kind: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    manifests = check(StorageClassesSpec, "classes", given).manifests()
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def mounted(cloud: Cloud, name: str, storage_class: str, gpus: int = 1) -> None:
    """A claim, and a pod that mounts it."""
    [claim] = volume(name, size="1Ti", storage_class=storage_class)
    cloud.api.create(CLAIMS, claim)
    cloud.run(name, gpus, volumes=[{"name": "data", **source(name)}])


def volume(name: str, **given: Any) -> list[dict[str, Any]]:
    """The manifests of a volume, as our component writes them."""
    given = {"namespace": "default", "claim_name": name, **given}
    return check(VolumeSpec, "volume", given).manifests()


def source(claim: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": claim}}


def phase(cloud: Cloud, claim: str) -> str:
    return cloud.api.get(f"{CLAIMS}/{claim}")["status"]["phase"]


def told(cloud: Cloud, name: str, kind: str | None = None) -> list[str]:
    """The messages of events, of a kind or of all."""
    events = cloud.api.get("/api/v1/namespaces/default/events")["items"]
    mine = [event for event in events if event["involvedObject"]["name"].startswith(name)]
    # The scheduler may see a pod before its claim, and says so.
    mine = [event for event in mine if event["reason"] != "FailedScheduling"]
    return [event["message"] for event in mine if kind in (None, event["type"])]


def reasons(cloud: Cloud) -> dict[str, str]:
    return {row.name: row.reason for row in contents.collect(cloud.rehearsal).workloads}


def warnings(cloud: Cloud, name: str) -> list[str]:
    return told(cloud, name, "Warning")


def test_the_api_server_takes_every_class(cloud: Cloud) -> None:
    for manifest in classes("StorageClass", EVERYTHING):
        made = cloud.api.create(f"{volumes.CLASSES}?fieldValidation=Strict", manifest)
        assert made["parameters"] == manifest["parameters"]
    snapshot_classes = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses"
    until(lambda: is_served(cloud.api, snapshot_classes))
    for manifest in classes("VolumeSnapshotClass", EVERYTHING):
        cloud.api.create(f"{snapshot_classes}?fieldValidation=Strict&dryRun=All", manifest)


def plain_claim(name: str, **spec: Any) -> Object:
    return factories.claim(name, **spec) | {"metadata": {"name": name}}


def test_a_claim_of_no_class_takes_the_default_one_of_gke(cluster: Cluster) -> None:
    api = Api(Access(cluster.kubeconfig))
    addons.Addons(api).reconcile()
    annotations = api.get(f"{volumes.CLASSES}/standard-rwo")["metadata"]["annotations"]
    assert annotations["storageclass.kubernetes.io/is-default-class"] == "true"

    def class_of_claim() -> str:
        made = api.create(f"{CLAIMS}?dryRun=All", plain_claim("plain"))
        return made["spec"].get("storageClassName", "")

    until(class_of_claim, "the API server reads a new class after a moment")
    assert class_of_claim() == "standard-rwo"


def test_a_claim_of_gkes_old_class_gets_its_volume_at_once(cluster: Cluster) -> None:
    api = Api(Access(cluster.kubeconfig))
    addons.Addons(api).reconcile()
    api.create(CLAIMS, plain_claim("old", storageClassName="standard"))
    try:
        until(lambda: api.get(f"{CLAIMS}/old")["status"]["phase"] == "Bound")
    finally:
        api.delete(f"{CLAIMS}/old")


VOLUMES = {
    "of a class": {"size": "1Ti", "storage_class": "zonal-ssd"},
    "from a snapshot": {
        **{"size": "1Ti", "storage_class": "datasets", "access_mode": "ReadOnlyMany"},
        "snapshot": "corpus",
    },
    "of a disk": {
        **{"size": "1Ti", "storage_class": "hyperdisk-ml", "access_mode": "ReadOnlyMany"},
        "disk": "projects/p/zones/us-central1-a/disks/corpus",
    },
    "of a bucket": {"bucket": "my-bucket", "mount_options": ["implicit-dirs"]},
    "of a bucket, read only": {"bucket": "my-bucket", "access_mode": "ReadOnlyMany"},
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_the_api_server_takes_every_volume(cloud: Cloud, kind: str) -> None:
    for path, manifest in made(kind):
        cloud.api.create(f"{path}?fieldValidation=Strict&dryRun=All", manifest)


def made(kind: str) -> list[tuple[str, Object]]:
    """The objects of a volume, each with its collection; a disk's or bucket's own first."""
    paths = {"PersistentVolume": volumes.VOLUMES, "PersistentVolumeClaim": CLAIMS}
    return [(paths[manifest["kind"]], manifest) for manifest in volume("data", **VOLUMES[kind])]


@pytest.mark.parametrize("kind", ["of a disk", "of a bucket"])
def test_a_claim_of_what_exists_binds_to_it(cloud: Cloud, kind: str) -> None:
    for path, manifest in made(kind):
        cloud.api.create(path, manifest)
    until(lambda: phase(cloud, "data") == "Bound")


def test_a_pod_does_not_start_if_its_disk_cannot_attach(cloud: Cloud) -> None:
    make_classes(cloud)
    mounted(cloud, "attaches", "zonal-ssd")
    until(lambda: len(cloud.running("attaches")) == 1)
    mounted(cloud, "cannot", "fast-ssd")
    until(lambda: bool(warnings(cloud, "cannot-0")))
    assert warnings(cloud, "cannot-0") == [
        "the regional pd-ssd of class fast-ssd does not attach to g2-standard-24"
    ]
    assert not cloud.running("cannot")
    assert phase(cloud, "cannot") == "Pending"
    assert reasons(cloud)["cannot-0"].startswith("the regional pd-ssd of class fast-ssd does not")
    assert len(cloud.nodes("l4")) == 1, "no node more would help"


@pytest.mark.parametrize("disk", ["pd-extreme", "pd-sdd"])
def test_a_disk_of_an_unknown_type_delays_no_other_claim(cloud: Cloud, disk: str) -> None:
    make_classes(cloud)
    cloud.api.create(volumes.CLASSES, waiting_class("a-class", parameters={"type": disk}))
    mounted(cloud, disk, "a-class", gpus=0)
    until(lambda: bool(warnings(cloud, f"{disk}-0")))
    assert warnings(cloud, f"{disk}-0") == [
        f"the {disk} of class a-class is not known to attach to n2-standard-4"
    ]
    assert phase(cloud, disk) == "Pending"
    mounted(cloud, "other", "zonal-ssd", gpus=0)
    until(lambda: len(cloud.running("other")) == 1)


def test_a_regional_disk_attaches_where_there_are_cpus_only(cloud: Cloud) -> None:
    make_classes(cloud)
    mounted(cloud, "prepared", "fast-ssd", gpus=0)
    until(lambda: len(cloud.running("prepared")) == 1)


def test_a_pool_grows_in_the_zone_of_a_pods_disk(cloud: Cloud) -> None:
    make_classes(cloud)
    mounted(cloud, "data", "zonal-ssd", gpus=2)
    until(lambda: len(cloud.running("data")) == 1)
    (zone,) = zones(cloud)
    crowd = next(other for other in ZONES if other != zone)
    cloud.stop("data")
    until(lambda: not cloud.pods("run=data"), "the disk attaches to one node at a time")
    cloud.run("elsewhere", gpus=2, copies=2, nodeSelector={labels.GKE_ZONE: zone})
    until(lambda: len(cloud.running("elsewhere")) == 2)
    cloud.run("reader", gpus=2, volumes=[{"name": "data", **source("data")}])
    until(lambda: len(cloud.running("reader")) == 1)
    assert zones(cloud) == [zone] * 3, f"a pool that fills its zones alike would go to {crowd}"


def zones(cloud: Cloud) -> list[str]:
    return [of_node[labels.GKE_ZONE] for of_node in cloud.labels("l4")]


@pytest.mark.parametrize(
    ("parameters", "allowed", "where"),
    [
        ({"type": "pd-ssd"}, [], ["b"]),
        ({"type": "pd-ssd", "replication-type": "regional-pd"}, [], ["b", "a"]),
        ({"type": "pd-ssd", "replication-type": "regional-pd"}, ["b", "c"], ["b", "c"]),
        ({"type": "hyperdisk-balanced-high-availability"}, [], ["b", "a"]),
    ],
)
def test_where_a_disk_is(parameters: dict[str, str], allowed: list[str], where: list[str]) -> None:
    term = {"matchLabelExpressions": [{"key": labels.GKE_ZONE, "values": allowed}]}
    storage_class = {"parameters": parameters, "allowedTopologies": [term] if allowed else []}
    assert volumes.zones_of_disk(storage_class, "b", ["a", "b"]) == where


@pytest.mark.parametrize("storage_class", ["zonal-ssd", "nfs-client"])
@pytest.mark.parametrize("retain", [True, False])
def test_a_volume_outlives_its_claim_where_its_class_says_so(
    cloud: Cloud, storage_class: str, retain: bool
) -> None:
    make_classes(cloud, retain=retain, nfs={"server": "nfs.example.internal", "path": "/export"})
    mounted(cloud, "data", storage_class)
    until(lambda: len(cloud.running("data")) == 1)
    wanted = "Retain" if retain else "Delete"

    def policies() -> list[str]:
        return [item["spec"]["persistentVolumeReclaimPolicy"] for item in listed(cloud)]

    until(lambda: policies() == [wanted])
    cloud.stop("data")
    cloud.api.delete(f"{CLAIMS}/data")
    left = ["Released"] if retain else []
    until(lambda: [item["status"]["phase"] for item in listed(cloud)] == left)


def listed(cloud: Cloud) -> list[Object]:
    return cloud.api.get(volumes.VOLUMES)["items"]


def test_a_volume_of_hyperdisk_ml_does_not_grow(cloud: Cloud) -> None:
    make_classes(cloud)
    mounted(cloud, "model", "hyperdisk-ml")
    until(lambda: phase(cloud, "model") == "Bound")
    with pytest.raises(ApiError, match="storageclass that provisions the pvc must support resize"):
        larger = {"resources": {"requests": {"storage": "2Ti"}}}
        cloud.api.patch(f"{CLAIMS}/model", {"spec": larger})


PROGRAM = """
from ml_foundations import Volume
k8s.storage.v1.StorageClass("class", metadata={{"name": "nfs-client"}}, provisioner="cluster.local/nfs",
    volume_binding_mode="Immediate", allow_volume_expansion=True, opts=here)
{volume}
"""
VOLUME = 'Volume("data", {{"namespace": "default", "size": "{size}", "storage_class": "{name}", "access_mode": "{mode}"}}, here)'


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster, tools: Tools) -> Iterator[Project]:
    project = Project(tmp_path, cluster, tools)
    yield project
    project.clear()
    project.kubectl("delete", "pvc", "data")


def program(size: str = "100Gi", name: str = "nfs-client", mode: str = "ReadWriteMany") -> str:
    return PROGRAM.format(volume=VOLUME.format(size=size, name=name, mode=mode))


def test_a_volume_grows_in_place_and_is_never_replaced(project: Project) -> None:
    project.up(program())

    def claim() -> Any:
        return project.kubectl("get", "pvc", "data")

    uid = claim()["metadata"]["uid"]
    assert "1 updated" in project.up(program(size="200Gi"))
    until(lambda: claim()["status"]["capacity"]["storage"] == "200Gi")
    for command in ("preview", "up"):
        assert "field can not be less than" in project.fails(program(size="100Gi"), command)
    assert "1 to replace" in project.fails(program(size="200Gi", mode="ReadWriteOnce"), "preview")
    project.fails(program(size="200Gi", mode="ReadWriteOnce"))
    project.fails(PROGRAM.format(volume=""))
    assert claim()["metadata"]["uid"] == uid

    project.pulumi("state", "unprotect", project.urn("data-claim"), "--yes", "--stack", "t")
    project.up(PROGRAM.format(volume=""))
    assert claim()["metadata"]["uid"] == uid, "it left the program, and stays in the cluster"


def test_scratch_space_goes_with_the_program(project: Project) -> None:
    project.up(program().replace('"size"', '"data": False, "size"'))
    project.up(PROGRAM.format(volume=""))
    assert project.kubectl("get", "pvc", "data") is None


def test_a_file_system_is_made_by_its_driver_alone(cloud: Cloud) -> None:
    """A claim of a driver that the cluster's settings leave off stays Pending, as the controller manager says."""
    make_classes(cloud, filestore={}, lustre={"zones": ["us-central1-a"]})
    mounted(cloud, "shared", "filestore-zonal")
    shared = {"storage_class": "lustre", "access_mode": "ReadWriteMany"}
    [claim] = volume("fast", size="18000Gi", **shared)
    cloud.api.create(CLAIMS, claim)
    waiting = {"shared": FILESTORE_CSI, "fast": LUSTRE_CSI}
    for name, driver in waiting.items():
        until(lambda name=name, driver=driver: driver in " ".join(told(cloud, name)))
    assert {phase(cloud, name) for name in waiting} == {"Pending"}
    assert not listed(cloud)
    drivers = ("gcpFilestoreCsiDriverConfig", "lustreCsiDriverConfig")
    with cluster_with(cloud, *drivers):
        until(lambda: {phase(cloud, name) for name in waiting} == {"Bound"})
        specs = [item["spec"] for item in listed(cloud)]
        assert {spec["csi"]["driver"] for spec in specs} == {FILESTORE_CSI, LUSTRE_CSI}
        assert not any("nodeAffinity" in spec for spec in specs)
        until(lambda: [pod["status"]["phase"] for pod in cloud.pods()] == ["Running"])


FIXED = """
from ml_foundations import StorageClasses, TeamNamespace
StorageClasses("classes", {{"retain": {retain}}}, here)
TeamNamespace("fixed", {{"gpus": 1, "cpu": "8", "memory": "8Gi", "storage": "1Ti", "priorities": {{"urgent": {value}}}}}, here)
"""


def test_what_a_class_keeps_is_changed_by_making_it_anew(project: Project) -> None:
    addons.Addons(Api(Access(project.cluster.kubeconfig))).reconcile()
    project.up(FIXED.format(retain=False, value=1000))
    printed = project.up(FIXED.format(retain=True, value=2000))
    assert "PriorityClass fixed-priority-urgent replaced" in printed
    assert "StorageClass classes-zonal-ssd replaced" in printed
    assert project.kubectl("get", "priorityclass", "fixed-urgent")["value"] == 2000
    assert project.kubectl("get", "storageclass", "zonal-ssd")["reclaimPolicy"] == "Retain"


def bucket_pod(cloud: Cloud, name: str, volume: dict[str, Any], **annotations: str) -> None:
    volumes = [{"name": "data", **volume}]
    spec = {"containers": [{"name": "main", "image": "i"}], "volumes": volumes}
    metadata = {"name": name, "annotations": annotations}
    cloud.api.create("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})


def refused_mounts(cloud: Cloud, name: str) -> list[str]:
    return [message for message in warnings(cloud, name) if message.startswith("MountVolume")]


IDENTITY = {"workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"}}


@contextmanager
def cluster_with(cloud: Cloud, *drivers: str, **settings: Any) -> Iterator[None]:
    """The cluster with more drivers and settings, until the end."""
    enabled = BUCKETS | {driver: {"enabled": True} for driver in drivers}
    before = cloud.store.clusters()["ml"]
    inputs = {"name": "ml", "addonsConfig": enabled, **settings}
    cloud.store.save("clusters", "ml", {"id": "ml", "inputs": inputs})
    try:
        yield
    finally:
        cloud.store.save("clusters", "ml", before)


@pytest.fixture
def with_identity(cloud: Cloud) -> Iterator[Cloud]:
    """The cluster with Workload Identity, which buckets need."""
    with cluster_with(cloud, **IDENTITY):
        yield cloud


def test_a_bucket_is_not_mounted_without_workload_identity(cloud: Cloud) -> None:
    bucket_pod(cloud, "bucket", {"csi": {"driver": labels.GCS_FUSE_DRIVER}}, **WITH_SIDECAR)
    until(lambda: bool(refused_mounts(cloud, "bucket")))
    assert f"driver name {labels.GCS_FUSE_DRIVER} not found" in refused_mounts(cloud, "bucket")[0]


def test_a_bucket_is_mounted_by_pods_with_gkes_sidecar_alone(with_identity: Cloud) -> None:
    """GKE adds the sidecar to pods with its annotation: by a claim, too, a bucket is not mounted without it."""
    cloud = with_identity
    of_bucket, claim = volume("raw", bucket="bbb")
    cloud.api.create(volumes.VOLUMES, of_bucket)
    cloud.api.create(CLAIMS, claim)
    inline = {"driver": labels.GCS_FUSE_DRIVER, "volumeAttributes": {"bucketName": "b"}}
    sources: dict[str, dict[str, Any]] = {"claimed": source("raw"), "inline": {"csi": inline}}
    for name, source_ in sources.items():
        bucket_pod(cloud, name, source_)
        bucket_pod(cloud, f"with-{name}", source_, **WITH_SIDECAR)
    phases = {f"with-{name}": "Running" for name in sources} | dict.fromkeys(sources, "Pending")

    def found() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cloud.pods()}

    until(lambda: found() == phases)
    for name, volume_name in (("claimed", "default-raw"), ("inline", "data")):
        until(lambda name=name: bool(refused_mounts(cloud, name)))
        assert refused_mounts(cloud, name) == [
            f'MountVolume.SetUp failed for volume "{volume_name}" : rpc error: code = FailedPrecondition desc = failed to '
            "find the sidecar container in Pod spec"
        ]
    bucket_pod(cloud, "lustre", {"csi": {"driver": LUSTRE_CSI}})
    until(lambda: bool(refused_mounts(cloud, "lustre")))
    assert refused_mounts(cloud, "lustre") == [
        'MountVolume.SetUp failed for volume "data" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: '
        f"driver name {LUSTRE_CSI} not found in the list of registered CSI drivers"
    ], "the cluster's settings bring Cloud Storage FUSE alone"
    assert "failed to find the sidecar container" in reasons(cloud)["claimed"]
    assert not reasons(cloud)["with-claimed"]


@pytest.fixture
def with_checkpoints(cloud: Cloud) -> Iterator[Cloud]:
    with cluster_with(cloud, "highScaleCheckpointingConfig", **IDENTITY):
        yield cloud


def test_checkpoints_are_mounted_on_the_nodes_of_a_configuration_alone(
    with_checkpoints: Cloud,
) -> None:
    cloud = with_checkpoints
    until(lambda: is_served(cloud.api, CONFIGURATIONS))
    bucket_pod(cloud, "kept", {"csi": {"driver": labels.CHECKPOINT_DRIVER}})
    until(lambda: bool(refused_mounts(cloud, "kept")))
    assert f"driver name {labels.CHECKPOINT_DRIVER} not found" in refused_mounts(cloud, "kept")[0]
    args = {"project": "p", "bucket": "bbb", "in_memory_volume_size": "1Gi"}
    args |= {"configuration_name": "ram", "node_selector": {labels.GKE_NODE_POOL: "system"}}
    (configuration,) = check(CheckpointConfigurationSpec, "ram", args).manifests()
    cloud.api.create(CONFIGURATIONS, configuration)
    until(lambda: [pod["status"]["phase"] for pod in cloud.pods()] == ["Running"])
    cloud.api.delete(f"{CONFIGURATIONS}/ram")
