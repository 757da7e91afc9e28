"""GKE's gateway controller on the real API server: two model servers behind one address, and what fails."""

from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.rehearsal.api import ApiError, condition
from ml_foundations.rehearsal.cloud import gateways
from ml_foundations.workloads.inference_gateway import InferenceGatewaySpec
from ml_foundations.workloads.inference_service import InferenceServiceSpec

from tests.support.api_paths import path_of
from tests.support.cluster import Cluster
from tests.support.simulation import Cloud, Object, simulated_gke
from tests.support.waiting import until

NAMESPACE = "serving"
CLUSTER = {
    "name": "ml",
    "network": "projects/p/global/networks/ml",
    "gatewayApiConfig": {"channel": "CHANNEL_STANDARD"},
}
NETWORK: Object = {"type": "gcp:compute/network:Network", "outputs": {"name": "ml"}}
OF_GPUS: Object = {"type": "gcp:compute/network:Network", "outputs": {"name": "ml-gpu-0"}}
PROXIES: Object = {
    "type": "gcp:compute/subnetwork:Subnetwork",
    "outputs": {"purpose": "REGIONAL_MANAGED_PROXY"},
}


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ([], True),
        ([NETWORK], False),
        ([OF_GPUS], True),
        ([OF_GPUS, NETWORK], False),
        ([NETWORK, OF_GPUS], False),
        ([NETWORK, {**PROXIES, "outputs": {"purpose": "PRIVATE"}}], False),
        ([NETWORK, PROXIES], True),
    ],
)
def test_proxies_have_a_subnetwork_or_an_existing_network(
    recorded: list[Object], expected: bool
) -> None:
    assert gateways.has_proxies(recorded, "ml") is expected


@pytest.mark.parametrize(
    ("cluster", "expected"), [({}, True), (CLUSTER, True), ({"name": "ml"}, False)]
)
def test_a_cluster_has_gateways_by_its_settings(cluster: Object, expected: bool) -> None:
    assert gateways.has_gateways(cluster) is expected


def manifests() -> list[Object]:
    """Two model servers behind one gateway."""
    given: dict[str, Any] = {"namespace": NAMESPACE, "image": "vllm:1", "port": 8000}
    servers: list[InferenceServiceSpec] = []
    for name in ("chat", "code"):
        own = {"service_name": name, "served_models": [name], "cpu": "100m", "memory": "128Mi"}
        servers.append(check(InferenceServiceSpec, name, {**given, **own}))
    gateway = {
        "gateway_name": "llm",
        "namespace": NAMESPACE,
        "servers": [server.model_server for server in servers],
        "proxy_only_cidr": "10.21.0.0/23",
        "picker_cpu": "100m",
        "picker_memory": "128Mi",
    }
    specs = (*servers, check(InferenceGatewaySpec, "llm", gateway))
    return [manifest for spec in specs for manifest in spec.manifests()]


def is_ending(namespace: dict[str, Any] | None) -> bool:
    return namespace is not None and "deletionTimestamp" in namespace["metadata"]


@pytest.fixture(scope="module")
def cloud(cluster: Cluster) -> Iterator[Cloud]:
    """A simulated GKE of this module's own: its cluster has the Gateway API."""
    with simulated_gke(cluster, CLUSTER) as cloud:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        # Another module may have deleted it, and nobody removed GKE's finalizers without the daemon.
        until(lambda: not is_ending(cloud.api.find(f"/api/v1/namespaces/{NAMESPACE}")))
        cloud.api.ensure("/api/v1/namespaces", namespace)
        classes = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
        until(lambda: cloud.api.find(f"{classes}/gke-l7-rilb"))
        for manifest in manifests():
            cloud.api.create(path_of(manifest), manifest)
        yield cloud
        for manifest in manifests():
            cloud.api.delete(path_of(manifest, manifest["metadata"]["name"]))
        until(lambda: not cloud.pods(namespace=NAMESPACE))
        gateways = "/apis/gateway.networking.k8s.io/v1/gateways"
        until(lambda: not cloud.api.get(gateways)["items"])
        assert cloud.store.made() == []


