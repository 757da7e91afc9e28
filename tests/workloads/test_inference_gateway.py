"""InferenceGateways: the objects that they create, and the arguments that they refuse."""

import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations import GkeCluster, InferenceGateway, InferenceService, TeamNamespace
from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.catalog.versions import DIVIDED_PICKER_IMAGE, ENDPOINT_PICKER_IMAGE
from ml_foundations.component.spec import check
from ml_foundations.workloads.inference_gateway import InferenceGatewaySpec

from tests.support.declaring import declared, inputs
from tests.support.refusing import Refused, refusal, refused

GOLDEN = Path(__file__).parents[1] / "golden" / "workloads" / "inference-gateway.yaml"
CLUSTER: dict[str, Any] = {"project": "ml-project-1", "location": "us-central1"}


def server(name: str, *models: str, **given: Any) -> dict[str, Any]:
    own = {"namespace": "serving", "selector": {"app": name}, "port": 8000}
    return {"name": name, "health_path": "/health", "served_models": [*models], **own, **given}


TWO = [server("chat", "qwen", "support"), server("code", "coder", port=9000)]


def gateway(**given: Any) -> InferenceGatewaySpec:
    own: dict[str, Any] = {"gateway_name": "llm", "namespace": "serving", "servers": TWO}
    own |= {"proxy_only_cidr": "10.21.0.0/23"}
    return check(InferenceGatewaySpec, "InferenceGateway", own | given)


def made(**given: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in gateway(**given).manifests()}


def test_the_manifests_are_as_they_were() -> None:
    text = yaml.safe_dump_all(gateway().manifests(), sort_keys=False, width=110)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), f"{GOLDEN.name} differs; read it, then UPDATE_GOLDEN=1"


def test_servers_are_components_and_share_an_address() -> None:
    def program() -> None:
        cluster = GkeCluster("ml", gateway_api=True, proxy_only_cidr="10.21.0.0/23", **CLUSTER)
        team = TeamNamespace("nlp", cluster=cluster, gpus=2, cpu="64", memory="1Ti", storage="1Ti")
        chat = InferenceService(
            "chat", team=team, image="vllm:1", port=8000, served_models=["qwen"], health_path="/ok"
        )
        code = InferenceService("code", team=team, image="vllm:1", served_models=["coder"])
        InferenceGateway("llm", team=team, cluster=cluster, servers=[chat, code])

    requests = declared(program)
    pool, check_ = (inputs(requests[f"llm-chat-{role}"])["spec"] for role in ("pool", "health"))
    template = inputs(requests["chat-deployment"])["spec"]["template"]
    assert pool["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert pool["targetPorts"] == [{"number": 8000}]
    asked = check_["default"]["config"]["httpHealthCheck"]
    assert asked == {"requestPath": "/ok", "port": 8000}
    proxies = inputs(requests["ml-proxies"])
    assert (proxies["purpose"], proxies["role"]) == ("REGIONAL_MANAGED_PROXY", "ACTIVE")
    sources = inputs(requests["llm-chat-network"])["spec"]["ingress"][0]["from"]
    assert {"ipBlock": {"cidr": proxies["ipCidrRange"]}} in sources


def test_requests_of_several_servers_are_routed_by_model() -> None:
    rules = made()["HTTPRoute", "llm"]["spec"]["rules"]
    header = {"type": "Exact", "name": "X-Gateway-Model-Name"}
    path = {"type": "PathPrefix", "value": "/v1"}
    assert [rule["matches"] for rule in rules] == [
        [{"path": path, "headers": [{**header, "value": model}]} for model in models]
        for models in (["qwen", "support"], ["coder"])
    ]
    assert [rule["backendRefs"] for rule in rules] == [
        [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name}]
        for name in ("chat", "code")
    ]
    extension = made()["GCPRoutingExtension", "llm-router"]["spec"]
    assert extension["targetRefs"][0]["name"] == "llm"


