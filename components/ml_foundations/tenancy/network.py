"""The network of a team: closed, except for required and requested connections."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ml_foundations.catalog.inference_gateways import GOOGLE_PROXIES
from ml_foundations.component.children import ChildResource
from ml_foundations.component.data import yaml_file
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputName, InputOf
from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.objects import api_object

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
"""Networks that are not the Internet (RFC 1918, 6598 and 3927)."""


class TeamNetwork(Spec):
    """Connections that are open in addition to the team's own namespace."""

    internet: Literal["none", "https", "any"] = "https"
    """What the pods may reach outside of private networks: none, https or any. The default is
    https."""
    ingress_namespaces: list[InputName] = ["gmp-system", "gke-gmp-system"]
    """Namespaces whose pods may connect. By default, those of Managed Service for Prometheus."""
    ingress_load_balancers: bool = False
    """Allow connections from Google's load balancers and their health checks. The default is
    false."""
    egress_namespaces: list[InputName] = []
    """Namespaces whose pods the team's pods may reach, such as that of a server with this namespace
    in its callers. A stack file adds the namespaces of these servers."""
    egress_networks: list[
        Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}$"), InputOf(str)]
    ] = []
    """Private networks that the pods may reach, as CIDR blocks, such as those of the control plane
    or a database."""


def network_children(namespace: str, network: TeamNetwork) -> Iterator[ChildResource]:
    """Yield the policies, each with one purpose. Each of them allows more connections."""
    for name, policy in yaml_file("tenancy", "network_policies.yaml").items():
        yield _policy(namespace, name, policy)
    sources = _pods_of(network.ingress_namespaces) if network.ingress_namespaces else []
    sources += _blocks(GOOGLE_PROXIES) if network.ingress_load_balancers else []
    if sources:
        policy = {"policyTypes": ["Ingress"], "ingress": [{"from": sources}]}
        yield _policy(namespace, "ingress", policy)
    if network.internet != "none":
        outside = {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(_PRIVATE)}}
        ports = [{"port": 443, "protocol": "TCP"}] if network.internet == "https" else []
        yield _egress(namespace, "internet", [outside], ports)
    if network.egress_namespaces:
        yield _egress(namespace, "namespaces", _pods_of(network.egress_namespaces))
    if network.egress_networks:
        yield _egress(namespace, "networks", _blocks(network.egress_networks))


def _egress(
    namespace: str, name: str, peers: list[dict[str, Any]], ports: Sequence[Any] = ()
) -> ChildResource:
    rule = {"to": peers, "ports": ports} if ports else {"to": peers}
    return _policy(namespace, name, {"policyTypes": ["Egress"], "egress": [rule]})


def _policy(namespace: str, name: str, policy: dict[str, Any]) -> ChildResource:
    metadata = {"name": name, "namespace": namespace}
    spec: dict[str, Any] = {"podSelector": {}, **policy}
    manifest = api_object("networking.k8s.io/v1", "NetworkPolicy", metadata, spec=spec)
    return ChildResource(f"network-{name}", manifest, depends_on=["namespace"])


def _pods_of(namespaces: list[str]) -> list[dict[str, Any]]:
    expression = {"key": NAMESPACE_NAME, "operator": "In", "values": namespaces}
    return [{"namespaceSelector": {"matchExpressions": [expression]}}]


def _blocks(networks: Iterable[str]) -> list[dict[str, Any]]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in networks]
