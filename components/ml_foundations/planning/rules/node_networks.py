"""The networks that nodes are in besides the cluster's: which they are, and their addresses."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import NamedTuple

from ml_foundations.kubernetes.objects import Manifest, mappings, name_of, section
from ml_foundations.kubernetes.trees import as_key, unknown_paths
from ml_foundations.planning.input.networks import GROUP, last_part
from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.planning.model.declared import kind_and_name, of_kind
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack


class _Range(NamedTuple):
    """A range of addresses of a cluster, or of a network of its nodes."""

    owner: str
    """The cluster or the node pool."""
    subnetwork: str
    block: IPv4Network


def cluster_networks(stack: Stack) -> list[object]:
    """Return the names of a program's VPC networks, without those that only nodes are in."""
    of_nodes: set[str] = set()
    for pool in stack.node_pools:
        of_nodes.update(last_part(names.get("network")) for names in _networks(pool))
    names = [network.get("name") for network in stack.of_type(NETWORK)]
    return [name for name in names if as_key(name) not in of_nodes]


@rule(
    "network-ranges",
    Severity.ERROR,
    "The networks of a cluster's nodes have different addresses.",
    source='GKE, "Set up multi-network support for Pods"',
    example="""
        type: gcp:compute/subnetwork:Subnetwork
        name: nodes
        ipCidrRange: 10.0.0.0/16
        secondaryIpRanges: [{rangeName: pods, ipCidrRange: 10.8.0.0/14}]
        ---
        type: gcp:compute/subnetwork:Subnetwork
        name: gpus
        ipCidrRange: 10.0.8.0/24
        ---
        type: gcp:container/cluster:Cluster
        name: ml
        ipAllocationPolicy: {clusterSecondaryRangeName: pods}
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        cluster: ml
        networkConfig:
          additionalNodeNetworkConfigs: [{network: gpus, subnetwork: gpus}]
    """,
)
def overlapping_networks(stack: Stack) -> Iterator[Finding]:
    """Yield the pools whose networks have addresses of another network of the cluster.

    Source: GKE, "Set up multi-network support for Pods", general limitations.
    """
    subnetworks: dict[object, Manifest] = {}
    for subnetwork in stack.of_type(SUBNETWORK):
        subnetworks[as_key(subnetwork.get("name"))] = subnetwork
    for pools in stack.pools_by_cluster.values():
        earlier: list[_Range] = []
        if len(stack.clusters) == 1:
            earlier += _of_cluster(stack.clusters[0], subnetworks)
        for pool in pools:
            ranges: list[_Range] = []
            for names in _networks(pool):
                name = last_part(names.get("subnetwork"))
                subnetwork = subnetworks.get(name, {})
                ranges += _range(f"NodePool {pool.get('name')}", name, subnetwork)
            yield from _first_overlap(ranges, earlier)
            earlier += ranges