def read(cloud: Cloud, kind: str, name: str) -> Object:
    (manifest,) = (
        each for each in manifests() if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return cloud.api.get(path_of(manifest, name))


def is_programmed(cloud: Cloud) -> str:
    return condition(read(cloud, "Gateway", "llm"), "Programmed").get("status", "")


def events(cloud: Cloud) -> list[str]:
    found = cloud.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return [each["message"] for each in found if each["reason"] == "NoHealthyUpstream"]


def test_two_servers_share_an_address(cloud: Cloud) -> None:
    until(lambda: is_programmed(cloud) == "True")
    (address,) = read(cloud, "Gateway", "llm")["status"]["addresses"]
    assert address["value"].startswith("198.51.100.")
    finalizers = read(cloud, "Gateway", "llm")["metadata"]["finalizers"]
    assert finalizers == ["gateway.finalizer.networking.gke.io"]
    assert {each["in"] for each in cloud.store.made()} == {"ml"}
    names = [each["name"] for each in cloud.store.made()]
    assert any(name.startswith("networkEndpointGroups/gkegw1-serving-llm-") for name in names)
    until(lambda: "parents" in read(cloud, "HTTPRoute", "llm").get("status", {}))
    for kind, name in (("HTTPRoute", "llm"), ("InferencePool", "chat"), ("InferencePool", "code")):
        (parent,) = read(cloud, kind, name)["status"]["parents"]
        assert [each["status"] for each in parent["conditions"]] == ["True", "True"]
    until(lambda: len(cloud.pods(namespace=NAMESPACE)) == 6)
    assert events(cloud) == []


def test_without_a_subnetwork_it_is_not_programmed(cloud: Cloud) -> None:
    until(lambda: is_programmed(cloud) == "True")
    try:
        cloud.store.save("recorded", "ml", NETWORK)
        until(lambda: is_programmed(cloud) == "False")
        gateway = read(cloud, "Gateway", "llm")
        assert "proxy-only subnetwork is required" in condition(gateway, "Programmed")["message"]
        assert gateway["status"]["addresses"] == []
        cloud.store.save("recorded", "proxies", PROXIES)
        until(lambda: is_programmed(cloud) == "True")
    finally:
        for key in ("ml", "proxies"):
            cloud.store.delete("recorded", key)


def test_another_health_check_leaves_no_healthy_upstream(cloud: Cloud) -> None:
    until(lambda: len(cloud.pods(namespace=NAMESPACE)) == 6)
    policy = path_of(read(cloud, "HealthCheckPolicy", "code"), "code")
    check_ = {"default": {"config": {"httpHealthCheck": {"requestPath": "/"}}}}
    cloud.api.patch(policy, {"spec": check_})
    until(lambda: events(cloud))
    (message,) = events(cloud)
    assert message == (
        "no healthy upstream (503): health checks ask / on port 8000, "
        "and the servers answer /health on 8000"
    )
    (parent,) = read(cloud, "InferencePool", "code")["status"]["parents"]
    assert {each["status"] for each in parent["conditions"]} == {"True"}, "as on GKE"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "InferencePool", "name": "gone"}, "BackendNotFound"),
        ({"kind": "InferencePool", "name": "chat"}, "ResolvedRefs"),
    ],
)
def test_a_route_to_no_pool_is_not_resolved(
    cloud: Cloud, change: dict[str, str], reason: str
) -> None:
    reference = {"group": "inference.networking.k8s.io", **change}
    route = path_of(read(cloud, "HTTPRoute", "llm"), "llm")
    cloud.api.patch(route, {"spec": {"rules": [{"backendRefs": [reference]}]}})

    def reasons() -> list[str]:
        parents = cloud.api.get(route).get("status", {}).get("parents", [])
        return [each["reason"] for parent in parents for each in parent["conditions"]]

    until(lambda: reasons() == ["Accepted", reason])


def test_the_api_server_refuses_what_gke_refuses(cloud: Cloud) -> None:
    pool = next(each for each in manifests() if each["kind"] == "InferencePool")
    pool = {**pool, "metadata": {"name": "other", "namespace": NAMESPACE}}
    spec = pool["spec"]
    with pytest.raises(ApiError, match="port is required when kind is 'Service'"):
        picker = {"name": "chat-picker", "kind": "Service"}
        cloud.api.create(path_of(pool), {**pool, "spec": {**spec, "endpointPickerRef": picker}})
    with pytest.raises(ApiError, match="targetPorts"):
        cloud.api.create(path_of(pool), {**pool, "spec": {**spec, "targetPorts": []}})
    route = next(each for each in manifests() if each["kind"] == "HTTPRoute")
    rules = [{"backendRefs": [{"name": "chat"}]}]
    with pytest.raises(ApiError, match="Must have port for Service reference"):
        spec = {**route["spec"], "rules": rules}
        cloud.api.create(path_of(route), {**route, "metadata": {"name": "other"}, "spec": spec})


def test_a_picker_that_does_not_answer_closes_its_pool_or_opens_it(cloud: Cloud) -> None:
    until(lambda: len(cloud.pods(namespace=NAMESPACE)) == 6)
    pool = path_of(read(cloud, "InferencePool", "chat"), "chat")
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/chat-picker"
    cloud.api.patch(deployment, {"spec": {"replicas": 0}})
    until(lambda: len(cloud.pods(namespace=NAMESPACE)) == 5)
    cloud.api.patch(pool, {"spec": {"endpointPickerRef": {"failureMode": "FailClose"}}})
    closed = "no healthy upstream (503): its endpoint picker does not answer, and is FailClose"
    until(lambda: closed in events(cloud))
    cloud.api.patch(pool, {"spec": {"endpointPickerRef": {"failureMode": "FailOpen"}}})
    cloud.api.patch(deployment, {"spec": {"replicas": 1}})
    until(lambda: len(cloud.pods(namespace=NAMESPACE)) == 6)
