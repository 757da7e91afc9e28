"""Inference gateways: what requests and health checks meet on their way to pods."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network
from typing import Any

from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.kubernetes.labels import LLMD_ROLE
from ml_foundations.kubernetes.objects import Manifest, items, section, text_of
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.kubernetes.words import alternatives, as_remedy
from ml_foundations.planning.input.program import SUBNETWORK
from ml_foundations.planning.model.declared import full_name, key_of, of_kind
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.network import Network, Pods
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_ROUTE_TO_POOL = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: llm, namespace: ml}
spec:
  gatewayClassName: CLASS
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llm, namespace: ml}
spec:
  parentRefs: [{name: llm}]
  rules:
    - backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llm}]
"""
_POOL = """
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llm, namespace: ml}
spec:
  selector: {matchLabels: {app: llm}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: picker, port: {number: 9002}}
"""
_HEALTH_CHECK_POLICY = """
apiVersion: networking.gke.io/v1
kind: HealthCheckPolicy
metadata: {name: llm, namespace: ml}
spec:
  targetRef: {group: inference.networking.k8s.io, kind: InferencePool, name: llm}
  default: {config: {type: HTTP, httpHealthCheck: {requestPath: /health, port: 9000}}}
"""


@rule(
    "gateway-class",
    Severity.ERROR,
    "Gateways of InferencePools have a regional class.",
    source='GKE, "Deploy GKE Inference Gateway": classes',
    example=_ROUTE_TO_POOL.replace("CLASS", "gke-l7-gxlb"),
)
@rule(
    "public-paths",
    Severity.WARNING,
    "An HTTPRoute from the internet names the paths of the server's API.",
    source="Gateway API, HTTPRoute: matches",
    example=_ROUTE_TO_POOL.replace("CLASS", "gke-l7-regional-external-managed"),
)
@rule(
    "inference-pool",
    Severity.ERROR,
    "An InferencePool selects the pods of its server, and no others.",
    source="gateway-api-inference-extension v1.5.0, api/v1 InferencePool",
    example=_POOL,
)
@rule(
    "health-check",
    Severity.ERROR,
    "Load balancers ask InferencePools what the servers' own probes ask.",
    source='GKE, "Configure HealthCheckPolicy": defaults',
    example="---".join(
        (_ROUTE_TO_POOL.replace("CLASS", "gke-l7-rilb"), _POOL, _HEALTH_CHECK_POLICY)
    ),
)
def inference_gateways(stack: Stack) -> Iterator[Finding]:
    """Yield what requests and health checks do not find behind Gateways and InferencePools."""
    kinds = ("Gateway", "HTTPRoute", "InferencePool", "HealthCheckPolicy")
    objects = itertools.chain.from_iterable(map(stack.of_kind, kinds))
    known = [item for item in objects if not any(unknown_paths(item.get("spec")))]
    gateways = {key_of(item): item for item in _of_api(known, facts.GATEWAY_GROUP, "Gateway")}
    routes = _of_api(known, facts.GATEWAY_GROUP, "HTTPRoute")
    pools = _of_api(known, facts.POOL_GROUP, "InferencePool")
    for route in routes:
        yield from _route_findings(route, gateways)
    network = stack.network
    of_gke = set(_pools_of_gke(routes, gateways))
    yield from _idle(network, pools)
    policies = of_kind(known, "HealthCheckPolicy")
    sources = {"Google's health checks": facts.GOOGLE_PROXIES[1]}
    for subnetwork in stack.of_type(SUBNETWORK):
        block: Any = subnetwork.get("ipCidrRange")
        if subnetwork.get("purpose") == facts.PROXY_PURPOSE and isinstance(block, str):
            sources.setdefault("the load balancer's proxies", block)
    for pool in pools:
        selector = section(pool, "spec", "selector")
        candidates = network.by_namespace.get(key_of(pool)[0], [])
        servers = [pods for pods in candidates if selects(selector, pods.labels)]
        yield from _selected(pool, servers, candidates)
        if key_of(pool) not in of_gke:
            continue
        policy = facts.policy_of(key_of(pool), policies)
        yield from _health_findings(pool, policy, servers)
        if stack.has_policies:
            picker = str(section(pool, "spec", "endpointPickerRef").get("name"))
            service = stack.services.get((key_of(pool)[0], picker))
            is_known = service is not None and not any(unknown_paths(service.get("spec")))
            pickers = network.servers(service if service and is_known else {"kind": "Service"})
            yield from _closed_ways(pool, network, servers, pickers, sources)