@rule(
    "node-networks",
    Severity.ERROR,
    "Networks, their parameters and node pools name the same subnetworks.",
    source='GKE, "Set up multi-network support for Pods"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        network: ml
        ---
        apiVersion: networking.gke.io/v1
        kind: GKENetworkParamSet
        metadata: {name: gpus}
        spec: {vpc: ml, vpcSubnet: gpus, deviceMode: NetDevice}
    """,
)
def network_objects(stack: Stack) -> Iterator[Finding]:
    """Yield what keeps pods from the networks of their nodes: a missing object, or a wrong one.

    Source: kubernetes/cloud-provider-gcp, pkg/controller/gkenetworkparamset.
    """
    clusters = stack.shown_clusters
    pools = stack.node_pools
    objects: list[Manifest] = []
    for item in stack.declared_objects:
        if str(item.get("apiVersion")).startswith(GROUP):
            objects.append(item)
    configurations = [pool.get("networkConfig") for pool in pools]
    if len(clusters) != 1 or any(unknown_paths([*objects, *configurations])):
        return
    used: dict[tuple[str, str], str] = {}
    for pool in pools:
        for names in _networks(pool):
            pair = last_part(names.get("network")), last_part(names.get("subnetwork"))
            used.setdefault(pair, f"NodePool {pool.get('name')}")
    described: dict[tuple[str, str], str] = {}
    for item in of_kind(objects, "GKENetworkParamSet"):
        spec = section(item, "spec")
        pair = last_part(spec.get("vpc")), last_part(spec.get("vpcSubnet"))
        of_device = bool(spec.get("deviceMode"))
        if of_device and (fault := _fault(pair, clusters[0], used, described)):
            yield _unready(kind_and_name(item), "vpcSubnet", *fault)
        described.setdefault(pair, name_of(item))
    names = {*described.values()}
    named = set[str]()
    for item in of_kind(objects, "Network"):
        reference = str(section(item, "spec", "parametersRef").get("name"))
        named.add(reference)
        if section(item, "spec").get("type") == "Device" and reference not in names:
            message = f"there is no GKENetworkParamSet {reference}, so the network is never ready"
            remedy = "Declare it, with vpc, vpcSubnet and deviceMode."
            yield _unready(kind_and_name(item), "parametersRef", message, remedy)
    for pair, pool in used.items():
        if described.get(pair) not in named:
            missing = "Network" if pair in described else "GKENetworkParamSet"
            message = f"no {missing} is for subnetwork {pair[1]}, so no pod gets its interfaces"
            remedy = "Declare a Network of type Device, and its GKENetworkParamSet."
            yield warning("node-networks", pool, "networkConfig", message, remedy)


def _fault(
    pair: tuple[str, str],
    cluster: Manifest,
    used: Mapping[tuple[str, str], str],
    described: Mapping[tuple[str, str], str],
) -> tuple[str, str] | None:
    """Return why a network of devices is never ready, and a remedy."""
    vpc, subnetwork = pair
    if vpc == (last_part(cluster.get("network")) or "default"):
        return f"{vpc} is the cluster's own network", "Choose another network of the node pool."
    if pair in described:
        taken = f"{described[pair]} has the subnetwork {subnetwork} already"
        return taken, "Leave one of them out."
    if pair not in used:
        nearest = ", ".join(f"{network}/{name}" for network, name in used) or "no network"
        message = f"no node pool is in {vpc}/{subnetwork}; node pools are in {nearest}"
        return message, "Name network and subnetwork of a node pool."
    return None


def _unready(about: str, path: str, message: str, remedy: str) -> Finding:
    return error("node-networks", about, f"spec.{path}", message, remedy)


def _first_overlap(ranges: Sequence[_Range], earlier: Sequence[_Range]) -> Iterator[Finding]:
    for second in ranges:
        for first in earlier:
            # Pools may share networks.
            if second.subnetwork != first.subnetwork and second.block.overlaps(first.block):
                message = (
                    f"{second.block} overlaps with {first.block} of {first.owner}, and GKE refuses "
                    "such networks in one cluster"
                )
                remedy = "Choose another range (gpuNetworkCidr of a GpuNodePool)."
                yield error("network-ranges", second.owner, "networkConfig", message, remedy)
                return


def _of_cluster(cluster: Manifest, subnetworks: Mapping[object, Manifest]) -> Iterator[_Range]:
    """Yield the ranges of the subnetwork that has the cluster's range of pods."""
    pods = section(cluster, "ipAllocationPolicy").get("clusterSecondaryRangeName")
    for name, subnetwork in subnetworks.items():
        more = mappings(subnetwork, "secondaryIpRanges")
        if pods is not None and pods in [ip_range.get("rangeName") for ip_range in more]:
            for ip_range in (subnetwork, *more):
                yield from _range(f"Cluster {cluster.get('name')}", name, ip_range)


def _range(owner: str, subnetwork: object, ip_range: Manifest) -> Iterator[_Range]:
    try:
        yield _Range(owner, str(subnetwork), IPv4Network(str(ip_range.get("ipCidrRange"))))
    except ValueError:
        return  # it is not known, or not valid


def _networks(pool: Manifest) -> list[Manifest]:
    return mappings(section(pool, "networkConfig"), "additionalNodeNetworkConfigs")
