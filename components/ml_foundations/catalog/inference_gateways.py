"""Facts about GKE's inference gateways: classes, groups, sources of traffic, and versions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, items, namespace_of, section, text_of

GATEWAY_GROUP = "gateway.networking.k8s.io"
POOL_GROUP = "inference.networking.k8s.io"
GATEWAY_API = f"{GATEWAY_GROUP}/v1"
POOL_API = f"{POOL_GROUP}/v1"
POLICY_API = "networking.gke.io/v1"
"""The versions of Gateways and routes, of InferencePools, and of GKE's policies for both."""
POLICY_KINDS = (
    "healthcheckpolicies.networking.gke.io",
    "gcpbackendpolicies.networking.gke.io",
    "gcproutingextensions.networking.gke.io",
)
"""The definitions of GKE's policies. GKE installs them with the Gateway API."""
POOLS_SINCE = "1.34.0-gke.1626000"
"""The version of GKE that installs InferencePools itself (llm-d.ai, resources/gateway/gke)."""

INTERNAL_CLASS = "gke-l7-rilb"
EXTERNAL_CLASS = "gke-l7-regional-external-managed"
REGIONAL_CLASSES = (INTERNAL_CLASS, EXTERNAL_CLASS)
"""The classes that serve InferencePools. Their proxies need a proxy-only subnetwork (GKE, "Deploy
GKE Inference Gateway")."""
GLOBAL_CLASSES = ("gke-l7-gxlb", "gke-l7-global-external-managed")
"""Classes of GKE whose load balancers are global, and serve no InferencePools."""
PROXY_PURPOSE = "REGIONAL_MANAGED_PROXY"
"""The purpose of a subnetwork for the proxies of regional load balancers (VPC, "Proxy-only
subnets")."""
GOOGLE_PROXIES = ("130.211.0.0/22", "35.191.0.0/16")
"""The sources of Google's load balancers and their health checks (Cloud Load Balancing, "Firewall
rules")."""
CERTIFICATE_OPTION = "networking.gke.io/cert-manager-certs"
"""The option of a listener that names a regional certificate of Certificate Manager (GKE, "Secure a
Gateway")."""

MODEL_HEADER = "X-Gateway-Model-Name"
"""The header with the name of the model in a request's body (GKE, "Configure Body-Based
Routing")."""
MOST_RULES = 16
MOST_MODELS = 64
MOST_MATCHES = 128
"""The rules of an HTTPRoute, the matches of a rule, and those of all rules, at most (gateway-api
v1.5.0, HTTPRoute)."""
PICKER_PORT = 9002
PICKER_HEALTH_PORT = 9003
PICKER_METRICS_PORT = 9090
ROUTER_PORT = 9004
ROUTER_HEALTH_PORT = 9005
"""The ports of the endpoint picker and of the body-based router (gateway-api-inference-extension
v1.5.0, config/charts)."""

PREFILL = "prefill"
DECODE = "decode"
"""The roles of pods: those that process prompts, and those that answer."""
ENGINE_PORT = 8200
NIXL_PORT = 5600
"""The port of vLLM in a decode pod, whose sidecar has the server's port, and the port at which pods
agree on moving caches (llm-d, guides/pd-disaggregation)."""


def pool_references(route: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield path and reference of each InferencePool that an HTTPRoute names."""
    for index, rule in enumerate(items(section(route, "spec"), "rules")):
        for position, reference in enumerate(items(rule, "backendRefs")):
            if reference.get("kind") == "InferencePool":
                yield f"spec.rules[{index}].backendRefs[{position}]", reference


def gateway_names(route: Manifest) -> set[tuple[str, str]]:
    """Return namespace and name of each Gateway that an HTTPRoute is for."""
    names: set[tuple[str, str]] = set()
    for parent in items(section(route, "spec"), "parentRefs"):
        if parent.get("kind", "Gateway") == "Gateway":
            namespace = text_of(parent, "namespace") or namespace_of(route)
            names.add((namespace, text_of(parent, "name")))
    return names


def policy_of(pool: tuple[str, str], policies: Iterable[Manifest]) -> Manifest | None:
    """Return the HealthCheckPolicy of an InferencePool, by its namespace and name."""
    for policy in policies:
        target = section(policy, "spec", "targetRef")
        if target.get("kind") == "InferencePool" and pool == (
            namespace_of(policy),
            target.get("name"),
        ):
            return policy
    return None


def asked_by(policy: Manifest | None) -> tuple[Any, Any]:
    """Return the path and the port that a load balancer asks by a policy; "/" without one."""
    config = section(policy or {}, "spec", "default", "config")
    check = section(config, "httpHealthCheck")
    return check.get("requestPath", "/"), check.get("port")


def listening(pod: Manifest) -> Iterator[Manifest]:
    """Yield the containers of a pod that run as long as it does."""
    yield from items(pod, "containers")
    for container in items(pod, "initContainers"):
        if container.get("restartPolicy") == "Always":
            yield container


def asked_port(container: Manifest, probe_field: str = "readinessProbe") -> Any:
    """Return the number or the name of the port that a probe asks; None without one."""
    probe = section(container, probe_field)
    handlers = [section(probe, handler) for handler in ("httpGet", "tcpSocket", "grpc")]
    return next((handler.get("port") for handler in handlers if handler), None)


def probed(pod: Manifest, port: int) -> Any:
    """Return the path that a readiness probe of a pod asks at a port; None without one."""
    for container in listening(pod):
        asked = asked_port(container)
        if ports_of(container).get(asked, asked) == port:
            return section(container, "readinessProbe", "httpGet").get("path")
    return None


def ports_of(container: Manifest) -> Mapping[Any, Any]:
    """Return the numbers of a container's ports, by name or else by number."""
    ports: dict[Any, Any] = {}
    for port in items(container, "ports"):
        number = port.get("containerPort")
        ports[port.get("name", number)] = number
    return ports
