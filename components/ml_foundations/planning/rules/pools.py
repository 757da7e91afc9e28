"""Node pools of a program, and rules that GKE states for all pools of a cluster."""

from collections.abc import Iterator

from ml_foundations.catalog.gke_kinds import begins_before
from ml_foundations.catalog.pools import SHUTDOWN_GRACE, refused_inputs
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, mappings, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input import program
from ml_foundations.planning.rules.findings import Finding, Severity, error, info, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_SINCE = {
    ("nodeConfig", "labels", labels.GKE_DRA_DRIVER): "1.34",
    ("nodeConfig", "flexStart"): "1.32.2-gke.1652000",
    ("nodeConfig", "kubeletConfig", SHUTDOWN_GRACE): "1.35.0-gke.1171000",
    ("networkConfig", "acceleratorNetworkProfile"): "1.34.1-gke.1829001",
}
"""The versions of GKE that properties of pools need.

Sources: GKE, "Prepare GKE infrastructure for DRA", "About flex-start", "Spot VMs";
cluster-toolkit@104708037, modules/compute/gke-node-pool (DRANET).
"""
_GKE_COMPONENTS = "components.gke.io/gke-managed-components"
_TOLERATED_BY_GKE = (_GKE_COMPONENTS, "CriticalAddonsOnly", labels.ARCH, UNKNOWN)
"""Keys of taints that GKE's own pods tolerate, or may."""


@rule(
    "system-pods",
    Severity.ERROR,
    "GKE's own pods find nodes.",
    source='GKE, "Plan GKE Standard node sizes" and "Taints for GKE system workloads"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        removeDefaultNodePool: true
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        nodeConfig: {taints: [{key: team, value: ml, effect: NO_SCHEDULE}]}
    """,
)
@rule(
    "multi-networking",
    Severity.ERROR,
    "Nodes in more networks are of a cluster that has them.",
    source='GKE, "Set up multi-network support for Pods"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        removeDefaultNodePool: true
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        networkConfig:
          additionalNodeNetworkConfigs: [{network: gpus, subnetwork: gpus}]
    """,
)
def all_pools(stack: Stack) -> Iterator[Finding]:
    """Yield what is certain if a program shows all pools that its cluster has."""
    if len(stack.clusters) != 1 or program.makes_pools(stack.clusters[0], stack.resources):
        return
    cluster = stack.clusters[0]
    pools = stack.node_pools
    if not cluster.get("removeDefaultNodePool"):
        return
    if pools and all(map(_repels_gke, pools)):
        message = (
            "all pools have taints that GKE's own pods do not tolerate: without these no name is "
            "resolved"
        )
        remedy = "Have a pool without taints, such as a CpuNodePool."
        yield error("system-pods", f"Cluster {cluster.get('name')}", "taints", message, remedy)
    for pool in pools if not cluster.get("enableMultiNetworking") else ():
        if _names_interfaces(pool):
            message = (
                "its nodes are in more networks, which GKE refuses in a cluster without "
                "multi-networking"
            )
            remedy = "Set enableMultiNetworking (multi_networking) of the cluster."
            about = f"NodePool {pool.get('name')}"
            yield error("multi-networking", about, "networkConfig", message, remedy)


def _repels_gke(pool: Manifest) -> bool:
    """Return whether taints keep GKE's own pods off a pool."""
    # Source: GKE, "Isolate your workloads in dedicated node pools".
    for taint in mappings(section(pool, "nodeConfig"), "taints"):
        is_tolerated = taint.get("key") in _TOLERATED_BY_GKE
        if not is_tolerated and "PREFER" not in str(taint.get("effect")).upper():
            return True
    return False


@rule(
    "refused-input",
    Severity.ERROR,
    "Node pools and clusters have labels, tags and machines that GKE takes.",
    source="Google Cloud API, forms of labels, tags and machine types",
    example="""
        type: gcp:container/nodePool:NodePool
        name: gpus
        nodeConfig: {tags: [GPU_nodes]}
    """,
)
def refused_fields(stack: Stack) -> Iterator[Finding]:
    """Yield the labels, tags and machine types that Google's API refuses."""
    for kind, manifests in (("Cluster", stack.clusters), ("NodePool", stack.node_pools)):
        for manifest in manifests:
            for path, reason in refused_inputs(manifest):
                about = f"{kind} {manifest.get('name')}"
                yield error("refused-input", about, path, reason, "Change it.")


