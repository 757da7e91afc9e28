"""The network of a team: closed, except for required and requested connections."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from ml_foundations.component.children import ChildResource
from ml_foundations.component.data import yaml_file
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputName, InputOf
from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.objects import api_object

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
"""Networks that are not the Internet (RFC 1918, 6598 and 3927)."""

_GOOGLE_PROXIES = ("130.211.0.0/22", "35.191.0.0/16")
"""The sources of Google's load balancers and their health checks (Cloud Load Balancing, "Firewall
rules")."""


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
    if sources := _sources(network):
        yield _policy(
            namespace, "ingress", {"policyTypes": ["Ingress"], "ingress": [{"from": sources}]}
        )
    if network.internet != "none":
        rule: dict[str, Any] = {
            "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(_PRIVATE)}}]
        }
        rule |= {"ports": [{"port": 443, "protocol": "TCP"}]} if network.internet == "https" else {}
        yield _policy(namespace, "internet", {"policyTypes": ["Egress"], "egress": [rule]})
    if network.egress_namespaces:
        expression = {"key": NAMESPACE_NAME, "operator": "In", "values": network.egress_namespaces}
        peers = [{"namespaceSelector": {"matchExpressions": [expression]}}]
        yield _policy(
            namespace, "namespaces", {"policyTypes": ["Egress"], "egress": [{"to": peers}]}
        )
    if network.egress_networks:
        blocks = [{"ipBlock": {"cidr": cidr}} for cidr in network.egress_networks]
        yield _policy(
            namespace, "networks", {"policyTypes": ["Egress"], "egress": [{"to": blocks}]}
        )


def _policy(namespace: str, name: str, policy: dict[str, Any]) -> ChildResource:
    metadata = {"name": name, "namespace": namespace}
    manifest = api_object(
        "networking.k8s.io/v1", "NetworkPolicy", metadata, spec={"podSelector": {}, **policy}
    )
    return ChildResource(f"network-{name}", manifest, depends_on=["namespace"])


def _sources(network: TeamNetwork) -> list[dict[str, Any]]:
    names = network.ingress_namespaces
    expression = {"key": NAMESPACE_NAME, "operator": "In", "values": names}
    found: list[dict[str, Any]] = (
        [{"namespaceSelector": {"matchExpressions": [expression]}}] if names else []
    )
    if network.ingress_load_balancers:
        found += [{"ipBlock": {"cidr": cidr}} for cidr in _GOOGLE_PROXIES]
    return found