def test_one_server_gets_the_requests_of_all_models() -> None:
    alone = made(servers=[server("chat")], paths=["/v1", "/v2"])
    (rule,) = alone["HTTPRoute", "llm"]["spec"]["rules"]
    paths = [{"type": "PathPrefix", "value": path} for path in ("/v1", "/v2")]
    assert rule["matches"] == [{"path": path} for path in paths]
    assert ("GCPRoutingExtension", "llm-router") not in alone
    assert ("Deployment", "llm-router") not in alone


def test_an_external_gateway_has_a_certificate() -> None:
    given = {"certificate": "llm", "address": "llm-ip", "unauthenticated": True}
    external = made(gateway_class=facts.EXTERNAL_CLASS, **given)
    spec = external["Gateway", "llm"]["spec"]
    (listener,) = spec["listeners"]
    assert (listener["protocol"], listener["port"]) == ("HTTPS", 443)
    assert listener["tls"]["options"] == {"networking.gke.io/cert-manager-certs": "llm"}
    assert spec["addresses"] == [{"type": "NamedAddress", "value": "llm-ip"}]
    closed = made(failure_mode="FailClose")["InferencePool", "chat"]["spec"]
    assert closed["endpointPickerRef"]["failureMode"] == "FailClose"
    policy = made(request_seconds=60)["GCPBackendPolicy", "chat"]["spec"]
    assert policy["default"] == {"timeoutSec": 60}


