"""The network of a team: closed, but for what pods cannot do without and what was asked for."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from ml_foundations.component.parts import Part
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import without_none

_METADATA_SERVER = "169.254.169.254/32"
"""The metadata server as pods of Dataplane V2 reach it, and Cloud DNS."""

_GKE_METADATA_SERVER = "169.254.169.252/32"
"""GKE's metadata server, which gives pods their Google identity (GKE, "Workload Identity Federation for GKE")."""

_NODE_LOCAL_DNS = "169.254.20.10/32"

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
"""Networks that are not the Internet (RFC 1918, 6598 and 3927)."""

_GOOGLE_PROXIES = ("130.211.0.0/22", "35.191.0.0/16")
"""Where Google's load balancers and their health checks come from (Cloud Load Balancing, "Firewall rules")."""


class Network(Spec):
    """What is open beside the team's own namespace."""

    internet: Literal["none", "https", "any"] = "https"
    """What the pods may reach outside of private networks: none, https or any; default https."""
    ingress_namespaces: list[Name] = ["gmp-system", "gke-gmp-system"]
    """Namespaces whose pods may connect; default those of Managed Service for Prometheus."""
    ingress_load_balancers: bool = False
    """Whether Google's load balancers and their health checks may connect; default false."""
    egress_networks: list[Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}$")]] = []
    """Private networks that the pods may reach, as CIDR blocks: the control plane, a database."""


def network_parts(namespace: str, network: Network) -> Iterator[Part]:
    """The policies, each with one purpose; together they allow what any of them does."""
    everyone: list[dict[str, Any]] = [{"podSelector": {}}]
    yield _policy(namespace, "default-deny", ingress=[], egress=[])
    yield _policy(namespace, "same-namespace", ingress=[{"from": everyone}], egress=[{"to": everyone}])
    yield _policy(namespace, "dns", egress=[_dns()])
    yield _policy(namespace, "workload-identity", egress=_metadata_server())
    if sources := _sources(network):
        yield _policy(namespace, "ingress", ingress=[{"from": sources}])
    if network.internet != "none":
        yield _policy(namespace, "internet", egress=[_internet(network)])
    if network.egress_networks:
        blocks = [{"ipBlock": {"cidr": cidr}} for cidr in network.egress_networks]
        yield _policy(namespace, "networks", egress=[{"to": blocks}])


def _policy(
    namespace: str,
    name: str,
    ingress: list[dict[str, Any]] | None = None,
    egress: list[dict[str, Any]] | None = None,
) -> Part:
    types = [kind for kind, rules in (("Ingress", ingress), ("Egress", egress)) if rules is not None]
    rules = without_none({"ingress": ingress or None, "egress": egress or None})
    manifest: dict[str, Any] = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": types, **rules},
    }
    return Part(f"network-{name}", manifest, after=["namespace"])


def _namespaces(*names: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _dns() -> dict[str, Any]:
    """kube-dns, its cache on the node, and Cloud DNS: a cluster has one of them."""
    servers = {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns", "node-local-dns"]}]}
    addresses = [{"ipBlock": {"cidr": cidr}} for cidr in (_NODE_LOCAL_DNS, _METADATA_SERVER)]
    return {
        "to": [_namespaces("kube-system") | {"podSelector": servers}, *addresses],
        "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
    }


def _metadata_server() -> list[dict[str, Any]]:
    ports = {_GKE_METADATA_SERVER: (987, 988), _METADATA_SERVER: (80, 8080)}
    return [
        {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": port, "protocol": "TCP"} for port in numbers]}
        for cidr, numbers in ports.items()
    ]


def _sources(network: Network) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [_namespaces(*network.ingress_namespaces)] if network.ingress_namespaces else []
    if network.ingress_load_balancers:
        found += [{"ipBlock": {"cidr": cidr}} for cidr in _GOOGLE_PROXIES]
    return found


def _internet(network: Network) -> dict[str, Any]:
    rule: dict[str, Any] = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(_PRIVATE)}}]}
    return rule | ({"ports": [{"port": 443, "protocol": "TCP"}]} if network.internet == "https" else {})
