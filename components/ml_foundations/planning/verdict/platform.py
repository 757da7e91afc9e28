"""What is found of the platform: whether the GPU Operator's pods run, and where nodes come from."""

from collections.abc import Iterator, Sequence

import yaml

from ml_foundations.catalog import versions
from ml_foundations.catalog.disks import LUSTRE_CSI
from ml_foundations.catalog.operator_nodes import CRITICAL_CLASSES, CRITICAL_PODS_BESIDE, Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import UNKNOWN, Manifest, Unknown, items, name_of, namespace_of, section
from ml_foundations.planning.input.program import (
    CLUSTER,
    CONNECTION,
    NETWORK,
    NODE_POOL,
    Resource,
    is_release_of,
    objects_of,
    operator_of,
    values_of,
)
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.resources import PODS
from ml_foundations.planning.verdict.findings import Finding, Severity


def platform_findings(resources: Sequence[Resource], nodes: Sequence[NodeClass]) -> Iterator[Finding]:
    """What keeps the GPU Operator's pods from nodes, and what it does a second time; pools that cost more than said."""
    clusters = [inputs for type_, inputs in resources if type_ == CLUSTER]
    for pool in (inputs for type_, inputs in resources if type_ == NODE_POOL):
        if section(pool, "nodeConfig", "reservationAffinity").get("consumeReservationType") == "ANY_RESERVATION":
            message = "where no open reservation matches, its nodes are bought on demand, at list price"
            remedy = "Say ANY_RESERVATION_THEN_FAIL (reservation any-or-fail) to have none of those."
            path = "nodeConfig.reservationAffinity"
            yield Finding("reservation", Severity.INFO, f"NodePool {pool.get('name')}", path, message, remedy)
        if _leaves_zones_open(pool) and not any(cluster.get("nodeLocations") for cluster in clusters):
            message = "its nodes go to the zones of its cluster, and few zones have its GPUs: GKE refuses the others"
            remedy = "Name those that have them: nodeLocations (zones)."
            yield Finding("zones", Severity.INFO, f"NodePool {pool.get('name')}", "nodeLocations", message, remedy)
    kept = [section(cluster, "monitoringConfig") for cluster in clusters]
    kept = [each for each in kept if isinstance(names := each.get("enableComponents"), list) and "DCGM" in names]
    if any(section(each, "managedPrometheus").get("enabled") is False for each in kept):
        message = "managed collection, which collects the metrics of GPUs that GKE's DCGM exports, is off"
        remedy = "Enable managedPrometheus, or take DCGM out of the cluster's monitoring."
        yield Finding("metrics-collected", Severity.WARNING, "Cluster", "monitoringConfig", message, remedy)
    yield from _without_private_access(resources)
    yield from _half_gangs(values_of(resources, versions.KUEUE))
    operator = operator_of(resources)
    exporters = [f"DaemonSet {name_of(each)}" for each in objects_of(resources) if _exports_metrics(each)]
    if isinstance(operator, Operator) and operator.exports_metrics:
        exporters.append("GPU Operator")
    for exporter in exporters if len(exporters) + bool(kept) > 1 else ():
        message = f"{'DCGM of GKE' if kept else 'another exporter'} exports the metrics of GPUs too"
        remedy = "Take DCGM out of the cluster's monitoring, or switch one of the exporters off."
        yield Finding("metrics-twice", Severity.WARNING, exporter, "dcgmExporter", message, remedy)
    if not isinstance(operator, Operator):
        return
    releases = [inputs for type_, inputs in resources if is_release_of(type_, inputs, versions.GPU_OPERATOR)]
    homes = [release.get("namespace") for release in releases]
    for quota in objects_of(resources):
        if quota["kind"] == "ResourceQuota" and namespace_of(quota) in homes:
            yield from _beyond(quota, operator, nodes)


def _half_gangs(kueue: Manifest | Unknown | None) -> Iterator[Finding]:
    """Kueue, by the values of its chart, without what makes a workload give back the nodes that it waits on."""
    key = "controllerManagerConfigYaml"
    config = UNKNOWN if kueue is None or isinstance(kueue, Unknown) else section(kueue, "managerConfig").get(key)
    if config is not UNKNOWN and "waitForPodsReady" not in (yaml.safe_load(str(config or "{}")) or {}):
        message = "waitForPodsReady is off: where Google has nodes for half of a gang, that half waits, and is paid"
        remedy = f"Set it, with a timeout, in managerConfig.{key}, as a TrainingQueue does."
        yield Finding("half-a-gang", Severity.WARNING, "Kueue", f"managerConfig.{key}", message, remedy)


def _exports_metrics(each: Manifest) -> bool:
    """Whether pods of NVIDIA's exporter run on every node."""
    containers = items(section(each, "spec", "template", "spec"), "containers") if each["kind"] == "DaemonSet" else []
    return any("dcgm-exporter" in str(container.get("image")) for container in containers)


def _leaves_zones_open(pool: Manifest) -> bool:
    """Whether a pool with GPUs is in a region, and says nothing of zones."""
    location, has_gpus = pool.get("location"), section(pool, "nodeConfig").get("guestAccelerators")
    is_region = isinstance(location, str) and location.count("-") == 1
    return is_region and bool(has_gpus) and not pool.get("nodeLocations")


def _without_private_access(resources: Sequence[Resource]) -> Iterator[Finding]:
    """Classes of instances that have addresses of private services access, in a network that is made without it."""
    networks = [inputs.get("name") for type_, inputs in resources if type_ == NETWORK]
    for each in objects_of(resources) if CONNECTION not in dict(resources) else ():
        parameters = section(each, "parameters")
        network = str(parameters.get("network")).rpartition("/")[2]
        is_private = each.get("provisioner") == LUSTRE_CSI or parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS"
        if is_private and network in networks:
            message = f"its instances need private services access, which the network {network} that is made lacks"
            remedy = "Give it that (a servicenetworking Connection), leave the range out, or name a network with it."
            where = f"StorageClass {name_of(each)}"
            yield Finding("private-access", Severity.ERROR, where, "parameters.network", message, remedy)


def _beyond(quota: Manifest, operator: Operator, nodes: Sequence[NodeClass]) -> Iterator[Finding]:
    """What a quota of critical pods is short of, with the most nodes."""
    scopes = items(section(quota, "spec", "scopeSelector"), "matchExpressions")
    most = str(section(quota, "spec", "hard").get(PODS))
    if not most.isdecimal() or not any(set(CRITICAL_CLASSES) & {*(scope.get("values") or ())} for scope in scopes):
        return
    with_gpus = sum(node.count for node in nodes if labels.GKE_ACCELERATOR in node.labels)
    every = sum(node.count for node in nodes if not node.unknown)
    needed = operator.critical_pods * with_gpus + operator.critical_pods_elsewhere * every + CRITICAL_PODS_BESIDE
    if needed <= int(most):
        return
    message = (
        f"allows {most} critical pods, and the GPU Operator runs {needed}: {operator.critical_pods} on each of "
        f"{with_gpus} GPU nodes, {operator.critical_pods_elsewhere} on each of all {every}. Nodes beyond the quota are "
        "paid for and never advertise their GPUs"
    )
    remedy = f"Raise it to {needed} or more: criticalPods of the GPU Operator."
    where = f"ResourceQuota {namespace_of(quota)}/{name_of(quota)}"
    yield Finding("critical-pods", Severity.ERROR, where, "spec.hard.pods", message, remedy)
