"""Findings about the platform: clusters, node pools and networks, the GPU Operator and Kueue."""

from collections.abc import Iterable, Iterator, Sequence

from ml_foundations.catalog import versions
from ml_foundations.catalog.disks import LUSTRE_CSI
from ml_foundations.catalog.gke_kinds import begins_before
from ml_foundations.catalog.kueue import configuration_of
from ml_foundations.catalog.machine_types import gpu_model
from ml_foundations.catalog.operator_nodes import (
    CONFIG_SOURCE,
    CONTAINERD_2_SINCE,
    CRITICAL_CLASSES,
    CRITICAL_PODS_BESIDE,
    Operator,
)
from ml_foundations.catalog.pools import SHUTDOWN_GRACE, refused_inputs
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

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_SINCE = {
    ("nodeConfig", "labels", labels.GKE_DRA_DRIVER): "1.34",
    ("nodeConfig", "flexStart"): "1.32.2-gke.1652000",
    ("nodeConfig", "kubeletConfig", SHUTDOWN_GRACE): "1.35.0-gke.1171000",
}
"""The versions of GKE that properties of pools need.

Sources: GKE, "Prepare GKE infrastructure for DRA", "About flex-start", "Spot VMs".
"""
_TOLERATED_BY_GKE = (
    "components.gke.io/gke-managed-components",
    "CriticalAddonsOnly",
    labels.ARCH,
    UNKNOWN,
)
"""Keys of taints that GKE's own pods tolerate, or may."""
_ADDRESSES_OF_GOOGLE = 4
"""The addresses of a subnetwork that Google keeps (VPC, "Subnets")."""


