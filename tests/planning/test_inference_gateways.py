"""Findings about inference gateways, each with a neighbour that has none."""

import copy
from typing import Any

import pytest
from ml_foundations.catalog.inference_gateways import GOOGLE_PROXIES, probed
from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.component.spec import check
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import SUBNETWORK
from ml_foundations.planning.rules.findings import Severity
from ml_foundations.planning.rules.inference_gateways import inference_gateways
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec
from ml_foundations.workloads.inference_gateway import InferenceGatewaySpec
from ml_foundations.workloads.inference_service import InferenceServiceSpec

from tests.factories import Manifest
from tests.support.cluster_objects import policy
from tests.support.stacks import stack_of

PROXIES: Any = (
    SUBNETWORK,
    {"purpose": "REGIONAL_MANAGED_PROXY", "ipCidrRange": "10.21.0.0/23"},
)
TEAM: dict[str, Any] = {"gpus": 2, "cpu": "64", "memory": "1Ti", "storage": "1Ti"}
RULES = {"inference-pool", "gateway-class", "health-check", "network-policy"}


def service(name: str, **given: Any) -> InferenceServiceSpec:
    own = {"service_name": name, "namespace": "serving", "image": "vllm:1", "port": 8000}
    return check(InferenceServiceSpec, name, {**own, "served_models": [name], **given})


CHAT, CODE = service("chat"), service("code", port=9000, health_path="/ready")


def gateway_of(*servers: InferenceServiceSpec) -> InferenceGatewaySpec:
    """A gateway of servers."""
    given = {
        "gateway_name": "llm",
        "namespace": "serving",
        "servers": [server.model_server for server in servers],
        "proxy_only_cidr": "10.21.0.0/23",
    }
    return check(InferenceGatewaySpec, "gateway", given)


def behind_gateway(*servers: InferenceServiceSpec, is_closed: bool = True) -> list[Manifest]:
    """Servers behind one gateway, in the closed namespace of a team."""
    team = check(TeamNamespaceSpec, "team", {"namespace": "serving", **TEAM})
    specs = (*([team] if is_closed else []), *servers, gateway_of(*servers))
    return [copy.deepcopy(each) for spec in specs for each in spec.manifests()]


def stack() -> list[Manifest]:
    return behind_gateway(CHAT, CODE)


def one(objects: list[Manifest], kind: str, name: str) -> Any:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def findings(objects: list[Manifest], has_policies: bool = True) -> list[tuple[str, str, str]]:
    standard = () if has_policies else ((CLUSTER, {}),)
    found = inference_gateways(stack_of(objects, PROXIES, *standard))
    return [(each.rule, each.object, str(each.severity)) for each in found]


def messages(objects: list[Manifest]) -> str:
    found = inference_gateways(stack_of(objects, PROXIES))
    return "\n".join(f"{each.path}: {each.message}. {each.remedy}" for each in found)


def test_a_gateway_of_the_component_has_no_findings() -> None:
    assert findings(stack()) == []
    found = judge_documents(stack()).findings
    assert not [each for each in found if each.rule in RULES]
    assert not [each for each in found if each.rule == "unknown-kind"]


def test_the_port_of_a_route_to_a_pool_is_ignored() -> None:
    objects = stack()
    one(objects, "HTTPRoute", "llm")["spec"]["rules"][1]["backendRefs"][0]["port"] = 8000
    assert findings(objects) == []


@pytest.mark.parametrize(
    ("class_name", "is_refused"),
    [
        ("gke-l7-rilb", False),
        ("gke-l7-regional-external-managed", False),
        ("gke-l7-global-external-managed", True),
        ("gke-l7-global-external-managed-mc", True),
        ("gke-l7-gxlb", True),
        ("istio", False),
        (UNKNOWN, False),
    ],
)
def test_a_global_class_is_refused(class_name: Any, is_refused: bool) -> None:
    objects = stack()
    one(objects, "Gateway", "llm")["spec"]["gatewayClassName"] = class_name
    refusal = ("gateway-class", "Gateway serving/llm", "error")
    assert findings(objects) == [refusal] * is_refused
    routes = [each for each in objects if each["kind"] != "HTTPRoute"]
    assert findings(routes) == [], "without an InferencePool, any class will do"


@pytest.mark.parametrize("matches", [None, [], [{}], [{"path": {"value": "/"}}]])
def test_a_route_from_the_internet_names_its_paths(matches: Any) -> None:
    objects = stack()
    gateway, route = one(objects, "Gateway", "llm"), one(objects, "HTTPRoute", "llm")
    gateway["spec"]["gatewayClassName"] = "gke-l7-regional-external-managed"
    assert findings(objects) == []
    route["spec"]["rules"][1]["matches"] = matches
    assert findings(objects) == [("public-paths", "HTTPRoute serving/llm", "warning")]
    assert messages(objects).startswith("spec.rules[1].matches: ")
    gateway["spec"]["gatewayClassName"] = "gke-l7-rilb"
    assert findings(objects) == []


