"""The NVIDIA GPU Operator, by its Helm chart."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

import yaml
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.operator_nodes import CONFIG_SOURCE
from ml_foundations.catalog.pools import MOST_CLIENTS
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.tolerations import Toleration
from ml_foundations.component.types import Name
from ml_foundations.gpu.agents import agent_namespace, agent_tolerations
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR, driver_installer_manifest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import merged, without_none
from ml_foundations.kubernetes.objects import section
from ml_foundations.typed_args import GpuOperatorComponent

Mode = Literal["operator", "cos", "ubuntu", "gke"]
"""Who installs the driver and advertises the GPUs; GpuOperatorSpec says what each means."""


_NO_WAY_AROUND = {"ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": "false"}
"""Pods get the GPUs that they request, and none by the variable NVIDIA_VISIBLE_DEVICES, which
images set to "all".

The device plugin gives GPUs by CDI, which needs no variable, and the operator's own pods are
privileged (NVIDIA/gpu-operator v26.7.0, controllers/object_controls.go).
"""


class Driver(Spec):
    """The driver that the operator installs."""

    version: str | None = None
    """The driver's version. By default, that of the chart."""
    kernel_modules: Literal["auto", "open", "proprietary"] = "auto"
    """The kernel modules: auto, open or proprietary. The default is auto."""
    precompiled: bool = False
    """Use precompiled packages. The default is false."""
    rdma: bool = False
    """Set up GPUDirect RDMA. The default is false."""
    auto_upgrade: bool = True
    """Install a new version on the nodes automatically. The default is true."""
    parallel_upgrades: int = Field(default=1, ge=0)
    """The number of nodes that may be upgraded at once. The default is 1."""


class Sharing(Spec):
    """One way to share a GPU between pods."""

    replicas: int = Field(ge=2, le=MOST_CLIENTS)
    """The number of pods that may use a GPU at once."""
    strategy: Literal["time-slicing", "mps"] = "time-slicing"
    """time-slicing, or mps for the Multi-Process Service. The default is time-slicing."""


class DevicePlugin(Spec):
    """The device plugin, which advertises the GPUs of a node."""

    enabled: bool | None = None
    """Run the operator's device plugin. The default is true. In the mode gke, it is false."""
    sharing: dict[Name, Sharing] = {}
    """Ways to share a GPU, by name. A node chooses one with the label
    nvidia.com/device-plugin.config."""
    default_sharing: str | None = None
    """The way for nodes that choose none. By default, pods do not share their GPUs."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.enabled is False and self.sharing:
            yield "sharing", "is done by the device plugin, and enabled is false"
        if self.default_sharing is not None and self.default_sharing not in self.sharing:
            known = ", ".join(self.sharing) or "none"
            reason = f'is "{self.default_sharing}", which is not in sharing ({known})'
            yield "default_sharing", reason


class DcgmExporter(Spec):
    """The exporter of GPU metrics."""

    enabled: bool = True
    """Run the exporter. The default is true."""
    service_monitor: bool = False
    """Create a ServiceMonitor, so that Prometheus scrapes the exporter. It needs the CRDs of the
    Prometheus Operator. The default is false."""
    interval: str = Field(default="15s", pattern=r"^\d+(ms|s|m)$")
    """The interval of the scrapes. The default is 15s."""
    pod_labels: bool = False
    """Add the labels of the pods that use the GPU to the metrics. The default is false."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.service_monitor and not self.enabled:
            yield "service_monitor", "is for the exporter, and enabled is false"


class Mig(Spec):
    """Multi-Instance GPU, if the operator partitions the GPUs."""

    strategy: Literal["none", "single", "mixed"] = "single"
    """How partitions are advertised: none, single or mixed. The default is single."""
    config: Name | None = None
    """A ConfigMap with partitionings under the key config.yaml. By default, NVIDIA's own
    partitionings."""
    default: str | None = None
    """The partitioning of nodes without the label nvidia.com/mig.config. The default is
    all-disabled."""


