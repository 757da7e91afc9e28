"""The network of a team: closed, but for what pods cannot do without and what was asked for."""

from typing import Any, Literal, NamedTuple

from ml_foundations.kubernetes.merging import without_none

Internet = Literal["none", "https", "any"]

MONITORING_NAMESPACES = ("gmp-system", "gke-gmp-system")
"""Where GKE runs the collectors of Managed Service for Prometheus."""

METADATA_SERVER = "169.254.169.254/32"
"""The metadata server as pods of Dataplane V2 reach it, and Cloud DNS."""

GKE_METADATA_SERVER = "169.254.169.252/32"
"""GKE's metadata server, which gives pods their Google identity (GKE, "Workload Identity Federation for GKE")."""

NODE_LOCAL_DNS = "169.254.20.10/32"

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
"""Networks that are not the Internet (RFC 1918, 6598 and 3927)."""

GOOGLE_PROXIES = ("130.211.0.0/22", "35.191.0.0/16")
"""Where Google's load balancers and their health checks come from (Cloud Load Balancing, "Firewall rules")."""


class Openings(NamedTuple):
    """What is open beside the team's own namespace."""

    from_namespaces: tuple[str, ...] = MONITORING_NAMESPACES
    from_load_balancers: bool = False
    internet: Internet = "https"
    to_networks: tuple[str, ...] = ()


def network_policy_manifests(namespace: str, openings: Openings) -> list[dict[str, Any]]:
    """The policies, each with one purpose; together they allow what any of them does."""
    everyone: list[dict[str, Any]] = [{"podSelector": {}}]
    policies = [
        _policy(namespace, "default-deny", ingress=[], egress=[]),
        _policy(namespace, "same-namespace", ingress=[{"from": everyone}], egress=[{"to": everyone}]),
        _policy(namespace, "dns", egress=[_dns()]),
        _policy(namespace, "workload-identity", egress=_metadata_server()),
    ]
    if sources := _sources(openings):
        policies.append(_policy(namespace, "ingress", ingress=[{"from": sources}]))
    if openings.internet != "none":
        policies.append(_policy(namespace, "internet", egress=[_internet(openings.internet)]))
    if openings.to_networks:
        networks = [{"ipBlock": {"cidr": network}} for network in openings.to_networks]
        policies.append(_policy(namespace, "networks", egress=[{"to": networks}]))
    return policies


def _policy(
    namespace: str,
    name: str,
    ingress: list[dict[str, Any]] | None = None,
    egress: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    types = [kind for kind, rules in (("Ingress", ingress), ("Egress", egress)) if rules is not None]
    rules = without_none({"ingress": ingress or None, "egress": egress or None})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": types, **rules},
    }


def _namespaces(*names: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _dns() -> dict[str, Any]:
    """kube-dns, its cache on the node, and Cloud DNS: a cluster has one of them."""
    servers = {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns", "node-local-dns"]}]}
    addresses = [{"ipBlock": {"cidr": cidr}} for cidr in (NODE_LOCAL_DNS, METADATA_SERVER)]
    return {
        "to": [_namespaces("kube-system") | {"podSelector": servers}, *addresses],
        "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
    }


def _metadata_server() -> list[dict[str, Any]]:
    ports = {GKE_METADATA_SERVER: (987, 988), METADATA_SERVER: (80, 8080)}
    return [
        {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": port, "protocol": "TCP"} for port in numbers]}
        for cidr, numbers in ports.items()
    ]


def _sources(openings: Openings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [_namespaces(*openings.from_namespaces)] if openings.from_namespaces else []
    if openings.from_load_balancers:
        found += [{"ipBlock": {"cidr": cidr}} for cidr in GOOGLE_PROXIES]
    return found


def _internet(internet: Internet) -> dict[str, Any]:
    rule: dict[str, Any] = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE)}}]}
    return rule | ({"ports": [{"port": 443, "protocol": "TCP"}]} if internet == "https" else {})