def _of_api(objects: Iterable[Manifest], group: str, kind: str) -> list[Manifest]:
    of_group = (item for item in objects if str(item.get("apiVersion")).startswith(f"{group}/"))
    return of_kind(of_group, kind)


def _route_findings(
    route: Manifest, gateways: dict[tuple[str, str], Manifest]
) -> Iterator[Finding]:
    # The port of such a reference is ignored (gateway-api-inference-extension v1.5.0,
    # conformance/tests/inferencepool_httproute_port_validation.go).
    references = list(facts.pool_references(route))
    for name in facts.gateway_names(route) if references else ():
        gateway = gateways.get(name, {})
        class_name = str(section(gateway, "spec").get("gatewayClassName"))
        if class_name == facts.EXTERNAL_CLASS:
            yield from _open_paths(route, references)
        if class_name.removesuffix("-mc") in facts.GLOBAL_CLASSES:
            message = f"its class {class_name} is global, and serves no InferencePools"
            remedy = f"Use {' or '.join(facts.REGIONAL_CLASSES)}."
            path = "spec.gatewayClassName"
            yield error("gateway-class", full_name(gateway), path, message, remedy)


def _open_paths(route: Manifest, references: Iterable[tuple[str, Manifest]]) -> Iterator[Finding]:
    """Yield the rules of a route from the internet that send every path to a server."""
    rules = items(section(route, "spec"), "rules")
    for path in dict.fromkeys(path.partition(".backendRefs")[0] for path, _ in references):
        matches = items(rules[int(path.partition("[")[2].rstrip("]"))], "matches") or [{}]
        if any(section(match, "path").get("value", "/") == "/" for match in matches):
            message = "the internet reaches all paths of the server, also those without an API key"
            remedy = "Match the PathPrefix of its API, such as /v1."
            yield warning("public-paths", full_name(route), f"{path}.matches", message, remedy)


def _pools_of_gke(
    routes: Iterable[Manifest], gateways: dict[tuple[str, str], Manifest]
) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each InferencePool behind a regional Gateway of GKE."""
    for route in routes:
        named = [gateways[name] for name in facts.gateway_names(route) if name in gateways]
        classes = {text_of(section(gateway, "spec"), "gatewayClassName") for gateway in named}
        if classes.intersection(facts.REGIONAL_CLASSES):
            for _, reference in facts.pool_references(route):
                yield key_of(route)[0], str(reference.get("name"))


def _ports(pool: Manifest) -> list[int]:
    ports = [port.get("number") for port in items(section(pool, "spec"), "targetPorts")]
    return [port for port in ports if isinstance(port, int)]


def _listens(pods: Pods, ports: Sequence[int]) -> bool:
    return any(port in pods.declared_ports or port in pods.probed_ports for port in ports)


def _selected(
    pool: Manifest, servers: Sequence[Pods], candidates: Sequence[Pods]
) -> Iterator[Finding]:
    """Yield the findings on the pods that a pool selects among those of its namespace."""
    about = full_name(pool)
    ports = _ports(pool)
    others = [pods for pods in candidates if _listens(pods, ports)]
    listening = [pods for pods in servers if _listens(pods, ports)]
    for pods in servers if ports else ():  # the API server refuses a pool without ports
        declared = pods.declared_ports
        if _listens(pods, ports):
            continue
        message = f"it selects the pods of {pods.about}, which declare no port {ports[0]}"
        path = "spec.selector"
        remedy = "Add a label that only the pods of its server have."
        if declared and not listening:
            # One of both is wrong: the port, or the labels if other pods have the port.
            path = "spec.targetPorts"
            actual = alternatives(sorted(declared, key=str))
            select = f"select the pods of {others[0].about}" if others else ""
            remedy = as_remedy(f"set {path} to {actual}, which they declare", select)
        # A container without declared ports may listen on any.
        severe = error if declared else warning
        yield severe("inference-pool", about, path, f"{message}: requests fail there", remedy)
    path = "spec.selector"
    if not servers:
        message = "it selects no pods that are declared: requests get error 503"
        yield warning("inference-pool", about, path, message, "Select the labels of a server.")
    elif len([pods for pods in listening if pods.labels.get(LLMD_ROLE) != facts.PREFILL]) > 1:
        names = " and ".join(pods.about for pods in listening)
        message = f"it selects the pods of {names}, which get the same requests"
        remedy = "If they serve other models, add a label of one server to the selector."
        yield warning("inference-pool", about, path, message, remedy)


def _idle(network: Network, pools: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield the findings on prefill pods that no endpoint picker knows."""
    for pods in network.pods:
        if pods.labels.get(LLMD_ROLE) == facts.PREFILL and not any(
            key_of(pool)[0] == pods.namespace
            and selects(section(pool, "spec", "selector"), pods.labels)
            for pool in pools
        ):
            message = "no InferencePool selects its pods, so nobody sends them prompts"
            remedy = "Add the server to an InferenceGateway, or remove prefill."
            yield warning("inference-pool", pods.about, "metadata.labels", message, remedy)