def test_agents_listen_on_the_ports_that_others_know() -> None:
    objects = made()
    for name, ports in {
        "chat-picker": (facts.PICKER_PORT, facts.PICKER_HEALTH_PORT, facts.PICKER_METRICS_PORT),
        "llm-router": (facts.ROUTER_PORT, facts.ROUTER_HEALTH_PORT),
    }.items():
        (container,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
        assert tuple(port["containerPort"] for port in container["ports"]) == ports
    sized = made(picker_cpu="1", picker_memory="2Gi")["Deployment", "code-picker"]
    (container,) = sized["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "2Gi"}
    config = made(servers=[server("chat", metrics_path="/stats")])["ConfigMap", "chat-picker"]
    plugins = yaml.safe_load(config["data"]["picker.yaml"])["plugins"]
    assert plugins[3]["parameters"]["path"] == "/stats"


def test_a_picker_of_divided_servers_chooses_a_pod_for_each_role() -> None:
    objects = made(servers=[server("chat", is_divided=True)])
    text = objects["ConfigMap", "chat-picker"]["data"]["picker.yaml"]
    config = yaml.safe_load(text)
    types = {plugin["type"] for plugin in config["plugins"]}
    assert {"disagg-profile-handler", "prefill-filter", "decode-filter"} <= types
    for profile in config["schedulingProfiles"]:
        names = [plugin["pluginRef"] for plugin in profile["plugins"]]
        assert {*names} <= types
        assert names[0] == f"{profile['name']}-filter"
    assert {profile["name"] for profile in config["schedulingProfiles"]} == {"prefill", "decode"}
    (container,) = objects["Deployment", "chat-picker"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == DIVIDED_PICKER_IMAGE
    (whole,) = made()["Deployment", "chat-picker"]["spec"]["template"]["spec"]["containers"]
    assert whole["image"] == ENDPOINT_PICKER_IMAGE
    assert "disagg" not in made()["ConfigMap", "chat-picker"]["data"]["picker.yaml"]


MANY = [f"m{number}" for number in range(64)]
FULL = [server("a", *MANY), server("b", *(f"b{name}" for name in MANY))]
REFUSED: dict[str, Refused] = {
    "no server": refused("servers: ", servers=[]),
    "no proxies": refused("proxy_only_cidr: is not set", proxy_only_cidr=None),
    "a global class": refused("gateway_class: ", gateway_class="gke-l7-gxlb"),
    "plain text outside": refused("certificate: is not set", gateway_class=facts.EXTERNAL_CLASS),
    "a server elsewhere": refused(
        "servers[0]: is in web, and an InferencePool", servers=[server("chat", namespace="web")]
    ),
    "a name twice": refused(
        "servers[1].name: chat is the name of several servers",
        servers=[server("chat", "a"), server("chat", "b")],
    ),
    "a long name": refused("servers[0].name: is longer than 56", servers=[server("c" * 57)]),
    "no path to ask": refused(
        "servers[0].health_path: is tcp", servers=[server("chat", health_path="tcp")]
    ),
    "no probe": refused("servers[0].health_path: is ", servers=[server("chat", health_path=None)]),
    "no models": refused(
        "servers[1].served_models: is empty", servers=[server("chat", "a"), server("code")]
    ),
    "a model of two servers": refused(
        'servers[1].served_models: "a" is named 2 times',
        servers=[server("chat", "a"), server("code", "a")],
    ),
    "more models than a route has": refused(
        "servers: name 129 models",
        servers=[*FULL, server("c", "one")],
    ),
    "more matches than a rule has": refused(
        "paths: are 2, for each model of a, and a rule has 64 matches at most",
        servers=[server("a", *MANY[:33])],
        paths=["/v1", "/v2"],
    ),
    "no path": refused("paths: ", paths=[]),
    "half a path": refused("paths[0]: ", paths=["v1"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_are_refused(case: str) -> None:
    given, (message,) = REFUSED[case]
    assert message in refusal(gateway, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"servers": [server("c" * 56)]},
        {"servers": FULL},
        {"gateway_class": facts.EXTERNAL_CLASS, "certificate": "llm", "unauthenticated": True},
        {"servers": [server("a", *MANY[:32])], "paths": ["/v1", "/v2"]},
    ],
)
def test_their_neighbours_are_not(given: dict[str, Any]) -> None:
    assert gateway(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"proxy_only_cidr": "10.21.0.0/26"}, ""),
        ({"proxy_only_cidr": "10.21.0.0/27"}, "GKE accepts a /26 or larger"),
        ({"proxy_only_cidr": "10.0.0.0/23"}, "overlaps with node_cidr"),
    ],
)
def test_the_range_of_proxies_is_checked(given: dict[str, Any], message: str) -> None:
    def program() -> None:
        GkeCluster("ml", **CLUSTER, **given)

    if message:
        assert message in refusal(declared, program)
    else:
        made_ = inputs(declared(program)["ml-proxies"])
        assert IPv4Network(made_["ipCidrRange"]).prefixlen == 26


def test_proxies_are_added_to_an_existing_network() -> None:
    def program() -> None:
        network: Any = {"network": "own", "subnetwork": "own-sub"}
        GkeCluster("ml", **CLUSTER, network=network, proxy_only_cidr="10.21.0.0/23")

    assert inputs(declared(program)["ml-proxies"])["network"] == "own"


OLDEST_POOL = {
    "selector": {"matchLabels"},
    "targetPorts": {"number"},
    "endpointPickerRef": {"group", "kind", "name", "port", "failureMode"},
}
"""The fields of InferencePools in gateway-api-inference-extension v1.0.0, of which the oldest GKE with them has the
definition (1.34.0-gke.1626000)."""


@pytest.mark.parametrize("failure_mode", ["FailOpen", "FailClose"])
def test_a_pool_has_no_field_that_the_oldest_gke_refuses(failure_mode: str) -> None:
    manifests = gateway(failure_mode=failure_mode).manifests()
    pools = [each for each in manifests if each["kind"] == "InferencePool"]
    assert pools
    for pool in pools:
        assert pool["spec"].keys() <= OLDEST_POOL.keys()
        for field, value in pool["spec"].items():
            for item in value if isinstance(value, list) else [value]:
                assert item.keys() <= OLDEST_POOL[field], field
