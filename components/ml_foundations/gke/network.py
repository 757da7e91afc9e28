"""The network of a cluster, created or existing, and its Cloud NAT."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.inference_gateways import PROXY_PURPOSE
from ml_foundations.component.children import ChildResource, Ref, cloud_child
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Cidr, InputOf, InputStr, InputText, Name, Region

_POD_RANGE = "pods"
_SERVICE_RANGE = "services"
"""Names of the secondary ranges of a subnetwork that is made here."""
_LEAST_NAT_PORTS = 64
_MOST_NAT_PORTS = 4096
"""Ports of Cloud NAT for a node: powers of two (Compute Engine API, routers: minPortsPerVm,
maxPortsPerVm)."""

_RESERVED = IPv4Network("172.17.0.0/16")
"""What neither nodes, pods nor services may have (GKE, "Setting up a private cluster":
restrictions)."""
_PREFIXES = {
    "node_cidr": (8, 29),
    "service_cidr": (8, 27),
    "control_plane_cidr": (28, 28),
    "proxy_only_cidr": (8, 26),
}
"""The largest and the smallest that ranges may be (VPC, "Subnets"; Cloud Composer, "Shared VPC", of
GKE's ranges; Cloud Load Balancing, "Proxy-only subnets")."""

_SERVICES_PREFIX = 20
"""The range of addresses for Google's services, as Managed Lustre asks for it ("Configure a VPC
network")."""
_LUSTRE_PORTS = ["988", "6988"]


class Network(Spec):
    """An existing network for the cluster."""

    network: InputStr
    """The VPC network, by its self link or its name."""
    subnetwork: InputStr
    """Its subnetwork in the cluster's region, by its self link or its name."""
    pod_range: InputText | None = None
    """The subnetwork's secondary range for pods. By default, GKE adds one."""
    service_range: InputText | None = None
    """The subnetwork's secondary range for services. By default, GKE adds one."""
    nat: bool = False
    """Create a Cloud NAT in the network. The default is false. Without a Cloud NAT, nodes cannot
    pull images from outside of Google."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.pod_range is not None and self.service_range is None:
            yield "service_range", "is needed with pod_range"
        if self.service_range is not None and self.pod_range is None:
            yield "pod_range", "is needed with service_range"


class ClusterNetworkSpec(Spec):
    """The arguments of a cluster about its place and its network."""

    name: Name = Field(max_length=40)
    """The cluster's name, 40 characters at most. All resources that are created for it have names
    with it."""
    project: Annotated[
        str, Field(pattern=r"^([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$"), InputOf(str)
    ]
    """The Google Cloud project."""
    location: Region
    """The region of the control plane, such as us-central1."""
    network: Network | None = None
    """An existing network. By default, one is created, with a Cloud NAT."""
    node_cidr: Cidr = IPv4Network("10.0.0.0/20")
    """Addresses of the nodes. The default is 10.0.0.0/20."""
    pod_cidr: Cidr = IPv4Network("10.16.0.0/14")
    """Addresses of the pods. The default is 10.16.0.0/14."""
    service_cidr: Cidr = IPv4Network("10.20.0.0/20")
    """Addresses of the services. The default is 10.20.0.0/20."""
    control_plane_cidr: Cidr | None = None
    """Addresses of the control plane, a /28. By default, it uses one of the nodes' addresses."""
    proxy_only_cidr: Cidr | None = None
    """Addresses of the proxies of regional load balancers, such as 10.21.0.0/23, for an
    InferenceGateway. A subnetwork is created for them. By default, there is none. A network has one
    in each region."""
    mtu: int = Field(8896, ge=1300, le=8896)
    """The largest packet of the created network, in bytes. The default is 8896, which is best for
    traffic between GPUs.

    It is set when the network is created. A later change is ignored, because all machines would
    have to stop.
    """
    flow_logs: bool = False
    """Log the traffic of the created subnetwork (VPC Flow Logs). The default is false."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        for field in ("node_cidr", "pod_cidr", "service_cidr", "mtu", "flow_logs"):
            if self.network is not None and field in self.model_fields_set:
                yield field, "is for a created network, but network exists; leave one of them out"
        fields = ("node_cidr", "pod_cidr", "service_cidr", "control_plane_cidr", "proxy_only_cidr")
        ranges = [(field, block) for field in fields if (block := getattr(self, field)) is not None]
        for (first, taken), (field, block) in combinations(ranges, 2):
            if block.overlaps(taken):
                yield field, f"{block} overlaps with {first} ({taken})"
        for field, block in ranges:
            if field != "control_plane_cidr" and block.overlaps(_RESERVED):
                reason = f"overlaps with {_RESERVED}, which GKE reserves; choose another range"
                yield field, f"{block} {reason}"
            largest, smallest = _PREFIXES.get(field, (8, 32))
            if not largest <= block.prefixlen <= smallest:
                accepted = f"/{smallest}{' or larger' * (largest < smallest)}"
                yield field, f"is {block}; GKE accepts a {accepted}"


def network_children(spec: ClusterNetworkSpec, private_services: bool) -> Iterator[ChildResource]:
    """Yield the created network with its Cloud NAT, or only the NAT in an existing network.

    With private services, Google's services have addresses in it, as Managed Lustre needs.
    """
    if spec.network is None:
        yield from _made_network(spec)
        if private_services:
            yield from _private_services(spec)
    elif spec.network.nat:
        yield from _nat(spec, spec.network.network)
    if spec.proxy_only_cidr is not None:
        # The proxies of regional load balancers have a subnetwork of their own.
        made = Ref("network", "selfLink")
        subnetwork = {
            "name": f"{spec.name}-proxies",
            "project": spec.project,
            "region": spec.location,
            "network": made if spec.network is None else spec.network.network,
            "ipCidrRange": str(spec.proxy_only_cidr),
            "purpose": PROXY_PURPOSE,
            "role": "ACTIVE",
        }
        yield cloud_child("proxies", "gcp:compute/subnetwork:Subnetwork", subnetwork)


def network_arguments(spec: ClusterNetworkSpec) -> dict[str, Any]:
    """Return the arguments of a cluster about the network that it is in."""
    network = spec.network or Network(
        network=Ref("subnetwork", "network"),
        subnetwork=Ref("subnetwork", "selfLink"),
        pod_range=_POD_RANGE,
        service_range=_SERVICE_RANGE,
    )
    return {
        "network": network.network,
        "subnetwork": network.subnetwork,
        "ipAllocationPolicy": {
            "clusterSecondaryRangeName": network.pod_range,
            "servicesSecondaryRangeName": network.service_range,
        },
    }


def _made_network(spec: ClusterNetworkSpec) -> Iterator[ChildResource]:
    common = {"name": spec.name, "project": spec.project}
    network = {**common, "autoCreateSubnetworks": False, "mtu": spec.mtu}
    subnetwork: dict[str, Any] = {
        **common,
        "region": spec.location,
        "network": Ref("network", "selfLink"),
        "ipCidrRange": str(spec.node_cidr),
        "privateIpGoogleAccess": True,
        "secondaryIpRanges": [
            {"rangeName": _POD_RANGE, "ipCidrRange": str(spec.pod_cidr)},
            {"rangeName": _SERVICE_RANGE, "ipCidrRange": str(spec.service_cidr)},
        ],
    }
    if spec.flow_logs:
        subnetwork["logConfig"] = {"aggregationInterval": "INTERVAL_5_SEC", "flowSampling": 0.5}
    type_ = "gcp:compute/network:Network"
    outputs = ("selfLink",)
    # A change of the MTU needs all machines to be stopped (Compute Engine, "Change the MTU").
    yield cloud_child("network", type_, network, outputs, ignore_changes=["mtu"])
    yield cloud_child("subnetwork", "gcp:compute/subnetwork:Subnetwork", subnetwork, outputs)
    yield from _nat(spec, Ref("network", "selfLink"))


def _private_services(spec: ClusterNetworkSpec) -> Iterator[ChildResource]:
    """Yield private services access, by which nodes reach Google's services (VPC)."""
    address = {
        "name": f"{spec.name}-services",
        "project": spec.project,
        "purpose": "VPC_PEERING",
        "addressType": "INTERNAL",
        "prefixLength": _SERVICES_PREFIX,
        "network": Ref("network", "selfLink"),
    }
    connection = {
        "network": Ref("network", "selfLink"),
        "service": "servicenetworking.googleapis.com",
        "reservedPeeringRanges": [Ref("private-services", "name")],
    }
    # What comes from there is let in on Lustre's ports (GKE, "Access Managed Lustre instances").
    firewall = {
        "name": f"{spec.name}-lustre",
        "project": spec.project,
        "network": Ref("network", "selfLink"),
        "allows": [{"protocol": "tcp", "ports": _LUSTRE_PORTS}],
        "sourceRanges": [Ref("private-services", "address", f"{{}}/{_SERVICES_PREFIX}")],
    }
    type_ = "gcp:compute/globalAddress:GlobalAddress"
    yield cloud_child("private-services", type_, address, ("address",))
    type_ = "gcp:servicenetworking/connection:Connection"
    yield cloud_child("private-services-access", type_, connection)
    yield cloud_child("lustre-firewall", "gcp:compute/firewall:Firewall", firewall)


def _nat(spec: ClusterNetworkSpec, network: Any) -> Iterator[ChildResource]:
    """Yield a Cloud NAT, by which nodes without public addresses reach the Internet."""
    common = {"name": spec.name, "project": spec.project, "region": spec.location}
    nat = {
        "router": Ref("router", "name"),
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
        # With the fixed 64 ports for a node, pulls of images lose connections at random.
        "enableDynamicPortAllocation": True,
        "enableEndpointIndependentMapping": False,
        "minPortsPerVm": _LEAST_NAT_PORTS,
        "maxPortsPerVm": _MOST_NAT_PORTS,
        "logConfig": {"enable": True, "filter": "ERRORS_ONLY"},
    }
    yield cloud_child("router", "gcp:compute/router:Router", {**common, "network": network})
    yield cloud_child("nat", "gcp:compute/routerNat:RouterNat", {**common, **nat})
