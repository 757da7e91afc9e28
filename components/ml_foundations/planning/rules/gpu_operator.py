"""NVIDIA's GPU Operator, and what else advertises GPUs or exports their metrics."""

import itertools
from collections.abc import Iterator

from ml_foundations.catalog import operator_nodes, versions
from ml_foundations.catalog.machine_types import gpu_model
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, mappings, namespace_of, section
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.trees import Unknown
from ml_foundations.planning.input import program
from ml_foundations.planning.model.declared import full_name, kind_and_name, of_kind
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.resources import PODS
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack


@rule(
    "metrics-collected",
    Severity.WARNING,
    "The metrics of GPUs that a cluster keeps are collected.",
    source='GKE, "Collect and view DCGM metrics"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        monitoringConfig:
          enableComponents: [DCGM]
          managedPrometheus: {enabled: false}
    """,
)
@rule(
    "metrics-twice",
    Severity.WARNING,
    "The metrics of GPUs are exported once.",
    source='GKE, "Collect and view DCGM metrics"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        monitoringConfig: {enableComponents: [DCGM]}
        ---
        apiVersion: apps/v1
        kind: DaemonSet
        metadata: {name: exporter, namespace: gpus}
        spec:
          template:
            spec:
              containers: [{name: exporter, image: nvcr.io/nvidia/k8s/dcgm-exporter:4.4}]
    """,
)
def metrics(stack: Stack) -> Iterator[Finding]:
    """Yield what keeps the metrics of GPUs from being collected once."""
    is_gke_exporting = False
    is_collected = True
    for cluster in stack.clusters:
        monitoring = section(cluster, "monitoringConfig")
        components = monitoring.get("enableComponents")
        if isinstance(components, list) and "DCGM" in components:
            is_gke_exporting = True
            is_collected &= section(monitoring, "managedPrometheus").get("enabled") is not False
    if not is_collected:
        message = (
            "managed collection, which collects the metrics of GPUs that GKE's DCGM exports, is off"
        )
        remedy = "Enable managedPrometheus, or remove DCGM from the cluster's monitoring."
        yield warning("metrics-collected", "Cluster", "monitoringConfig", message, remedy)
    exporters = list(_daemon_sets_of(stack, "dcgm-exporter"))
    operator = stack.gpu_operator
    if isinstance(operator, Operator) and operator.exports_metrics:
        exporters.append("GPU Operator")
    if len(exporters) + is_gke_exporting <= 1:
        return
    second = "DCGM of GKE" if is_gke_exporting else "another exporter"
    message = f"{second} exports the metrics of GPUs too"
    remedy = "Remove DCGM from the cluster's monitoring, or switch one of the exporters off."
    for exporter in exporters:
        yield warning("metrics-twice", exporter, "dcgmExporter", message, remedy)