class GpuOperatorSpec(ComponentSpec):
    """Arguments of a GpuOperator."""

    objects = {"cluster": IN_CLUSTER}

    mode: Mode = "operator"
    """Who installs the driver and advertises the GPUs: operator, cos, ubuntu or gke. The default is
    operator.

    operator: the operator does both, on Ubuntu nodes. cos or ubuntu: this component adds Google's
    installer, which installs the driver on nodes of that system, and the operator advertises the
    GPUs. gke: GKE does both, and the operator adds metrics and feature discovery.
    """
    namespace: Name = "gpu-operator"
    """The operator's namespace. The default is gpu-operator."""
    driver: Driver | None = None
    """The driver, in the mode operator."""
    toolkit: bool = True
    """Run the operator's container toolkit. The default is true."""
    device_plugin: DevicePlugin = DevicePlugin()
    """The device plugin. Only one may advertise the GPUs: in the mode gke, it is GKE's own."""
    dcgm_exporter: DcgmExporter = DcgmExporter()
    """The exporter of GPU metrics."""
    mig: Mig | None = None
    """Multi-Instance GPU. In the mode gke, set mig_partition of the node pool instead."""
    feature_discovery: bool = True
    """Label nodes with the properties of their GPUs (GPU Feature Discovery). The default is
    true."""
    node_feature_discovery: bool = True
    """Install Node Feature Discovery. The default is true. Set it to false if the cluster has it
    already."""
    validate_with_workload: bool = True
    """Validate each node by a pod that uses a GPU for a short time. The default is true."""
    tolerations: list[Toleration] = []
    """More taints of GPU nodes that the operator's pods tolerate. They always tolerate the GPU
    taint."""
    critical_pods: int = Field(default=1000, ge=1)
    """The number of critical pods that the namespace may run: about eight for a GPU node and one
    for any other node. The default is 1000. A stack file uses the number that its node pools
    need."""
    values: dict[str, Any] = {}
    """More values of the chart, merged over the component's."""

    @property
    def advertises(self) -> bool:
        """Return whether the operator's device plugin advertises the GPUs of the nodes."""
        enabled = self.device_plugin.enabled
        return self.mode != "gke" if enabled is None else enabled

    @cached_property
    def chart_values(self) -> dict[str, Any]:
        """The values of the chart, those that the user merges on top included."""
        return _chart_values(self)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from self._mode_errors()
        yield from self._value_errors()

    def _mode_errors(self) -> Iterator[tuple[str, str]]:
        if self.mode != "operator" and self.driver:
            reason = f"is the operator's, but the mode {self.mode} installs Google's; leave it out"
            yield "driver", reason
        if self.mode != "gke":
            return
        if self.device_plugin.enabled:
            reason = "GKE's device plugin advertises the GPUs; they would count twice"
            yield "device_plugin", f"in the mode gke, {reason}"
        reason = "GPUs, but GKE does that in the mode gke; set it on the node pool"
        if self.device_plugin.sharing:
            yield "device_plugin", f"it shares {reason}"
        if self.mig:
            yield "mig", f"it partitions {reason}"

    def _value_errors(self) -> Iterator[tuple[str, str]]:
        values = self.chart_values
        plugin = section(values, "devicePlugin")
        cdi = section(values, "cdi")
        if self.mode != "operator" and section(values, "driver").get("enabled"):
            reason = f"but in the mode {self.mode} nodes have Google's driver"
            yield "values", f"driver.enabled is true, {reason}"
        if self.mode == "gke" and not self.device_plugin.enabled and plugin.get("enabled"):
            reason = "but in the mode gke GKE advertises the GPUs; they would count twice"
            yield "values", f"devicePlugin.enabled is true, {reason}"
        has_policy = section(values, "clusterPolicy").get("deployCR") is not False
        if has_policy and section(values, "gpuCluster").get("deployCR"):
            yield "values", "gpuCluster.deployCR needs clusterPolicy.deployCR: false"
        if cdi.get("nriPluginEnabled"):
            if cdi.get("enabled") is False:
                yield "values", "cdi.nriPluginEnabled needs cdi.enabled"
            if not section(values, "toolkit").get("enabled", True):
                yield "values", "cdi.nriPluginEnabled needs toolkit.enabled"
        config = section(plugin, "config")
        for key in ("name", "data"):
            if config.get("create") and not config.get(key):
                yield "values", f"devicePlugin.config.create needs devicePlugin.config.{key}"

    @override
    def children(self) -> Iterator[ChildResource]:
        yield from agent_namespace(self.namespace, "gpu-operator-critical-pods", self.critical_pods)
        before = ["critical-pods"]
        if self.mode in ("cos", "ubuntu"):
            yield ChildResource("driver-installer", driver_installer_manifest(self.mode))
            before.append("driver-installer")
        values = self.chart_values
        yield helm_child("release", GPU_OPERATOR, self.namespace, values, before, timeout=900)