@rule(
    "reservation",
    Severity.INFO,
    "Nodes of a reservation come from nowhere else.",
    source='Compute Engine, "Consume a reservation"',
    example="""
        type: gcp:container/nodePool:NodePool
        name: gpus
        nodeConfig:
          reservationAffinity: {consumeReservationType: ANY_RESERVATION}
    """,
)
@rule(
    "zones",
    Severity.INFO,
    "Pools with GPUs name the zones that have them.",
    source='Compute Engine, "GPU regions and zones"',
    example="""
        type: gcp:container/nodePool:NodePool
        name: gpus
        location: us-central1
        nodeConfig: {guestAccelerators: [{type: nvidia-l4, count: 1}]}
    """,
)
def node_pools(stack: Stack) -> Iterator[Finding]:
    """Yield where the nodes of pools come from, and versions that pools need (``version``)."""
    for pool in stack.node_pools:
        about = f"NodePool {pool.get('name')}"
        reservation = section(pool, "nodeConfig", "reservationAffinity")
        if reservation.get("consumeReservationType") == "ANY_RESERVATION":
            path = "nodeConfig.reservationAffinity"
            message = (
                "if no open reservation matches, its nodes are bought on demand, at list price"
            )
            remedy = (
                "Set ANY_RESERVATION_THEN_FAIL (reservation any-or-fail) to have none of those."
            )
            yield info("reservation", about, path, message, remedy)
        for (*path_of_field, field), version in _SINCE.items():
            is_set = section(pool, *path_of_field).get(field)
            if is_set and any(begins_before(cluster, version) for cluster in stack.clusters):
                message = (
                    f"its cluster begins with an older version of GKE than it needs: {version}"
                )
                remedy = (
                    f"Leave the version to the release channel, or set {version} or later: "
                    "minMasterVersion (kubernetes_version of a GkeCluster)."
                )
                yield error("version", about, "minMasterVersion", message, remedy)
        location = pool.get("location")
        is_regional = isinstance(location, str) and location.count("-") == 1
        has_gpus = section(pool, "nodeConfig").get("guestAccelerators")
        has_zones = any(holder.get("nodeLocations") for holder in (pool, *stack.clusters))
        if has_gpus and is_regional and not has_zones:
            message = (
                "its nodes go to the zones of its cluster, and few zones have its GPUs: GKE "
                "refuses other zones"
            )
            remedy = "Name those that have them: nodeLocations (zones)."
            yield info("zones", about, "nodeLocations", message, remedy)


@rule(
    "dranet-or-networks",
    Severity.WARNING,
    "The pods of a cluster either claim their interfaces between GPUs (DRANET), or name them.",
    source='GKE, "Allocate network resources by using GKE managed DRANET"',
    example="""
        type: gcp:container/nodePool:NodePool
        name: a4
        networkConfig: {acceleratorNetworkProfile: auto}
        ---
        type: gcp:container/nodePool:NodePool
        name: a3
        networkConfig:
          additionalNodeNetworkConfigs: [{network: gpus, subnetwork: gpus}]
    """,
)
def interfaces(stack: Stack) -> Iterator[Finding]:
    """Yield a pool whose pods claim interfaces, if those of another pool of its cluster name them.

    Source: GKE, "Allocate network resources by using GKE managed DRANET", as llm-d's skill
    create-gke-infra-llm-d quotes it.
    """
    for pools in stack.pools_by_cluster.values():
        claiming = [pool for pool in pools if _claims_interfaces(pool)]
        naming = [pool for pool in pools if _names_interfaces(pool)]
        if claiming and naming:
            message = (
                "its pods claim interfaces (DRANET), and those of pool "
                f"{naming[0].get('name')} name them: in one cluster, GKE does not support both"
            )
            remedy = (
                "Put one of the pools into another cluster, or set the same gpu_network for all "
                "(multi-network)."
            )
            about = f"NodePool {claiming[0].get('name')}"
            yield warning("dranet-or-networks", about, "networkConfig", message, remedy)


def _claims_interfaces(pool: Manifest) -> bool:
    profile = section(pool, "networkConfig").get("acceleratorNetworkProfile")
    driver = section(pool, "nodeConfig", "labels").get(labels.GKE_NETWORK_DRA_DRIVER)
    return profile == "auto" or driver == "true"


def _names_interfaces(pool: Manifest) -> bool:
    return bool(items(section(pool, "networkConfig"), "additionalNodeNetworkConfigs"))
