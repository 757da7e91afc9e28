"""The NVIDIA GPU Operator, by its Helm chart."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict, cast

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.tolerations import Toleration, TolerationArgs, toleration_manifest
from ml_foundations.component.types import Name
from ml_foundations.gpu.critical_pods import critical_pods_quota
from ml_foundations.gpu.device_plugin import Sharing, SharingArgs, device_plugin_config
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR, NodeImage, driver_installer_manifest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import merged, without_none

Mode = Literal["operator", "cos", "ubuntu", "gke"]
"""Who gives the nodes their driver, and who advertises their GPUs:

- ``operator``: the operator does both; Ubuntu nodes.
- ``cos``, ``ubuntu``: Google's installer gives the driver that is built into the node image, the operator advertises.
- ``gke``: GKE does both; the operator adds metrics and feature discovery.
"""


class DriverArgs(TypedDict):
    """The driver that the operator installs."""

    version: NotRequired[str]
    """The driver's version; by default the chart's."""
    kernel_modules: NotRequired[str]
    """auto, open or proprietary; default auto."""
    precompiled: NotRequired[bool]
    """Whether packages that were compiled ahead are used; default false."""
    rdma: NotRequired[bool]
    """Whether GPUDirect RDMA is set up; default false."""
    auto_upgrade: NotRequired[bool]
    """Whether a new version reaches the nodes by itself; default true."""
    parallel_upgrades: NotRequired[int]
    """How many nodes may be upgraded at once; default 1."""


class DevicePluginArgs(TypedDict):
    """The device plugin, which advertises the GPUs of a node."""

    enabled: NotRequired[bool]
    """Whether the operator's device plugin runs; default true, but not in the mode gke."""
    sharing: NotRequired[dict[str, SharingArgs]]
    """Ways to share a GPU, by name. A node chooses one with the label nvidia.com/device-plugin.config."""
    default_sharing: NotRequired[str]
    """The way of nodes that choose none; by default their GPUs are not shared."""


class DcgmExporterArgs(TypedDict):
    """The exporter of GPU metrics."""

    enabled: NotRequired[bool]
    """Whether it runs; default true."""
    service_monitor: NotRequired[bool]
    """Whether Prometheus is told to scrape it. Only where the CRDs of the Prometheus Operator are. Default false."""
    interval: NotRequired[str]
    """How often it is scraped; default 15s."""
    pod_labels: NotRequired[bool]
    """Whether metrics carry the labels of the pods that use the GPU; default false."""


class MigArgs(TypedDict):
    """Multi-Instance GPU, where the operator partitions."""

    strategy: NotRequired[str]
    """How partitions are advertised: none, single or mixed; default single."""
    config: NotRequired[str]
    """A ConfigMap with partitionings under the key config.yaml; by default those that NVIDIA names."""
    default: NotRequired[str]
    """The partitioning of nodes without the label nvidia.com/mig.config; default all-disabled."""


class GpuOperatorArgs(TypedDict):
    """Arguments of a GpuOperator."""

    mode: NotRequired[str]
    """Who installs the driver and advertises the GPUs. Default operator.

    operator: the operator does both, on Ubuntu nodes. cos or ubuntu: Google's installer, which comes with this
    component, installs the driver on nodes of that system, and the operator advertises. gke: GKE does both, and the
    operator adds metrics and feature discovery.
    """
    namespace: NotRequired[str]
    """The operator's namespace; default gpu-operator."""
    driver: NotRequired[DriverArgs]
    """The driver, in the mode operator."""
    toolkit: NotRequired[bool]
    """Whether the operator's container toolkit runs; default true."""
    device_plugin: NotRequired[DevicePluginArgs]
    """The device plugin. GPUs must be advertised once: in the mode gke, GKE's own device plugin does."""
    dcgm_exporter: NotRequired[DcgmExporterArgs]
    """The exporter of GPU metrics."""
    mig: NotRequired[MigArgs]
    """Multi-Instance GPU; in the mode gke, the node pool's own setting."""
    feature_discovery: NotRequired[bool]
    """Whether nodes are labelled with what their GPUs are (GPU Feature Discovery); default true."""
    node_feature_discovery: NotRequired[bool]
    """Whether Node Feature Discovery comes with the operator; default true. False where the cluster has it already."""
    validate_with_workload: NotRequired[bool]
    """Whether each node is validated by a pod that takes a GPU for a moment; default true."""
    tolerations: NotRequired[list[TolerationArgs]]
    """More taints of GPU nodes that the operator's pods put up with; the GPU taint is always among them."""
    critical_pods: NotRequired[int]
    """How many critical pods the namespace may run; several per GPU node. Default 100."""
    values: NotRequired[dict[str, Any]]
    """More values of the chart, merged on top."""


class Driver(Spec):
    """A checked DriverArgs."""

    version: str | None = None
    kernel_modules: Literal["auto", "open", "proprietary"] = "auto"
    precompiled: bool = False
    rdma: bool = False
    auto_upgrade: bool = True
    parallel_upgrades: int = Field(default=1, ge=0)


