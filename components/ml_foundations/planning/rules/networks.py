"""Networks of a program: addresses, a way to the internet, private services, and proxies."""

import re
from collections.abc import Iterator

from ml_foundations.catalog.disks import LUSTRE_CSI
from ml_foundations.catalog.inference_gateways import PROXY_PURPOSE, REGIONAL_CLASSES
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, mappings, section
from ml_foundations.kubernetes.trees import UNKNOWN, as_key
from ml_foundations.planning.input import program
from ml_foundations.planning.model.declared import full_name, kind_and_name
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.node_networks import cluster_networks
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_ADDRESSES_OF_GOOGLE = 4
"""The addresses of a subnetwork that Google keeps (VPC, "Subnets")."""


@rule(
    "addresses",
    Severity.WARNING,
    "The cluster has addresses for the pods of all nodes that its pools may have.",
    source='GKE, "IP address ranges for VPC-native clusters"',
    example="""
        type: gcp:compute/subnetwork:Subnetwork
        ipCidrRange: 10.0.0.0/20
        secondaryIpRanges: [{rangeName: pods, ipCidrRange: 10.1.0.0/26}]
        ---
        type: gcp:container/cluster:Cluster
        name: ml
        ipAllocationPolicy: {clusterSecondaryRangeName: pods}
        ---
        type: gcp:container/nodePool:NodePool
        name: cpus
        nodeCount: 2
        nodeConfig: {machineType: e2-standard-8}
    """,
)
@rule(
    "node-addresses",
    Severity.WARNING,
    "The cluster has addresses for all nodes that its pools may have.",
    source='GKE, "IP address ranges for VPC-native clusters"',
    example="""
        type: gcp:compute/subnetwork:Subnetwork
        ipCidrRange: 10.0.0.0/29
        secondaryIpRanges: [{rangeName: pods, ipCidrRange: 10.1.0.0/16}]
        ---
        type: gcp:container/cluster:Cluster
        name: ml
        ipAllocationPolicy: {clusterSecondaryRangeName: pods}
        ---
        type: gcp:container/nodePool:NodePool
        name: cpus
        nodeCount: 8
        nodeConfig: {machineType: e2-standard-8}
    """,
)
def addresses(stack: Stack) -> Iterator[Finding]:
    """Yield the subnetworks with too few addresses, where nodes never come (IP_SPACE_EXHAUSTED)."""
    range_names: list[object] = []
    for cluster in stack.clusters:
        policy = section(cluster, "ipAllocationPolicy")
        range_names.append(policy.get("clusterSecondaryRangeName"))
    # Each node has an address, and a block of addresses for its pods: twice their number, rounded
    # up to a power of two (GKE, "Configure maximum Pods per node").
    for_nodes = _ADDRESSES_OF_GOOGLE
    for_pods = 0
    for node in stack.nodes:
        for_nodes += node.count
        max_pods = str(node.labels.get(labels.GKE_MAX_PODS))
        if max_pods.isdecimal():
            for_pods += node.count * 2 * (1 << (int(max_pods) - 1).bit_length())
    for subnetwork in stack.of_type(program.SUBNETWORK):
        pod_ranges: list[Manifest] = []
        for ip_range in mappings(subnetwork, "secondaryIpRanges"):
            # Of several clusters, which nodes take addresses of which range is not known.
            if [ip_range.get("rangeName")] == range_names:
                pod_ranges.append(ip_range)
        if len(pod_ranges) == 1:
            yield from _small_range(pod_ranges[0], for_pods, is_for_pods=True)
        if pod_ranges:
            yield from _small_range(subnetwork, for_nodes, is_for_pods=False)


def _small_range(ip_range: Manifest, needed: int, *, is_for_pods: bool) -> Iterator[Finding]:
    block = str(ip_range.get("ipCidrRange"))
    prefix = block.rpartition("/")[2]
    if not re.fullmatch("[0-9]|[12][0-9]|3[0-2]", prefix):
        return
    if needed <= (free := 1 << (32 - int(prefix))):
        return
    if is_for_pods:
        name = "addresses"
        path = "secondaryIpRanges"
        message = (
            f"{block} has {free} addresses for pods, and the pools' nodes take up to {needed}: "
            "some never come"
        )
        remedy = (
            "Make it larger (podCidr of a GkeCluster), or allow fewer pods on a node (maxPods), "
            "or fewer nodes."
        )
    else:
        name = "node-addresses"
        path = "ipCidrRange"
        message = (
            f"{block} has {free} addresses for nodes, and the pools have up to {needed}: some "
            "never come"
        )
        remedy = "Make it larger (nodeCidr of a GkeCluster), or allow fewer nodes."
    yield warning(name, "Subnetwork", path, message, remedy)