def add_port(objects: list[Manifest], name: str, ports: list[Any]) -> None:
    """Let a Deployment have the labels of chat's pods, and other ports."""
    template = one(objects, "Deployment", name)["spec"]["template"]
    template["metadata"]["labels"]["app.kubernetes.io/name"] = "chat"
    template["spec"]["containers"][0]["ports"] = ports


@pytest.mark.parametrize(
    ("ports", "severities"),
    [
        ([{"containerPort": 9000}], ["error"]),
        ([], ["warning"]),
        ([{"containerPort": 8000}], ["warning"]),
    ],
)
def test_a_pool_with_other_pods_is_refused(ports: list[Any], severities: list[str]) -> None:
    objects = stack()
    add_port(objects, "code", ports)
    of_chat = [each for each in findings(objects) if each[1] == "InferencePool serving/chat"]
    pools = [severity for rule, _, severity in of_chat if rule == "inference-pool"]
    assert pools == severities


@pytest.mark.parametrize(
    ("probe", "is_listening"),
    [
        ({"httpGet": {"path": "/health", "port": 8000}}, True),
        ({"tcpSocket": {"port": 8000}}, True),
        ({"grpc": {"port": 8000}}, True),
        ({"httpGet": {"path": "/health", "port": 9000}}, False),
        ({"exec": {"command": ["true"]}}, False),
        (None, False),
    ],
)
@pytest.mark.parametrize("ports", [[], [{"containerPort": 9090}]])
def test_a_probed_port_need_not_be_declared(probe: Any, is_listening: bool, ports: Any) -> None:
    objects = stack()
    server = one(objects, "Deployment", "chat")["spec"]["template"]["spec"]["containers"][0]
    server |= {"ports": ports, "readinessProbe": probe}
    rules = [rule for rule, about, _ in findings(objects) if about == "InferencePool serving/chat"]
    assert ("inference-pool" not in rules) is is_listening
    path = None if probe is None else probe.get("httpGet", {}).get("path")
    assert probed({"containers": [server]}, 8000) == (path if is_listening else None)


def test_a_pool_without_pods_is_reported() -> None:
    objects = stack()
    pool = one(objects, "InferencePool", "chat")
    pool["spec"]["selector"]["matchLabels"] = {"app": "chat"}
    assert findings(objects) == [("inference-pool", "InferencePool serving/chat", "warning")]
    pool["spec"]["selector"] = UNKNOWN
    assert findings(objects) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requestPath": "/"}, "asks /, and the readiness probe of Deployment serving/code asks"),
        ({"port": 8000}, "asks port 8000, and the pool has port 9000"),
        ({"port": None}, ""),
        ({"requestPath": "/ready", "port": 9000}, ""),
    ],
)
def test_a_health_check_that_asks_something_else_is_refused(
    change: dict[str, Any], message: str
) -> None:
    objects = stack()
    policy = one(objects, "HealthCheckPolicy", "code")
    policy["spec"]["default"]["config"]["httpHealthCheck"] |= change
    refusal = ("health-check", "HealthCheckPolicy serving/code", "error")
    assert findings(objects) == [refusal] * bool(message)
    assert message in messages(objects)


def test_without_a_policy_the_root_is_asked() -> None:
    objects = stack()
    objects.remove(one(objects, "HealthCheckPolicy", "code"))
    assert findings(objects) == [("health-check", "InferencePool serving/code", "error")]
    assert "requestPath /ready" in messages(objects)
    probe = one(objects, "Deployment", "code")["spec"]["template"]["spec"]["containers"][0]
    probe["readinessProbe"]["httpGet"]["path"] = "/"
    assert findings(objects) == []
    # Its check is one of gRPC, about which a probe of HTTP decides nothing.
    objects = stack()
    policy = one(objects, "HealthCheckPolicy", "code")
    policy["spec"]["default"]["config"] = {"type": "GRPC"}
    assert findings(objects) == []


CLOSED: dict[str, tuple[str, str, list[str]]] = {
    "the proxies to the server": ("chat-gateway", "10.21.0.0/23", ["the load balancer's proxies"]),
    "health checks to the server": ("chat-gateway", "35.191.0.0/16", ["Google's health checks"]),
    "the proxies to the picker": ("llm-agents", "10.21.0.0/23", ["chat-picker", "code-picker"]),
}


