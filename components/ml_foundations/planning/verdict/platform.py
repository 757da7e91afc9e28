"""What is found of the platform: whether the GPU Operator's pods run, and where nodes come from."""

from collections.abc import Iterator, Sequence
from typing import Any

from ml_foundations.catalog import versions
from ml_foundations.catalog.disks import LUSTRE_CSI
from ml_foundations.catalog.gke_kinds import begins_before
from ml_foundations.catalog.kueue import configuration_of
from ml_foundations.catalog.operator_nodes import CRITICAL_CLASSES, CRITICAL_PODS_BESIDE, Operator
from ml_foundations.catalog.pools import SHUTDOWN_GRACE, refused_inputs
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown
from ml_foundations.planning.input.program import (
    CLUSTER,
    CONNECTION,
    NAT,
    NETWORK,
    NODE_POOL,
    SUBNETWORK,
    Resource,
    is_release_of,
    makes_pools,
    objects_of,
    operator_of,
    values_of,
)
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.resources import PODS
from ml_foundations.planning.verdict.findings import Finding, Severity

_WORDS = {row["rule"]: row for row in rows("platform.csv", "ml_foundations.planning.verdict", ";")}
_SINCE = {
    ("nodeConfig", "labels", labels.GKE_DRA_DRIVER): "1.34",
    ("nodeConfig", "flexStart"): "1.32.2-gke.1652000",
    ("nodeConfig", "kubeletConfig", SHUTDOWN_GRACE): "1.35.0-gke.1171000",
}
"""The versions of GKE that properties of pools need (GKE: "Prepare GKE infrastructure for DRA", "About flex-start",
"Spot VMs")."""
_TOLERATED_BY_GKE = (
    "components.gke.io/gke-managed-components",
    "CriticalAddonsOnly",
    labels.ARCH,
    UNKNOWN,
)
"""Keys of taints that GKE's own pods tolerate, or may."""


def _told(rule: str, about: str, **facts: Any) -> Finding:
    """A finding of the platform, in the words of its table."""
    row = _WORDS[rule]
    message, remedy = row["message"].format(**facts), row["remedy"].format(**facts)
    return Finding(rule, Severity(row["severity"]), about, row["path"], message, remedy)