@rule(
    "way-out",
    Severity.WARNING,
    "Private nodes have a way to the internet.",
    source='GKE, "Network isolation": private nodes need Cloud NAT',
    example="""
        type: gcp:compute/network:Network
        name: ml
        ---
        type: gcp:container/cluster:Cluster
        name: ml
        network: ml
        privateClusterConfig: {enablePrivateNodes: true}
    """,
)
def way_out(stack: Stack) -> Iterator[Finding]:
    """Yield the cluster whose private nodes reach nothing outside of Google."""
    # A network that the program does not make may have a NAT that it does not show.
    if not cluster_networks(stack) or stack.of_type(program.NAT):
        return
    for cluster in stack.clusters:
        if section(cluster, "privateClusterConfig").get("enablePrivateNodes") is True:
            message = (
                "its private nodes reach nothing but Google's APIs: no image of Docker Hub, "
                "nvcr.io or ghcr.io is pulled"
            )
            remedy = (
                "Make a Cloud NAT in the network, or use images and charts of Artifact Registry."
            )
            about = f"Cluster {cluster.get('name')}"
            yield warning("way-out", about, "privateClusterConfig", message, remedy)
            return


@rule(
    "private-access",
    Severity.ERROR,
    "The network of Lustre and of private Filestore has private services access.",
    source='Managed Lustre and Filestore, "Configure a VPC network"',
    example="""
        type: gcp:compute/network:Network
        name: ml
        ---
        apiVersion: storage.k8s.io/v1
        kind: StorageClass
        metadata: {name: lustre}
        provisioner: lustre.csi.storage.gke.io
        parameters: {network: ml}
    """,
)
@rule(
    "proxies",
    Severity.ERROR,
    "The network of internal Ingresses and regional Gateways has a subnetwork for their proxies.",
    source='Cloud Load Balancing, "Proxy-only subnets"',
    example="""
        type: gcp:compute/network:Network
        name: ml
        ---
        apiVersion: networking.k8s.io/v1
        kind: Ingress
        metadata: {name: llm, annotations: {kubernetes.io/ingress.class: gce-internal}}
        spec: {defaultBackend: {service: {name: llm, port: {number: 80}}}}
    """,
)
def lacking_networks(stack: Stack) -> Iterator[Finding]:
    """Yield the objects that need more of a network than the program's networks have.

    They are storage classes whose instances have addresses of private services access, and
    Ingresses and Gateways of regional load balancers, whose proxies have separate addresses (GKE,
    "Ingress for internal Application Load Balancers", "Deploying Gateways").
    """
    networks = cluster_networks(stack)
    has_access = bool(stack.of_type(program.CONNECTION))
    subnetworks = stack.of_type(program.SUBNETWORK)
    purposes = [as_key(inputs.get("purpose")) for inputs in subnetworks]
    has_proxies = not {PROXY_PURPOSE, UNKNOWN}.isdisjoint(purposes)
    for manifest in stack.declared_objects if networks else ():
        parameters = section(manifest, "parameters")
        network = str(parameters.get("network")).rpartition("/")[2]
        needs_access = parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS"
        needs_access |= manifest.get("provisioner") == LUSTRE_CSI
        if needs_access and network in networks and not has_access:
            remedy = (
                "Add it (a servicenetworking Connection), leave the range out, or name a network "
                "with it."
            )
            message = (
                "its instances need private services access, which the program's network "
                f"{network} lacks"
            )
            about = kind_and_name(manifest)
            yield error("private-access", about, "parameters.network", message, remedy)
        path = ""
        if annotations_of(manifest).get(labels.INGRESS_CLASS) == labels.INTERNAL_INGRESS:
            path = "metadata.annotations"
        elif section(manifest, "spec").get("gatewayClassName") in REGIONAL_CLASSES:
            path = "spec.gatewayClassName"
        if path and not has_proxies:
            message = (
                "its load balancer never gets an address: the program's network has no subnetwork "
                "for the proxies of regional ones"
            )
            remedy = f"Set proxy_only_cidr of a GkeCluster, or add a {PROXY_PURPOSE} subnetwork."
            yield error("proxies", full_name(manifest), path, message, remedy)