@rule(
    "advertised-twice",
    Severity.WARNING,
    "One device plugin advertises the GPUs of a node.",
    source='NVIDIA GPU Operator, "Google GKE"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        nodeConfig:
          machineType: g2-standard-8
          guestAccelerators:
            - type: nvidia-l4
              count: 1
              gpuDriverInstallationConfig: {gpuDriverVersion: DEFAULT}
        ---
        apiVersion: apps/v1
        kind: DaemonSet
        metadata: {name: plugin, namespace: gpus}
        spec:
          template:
            spec:
              containers: [{name: plugin, image: nvcr.io/nvidia/k8s-device-plugin:v0.18}]
    """,
)
def device_plugins(stack: Stack) -> Iterator[Finding]:
    """Yield the device plugins on nodes whose GPUs GKE advertises already."""
    plugins = list(_daemon_sets_of(stack, "k8s-device-plugin"))
    operator = stack.gpu_operator
    if isinstance(operator, Operator) and operator.device_plugin:
        plugins.append("GPU Operator")
    by_gke = [node.name for node in stack.nodes if labels.GKE_GPU_DRIVER_VERSION in node.labels]
    for plugin in plugins if by_gke else ():
        message = (
            f"it advertises GPUs, and so does GKE on {by_gke[0]}: the kubelet uses the one that "
            "registered last"
        )
        remedy = (
            "Label the pool's nodes gke-no-default-nvidia-gpu-device-plugin=true, without GKE's "
            "driver, or switch it off."
        )
        yield warning("advertised-twice", plugin, "devicePlugin", message, remedy)


def _daemon_sets_of(stack: Stack, image: str) -> Iterator[str]:
    """Yield the DaemonSets that run an image of NVIDIA's."""
    for manifest in of_kind(stack.declared_objects, "DaemonSet"):
        containers = items(section(manifest, "spec", "template", "spec"), "containers")
        if any(image in str(container.get("image")) for container in containers):
            yield kind_and_name(manifest)


@rule(
    "critical-pods",
    Severity.ERROR,
    (
        "On GKE, critical pods outside kube-system have a quota, with room for the GPU "
        "Operator's on every node."
    ),
    source=(
        'GKE, "Resource quotas": gcp-critical-pods; kubernetes, plugin/pkg/admission/resourcequota'
    ),
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        nodeCount: 2
        nodeConfig: {machineType: g2-standard-8, guestAccelerators: [{type: nvidia-l4, count: 1}]}
        ---
        type: kubernetes:helm.sh/v3:Release
        chart: gpu-operator
        namespace: gpu-operator
        values: {}
        ---
        apiVersion: v1
        kind: ResourceQuota
        metadata: {name: critical, namespace: gpu-operator}
        spec:
          hard: {pods: "1"}
          scopeSelector:
            matchExpressions:
              - {scopeName: PriorityClass, operator: In, values: [system-node-critical]}
    """,
)
@rule(
    "container-toolkit",
    Severity.ERROR,
    "The GPU Operator's container toolkit keeps GKE's network plugin.",
    source='NVIDIA GPU Operator, "Google GKE"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        minMasterVersion: "1.35"
        ---
        type: kubernetes:helm.sh/v3:Release
        chart: gpu-operator
        namespace: gpu-operator
        values: {toolkit: {enabled: true}}
    """,
)
@rule(
    "gpu-driver",
    Severity.ERROR,
    "The GPU Operator's driver supports the GPUs of the pools that it serves.",
    source='NVIDIA GPU Operator, "Google GKE"',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        nodeConfig:
          machineType: a4-highgpu-8g
          imageType: UBUNTU_CONTAINERD
          guestAccelerators: [{type: nvidia-b200, count: 8}]
          labels: {gke-no-default-nvidia-gpu-device-plugin: "true"}
        ---
        type: kubernetes:helm.sh/v3:Release
        chart: gpu-operator
        namespace: gpu-operator
        values: {driver: {version: "535.104.05"}}
    """,
)
def gpu_operator(stack: Stack) -> Iterator[Finding]:
    """Yield what keeps the GPU Operator from running on all nodes, or nodes from having GPUs."""
    values = program.values_of(stack.resources, versions.GPU_OPERATOR)
    operator = stack.gpu_operator
    if isinstance(operator, Operator):
        yield from _critical_pods(stack, operator)
        if values is not None and not isinstance(values, Unknown):
            yield from _container_toolkit(operator, values)
            for node in stack.nodes:
                yield from _gpu_driver(operator, node)
        return
    try:
        Operator.of({} if values is None or isinstance(values, Unknown) else values)
    except ReadError as unread:
        yield warning("unknown-value", "GPU Operator", unread.field, unread.fault, "Correct it.")


def _critical_pods(stack: Stack, operator: Operator) -> Iterator[Finding]:
    """Yield the quotas of critical pods that are too small for the GPU Operator on all nodes."""
    namespaces: list[object] = []
    for type_, inputs in stack.resources:
        if program.is_release_of(type_, inputs, versions.GPU_OPERATOR):
            namespaces.append(inputs.get("namespace"))
    gpu_nodes = 0
    all_nodes = 0
    for node in stack.nodes:
        gpu_nodes += node.count if labels.GKE_ACCELERATOR in node.labels else 0
        all_nodes += 0 if node.unknown else node.count
    on_gpu_nodes = operator.critical_pods
    elsewhere = operator.critical_pods_elsewhere
    needed = on_gpu_nodes * gpu_nodes + elsewhere * all_nodes + operator_nodes.CRITICAL_PODS_BESIDE
    for quota in of_kind(stack.declared_objects, "ResourceQuota"):
        most = str(section(quota, "spec", "hard").get(PODS))
        is_too_small = most.isdecimal() and whole_number(most, needed) < needed
        if not is_too_small or namespace_of(quota) not in namespaces:
            continue
        scopes = mappings(section(quota, "spec", "scopeSelector"), "matchExpressions")
        classes = itertools.chain.from_iterable(scope.get("values") or () for scope in scopes)
        if not set(operator_nodes.CRITICAL_CLASSES).isdisjoint(classes):
            message = (
                f"allows {most} critical pods, and the GPU Operator runs {needed}: {on_gpu_nodes} "
                f"on each of {gpu_nodes} GPU nodes, {elsewhere} on each of all {all_nodes}. Nodes "
                "beyond the quota are paid for and never advertise their GPUs"
            )
            remedy = f"Raise it to {needed} or more: criticalPods of the GPU Operator."
            yield error("critical-pods", full_name(quota), "spec.hard.pods", message, remedy)


def _container_toolkit(operator: Operator, values: Manifest) -> Iterator[Finding]:
    """Yield that the toolkit takes GKE's network plugin from the nodes."""
    if Operator.of(values).breaks_networking:
        is_certain = operator.breaks_networking
        since = operator_nodes.CONTAINERD_2_SINCE
        when = "" if is_certain else f"if the cluster has GKE {since} or later, "
        message = (
            f"{when}its container toolkit replaces the settings of containerd by ones without "
            "GKE's network plugin: no pod starts on its nodes, and they never advertise GPUs"
        )
        remedy = (
            f"Set {operator_nodes.CONFIG_SOURCE} to file in toolkit.env (a GpuOperator does), or "
            "disable toolkit."
        )
        severe = error if is_certain else warning
        yield severe("container-toolkit", "GPU Operator", "toolkit.env", message, remedy)


def _gpu_driver(operator: Operator, node: NodeClass) -> Iterator[Finding]:
    """Yield the finding on a pool whose GPUs the operator's driver does not support."""
    # The operator installs the driver on Ubuntu only.
    is_left_to_operator = node.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"
    if not is_left_to_operator or node.labels.get(labels.GKE_OS_DISTRIBUTION) != "ubuntu":
        return
    model = gpu_model(str(node.labels.get(labels.GKE_ACCELERATOR)), node.labels)
    if model and (fault := operator.driver_fault(model.architecture)):
        message = f"its GPUs are {model.accelerator_type} ({model.architecture}), and {fault}"
        remedy = (
            "Set driver.version (driver.kernelModuleType) of the GPU Operator, or use driver "
            "installer."
        )
        yield error("gpu-driver", f"NodePool {node.name}", "driver", message, remedy)