def platform_findings(
    resources: Sequence[Resource], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """What keeps the GPU Operator's pods from nodes, and what it does a second time; pools that cost more than said."""
    clusters = [inputs for type_, inputs in resources if type_ == CLUSTER]
    pools = [inputs for type_, inputs in resources if type_ == NODE_POOL]
    yield from _beyond_addresses(resources, clusters, nodes)
    private = [
        each
        for each in clusters
        if section(each, "privateClusterConfig").get("enablePrivateNodes") is True
    ]
    if private and NETWORK in dict(resources) and NAT not in dict(resources):
        yield _told("way-out", f"Cluster {private[0].get('name')}")
    if (
        len(clusters) == 1
        and clusters[0].get("removeDefaultNodePool")
        and not makes_pools(clusters[0], resources)
    ):
        yield from _of_the_only_pools(clusters[0], pools)
    for kind, each in [
        *(("Cluster", each) for each in clusters),
        *(("NodePool", each) for each in pools),
    ]:
        for path, reason in refused_inputs(each):
            yield Finding(
                "refused-input",
                Severity.ERROR,
                f"{kind} {each.get('name')}",
                path,
                reason,
                "Change it.",
            )
    for pool in pools:
        if (
            section(pool, "nodeConfig", "reservationAffinity").get("consumeReservationType")
            == "ANY_RESERVATION"
        ):
            yield _told("reservation", f"NodePool {pool.get('name')}")
        for (*path, field), version in _SINCE.items():
            if section(pool, *path).get(field) and any(
                begins_before(cluster, version) for cluster in clusters
            ):
                yield _told("version", f"NodePool {pool.get('name')}", version=version)
        if _leaves_zones_open(pool) and not any(
            cluster.get("nodeLocations") for cluster in clusters
        ):
            yield _told("zones", f"NodePool {pool.get('name')}")
    kept = [section(cluster, "monitoringConfig") for cluster in clusters]
    kept = [
        each
        for each in kept
        if isinstance(names := each.get("enableComponents"), list) and "DCGM" in names
    ]
    if any(section(each, "managedPrometheus").get("enabled") is False for each in kept):
        yield _told("metrics-collected", "Cluster")
    yield from _in_made_networks(resources)
    yield from _half_gangs(values_of(resources, versions.KUEUE))
    operator = operator_of(resources)
    exporters, plugins = (
        [*_running(resources, image)] for image in ("dcgm-exporter", "k8s-device-plugin")
    )
    if isinstance(operator, Operator):
        exporters += ["GPU Operator"] * operator.exports_metrics
        plugins += ["GPU Operator"] * operator.device_plugin
    if len(exporters) + bool(kept) > 1:
        other = "DCGM of GKE" if kept else "another exporter"
        yield from (_told("metrics-twice", exporter, other=other) for exporter in exporters)
    by_gke = [node.name for node in nodes if labels.GKE_GPU_DRIVER_VERSION in node.labels]
    yield from (_told("advertised-twice", plugin, pool=by_gke[0]) for plugin in plugins if by_gke)
    if not isinstance(operator, Operator):
        return
    homes = [
        each.get("namespace")
        for type_, each in resources
        if is_release_of(type_, each, versions.GPU_OPERATOR)
    ]
    for quota in objects_of(resources):
        if quota["kind"] == "ResourceQuota" and namespace_of(quota) in homes:
            yield from _beyond(quota, operator, nodes)


def _of_the_only_pools(cluster: Manifest, pools: Sequence[Manifest]) -> Iterator[Finding]:
    """What is certain where a program shows all pools that its cluster has."""
    if pools and all(map(_repels_gke, pools)):
        yield _told("system-pods", f"Cluster {cluster.get('name')}")
    for pool in pools if not cluster.get("enableMultiNetworking") else ():
        if items(section(pool, "networkConfig"), "additionalNodeNetworkConfigs"):
            yield _told("multi-networking", f"NodePool {pool.get('name')}")


def _repels_gke(pool: Manifest) -> bool:
    """Whether taints keep GKE's own pods off (GKE, "Isolate your workloads in dedicated node pools")."""
    taints = [
        taint for taint in items(section(pool, "nodeConfig"), "taints") if taint is not UNKNOWN
    ]
    return any(
        t.get("key") not in _TOLERATED_BY_GKE and "PREFER" not in str(t.get("effect")).upper()
        for t in taints
    )


def _beyond_addresses(
    resources: Sequence[Resource], clusters: Sequence[Manifest], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Nodes that never come (IP_SPACE_EXHAUSTED): each takes an address, and a block of them for its pods.

    It is twice their number, rounded up to a power of two (GKE, "Configure maximum Pods per node"). Of a subnetwork
    Google keeps four addresses (VPC, "Subnets").
    """
    named = [
        section(cluster, "ipAllocationPolicy").get("clusterSecondaryRangeName")
        for cluster in clusters
    ]
    pods = [(node.count, str(node.labels.get(labels.GKE_MAX_PODS))) for node in nodes]
    taken = sum(
        count * 2 << (int(most) - 1).bit_length() for count, most in pods if most.isdecimal()
    )
    for subnetwork in (inputs for type_, inputs in resources if type_ == SUBNETWORK):
        known = [each for each in items(subnetwork, "secondaryIpRanges") if each is not UNKNOWN]
        blocks = [each for each in known if [each.get("rangeName")] == named]
        needs = (
            ("addresses", blocks, taken),
            ("node-addresses", blocks and [subnetwork], 4 + sum(n for n, _ in pods)),
        )
        for rule, ranges, needed in needs:
            block = str(ranges[0].get("ipCidrRange")) if len(ranges) == 1 else ""
            prefix = block.rpartition("/")[2]
            if prefix.isdecimal() and needed > (free := 1 << (32 - int(prefix))):
                yield _told(rule, "Subnetwork", block=block, free=free, taken=needed)


def _half_gangs(kueue: Manifest | Unknown | None) -> Iterator[Finding]:
    """Kueue, by the values of its chart, without what makes a workload give back the nodes that it waits on."""
    if kueue is None or isinstance(kueue, Unknown):
        return
    if "waitForPodsReady" not in (configuration_of(kueue) or {}):
        yield _told("half-a-gang", "Kueue")


def _running(resources: Sequence[Resource], image: str) -> Iterator[str]:
    """The DaemonSets that run an image of NVIDIA's on every node."""
    for each in objects_of(resources):
        containers = items(section(each, "spec", "template", "spec"), "containers")
        images = [container.get("image") for container in containers if container is not UNKNOWN]
        if each["kind"] == "DaemonSet" and any(image in str(named) for named in images):
            yield f"DaemonSet {name_of(each)}"


def _leaves_zones_open(pool: Manifest) -> bool:
    """Whether a pool with GPUs is in a region, and says nothing of zones."""
    location, has_gpus = pool.get("location"), section(pool, "nodeConfig").get("guestAccelerators")
    is_region = isinstance(location, str) and location.count("-") == 1
    return is_region and bool(has_gpus) and not pool.get("nodeLocations")


def _in_made_networks(resources: Sequence[Resource]) -> Iterator[Finding]:
    """What needs more of a network than those that are made have.

    Classes of instances that have addresses of private services access, and Ingresses of internal load balancers, whose
    proxies have addresses of their own (GKE, "Ingress for internal Application Load Balancers").
    """
    networks = [inputs.get("name") for type_, inputs in resources if type_ == NETWORK]
    purposes = [inputs.get("purpose") for type_, inputs in resources if type_ == SUBNETWORK]
    has_proxies = not {"REGIONAL_MANAGED_PROXY", UNKNOWN}.isdisjoint(purposes)
    for each in objects_of(resources) if networks else ():
        parameters = section(each, "parameters")
        network = str(parameters.get("network")).rpartition("/")[2]
        is_private = (
            each.get("provisioner") == LUSTRE_CSI
            or parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS"
        )
        if is_private and network in networks and CONNECTION not in dict(resources):
            yield _told("private-access", f"StorageClass {name_of(each)}", network=network)
        if (
            annotations_of(each).get(labels.INGRESS_CLASS) == labels.INTERNAL_INGRESS
            and not has_proxies
        ):
            yield _told("proxies", f"Ingress {namespace_of(each)}/{name_of(each)}")


def _beyond(quota: Manifest, operator: Operator, nodes: Sequence[NodeClass]) -> Iterator[Finding]:
    """What a quota of critical pods is short of, with the most nodes."""
    scopes = items(section(quota, "spec", "scopeSelector"), "matchExpressions")
    most = str(section(quota, "spec", "hard").get(PODS))
    if not most.isdecimal() or not any(
        set(CRITICAL_CLASSES) & {*(scope.get("values") or ())} for scope in scopes
    ):
        return
    with_gpus = sum(node.count for node in nodes if labels.GKE_ACCELERATOR in node.labels)
    every = sum(node.count for node in nodes if not node.unknown)
    needed = (
        operator.critical_pods * with_gpus
        + operator.critical_pods_elsewhere * every
        + CRITICAL_PODS_BESIDE
    )
    if needed <= int(most):
        return
    where, here = (
        f"ResourceQuota {namespace_of(quota)}/{name_of(quota)}",
        {"most": most, "needed": needed},
    )
    yield _told("critical-pods", where, operator=operator, with_gpus=with_gpus, every=every, **here)
