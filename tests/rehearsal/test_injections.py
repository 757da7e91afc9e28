"""What GKE adds to pods, on a real API server: the sidecar of a bucket, before LimitRanger acts again, and the scan of its class."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.catalog.injections import SCAN_ROLE, SERVICE_AGENT, SIDECAR, injections
from ml_foundations.component.spec import check
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.planning.api_server.defaults import with_default_class, with_gke_tolerations
from ml_foundations.storage.volume import VolumeSpec

from tests.support.cluster import Cluster
from tests.support.simulation import BUCKETS, SYSTEM, Cloud, simulated_gke
from tests.support.waiting import until
from tests.workloads.building import job, template_of

GKE = {
    "name": "ml",
    "location": "us-central1",
    "addonsConfig": BUCKETS,
    "workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"},
}
PREFIX = "gke-gcsfuse/"
PODS = "/api/v1/namespaces/default/pods"
RANGES = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
MAIN = {"name": "main", "image": "busybox"}


def create_pod(cloud: Cloud, name: str = "one", metadata: Any = None, **spec: Any) -> None:
    spec = {"containers": [MAIN], **spec}
    cloud.api.create(PODS, {"metadata": {"name": name, **(metadata or {})}, "spec": spec})


def is_injected(cloud: Cloud) -> bool:
    """Whether a new pod gets the sidecar."""
    name = f"probe-{time.monotonic_ns()}"
    create_pod(cloud, name, {"annotations": {f"{PREFIX}volumes": "true"}})
    found = "initContainers" in cloud.api.get(f"{PODS}/{name}")["spec"]
    cloud.api.delete(f"{PODS}/{name}")
    return found


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Cloud]:
    """A simulated GKE of this module's own: with buckets and Workload Identity, it changes the pods of others."""
    with simulated_gke(cluster, GKE) as cloud:
        until(lambda: cloud.api.find(f"{POLICIES}/{labels.GCS_FUSE_DRIVER}") is not None)
        cloud.store.save_pool(SYSTEM)
        until(lambda: is_injected(cloud), "the API server reads a new policy after a moment")
        yield cloud


@pytest.fixture
def cloud(running: Cloud) -> Iterator[Cloud]:
    yield running
    running.store.delete("recorded", "scan")
    for path in (PODS, RANGES, CLAIMS, VOLUMES):
        for item in running.api.get(path)["items"]:
            running.api.delete(f"{path}/{item['metadata']['name']}")
        until(lambda path=path: not running.api.get(path)["items"])


def stored(cloud: Cloud, annotations: dict[str, str]) -> dict[str, Any]:
    """The resources of the sidecar that a pod with these annotations gets."""
    create_pod(cloud, metadata={"annotations": annotations})
    (sidecar,) = cloud.api.get(f"{PODS}/one")["spec"]["initContainers"]
    assert sidecar["name"] == injections()[SIDECAR].container
    assert sidecar["restartPolicy"] == "Always"
    return sidecar["resources"]


