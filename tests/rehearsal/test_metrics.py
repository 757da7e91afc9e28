"""Autoscalers by metrics on the real control plane: with Google's adapter, by GKE itself, and with neither."""

from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.gke.metrics_adapter import MetricsAdapterSpec
from ml_foundations.rehearsal.api import condition
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.workloads.inference_service import InferenceServiceSpec

from tests.support.api_paths import path_of
from tests.support.cluster import Cluster
from tests.support.simulation import Cloud, Object, simulated_gke
from tests.support.waiting import until

NAMESPACE = "scaling"
APIS = "/apis/apiregistration.k8s.io/v1/apiservices"
SERVING = {
    "name": "ml",
    "releaseChannel": {"channel": "RAPID"},
    "podAutoscaling": {"hpaProfile": "PERFORMANCE"},
}
METRIC = "prometheus.googleapis.com|vllm:num_requests_waiting|gauge"


def adapter() -> list[Object]:
    return check(MetricsAdapterSpec, "m", {"project": "my-project"}).manifests()


def server(**autoscaling: Any) -> list[Object]:
    args: dict[str, Any] = {"service_name": "chat", "namespace": NAMESPACE, "image": "vllm:1"}
    args |= {"cpu": "100m", "memory": "128Mi", "gpus": 0, "disruption_budget": False}
    scaling = {"max_replicas": 4, "target": "5", **autoscaling}
    return check(InferenceServiceSpec, "chat", args | {"autoscaling": scaling}).manifests()


@pytest.fixture(scope="module")
def cloud(cluster: Cluster) -> Iterator[Cloud]:
    """A simulated GKE of this module's own: its cluster has the profile of autoscalers that reads metrics itself."""
    with simulated_gke(cluster, SERVING) as cloud:
        cloud.api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        until(lambda: Store(cluster.rehearsal).get("metrics_port", 0))
        yield cloud
        cloud.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
        for service in cloud.api.get(APIS)["items"]:
            if service["spec"].get("service"):
                cloud.api.delete(f"{APIS}/{service['metadata']['name']}")
        cloud.store.put("metrics", {})
        # Controllers of the shared replica go on without the APIs.
        until(lambda: cloud.api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)


@pytest.fixture
def made(cloud: Cloud) -> Iterator[list[Object]]:
    """What a test creates. It is deleted at the end."""
    objects: list[Object] = []
    yield objects
    for manifest in reversed(objects):
        cloud.api.delete(path_of(manifest, manifest["metadata"]["name"]))
    until(lambda: not cloud.pods(namespace=NAMESPACE))


def create(cloud: Cloud, made: list[Object], manifests: list[Object]) -> None:
    for manifest in manifests:
        if manifest["kind"] == "PodMonitoring":
            continue
        cloud.api.create(path_of(manifest), manifest)
        made.append(manifest)


def scaling_active(cloud: Cloud) -> Object:
    scalers = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    return condition(cloud.api.get(f"{scalers}/chat"), "ScalingActive")


def replicas(cloud: Cloud) -> int:
    found = cloud.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/chat")
    return found["spec"]["replicas"]


def test_pods_are_scaled_by_the_load_that_google_s_adapter_reports(
    cloud: Cloud, made: list[Object]
) -> None:
    create(cloud, made, [*adapter(), *server(metric=METRIC)])
    until(lambda: scaling_active(cloud).get("reason") == "ValidMetricFound")
    assert replicas(cloud) == 1, "nobody waits"
    cloud.store.put("metrics", {"vllm:num_requests_waiting": "20"})
    until(lambda: replicas(cloud) == 4)
    cloud.api.create("/api/v1/namespaces", {"metadata": {"name": "short-lived"}})
    cloud.api.delete("/api/v1/namespaces/short-lived")
    until(lambda: cloud.api.find("/api/v1/namespaces/short-lived") is None)
    external = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/{METRIC}"
    [value] = cloud.api.get(external.replace("|", "%7C"))["items"]
    assert value["value"] == "20"


def test_gke_serves_what_it_reads_itself_and_nothing_else(cloud: Cloud, made: list[Object]) -> None:
    cloud.store.put("metrics", {"vllm:num_requests_waiting": "20"})
    create(cloud, made, server(metric="vllm:num_requests_waiting", served_by="gke"))
    until(lambda: replicas(cloud) == 4)
    # The autoscaler writes its status after it has scaled.
    until(lambda: scaling_active(cloud).get("reason") == "ValidMetricFound")
    scaler = next(item for item in made if item["kind"] == "HorizontalPodAutoscaler")
    scaler["spec"]["metrics"][0]["pods"]["metric"]["name"] = METRIC
    cloud.api.patch(path_of(scaler, "chat"), {"spec": scaler["spec"]})
    until(lambda: scaling_active(cloud).get("reason") == "FailedGetPodsMetric")


def test_other_apis_that_pods_serve_are_empty_and_block_nothing(
    cloud: Cloud, made: list[Object]
) -> None:
    spec = {"group": "example.com", "version": "v1", "insecureSkipTLSVerify": True}
    spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"service": {"namespace": NAMESPACE, "name": "absent"}}
    name = {"name": "v1.example.com"}
    service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": name}
    create(cloud, made, [{**service, "spec": spec}])

    def available() -> Object:
        return condition(cloud.api.get(f"{APIS}/v1.example.com"), "Available")

    until(lambda: available().get("status") == "True")
    assert cloud.api.get("/apis/example.com/v1")["resources"] == []