class GpuOperator(GpuOperatorComponent[GpuOperatorSpec]):
    """The GPU Operator in a separate namespace: driver, device plugin, exporter and labels.

    Its pods are critical. GKE allows them only under a quota for critical pods, which the component
    creates (NVIDIA/gpu-operator issue 660). In the modes cos and ubuntu, it also creates Google's
    driver installer.
    """

    namespace: KnownOutput[str]
    """The operator's namespace."""
    mode: KnownOutput[str]
    """Who installs the driver and advertises the GPUs."""
    version: KnownOutput[str]
    """The chart's version."""
    release = Child("release")
    """The Helm release."""

    @override
    def outputs(self, spec: GpuOperatorSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        return {"version": GPU_OPERATOR.version}


def _chart_values(spec: GpuOperatorSpec) -> dict[str, Any]:
    """Return values of the chart (NVIDIA/gpu-operator, values.yaml of the pinned version)."""
    tolerations = agent_tolerations(spec.tolerations)
    exporter = spec.dcgm_exporter
    mig = spec.mig or Mig()
    # From GKE 1.33 on, containerd does not report GKE's CNI plugins. Its file has them.
    env = _environment({CONFIG_SOURCE: "file", **_NO_WAY_AROUND})
    toolkit: dict[str, Any] = {"enabled": spec.toolkit, "env": env}
    mig_manager: dict[str, Any] = {"enabled": False}
    if spec.mode != "gke":
        config = without_none({"name": mig.config, "default": mig.default}) or None
        # GKE nodes change their partitions only by a reboot.
        reboot = _environment({"WITH_REBOOT": "true"})
        mig_manager = without_none({"enabled": True, "env": reboot, "config": config})
    values: dict[str, Any] = {
        "daemonsets": {"tolerations": tolerations},
        "driver": _driver_values(spec),
        "toolkit": toolkit,
        "devicePlugin": {"enabled": spec.advertises} | _sharing_values(spec.device_plugin),
        "dcgmExporter": {
            "enabled": exporter.enabled,
            "serviceMonitor": {"enabled": exporter.service_monitor, "interval": exporter.interval},
            "enablePodLabels": exporter.pod_labels,
        },
        "gfd": {"enabled": spec.feature_discovery},
        "nfd": {"enabled": spec.node_feature_discovery},
        "migManager": mig_manager,
        "mig": {"strategy": mig.strategy},
    }
    if spec.mode != "operator":
        toolkit["installDir"] = GOOGLE_DRIVER_DIR
        values["hostPaths"] = {"driverInstallDir": GOOGLE_DRIVER_DIR}
        values["cdi"] = {"enabled": True}
    if spec.tolerations:
        values["node-feature-discovery"] = {"worker": {"tolerations": tolerations}}
    if not spec.validate_with_workload:
        values["validator"] = {"plugin": {"env": _environment({"WITH_WORKLOAD": "false"})}}
    return merged(values, spec.values)


def _driver_values(spec: GpuOperatorSpec) -> dict[str, Any]:
    if spec.mode != "operator":
        return {"enabled": False}
    driver = spec.driver or Driver()
    at_once = driver.parallel_upgrades
    fields = {
        "enabled": True,
        "version": driver.version,
        "kernelModuleType": driver.kernel_modules,
        "usePrecompiled": driver.precompiled,
        "rdma": {"enabled": driver.rdma},
        "upgradePolicy": {"autoUpgrade": driver.auto_upgrade, "maxParallelUpgrades": at_once},
    }
    return without_none(fields)


def _sharing_values(plugin: DevicePlugin) -> dict[str, Any]:
    """Return the ConfigMap with a file for each way to share GPUs (NVIDIA/k8s-device-plugin)."""
    data: dict[str, str] = {}
    for name, way in plugin.sharing.items():
        resource = {"name": labels.GPU_RESOURCE, "replicas": way.replicas}
        part = "timeSlicing" if way.strategy == "time-slicing" else "mps"
        configuration = {"version": "v1", "sharing": {part: {"resources": [resource]}}}
        data[name] = yaml.safe_dump(configuration, sort_keys=False)
    config = {"create": True, "name": "device-plugin-config", "default": plugin.default_sharing}
    return {"config": without_none(config) | {"data": data}} if data else {}


def _environment(variables: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]