class DevicePlugin(Spec):
    """A checked DevicePluginArgs."""

    enabled: bool | None = None
    sharing: dict[Name, Sharing] = {}
    default_sharing: str | None = None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.default_sharing is not None and self.default_sharing not in self.sharing:
            known = ", ".join(self.sharing) or "none"
            yield "default_sharing", f'is "{self.default_sharing}", which is not in sharing ({known})'
        if self.enabled is False and self.sharing:
            yield "sharing", "is the device plugin's work, and enabled is false"


class DcgmExporter(Spec):
    """A checked DcgmExporterArgs."""

    enabled: bool = True
    service_monitor: bool = False
    interval: str = Field(default="15s", pattern=r"^\d+(ms|s|m)$")
    pod_labels: bool = False

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.service_monitor and not self.enabled:
            yield "service_monitor", "is for the exporter, and enabled is false"


class Mig(Spec):
    """A checked MigArgs."""

    strategy: Literal["none", "single", "mixed"] = "single"
    config: Name | None = None
    default: str | None = None


class GpuOperatorSettings(Spec):
    """What a stack file says about the GPU Operator."""

    mode: Mode = "operator"
    namespace: Name = "gpu-operator"
    driver: Driver | None = None
    toolkit: bool = True
    device_plugin: DevicePlugin = DevicePlugin()
    dcgm_exporter: DcgmExporter = DcgmExporter()
    mig: Mig | None = None
    feature_discovery: bool = True
    node_feature_discovery: bool = True
    validate_with_workload: bool = True
    tolerations: list[Toleration] = []
    critical_pods: int = Field(default=100, ge=1)
    values: dict[str, Any] = {}

    @property
    def advertises(self) -> bool:
        """Whether the operator's device plugin advertises the GPUs of the nodes."""
        enabled = self.device_plugin.enabled
        return self.mode != "gke" if enabled is None else enabled

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.mode != "operator" and self.driver is not None:
            yield "driver", f"is the operator's driver, but in the mode {self.mode} Google's is installed; leave it out"
        if self.mode == "gke":
            yield from self._beside_gke()
        yield from chart_errors(self)

    def _beside_gke(self) -> Iterator[tuple[str, str]]:
        pool = "that is GKE's work in the mode gke: set it on the node pool"
        if self.device_plugin.enabled:
            yield "device_plugin", "GKE's own device plugin advertises the GPUs in the mode gke; they would count twice"
        if self.device_plugin.sharing:
            yield "device_plugin", f"it shares GPUs, but {pool}"
        if self.mig is not None:
            yield "mig", f"it partitions GPUs, but {pool}"


class GpuOperator(pulumi.ComponentResource):
    """The GPU Operator in a namespace of its own: driver, toolkit, device plugin, DCGM exporter, feature discovery.

    Give it a kubernetes provider in its options. Its pods are critical, which GKE allows only under a quota for
    critical pods: it comes with one (NVIDIA/gpu-operator issue 660). Where Google's installer has to install the
    driver, that comes too.
    """

    namespace: str
    """The operator's namespace."""
    mode: str
    """Who installs the driver and advertises the GPUs."""
    version: str
    """The chart's version."""

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the operator."""
        spec = check(GpuOperatorSettings, f"GpuOperator {name}", args)
        super().__init__("ml-foundations:index:GpuOperator", name, {}, opts)
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace", **arguments(namespace_manifest(spec)), opts=child_options(self)
        )
        quota = k8s.core.v1.ResourceQuota(
            f"{name}-critical-pods", **arguments(quota_manifest(spec)), opts=child_options(self, depends_on=[namespace])
        )
        before: list[pulumi.Resource] = [quota]
        for image in driver_installers(spec.mode):
            manifest = driver_installer_manifest(image)
            before.append(
                k8s.apps.v1.DaemonSet(f"{name}-driver-installer", **arguments(manifest), opts=child_options(self))
            )
        k8s.helm.v3.Release(
            f"{name}-release",
            name=GPU_OPERATOR.name,
            chart=GPU_OPERATOR.name,
            version=GPU_OPERATOR.version,
            repository_opts={"repo": GPU_OPERATOR.repo},
            namespace=spec.namespace,
            values=chart_values(spec),
            timeout=900,
            opts=child_options(self, depends_on=before),
        )
        self.namespace = spec.namespace
        self.mode = spec.mode
        self.version = GPU_OPERATOR.version
        self.register_outputs({"namespace": self.namespace, "mode": self.mode, "version": self.version})


def driver_installers(mode: Mode) -> list[NodeImage]:
    """The node images whose nodes get their driver from a DaemonSet of ours."""
    return [image for image in ("cos", "ubuntu") if image == mode]


def namespace_manifest(spec: GpuOperatorSettings) -> dict[str, Any]:
    """The driver and the device plugin need privileges, so the namespace allows them."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": spec.namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }


def quota_manifest(spec: GpuOperatorSettings) -> dict[str, Any]:
    """The quota without which GKE admits no critical pods outside of kube-system."""
    return critical_pods_quota("gpu-operator-critical-pods", spec.namespace, spec.critical_pods)


def chart_values(spec: GpuOperatorSettings) -> dict[str, Any]:
    """Values of the chart (NVIDIA/gpu-operator, deployments/gpu-operator/values.yaml of the pinned version)."""
    tolerations = [{"key": labels.GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}]
    tolerations += [toleration_manifest(toleration) for toleration in spec.tolerations]
    values: dict[str, Any] = {
        "daemonsets": {"tolerations": tolerations},
        "driver": _driver_values(spec),
        "toolkit": _toolkit_values(spec),
        "devicePlugin": {"enabled": spec.advertises}
        | device_plugin_config(spec.device_plugin.sharing, spec.device_plugin.default_sharing),
        "dcgmExporter": _dcgm_values(spec.dcgm_exporter),
        "gfd": {"enabled": spec.feature_discovery},
        "nfd": {"enabled": spec.node_feature_discovery},
        "migManager": {"enabled": False} if spec.mode == "gke" else _mig_manager_values(spec.mig or Mig()),
        "mig": {"strategy": (spec.mig or Mig()).strategy},
    }
    if spec.mode != "operator":
        values["hostPaths"] = {"driverInstallDir": GOOGLE_DRIVER_DIR}
        values["cdi"] = {"enabled": True}
    if spec.tolerations:
        values["node-feature-discovery"] = {"worker": {"tolerations": tolerations}}
    if not spec.validate_with_workload:
        values["validator"] = {"plugin": {"env": _environment({"WITH_WORKLOAD": "false"})}}
    return merged(values, spec.values)


def _driver_values(spec: GpuOperatorSettings) -> dict[str, Any]:
    if spec.mode != "operator":
        return {"enabled": False}
    driver = spec.driver or Driver()
    return without_none(
        {
            "enabled": True,
            "version": driver.version,
            "kernelModuleType": driver.kernel_modules,
            "usePrecompiled": driver.precompiled,
            "rdma": {"enabled": driver.rdma},
            "upgradePolicy": {"autoUpgrade": driver.auto_upgrade, "maxParallelUpgrades": driver.parallel_upgrades},
        }
    )


def _toolkit_values(spec: GpuOperatorSettings) -> dict[str, Any]:
    if spec.mode == "operator":
        return {"enabled": spec.toolkit}
    # From GKE 1.33 on, containerd's own account of its configuration misses what GKE adds: the file has it all.
    return {
        "enabled": spec.toolkit,
        "installDir": GOOGLE_DRIVER_DIR,
        "env": _environment({"RUNTIME_CONFIG_SOURCE": "file"}),
    }


def _dcgm_values(exporter: DcgmExporter) -> dict[str, Any]:
    monitor: dict[str, Any] = {"enabled": exporter.service_monitor, "interval": exporter.interval}
    return {"enabled": exporter.enabled, "serviceMonitor": monitor, "enablePodLabels": exporter.pod_labels}


def _mig_manager_values(mig: Mig) -> dict[str, Any]:
    """GKE's nodes change their partitioning with a reboot only (NVIDIA, "GPU Operator with Google GKE")."""
    config = without_none({"name": mig.config, "default": mig.default})
    return {"enabled": True, "env": _environment({"WITH_REBOOT": "true"})} | ({"config": config} if config else {})


def _environment(variables: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def chart_errors(spec: GpuOperatorSettings) -> Iterator[tuple[str, str]]:
    """What the chart itself refuses, or what breaks nodes, in the values that the user merges on top."""
    values = chart_values(spec)
    if _at(values, "driver", "enabled") and spec.mode != "operator":
        yield "values", f"driver.enabled is true, but in the mode {spec.mode} nodes have Google's driver"
    if _at(values, "devicePlugin", "enabled") and spec.mode == "gke" and not spec.device_plugin.enabled:
        yield (
            "values",
            "devicePlugin.enabled is true, but in the mode gke GKE advertises the GPUs; they would count twice",
        )
    if _at(values, "clusterPolicy", "deployCR") is not False and _at(values, "gpuCluster", "deployCR"):
        yield "values", "gpuCluster.deployCR goes with clusterPolicy.deployCR: false only"
    if _at(values, "cdi", "nriPluginEnabled"):
        if _at(values, "cdi", "enabled") is False:
            yield "values", "cdi.nriPluginEnabled needs cdi.enabled"
        if not _at(values, "toolkit", "enabled"):
            yield "values", "cdi.nriPluginEnabled needs toolkit.enabled"
    if _at(values, "devicePlugin", "config", "create"):
        missing = [key for key in ("name", "data") if not _at(values, "devicePlugin", "config", key)]
        yield from (("values", f"devicePlugin.config.create needs devicePlugin.config.{key}") for key in missing)


def _at(values: Any, *path: str) -> Any:
    """The value at a path, or None where there is none."""
    for key in path:
        values = cast("dict[str, Any]", values).get(key) if isinstance(values, dict) else None
    return values