@pytest.mark.parametrize("case", CLOSED)
def test_a_closed_way_from_the_proxies_is_refused(case: str) -> None:
    name, block, words = CLOSED[case]
    objects = stack()
    rule = one(objects, "NetworkPolicy", name)["spec"]["ingress"][0]
    rule["from"] = [each for each in rule["from"] if each["ipBlock"]["cidr"] != block]
    found = findings(objects)
    assert {rule for rule, *_ in found} == {"network-policy"}
    assert {severity for *_, severity in found} == {Severity.ERROR}
    assert all(word in messages(objects) for word in words)
    assert findings(objects, has_policies=False) == []


def test_a_closed_way_from_the_picker_is_refused() -> None:
    objects = stack()
    # The servers are closed to their own namespace, and so to the pickers.
    objects.remove(one(objects, "NetworkPolicy", "same-namespace"))
    assert findings(objects) == [], "the gateway's policies still open it"
    ingress = one(objects, "NetworkPolicy", "chat-gateway")["spec"]["ingress"]
    ingress.pop()
    assert findings(objects) == [], "a block of private addresses may have those of pods"
    ingress[0]["from"] = [{"ipBlock": {"cidr": block}} for block in GOOGLE_PROXIES]
    assert findings(objects) == [("network-policy", "InferencePool serving/chat", "error")] * 2
    assert "close port 8000 of Deployment serving/chat to Deployment serving/chat-picker" in (
        messages(objects)
    )
    objects = stack()
    objects.remove(one(objects, "NetworkPolicy", "same-namespace"))
    one(objects, "NetworkPolicy", "llm-agents")["spec"]["egress"].pop(0)
    assert {name for _, name, _ in findings(objects)} == {
        "InferencePool serving/chat",
        "InferencePool serving/code",
    }


def test_a_gateway_of_another_controller_asks_and_closes_nothing() -> None:
    objects = stack()
    one(objects, "Gateway", "llm")["spec"]["gatewayClassName"] = "istio"
    objects.remove(one(objects, "HealthCheckPolicy", "code"))
    objects.remove(one(objects, "NetworkPolicy", "chat-gateway"))
    assert findings(objects) == []


def divided() -> list[Manifest]:
    """A server with prefill and decode behind a gateway, in the closed namespace of a team."""
    return behind_gateway(service("chat", gpus=1, prefill={"replicas": 2}))


def closing(*open_ports: int) -> Manifest:
    """Return the spec of a policy that closes prefill pods to decode pods, except for some ports."""
    apart = {"matchExpressions": [{"key": ROLE, "operator": "DoesNotExist"}]}
    ports = [{"port": port, "protocol": "TCP"} for port in open_ports]
    rules: list[Manifest] = [{"from": [{"podSelector": apart}]}, {"from": [BLOCKS]}]
    if ports:
        rules.append({"from": [{"podSelector": {}}], "ports": ports})
    prefill = {"matchLabels": {ROLE: "prefill"}}
    return {"podSelector": prefill, "policyTypes": ["Ingress"], "ingress": rules}


ROLE = "llm-d.ai/role"
BLOCKS: Manifest = {"ipBlock": {"cidr": GOOGLE_PROXIES[1]}}


@pytest.mark.parametrize(
    ("ports", "count"), [((8000, 5600), 0), ((8000,), 1), ((5600,), 1), ((), 2)]
)
def test_prefill_pods_are_reached_by_decode_pods(ports: tuple[int, ...], count: int) -> None:
    assert findings(divided()) == []
    objects = [each for each in divided() if each["kind"] != "NetworkPolicy"]
    closed = policy("closed", **closing(*ports))
    closed["metadata"]["namespace"] = "serving"
    found = inference_gateways(stack_of([*objects, closed]))
    refused = [each.rule for each in found if "to Deployment serving/chat, which" in each.message]
    assert refused == ["network-policy"] * count


def test_prefill_pods_in_no_pool_are_reported() -> None:
    idle = [each for each in divided() if each["kind"] != "InferencePool"]
    expected = ("inference-pool", "Deployment serving/chat-prefill", "warning")
    assert expected in findings(idle)
    assert expected not in findings(divided())


def test_a_group_behind_a_gateway_is_known_by_its_leader() -> None:
    server = service("chat", gpus=8, nodes=2, arguments=["-tp=16"])
    objects = behind_gateway(server, is_closed=False)
    assert findings(objects) == []
    one(objects, "InferencePool", "chat")["spec"]["selector"]["matchLabels"].popitem()
    refused = [("inference-pool", "InferencePool serving/chat", "warning")]
    assert findings(objects, has_policies=False) == refused