def platform_findings(
    resources: Sequence[Resource], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the findings about the platform of a program."""
    clusters = [inputs for type_, inputs in resources if type_ == CLUSTER]
    pools = [inputs for type_, inputs in resources if type_ == NODE_POOL]
    yield from _too_few_addresses(resources, clusters, nodes)
    yield from _private_without_nat(resources, clusters)
    if len(clusters) == 1 and _shows_all_pools(clusters[0], resources):
        yield from _only_pools(clusters[0], pools)
    for kind, manifests in (("Cluster", clusters), ("NodePool", pools)):
        for manifest in manifests:
            for path, reason in refused_inputs(manifest):
                about = f"{kind} {manifest.get('name')}"
                yield Finding("refused-input", _ERROR, about, path, reason, "Change it.")
    for pool in pools:
        yield from _pool(pool, clusters)
    yield from _made_networks(resources)
    yield from _gang_without_timeout(values_of(resources, versions.KUEUE))
    yield from _metrics(resources, clusters)
    operator = operator_of(resources)
    yield from _device_plugins(resources, operator, nodes)
    if isinstance(operator, Operator):
        yield from _critical_pods(resources, operator, nodes)
        yield from _gpu_operator(resources, operator, nodes)


def _private_without_nat(
    resources: Sequence[Resource], clusters: Sequence[Manifest]
) -> Iterator[Finding]:
    types = {type_ for type_, _ in resources}
    if NETWORK not in types or NAT in types:
        return
    for cluster in clusters:
        if section(cluster, "privateClusterConfig").get("enablePrivateNodes") is True:
            yield Finding(
                "way-out",
                _WARNING,
                f"Cluster {cluster.get('name')}",
                "privateClusterConfig",
                "its private nodes reach nothing but Google's APIs: no image of Docker Hub, "
                "nvcr.io or ghcr.io is pulled",
                "Make a Cloud NAT in the network, or use images and charts of Artifact Registry.",
            )
            return


def _shows_all_pools(cluster: Manifest, resources: Sequence[Resource]) -> bool:
    return bool(cluster.get("removeDefaultNodePool")) and not makes_pools(cluster, resources)


def _only_pools(cluster: Manifest, pools: Sequence[Manifest]) -> Iterator[Finding]:
    """Yield what is certain if a program shows all pools that its cluster has."""
    if pools and all(map(_repels_gke, pools)):
        yield Finding(
            "system-pods",
            _ERROR,
            f"Cluster {cluster.get('name')}",
            "taints",
            "all pools have taints that GKE's own pods do not tolerate: without these no name is "
            "resolved",
            "Have a pool without taints, such as a CpuNodePool.",
        )
    for pool in pools if not cluster.get("enableMultiNetworking") else ():
        if items(section(pool, "networkConfig"), "additionalNodeNetworkConfigs"):
            yield Finding(
                "multi-networking",
                _ERROR,
                f"NodePool {pool.get('name')}",
                "networkConfig",
                "its nodes are in more networks, which GKE refuses in a cluster without "
                "multi-networking",
                "Set enableMultiNetworking (multi_networking) of the cluster.",
            )


def _repels_gke(pool: Manifest) -> bool:
    """Return whether taints keep GKE's own pods off a pool.

    Source: GKE, "Isolate your workloads in dedicated node pools".
    """
    for taint in items(section(pool, "nodeConfig"), "taints"):
        if taint is UNKNOWN or taint.get("key") in _TOLERATED_BY_GKE:
            continue
        if "PREFER" not in str(taint.get("effect")).upper():
            return True
    return False


def _pool(pool: Manifest, clusters: Sequence[Manifest]) -> Iterator[Finding]:
    about = f"NodePool {pool.get('name')}"
    reservation = section(pool, "nodeConfig", "reservationAffinity")
    if reservation.get("consumeReservationType") == "ANY_RESERVATION":
        yield Finding(
            "reservation",
            _INFO,
            about,
            "nodeConfig.reservationAffinity",
            "if no open reservation matches, its nodes are bought on demand, at list price",
            "Set ANY_RESERVATION_THEN_FAIL (reservation any-or-fail) to have none of those.",
        )
    for (*path, field), version in _SINCE.items():
        if not section(pool, *path).get(field):
            continue
        if any(begins_before(cluster, version) for cluster in clusters):
            yield Finding(
                "version",
                _ERROR,
                about,
                "minMasterVersion",
                f"its cluster begins with an older version of GKE than it needs: {version}",
                f"Leave the version to the release channel, or set {version} or later: "
                "minMasterVersion (kubernetes_version of a GkeCluster).",
            )
    if _leaves_zones_open(pool) and not any(c.get("nodeLocations") for c in clusters):
        yield Finding(
            "zones",
            _INFO,
            about,
            "nodeLocations",
            "its nodes go to the zones of its cluster, and few zones have its GPUs: GKE refuses "
            "other zones",
            "Name those that have them: nodeLocations (zones).",
        )


def _leaves_zones_open(pool: Manifest) -> bool:
    """Return whether a pool with GPUs is in a region, and names no zones."""
    if not section(pool, "nodeConfig").get("guestAccelerators") or pool.get("nodeLocations"):
        return False
    location = pool.get("location")
    return isinstance(location, str) and location.count("-") == 1


def _too_few_addresses(
    resources: Sequence[Resource], clusters: Sequence[Manifest], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the subnetworks with too few addresses, where nodes never come (IP_SPACE_EXHAUSTED).

    Each node has an address, and a block of addresses for its pods: twice their number, rounded up
    to a power of two (GKE, "Configure maximum Pods per node").
    """
    range_names: list[object] = []
    for cluster in clusters:
        policy = section(cluster, "ipAllocationPolicy")
        range_names.append(policy.get("clusterSecondaryRangeName"))
    for_nodes, for_pods = _ADDRESSES_OF_GOOGLE, 0
    for node in nodes:
        for_nodes += node.count
        max_pods = str(node.labels.get(labels.GKE_MAX_PODS))
        if max_pods.isdecimal():
            for_pods += node.count * 2 * _power_of_two(int(max_pods))
    for subnetwork in [inputs for type_, inputs in resources if type_ == SUBNETWORK]:
        ranges = [r for r in items(subnetwork, "secondaryIpRanges") if r is not UNKNOWN]
        pod_ranges = [r for r in ranges if [r.get("rangeName")] == range_names]
        if len(pod_ranges) == 1:
            yield from _small_range(pod_ranges[0], for_pods, is_for_pods=True)
        if pod_ranges:
            yield from _small_range(subnetwork, for_nodes, is_for_pods=False)


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def _small_range(ip_range: Manifest, needed: int, *, is_for_pods: bool) -> Iterator[Finding]:
    block = str(ip_range.get("ipCidrRange"))
    prefix = block.rpartition("/")[2]
    if not prefix.isdecimal():
        return
    free = 1 << (32 - int(prefix))
    if needed <= free:
        return
    if is_for_pods:
        yield Finding(
            "addresses",
            _WARNING,
            "Subnetwork",
            "secondaryIpRanges",
            f"{block} has {free} addresses for pods, and the pools' nodes take up to {needed}: "
            "some never come",
            "Make it larger (podCidr of a GkeCluster), or allow fewer pods on a node (maxPods), or "
            "fewer nodes.",
        )
    else:
        yield Finding(
            "node-addresses",
            _WARNING,
            "Subnetwork",
            "ipCidrRange",
            f"{block} has {free} addresses for nodes, and the pools have up to {needed}: some "
            "never come",
            "Make it larger (nodeCidr of a GkeCluster), or allow fewer nodes.",
        )


def _gang_without_timeout(kueue: Manifest | Unknown | None) -> Iterator[Finding]:
    """Yield the finding on a Kueue that never takes nodes back from half of a gang."""
    if kueue is None or isinstance(kueue, Unknown):
        return
    if "waitForPodsReady" not in (configuration_of(kueue) or {}):
        yield Finding(
            "half-a-gang",
            _WARNING,
            "Kueue",
            "managerConfig.controllerManagerConfigYaml",
            "waitForPodsReady is off: if Google has nodes for half of a gang, that half waits, and "
            "is paid",
            "Set it, with a timeout, in managerConfig.controllerManagerConfigYaml, as a "
            "TrainingQueue does.",
        )


def _metrics(resources: Sequence[Resource], clusters: Sequence[Manifest]) -> Iterator[Finding]:
    """Yield what keeps the metrics of GPUs from being collected once."""
    is_gke_exporting = False
    is_collected = True
    for cluster in clusters:
        monitoring = section(cluster, "monitoringConfig")
        components = monitoring.get("enableComponents")
        if isinstance(components, list) and "DCGM" in components:
            is_gke_exporting = True
            is_collected &= section(monitoring, "managedPrometheus").get("enabled") is not False
    if not is_collected:
        yield Finding(
            "metrics-collected",
            _WARNING,
            "Cluster",
            "monitoringConfig",
            "managed collection, which collects the metrics of GPUs that GKE's DCGM exports, is "
            "off",
            "Enable managedPrometheus, or remove DCGM from the cluster's monitoring.",
        )
    exporters = list(_daemon_sets_of(resources, "dcgm-exporter"))
    operator = operator_of(resources)
    if isinstance(operator, Operator) and operator.exports_metrics:
        exporters.append("GPU Operator")
    if len(exporters) + is_gke_exporting <= 1:
        return
    other = "DCGM of GKE" if is_gke_exporting else "another exporter"
    for exporter in exporters:
        yield Finding(
            "metrics-twice",
            _WARNING,
            exporter,
            "dcgmExporter",
            f"{other} exports the metrics of GPUs too",
            "Remove DCGM from the cluster's monitoring, or switch one of the exporters off.",
        )


def _device_plugins(
    resources: Sequence[Resource], operator: object, nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the device plugins on nodes whose GPUs GKE advertises already."""
    plugins = list(_daemon_sets_of(resources, "k8s-device-plugin"))
    if isinstance(operator, Operator) and operator.device_plugin:
        plugins.append("GPU Operator")
    by_gke = [node.name for node in nodes if labels.GKE_GPU_DRIVER_VERSION in node.labels]
    for plugin in plugins if by_gke else ():
        yield Finding(
            "advertised-twice",
            _WARNING,
            plugin,
            "devicePlugin",
            f"it advertises GPUs, and so does GKE on {by_gke[0]}: the kubelet uses the one that "
            "registered last",
            "Label the pool's nodes gke-no-default-nvidia-gpu-device-plugin=true, without GKE's "
            "driver, or switch it off.",
        )


def _daemon_sets_of(resources: Sequence[Resource], image: str) -> Iterator[str]:
    """Yield the DaemonSets that run an image of NVIDIA's."""
    for manifest in objects_of(resources):
        if manifest["kind"] != "DaemonSet":
            continue
        containers = items(section(manifest, "spec", "template", "spec"), "containers")
        if any(c is not UNKNOWN and image in str(c.get("image")) for c in containers):
            yield f"DaemonSet {name_of(manifest)}"


def _made_networks(resources: Sequence[Resource]) -> Iterator[Finding]:
    """Yield the objects that need more of a network than the program's networks have.

    They are storage classes whose instances have addresses of private services access, and
    Ingresses of internal load balancers, whose proxies have separate addresses (GKE, "Ingress
    for internal Application Load Balancers").
    """
    types = {type_ for type_, _ in resources}
    networks = [inputs.get("name") for type_, inputs in resources if type_ == NETWORK]
    purposes = [inputs.get("purpose") for type_, inputs in resources if type_ == SUBNETWORK]
    has_proxies = not {"REGIONAL_MANAGED_PROXY", UNKNOWN}.isdisjoint(purposes)
    for manifest in objects_of(resources) if networks else ():
        parameters = section(manifest, "parameters")
        network = str(parameters.get("network")).rpartition("/")[2]
        needs_access = parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS"
        needs_access |= manifest.get("provisioner") == LUSTRE_CSI
        if needs_access and network in networks and CONNECTION not in types:
            yield Finding(
                "private-access",
                _ERROR,
                f"StorageClass {name_of(manifest)}",
                "parameters.network",
                f"its instances need private services access, which the program's network "
                f"{network} lacks",
                "Add it (a servicenetworking Connection), leave the range out, or name a network "
                "with it.",
            )
        is_internal = annotations_of(manifest).get(labels.INGRESS_CLASS) == labels.INTERNAL_INGRESS
        if is_internal and not has_proxies:
            yield Finding(
                "proxies",
                _ERROR,
                f"Ingress {namespace_of(manifest)}/{name_of(manifest)}",
                "metadata.annotations",
                "its load balancer never gets an address: the program's network has no subnetwork "
                "for the proxies of internal ones",
                "Make a Subnetwork with the purpose REGIONAL_MANAGED_PROXY and the role ACTIVE in "
                "it, or use the class gce.",
            )


def _critical_pods(
    resources: Sequence[Resource], operator: Operator, nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the quotas of critical pods that are too small for the GPU Operator on all nodes."""
    namespaces: list[object] = []
    for type_, inputs in resources:
        if is_release_of(type_, inputs, versions.GPU_OPERATOR):
            namespaces.append(inputs.get("namespace"))
    gpu_nodes = sum(node.count for node in nodes if labels.GKE_ACCELERATOR in node.labels)
    all_nodes = sum(node.count for node in nodes if not node.unknown)
    on_gpu_nodes, elsewhere = operator.critical_pods, operator.critical_pods_elsewhere
    needed = on_gpu_nodes * gpu_nodes + elsewhere * all_nodes + CRITICAL_PODS_BESIDE
    for quota in objects_of(resources):
        if quota["kind"] != "ResourceQuota" or namespace_of(quota) not in namespaces:
            continue
        most = str(section(quota, "spec", "hard").get(PODS))
        if not most.isdecimal() or needed <= int(most) or not _is_of_critical_pods(quota):
            continue
        yield Finding(
            "critical-pods",
            _ERROR,
            f"ResourceQuota {namespace_of(quota)}/{name_of(quota)}",
            "spec.hard.pods",
            f"allows {most} critical pods, and the GPU Operator runs {needed}: {on_gpu_nodes} on "
            f"each of {gpu_nodes} GPU nodes, {elsewhere} on each of all {all_nodes}. Nodes beyond "
            "the quota are paid for and never advertise their GPUs",
            f"Raise it to {needed} or more: criticalPods of the GPU Operator.",
        )


def _is_of_critical_pods(quota: Manifest) -> bool:
    for scope in items(section(quota, "spec", "scopeSelector"), "matchExpressions"):
        if not set(CRITICAL_CLASSES).isdisjoint(scope.get("values") or ()):
            return True
    return False


def _gpu_operator(
    resources: Sequence[Resource], operator: Operator, nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield what keeps nodes from advertising GPUs: ``container-toolkit`` and ``gpu-driver``."""
    values = values_of(resources, versions.GPU_OPERATOR)
    if values is None or isinstance(values, Unknown):
        return
    if Operator.of(values).breaks_networking:
        is_certain = operator.breaks_networking
        when = "" if is_certain else f"if the cluster has GKE {CONTAINERD_2_SINCE} or later, "
        yield Finding(
            "container-toolkit",
            _ERROR if is_certain else _WARNING,
            "GPU Operator",
            "toolkit.env",
            f"{when}its container toolkit replaces the settings of containerd by ones without "
            "GKE's network plugin: no pod starts on its nodes, and they never advertise GPUs",
            f"Set {CONFIG_SOURCE} to file in toolkit.env (a GpuOperator does), or disable toolkit.",
        )
    for node in nodes:
        yield from _gpu_driver(operator, node)


def _gpu_driver(operator: Operator, node: NodeClass) -> Iterable[Finding]:
    """Yield the finding on a pool whose GPUs the operator's driver does not support.

    The operator installs the driver on Ubuntu only.
    """
    is_left_to_operator = node.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"
    if not is_left_to_operator or node.labels.get(labels.GKE_OS_DISTRIBUTION) != "ubuntu":
        return
    model = gpu_model(str(node.labels.get(labels.GKE_ACCELERATOR)), node.labels)
    fault = operator.driver_fault(model.architecture) if model else ""
    if model and fault:
        yield Finding(
            "gpu-driver",
            _ERROR,
            f"NodePool {node.name}",
            "driver",
            f"its GPUs are {model.accelerator_type} ({model.architecture}), and {fault}",
            "Set driver.version (driver.kernelModuleType) of the GPU Operator, or use driver "
            "installer.",
        )
