"""The networks that nodes are in besides the cluster's: which they are, and their addresses."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any, NamedTuple

from ml_foundations.kubernetes.objects import Manifest, mappings, name_of, section
from ml_foundations.kubernetes.trees import UNKNOWN, as_key, unknown_paths
from ml_foundations.planning.input import program
from ml_foundations.planning.input.networks import GROUP, last_part
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.model.declared import kind_and_name, of_kind, of_type
from ml_foundations.planning.verdict.findings import Finding, error, warning


class _Range(NamedTuple):
    """A range of addresses of a cluster, or of a network of its nodes."""

    owner: str
    """The cluster or the node pool."""
    subnetwork: str
    block: IPv4Network


def cluster_networks(resources: Sequence[Resource]) -> list[object]:
    """Return the names of a program's VPC networks, without those that only nodes are in."""
    of_nodes: set[str] = set()
    for pool in of_type(resources, program.NODE_POOL):
        of_nodes.update(last_part(names.get("network")) for names in _networks(pool))
    names = [network.get("name") for network in of_type(resources, program.NETWORK)]
    return [name for name in names if as_key(name) not in of_nodes]


def overlapping_networks(
    resources: Sequence[Resource], clusters: Sequence[Manifest]
) -> Iterator[Finding]:
    """Yield the pools whose networks have addresses of another network of the cluster.

    Source: GKE, "Set up multi-network support for Pods", general limitations.
    """
    subnetworks: dict[object, Manifest] = {}
    for subnetwork in of_type(resources, program.SUBNETWORK):
        subnetworks[as_key(subnetwork.get("name"))] = subnetwork
    taken: dict[object, list[_Range]] = {}
    if len(clusters) == 1:
        taken[as_key(clusters[0].get("name"))] = list(_of_cluster(clusters[0], subnetworks))
    for pool in of_type(resources, program.NODE_POOL):
        earlier = taken.setdefault(as_key(pool.get("cluster")), [])
        own = list(_of_pool(pool, subnetworks))
        yield from _first_overlap(own, earlier)
        earlier += own


def network_objects(resources: Sequence[Resource]) -> Iterator[Finding]:
    """Yield what keeps pods from the networks of their nodes: a missing object, or a wrong one.

    Source: kubernetes/cloud-provider-gcp, pkg/controller/gkenetworkparamset.
    """
    clusters, objects = program.shown_clusters(resources), program.objects_of(resources)
    objects = [item for item in objects if str(item.get("apiVersion")).startswith(GROUP)]
    pools = of_type(resources, program.NODE_POOL)
    if len(clusters) != 1 or any(unknown_paths([*objects, *map(_network_config, pools)])):
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


def _network_config(pool: Manifest) -> Any:
    return pool.get("networkConfig")


def _first_overlap(own: Sequence[_Range], earlier: Sequence[_Range]) -> Iterator[Finding]:
    for ours in own:
        for other in earlier:
            # Pools may share networks.
            if ours.subnetwork != other.subnetwork and ours.block.overlaps(other.block):
                blocks = f"{ours.block} overlaps with {other.block} of {other.owner}"
                message = f"{blocks}, and GKE refuses such networks in one cluster"
                remedy = "Choose another range (gpuNetworkCidr of a GpuNodePool)."
                yield error("network-ranges", ours.owner, "networkConfig", message, remedy)
                return


def _of_cluster(cluster: Manifest, subnetworks: Mapping[object, Manifest]) -> Iterator[_Range]:
    """Yield the ranges of the subnetwork that has the cluster's range of pods."""
    pods = section(cluster, "ipAllocationPolicy").get("clusterSecondaryRangeName")
    for name, subnetwork in subnetworks.items():
        more = mappings(subnetwork, "secondaryIpRanges")
        if pods is not None and pods in [each.get("rangeName") for each in more]:
            for ip_range in (subnetwork, *more):
                yield from _range(f"Cluster {cluster.get('name')}", name, ip_range)


def _of_pool(pool: Manifest, subnetworks: Mapping[object, Manifest]) -> Iterator[_Range]:
    for names in _networks(pool):
        name = last_part(names.get("subnetwork"))
        yield from _range(f"NodePool {pool.get('name')}", name, subnetworks.get(name, {}))


def _range(owner: str, subnetwork: object, ip_range: Manifest) -> Iterator[_Range]:
    try:
        yield _Range(owner, str(subnetwork), IPv4Network(str(ip_range.get("ipCidrRange"))))
    except ValueError:
        return  # it is not known, or not valid


def _networks(pool: Manifest) -> Iterator[Manifest]:
    for names in mappings(section(pool, "networkConfig"), "additionalNodeNetworkConfigs"):
        if names is not UNKNOWN:
            yield names