def _health_findings(
    pool: Manifest, policy: Manifest | None, servers: Sequence[Pods]
) -> Iterator[Finding]:
    """Yield the findings on health checks that ask something else than the servers' probes."""
    about = full_name(policy or pool)
    config = section(policy or {}, "spec", "default", "config")
    if policy is not None and config.get("type", "HTTP") != "HTTP":
        return
    path, own_port = facts.asked_by(policy)
    field = "spec.default.config.httpHealthCheck" if policy else "spec"
    for port in _ports(pool)[:1]:
        if own_port not in (None, port):
            message = f"the load balancer asks port {own_port}, and the pool has port {port}"
            remedy = f"Set the port {port}."
            yield error("health-check", about, f"{field}.port", message, remedy)
            continue
        for pods in servers:
            probed = facts.probed(pods.spec, port)
            if probed is not None and probed != path:
                difference = f"and the readiness probe of {pods.about} asks {probed}"
                remedy = f"Add a HealthCheckPolicy of the pool with requestPath {probed}."
                if policy is not None:
                    remedy = f"Set requestPath {probed}."
                message = f"the load balancer asks {path}, {difference}"
                yield error("health-check", about, f"{field}.requestPath", message, remedy)


def _closed_ways(
    pool: Manifest,
    network: Network,
    servers: Sequence[Pods],
    pickers: Sequence[Pods],
    sources: dict[str, str],
) -> Iterator[Finding]:
    """Yield the ways of requests that network policies close."""
    targets = [(pods, _ports(pool)[0]) for pods in servers if _ports(pool)]
    targets += [(pods, facts.PICKER_PORT) for pods in pickers]
    for pods, port in targets:
        for source, block in sources.items():
            address = str(IPv4Network(block)[0])
            if not network.allows_address(pods, address, port, "ingress"):
                message = f"network policies close port {port} of {pods.about} to {source}"
                remedy = f"Add an ingress rule for {block}, as an InferenceGateway has it."
                yield error("network-policy", full_name(pool), "spec.selector", message, remedy)
    use = "which chooses pods by their metrics"
    ways = [(picker, *target, use) for picker in pickers for target in targets[: len(servers)]]
    for decode in servers:
        if decode.labels.get(LLMD_ROLE) != facts.DECODE:
            continue
        for pods, port in targets:
            if pods.labels.get(LLMD_ROLE) == facts.PREFILL:
                ways.append((decode, pods, port, "which sends it prompts"))
                ways.append((decode, pods, facts.NIXL_PORT, "which reads its cache"))
    for source, pods, port, reason in ways:
        is_open = network.allows("egress", source, pods, port)
        if not (is_open and network.allows("ingress", pods, source, port)):
            closed = f"network policies close port {port} of {pods.about} to {source.about}"
            remedy = "Add an egress and an ingress rule for this way."
            path = "spec.selector"
            message = f"{closed}, {reason}"
            yield error("network-policy", full_name(pool), path, message, remedy)
