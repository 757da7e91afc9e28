"""Findings about the platform: clusters, node pools and networks, the GPU Operator and Kueue."""

import re
from collections.abc import Iterable, Iterator, Sequence

from ml_foundations.catalog import operator_nodes, versions
from ml_foundations.catalog.disks import LUSTRE_CSI
from ml_foundations.catalog.gke_kinds import begins_before
from ml_foundations.catalog.inference_gateways import PROXY_PURPOSE, REGIONAL_CLASSES
from ml_foundations.catalog.kueue import configuration_of
from ml_foundations.catalog.machine_types import gpu_model
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.pools import SHUTDOWN_GRACE, refused_inputs
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    mappings,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, as_key
from ml_foundations.planning.input import program
from ml_foundations.planning.input.program import Resource, objects_of, values_of
from ml_foundations.planning.model.declared import full_name, kind_and_name, of_kind, of_type
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.resources import PODS
from ml_foundations.planning.verdict.findings import Finding, Severity, error, warning
from ml_foundations.planning.verdict.node_networks import (
    cluster_networks,
    network_objects,
    overlapping_networks,
)

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
_ADDRESSES_OF_GOOGLE = 4
"""The addresses of a subnetwork that Google keeps (VPC, "Subnets")."""


def platform_findings(
    resources: Sequence[Resource], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the findings about the platform of a program."""
    clusters, pools = of_type(resources, program.CLUSTER), of_type(resources, program.NODE_POOL)
    yield from _too_few_addresses(resources, clusters, nodes)
    yield from _private_without_nat(resources, clusters)
    if len(clusters) == 1 and not program.makes_pools(clusters[0], resources):
        yield from _only_pools(clusters[0], pools)
    for kind, manifests in (("Cluster", clusters), ("NodePool", pools)):
        for manifest in manifests:
            for path, reason in refused_inputs(manifest):
                about = f"{kind} {manifest.get('name')}"
                yield error("refused-input", about, path, reason, "Change it.")
    for pool in pools:
        yield from _pool(pool, clusters)
    yield from _made_networks(resources)
    yield from overlapping_networks(resources, clusters)
    yield from network_objects(resources)
    yield from _gang_without_timeout(values_of(resources, versions.KUEUE))
    yield from _metrics(resources, clusters)
    operator = program.operator_of(resources)
    yield from _device_plugins(resources, operator, nodes)
    if isinstance(operator, Operator):
        yield from _critical_pods(resources, operator, nodes)
        yield from _gpu_operator(resources, operator, nodes)
    else:
        yield from _unreadable_operator(values_of(resources, versions.GPU_OPERATOR))


def _private_without_nat(
    resources: Sequence[Resource], clusters: Sequence[Manifest]
) -> Iterator[Finding]:
    # A network that the program does not make may have a NAT that it does not show.
    if not cluster_networks(resources) or of_type(resources, program.NAT):
        return
    for cluster in clusters:
        if section(cluster, "privateClusterConfig").get("enablePrivateNodes") is True:
            unreachable = "no image of Docker Hub, nvcr.io or ghcr.io is pulled"
            message = f"its private nodes reach nothing but Google's APIs: {unreachable}"
            instead = "use images and charts of Artifact Registry"
            remedy = f"Make a Cloud NAT in the network, or {instead}."
            about = f"Cluster {cluster.get('name')}"
            yield warning("way-out", about, "privateClusterConfig", message, remedy)
            return


def _only_pools(cluster: Manifest, pools: Sequence[Manifest]) -> Iterator[Finding]:
    """Yield what is certain if a program shows all pools that its cluster has."""
    if not cluster.get("removeDefaultNodePool"):
        return
    if pools and all(map(_repels_gke, pools)):
        without = "without these no name is resolved"
        message = f"all pools have taints that GKE's own pods do not tolerate: {without}"
        remedy = "Have a pool without taints, such as a CpuNodePool."
        yield error("system-pods", f"Cluster {cluster.get('name')}", "taints", message, remedy)
    for pool in pools if not cluster.get("enableMultiNetworking") else ():
        if items(section(pool, "networkConfig"), "additionalNodeNetworkConfigs"):
            refused = "which GKE refuses in a cluster without multi-networking"
            message = f"its nodes are in more networks, {refused}"
            remedy = "Set enableMultiNetworking (multi_networking) of the cluster."
            about = f"NodePool {pool.get('name')}"
            yield error("multi-networking", about, "networkConfig", message, remedy)


def _repels_gke(pool: Manifest) -> bool:
    """Return whether taints keep GKE's own pods off a pool."""
    # Source: GKE, "Isolate your workloads in dedicated node pools".
    for taint in mappings(section(pool, "nodeConfig"), "taints"):
        if taint is UNKNOWN or taint.get("key") in _TOLERATED_BY_GKE:
            continue
        if "PREFER" not in str(taint.get("effect")).upper():
            return True
    return False


def _pool(pool: Manifest, clusters: Sequence[Manifest]) -> Iterator[Finding]:
    about = f"NodePool {pool.get('name')}"
    reservation = section(pool, "nodeConfig", "reservationAffinity")
    if reservation.get("consumeReservationType") == "ANY_RESERVATION":
        path = "nodeConfig.reservationAffinity"
        message = "if no open reservation matches, its nodes are bought on demand, at list price"
        remedy = "Set ANY_RESERVATION_THEN_FAIL (reservation any-or-fail) to have none of those."
        yield Finding("reservation", Severity.INFO, about, path, message, remedy)
    for (*path_of_field, field), version in _SINCE.items():
        is_set = section(pool, *path_of_field).get(field)
        if is_set and any(begins_before(cluster, version) for cluster in clusters):
            message = f"its cluster begins with an older version of GKE than it needs: {version}"
            later = "minMasterVersion (kubernetes_version of a GkeCluster)"
            remedy = (
                f"Leave the version to the release channel, or set {version} or later: {later}."
            )
            yield error("version", about, "minMasterVersion", message, remedy)
    if _leaves_zones_open(pool) and not any(c.get("nodeLocations") for c in clusters):
        few_zones = "few zones have its GPUs: GKE refuses other zones"
        message = f"its nodes go to the zones of its cluster, and {few_zones}"
        remedy = "Name those that have them: nodeLocations (zones)."
        yield Finding("zones", Severity.INFO, about, "nodeLocations", message, remedy)


def _leaves_zones_open(pool: Manifest) -> bool:
    """Return whether a pool with GPUs is in a region, and names no zones."""
    if not section(pool, "nodeConfig").get("guestAccelerators") or pool.get("nodeLocations"):
        return False
    location = pool.get("location")
    return isinstance(location, str) and location.count("-") == 1


def _too_few_addresses(
    resources: Sequence[Resource], clusters: Sequence[Manifest], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the subnetworks with too few addresses, where nodes never come (IP_SPACE_EXHAUSTED)."""
    range_names: list[object] = []
    for cluster in clusters:
        policy = section(cluster, "ipAllocationPolicy")
        range_names.append(policy.get("clusterSecondaryRangeName"))
    # Each node has an address, and a block of addresses for its pods: twice their number, rounded
    # up to a power of two (GKE, "Configure maximum Pods per node").
    for_nodes, for_pods = _ADDRESSES_OF_GOOGLE, 0
    for node in nodes:
        for_nodes += node.count
        max_pods = str(node.labels.get(labels.GKE_MAX_PODS))
        if max_pods.isdecimal():
            for_pods += node.count * 2 * (1 << (int(max_pods) - 1).bit_length())
    for subnetwork in of_type(resources, program.SUBNETWORK):
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
        path, taken = "secondaryIpRanges", f"pods, and the pools' nodes take up to {needed}"
        fewer = "(podCidr of a GkeCluster), or allow fewer pods on a node (maxPods), or fewer nodes"
    else:
        path, taken = "ipCidrRange", f"nodes, and the pools have up to {needed}"
        fewer = "(nodeCidr of a GkeCluster), or allow fewer nodes"
    rule = "addresses" if is_for_pods else "node-addresses"
    message = f"{block} has {free} addresses for {taken}: some never come"
    yield warning(rule, "Subnetwork", path, message, f"Make it larger {fewer}.")


def _gang_without_timeout(kueue: Manifest | Unknown | None) -> Iterator[Finding]:
    """Yield the finding on a Kueue that never takes nodes back from half of a gang."""
    if kueue is None or isinstance(kueue, Unknown):
        return
    configuration = configuration_of(kueue) or {}
    if not isinstance(configuration, Unknown) and "waitForPodsReady" not in configuration:
        path = "managerConfig.controllerManagerConfigYaml"
        half = "if Google has nodes for half of a gang, that half waits, and is paid"
        remedy = f"Set it, with a timeout, in {path}, as a TrainingQueue does."
        yield warning("half-a-gang", "Kueue", path, f"waitForPodsReady is off: {half}", remedy)


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
        what = "which collects the metrics of GPUs that GKE's DCGM exports"
        message = f"managed collection, {what}, is off"
        remedy = "Enable managedPrometheus, or remove DCGM from the cluster's monitoring."
        yield warning("metrics-collected", "Cluster", "monitoringConfig", message, remedy)
    exporters = list(_daemon_sets_of(resources, "dcgm-exporter"))
    operator = program.operator_of(resources)
    if isinstance(operator, Operator) and operator.exports_metrics:
        exporters.append("GPU Operator")
    if len(exporters) + is_gke_exporting <= 1:
        return
    other = "DCGM of GKE" if is_gke_exporting else "another exporter"
    message = f"{other} exports the metrics of GPUs too"
    remedy = "Remove DCGM from the cluster's monitoring, or switch one of the exporters off."
    for exporter in exporters:
        yield warning("metrics-twice", exporter, "dcgmExporter", message, remedy)


def _device_plugins(
    resources: Sequence[Resource], operator: object, nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the device plugins on nodes whose GPUs GKE advertises already."""
    plugins = list(_daemon_sets_of(resources, "k8s-device-plugin"))
    if isinstance(operator, Operator) and operator.device_plugin:
        plugins.append("GPU Operator")
    by_gke = [node.name for node in nodes if labels.GKE_GPU_DRIVER_VERSION in node.labels]
    for plugin in plugins if by_gke else ():
        last = "the kubelet uses the one that registered last"
        message = f"it advertises GPUs, and so does GKE on {by_gke[0]}: {last}"
        label = "gke-no-default-nvidia-gpu-device-plugin=true"
        remedy = f"Label the pool's nodes {label}, without GKE's driver, or switch it off."
        yield warning("advertised-twice", plugin, "devicePlugin", message, remedy)


def _daemon_sets_of(resources: Sequence[Resource], image: str) -> Iterator[str]:
    """Yield the DaemonSets that run an image of NVIDIA's."""
    for manifest in of_kind(objects_of(resources), "DaemonSet"):
        containers = items(section(manifest, "spec", "template", "spec"), "containers")
        if any(c is not UNKNOWN and image in str(c.get("image")) for c in containers):
            yield kind_and_name(manifest)


def _made_networks(resources: Sequence[Resource]) -> Iterator[Finding]:
    """Yield the objects that need more of a network than the program's networks have.

    They are storage classes whose instances have addresses of private services access, and
    Ingresses and Gateways of regional load balancers, whose proxies have separate addresses (GKE,
    "Ingress for internal Application Load Balancers", "Deploying Gateways").
    """
    networks = cluster_networks(resources)
    has_access = bool(of_type(resources, program.CONNECTION))
    subnetworks = of_type(resources, program.SUBNETWORK)
    purposes = [as_key(inputs.get("purpose")) for inputs in subnetworks]
    has_proxies = not {PROXY_PURPOSE, UNKNOWN}.isdisjoint(purposes)
    for manifest in objects_of(resources) if networks else ():
        parameters = section(manifest, "parameters")
        network = str(parameters.get("network")).rpartition("/")[2]
        needs_access = parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS"
        needs_access |= manifest.get("provisioner") == LUSTRE_CSI
        if needs_access and network in networks and not has_access:
            lacking = f"which the program's network {network} lacks"
            remedy = (
                "Add it (a servicenetworking Connection), leave the range out, or name a network "
                "with it."
            )
            message = f"its instances need private services access, {lacking}"
            yield error(
                "private-access", kind_and_name(manifest), "parameters.network", message, remedy
            )
        if not has_proxies and (path := _regional_proxies(manifest)):
            lacking = "the program's network has no subnetwork for the proxies of regional ones"
            message = f"its load balancer never gets an address: {lacking}"
            remedy = f"Set proxy_only_cidr of a GkeCluster, or add a {PROXY_PURPOSE} subnetwork."
            yield error("proxies", full_name(manifest), path, message, remedy)


def _regional_proxies(manifest: Manifest) -> str:
    """Return the field that asks for a load balancer with regional proxies; nothing without one."""
    if annotations_of(manifest).get(labels.INGRESS_CLASS) == labels.INTERNAL_INGRESS:
        return "metadata.annotations"
    is_regional = section(manifest, "spec").get("gatewayClassName") in REGIONAL_CLASSES
    return "spec.gatewayClassName" if is_regional else ""


def _critical_pods(
    resources: Sequence[Resource], operator: Operator, nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield the quotas of critical pods that are too small for the GPU Operator on all nodes."""
    namespaces: list[object] = []
    for type_, inputs in resources:
        if program.is_release_of(type_, inputs, versions.GPU_OPERATOR):
            namespaces.append(inputs.get("namespace"))
    gpu_nodes = all_nodes = 0
    for node in nodes:
        gpu_nodes += node.count if labels.GKE_ACCELERATOR in node.labels else 0
        all_nodes += 0 if node.unknown else node.count
    on_gpu_nodes, elsewhere = operator.critical_pods, operator.critical_pods_elsewhere
    needed = on_gpu_nodes * gpu_nodes + elsewhere * all_nodes + operator_nodes.CRITICAL_PODS_BESIDE
    for quota in of_kind(objects_of(resources), "ResourceQuota"):
        most = str(section(quota, "spec", "hard").get(PODS))
        is_too_small = most.isdecimal() and whole_number(most, needed) < needed
        if not is_too_small or namespace_of(quota) not in namespaces:
            continue
        if _is_of_critical_pods(quota):
            message = (
                f"allows {most} critical pods, and the GPU Operator runs {needed}: {on_gpu_nodes} "
                f"on each of {gpu_nodes} GPU nodes, {elsewhere} on each of all {all_nodes}. Nodes "
                "beyond the quota are paid for and never advertise their GPUs"
            )
            remedy = f"Raise it to {needed} or more: criticalPods of the GPU Operator."
            yield error("critical-pods", full_name(quota), "spec.hard.pods", message, remedy)


def _is_of_critical_pods(quota: Manifest) -> bool:
    for scope in mappings(section(quota, "spec", "scopeSelector"), "matchExpressions"):
        if not set(operator_nodes.CRITICAL_CLASSES).isdisjoint(scope.get("values") or ()):
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
        since = operator_nodes.CONTAINERD_2_SINCE
        when = "" if is_certain else f"if the cluster has GKE {since} or later, "
        message = (
            f"{when}its container toolkit replaces the settings of containerd by ones without "
            "GKE's network plugin: no pod starts on its nodes, and they never advertise GPUs"
        )
        source = f"Set {operator_nodes.CONFIG_SOURCE} to file in toolkit.env"
        remedy = f"{source} (a GpuOperator does), or disable toolkit."
        severe = error if is_certain else warning
        yield severe("container-toolkit", "GPU Operator", "toolkit.env", message, remedy)
    for node in nodes:
        yield from _gpu_driver(operator, node)


def _unreadable_operator(values: Manifest | Unknown | None) -> Iterator[Finding]:
    try:
        Operator.of({} if values is None or isinstance(values, Unknown) else values)
    except ReadError as unread:
        yield warning("unknown-value", "GPU Operator", unread.field, unread.fault, "Correct it.")


def _gpu_driver(operator: Operator, node: NodeClass) -> Iterable[Finding]:
    """Yield the finding on a pool whose GPUs the operator's driver does not support."""
    # The operator installs the driver on Ubuntu only.
    is_left_to_operator = node.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"
    if not is_left_to_operator or node.labels.get(labels.GKE_OS_DISTRIBUTION) != "ubuntu":
        return
    model = gpu_model(str(node.labels.get(labels.GKE_ACCELERATOR)), node.labels)
    if model and (fault := operator.driver_fault(model.architecture)):
        message = f"its GPUs are {model.accelerator_type} ({model.architecture}), and {fault}"
        version = "driver.version (driver.kernelModuleType) of the GPU Operator"
        remedy = f"Set {version}, or use driver installer."
        yield error("gpu-driver", f"NodePool {node.name}", "driver", message, remedy)
