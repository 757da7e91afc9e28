"""The network of a cluster: made for it, or brought; and the way out of it for nodes without public addresses."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
from typing_extensions import override

from ml_foundations.component.resources import child_options
from ml_foundations.component.spec import Spec

POD_RANGE, SERVICE_RANGE = "pods", "services"
"""Names of the secondary ranges of a subnetwork that is made here."""


class NetworkArgs(TypedDict):
    """A network that exists, for the cluster to be in."""

    network: pulumi.Input[str]
    """The VPC network: its self link, or its name."""
    subnetwork: pulumi.Input[str]
    """Its subnetwork in the cluster's region: self link or name."""
    pod_range: NotRequired[str]
    """The subnetwork's secondary range for pods; by default GKE adds one."""
    service_range: NotRequired[str]
    """The subnetwork's secondary range for services; by default GKE adds one."""
    nat: NotRequired[bool]
    """Whether to make a Cloud NAT in it. Default false: where there is none, nodes pull no image from outside."""


class BroughtNetwork(Spec):
    """A checked NetworkArgs."""

    network: Any
    subnetwork: Any
    pod_range: str | None = None
    service_range: str | None = None
    nat: bool = False

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if (self.pod_range is None) != (self.service_range is None):
            field, other = ("service_range", "pod_range")[:: 1 if self.pod_range else -1]
            yield field, f"is needed with {other}"


class Network(Spec):
    """Where a cluster is: what both kinds of network come down to."""

    network: Any
    subnetwork: Any
    pod_range: str | None = None
    service_range: str | None = None


class RangeSettings(Spec):
    """The addresses of a network that is made for a cluster."""

    node_cidr: IPv4Network = IPv4Network("10.0.0.0/20")
    pod_cidr: IPv4Network = IPv4Network("10.16.0.0/14")
    service_cidr: IPv4Network = IPv4Network("10.20.0.0/20")
    control_plane_cidr: IPv4Network | None = None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        ranges: list[tuple[str, IPv4Network]] = []
        for field in ("node_cidr", "pod_cidr", "service_cidr", "control_plane_cidr"):
            block = getattr(self, field)
            if block is None:
                continue
            for other, taken in ranges:
                if block.overlaps(taken):
                    yield field, f"{block} overlaps with {other} ({taken})"
            ranges.append((field, block))
        if self.control_plane_cidr is not None and self.control_plane_cidr.prefixlen != 28:
            yield "control_plane_cidr", f"{self.control_plane_cidr} has not the size that GKE takes: a /28"


def made_network(
    parent: pulumi.Resource, name: str, project: str, region: str, ranges: RangeSettings, *, flow_logs: bool
) -> Network:
    """A network of the cluster's own, with a way out for private nodes."""
    network = gcp.compute.Network(
        f"{name}-network", name=name, project=project, auto_create_subnetworks=False, opts=child_options(parent)
    )
    subnetwork = gcp.compute.Subnetwork(
        f"{name}-subnetwork",
        name=name,
        project=project,
        region=region,
        network=network.self_link,
        ip_cidr_range=str(ranges.node_cidr),
        private_ip_google_access=True,
        secondary_ip_ranges=[
            {"range_name": POD_RANGE, "ip_cidr_range": str(ranges.pod_cidr)},
            {"range_name": SERVICE_RANGE, "ip_cidr_range": str(ranges.service_cidr)},
        ],
        log_config={"aggregation_interval": "INTERVAL_5_SEC", "flow_sampling": 0.5} if flow_logs else None,
        opts=child_options(parent),
    )
    nat(parent, name, project, region, network.self_link)
    return Network(
        network=subnetwork.network, subnetwork=subnetwork.self_link, pod_range=POD_RANGE, service_range=SERVICE_RANGE
    )


def nat(parent: pulumi.Resource, name: str, project: str, region: str, network: pulumi.Input[str]) -> None:
    """A Cloud NAT: the way out for nodes without public addresses."""
    router = gcp.compute.Router(
        f"{name}-router", name=name, project=project, region=region, network=network, opts=child_options(parent)
    )
    gcp.compute.RouterNat(
        f"{name}-nat",
        name=name,
        project=project,
        region=region,
        router=router.name,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
        opts=child_options(parent),
    )