SETTINGS: list[dict[str, str]] = [
    {},
    {"cpu-limit": "0", "memory-limit": "0"},
    {"cpu-limit": "4"},
    {"cpu-request": "500m"},
    {"memory-request": "1Gi", "memory-limit": "8Gi", "ephemeral-storage-limit": "20Gi"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_sidecar_has_what_the_table_says(cloud: Cloud, settings: dict[str, str]) -> None:
    annotations = {f"{PREFIX}{name}": amount for name, amount in settings.items()}
    resources = stored(cloud, {f"{PREFIX}volumes": "true"} | annotations)
    wanted = injections()[SIDECAR].resources_of(annotations)
    assert resources["requests"] == wanted["requests"]
    assert resources.get("limits", {}) == wanted["limits"]


def test_a_limit_range_limits_the_sidecar_unless_the_pod_does(cloud: Cloud) -> None:
    """LimitRanger acts again after the webhook: a throttled sidecar loads nothing."""
    default = {"cpu": "500m", "memory": "1Gi"}
    limits = [{"type": "Container", "default": default, "defaultRequest": default}]
    cloud.api.create(RANGES, {"metadata": {"name": "team-limits"}, "spec": {"limits": limits}})

    def is_limited() -> bool:
        plain = {"metadata": {"name": "probe"}, "spec": {"containers": [MAIN]}}
        (main,) = cloud.api.create(f"{PODS}?dryRun=All", plain)["spec"]["containers"]
        return main["resources"].get("limits") == default

    until(is_limited, "the API server reads a new LimitRange after a moment")
    throttled = stored(cloud, {f"{PREFIX}volumes": "true"})
    assert throttled["limits"] == default
    cloud.api.delete(f"{PODS}/one")
    until(lambda: cloud.api.find(f"{PODS}/one") is None)
    ours = template_of(job(mounts=[{"bucket": "models", "path": "/models"}]))
    free = stored(cloud, ours["metadata"]["annotations"])
    assert free["limits"] == {"cpu": "32", "memory": "4Ti"}
    assert free["requests"] == throttled["requests"]


def by_affinity(key: str, *values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


SELECTING = {
    "nothing": {},
    "a class": {"nodeSelector": {labels.COMPUTE_CLASS: "c"}},
    "one of two classes": by_affinity(labels.COMPUTE_CLASS, "a", "b"),
    "Arm": {"nodeSelector": {labels.ARCH: "arm64"}},
    "Arm, again by affinity": {
        "nodeSelector": {labels.ARCH: "arm64"},
        **by_affinity(labels.ARCH, "arm64"),
    },
    "Arm or not": by_affinity(labels.ARCH, "arm64", "amd64"),
}


@pytest.mark.parametrize("selecting", SELECTING.values(), ids=SELECTING)
@pytest.mark.parametrize("default", [labels.DEFAULT_CLASS, labels.DEFAULT_CLASS_EXCEPT_DAEMONS, ""])
def test_pods_tolerate_what_they_or_their_namespace_select(
    cloud: Cloud, selecting: dict[str, Any], default: str
) -> None:
    """On the replica as in planning."""
    namespace = "/api/v1/namespaces/default"
    spec = {"containers": [MAIN], **selecting}
    pod = {"metadata": {"name": "one"}, "spec": spec}
    expected = with_default_class(spec, {default: "d"} if default else {}, is_daemon=False)

    def is_read() -> bool:
        stored = cloud.api.create(f"{PODS}?dryRun=All", pod)["spec"]
        return stored.get("nodeSelector") == expected.get("nodeSelector")

    cloud.api.patch(namespace, {"metadata": {"labels": {default: "d"}}} if default else {})
    try:
        until(is_read, "the API server reads the labels of a namespace after a moment")
        found = cloud.api.create(PODS, pod)["spec"]
    finally:
        cloud.api.patch(namespace, {"metadata": {"labels": {default: None}}} if default else {})
    wanted = with_gke_tolerations(expected).get("tolerations", [])
    added = (labels.COMPUTE_CLASS, labels.ARCH)
    of_gke = [each for each in found["tolerations"] if each["key"] in added]
    keys = ("key", "value", "effect")
    assert [{key: each[key] for key in keys} for each in of_gke] == wanted


def started(cloud: Cloud, name: str) -> bool:
    return len(cloud.running(name)) == 1


def test_a_bucket_with_a_class_waits_for_its_scan(cloud: Cloud) -> None:
    spec = {"namespace": "default", "claim_name": "r1", "bucket": "weights"}
    spec["storage_class"] = "gcsfusecsi-serving"
    volume, claim = check(VolumeSpec, "v", spec).manifests()
    for path, manifest in (VOLUMES, volume), (CLAIMS, claim):
        cloud.api.create(path, manifest)
    source = {"persistentVolumeClaim": {"claimName": "r1"}}
    metadata = {"labels": {"run": "one"}, "annotations": {f"{PREFIX}volumes": "true"}}
    create_pod(cloud, metadata=metadata, volumes=[{"name": "v"} | source])
    events = "/api/v1/namespaces/default/events"

    def reasons() -> list[str]:
        return [each["message"] for each in cloud.api.get(events)["items"]]

    until(lambda: any("bucket-scan-pending" in each for each in reasons()))
    assert not started(cloud, "one")
    member = f"serviceAccount:service-1{SERVICE_AGENT}"
    granted = {"bucket": "weights", "role": SCAN_ROLE, "member": member}
    type_ = "gcp:storage/bucketIAMMember:BucketIAMMember"
    binding = {"type": type_, "id": "scan", "inputs": granted, "outputs": granted}
    cloud.store.save("recorded", "scan", binding)
    until(lambda: started(cloud, "one"))
