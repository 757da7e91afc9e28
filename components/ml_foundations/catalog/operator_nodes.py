"""Effects of the NVIDIA GPU Operator on GPU nodes, by its Helm values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ml_foundations.catalog.gke_kinds import may_be_before
from ml_foundations.catalog.tables import table
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, mappings, section, text_of
from ml_foundations.kubernetes.reading import ReadError, embedded_yaml
from ml_foundations.kubernetes.trees import is_mapping

DRIVER = ("595", "91", "07")
CUDA = ("13", "2")
"""Driver of GPU Operator v26.7.0 and the CUDA version that it supports."""

DRIVER_INSTALLER = "nvidia-driver-installer-"
"""How the DaemonSets are named that install Google's driver; the rest is the node image."""

_TOLERATIONS = ({"key": labels.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},)
"""The chart's default of daemonsets.tolerations."""


CONFIG_SOURCE = "RUNTIME_CONFIG_SOURCE"
"""The variable of the container toolkit that names where it reads containerd's configuration.

Its plural comes first, if both are set. The default is "command,file": containerd's own account
first (NVIDIA/nvidia-container-toolkit v1.20.0,
cmd/nvidia-ctk-installer/container/runtime/runtime.go).
"""
CONTAINERD_2_SINCE = "1.33"
"""The version of GKE from which that account misses GKE's CNI plugins
(NVIDIA/gpu-operator#1577)."""


@dataclass(frozen=True)
class DriverLimits:
    """The driver versions that the GPUs of an architecture need."""

    architecture: str
    first_branch: int | None
    last_branch: int | None
    kernel_modules: str


_DRIVER_LIMITS = table("driver_limits.csv", DriverLimits)


@dataclass(frozen=True)
class Sharing:
    """Sharing of a node's GPUs: the number of pods for each, and the strategy."""

    replicas: int = 1
    strategy: str = "none"


_OPERANDS = ("driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager")
"""The values of parts that are on, each a critical pod on a GPU node; so is the validator's."""
_OPTIONAL_OPERANDS = ("dcgm", "nodeStatusExporter")
"""Those of parts that are off by default (NVIDIA/gpu-operator v26.7.0,
deployments/gpu-operator/values.yaml)."""

CRITICAL_CLASSES = ("system-node-critical", "system-cluster-critical")
"""The priority classes whose pods GKE admits outside of kube-system under a quota for them only."""
CRITICAL_PODS_PER_GPU_NODE = len(_OPERANDS) + 3
"""The most: with the validator's pod, its test pod, and the one that shares GPUs by MPS."""
CRITICAL_PODS_BESIDE = 3
"""Those of no node: the operator's own, and two of Node Feature Discovery."""


@dataclass(frozen=True)
class Operator:
    """The parts of the operator that show on a node."""

    drivers: frozenset[str] = frozenset({"ubuntu"})
    """Node images whose nodes get a driver: the operator's own is for Ubuntu, other images
    have Google's installer."""
    driver_branch: int | None = int(DRIVER[0])
    """The branch of the driver that the operator installs; None if it installs none, or the version
    is unusual."""
    kernel_modules: str = "auto"
    """auto, open or proprietary."""
    breaks_networking: bool = False
    """Whether its container toolkit writes a configuration without GKE's CNI plugins: no pod starts
    on its nodes."""
    device_plugin: bool = True
    feature_discovery: bool = True
    tolerations: tuple[Mapping[str, Any], ...] = _TOLERATIONS
    sharing: Mapping[str, Sharing] = field(default_factory=dict[str, Sharing])
    """The device plugin's configurations, by name; that of nodes which choose none has the name ""
    too."""
    critical_pods: int = len(_OPERANDS) + 1
    """How many critical pods it runs on a GPU node."""
    exports_metrics: bool = True
    """Whether it runs DCGM's exporter."""
    critical_pods_elsewhere: int = 1
    """How many on any node: Node Feature Discovery's worker."""

    @classmethod
    def of(cls, values: Mapping[str, Any], version: object = None) -> Operator:
        """Return the operator as the values of its Helm release in a version set it.

        Raises:
            ReadError: A configuration in the values cannot be read; the message names its field.
        """
        # The driver of another version of the chart than ours is not known.
        is_ours = version is None or str(version).lstrip("v") == GPU_OPERATOR.version.lstrip("v")
        sharing = _sharing(section(values, "devicePlugin", "config"))
        parts = [_enabled(values, part) for part in _OPERANDS]
        parts += [section(values, part).get("enabled") is True for part in _OPTIONAL_OPERANDS]
        parts.append(any(config.strategy == "mps" for config in sharing.values()))
        daemon_sets = section(values, "daemonsets")
        priority = daemon_sets.get("priorityClassName", CRITICAL_CLASSES[0])
        return cls(
            drivers=frozenset({"ubuntu"} if _enabled(values, "driver") else ()),
            driver_branch=_driver_branch(section(values, "driver"), DRIVER[0] if is_ours else ""),
            kernel_modules=str(section(values, "driver").get("kernelModuleType") or "auto"),
            breaks_networking=_asks_containerd(values),
            device_plugin=_enabled(values, "devicePlugin"),
            feature_discovery=_enabled(values, "gfd"),
            tolerations=tuple(
                mappings({"tolerations": _TOLERATIONS, **daemon_sets}, "tolerations")
            ),
            sharing=sharing,
            exports_metrics=_enabled(values, "dcgmExporter"),
            critical_pods=1 + sum(parts) if priority in CRITICAL_CLASSES else 0,
            critical_pods_elsewhere=int(_enabled(values, "nfd")),
        )

    def with_daemon_sets(self, daemon_sets: Iterable[Mapping[str, Any]]) -> Operator:
        """Return the operator next to these DaemonSets. Some of them install a driver."""
        names = [str(item["metadata"]["name"]) for item in daemon_sets]
        installers = [name for name in names if name.startswith(DRIVER_INSTALLER)]
        installed = {name.removeprefix(DRIVER_INSTALLER) for name in installers}
        return replace(self, drivers=self.drivers | installed)

    def on(self, clusters: Sequence[Mapping[str, Any]]) -> Operator:
        """Return the operator in one of these clusters; networking breaks if each has containerd 2.

        The clusters have the properties of the gcp provider. What is not certain breaks nothing.
        """
        may_be_older = any(may_be_before(cluster, CONTAINERD_2_SINCE) for cluster in clusters)
        return replace(self, breaks_networking=False) if may_be_older or not clusters else self

    def sharing_of(self, node_labels: Mapping[str, str]) -> Sharing:
        """Return how the GPUs of a node with these labels are shared."""
        return self.sharing.get(text_of(node_labels, labels.DEVICE_PLUGIN_CONFIG), Sharing())

    def driver_fault(self, architecture: str | None) -> str:
        """Return why the operator's driver cannot drive GPUs of an architecture, or nothing."""
        limits = _DRIVER_LIMITS.get(str(architecture))
        if limits is None or self.driver_branch is None:
            return ""
        unsupported = f"branch {self.driver_branch} of the driver does not support them"
        if limits.last_branch and self.driver_branch > limits.last_branch:
            return f"{unsupported}; the last that does is {limits.last_branch}"
        if limits.first_branch and self.driver_branch < limits.first_branch:
            return f"{unsupported}; the first that does is {limits.first_branch}"
        if self.kernel_modules not in ("auto", limits.kernel_modules):
            modules = self.kernel_modules
            return f"the {modules} kernel modules do not support them; use {limits.kernel_modules}"
        return ""

    def advertised(self, gpus: int, image: str, node_labels: Mapping[str, str]) -> int:
        """Return the nvidia.com/gpu that the operator's device plugin gives a node."""
        declined = node_labels.get(labels.GPU_DEPLOY_DEVICE_PLUGIN) == "false"
        if declined or not self.device_plugin or image not in self.drivers:
            return 0
        return gpus * self.sharing_of(node_labels).replicas


def _enabled(values: Mapping[str, Any], component: str) -> bool:
    return section(values, component).get("enabled", True) is not False


def _driver_branch(driver: Mapping[str, Any], default: str) -> int | None:
    # With its CRD, each NVIDIADriver names a version of its own.
    is_named_here = not section(driver, "nvidiaDriverCRD").get("enabled")
    branch = str(driver.get("version") or default).partition(".")[0]
    is_installed = driver.get("enabled", True) is not False
    return int(branch) if branch.isdecimal() and is_named_here and is_installed else None


def _asks_containerd(values: Mapping[str, Any]) -> bool:
    """Return whether the toolkit asks containerd for the configuration that it changes."""
    cdi = section(values, "cdi")
    # With NRI it changes none (NVIDIA, "About the Node Resource Interface (NRI) Plugin").
    by_nri = cdi.get("nriPluginEnabled") is True and cdi.get("enabled") is not False
    variables = items(section(values, "toolkit"), "env")
    # A value from a ConfigMap or a Secret is taken to name the file.
    env = {str(variable.get("name")): variable.get("value", "file") for variable in variables}
    sources = env.get(f"{CONFIG_SOURCE}S") or env.get(CONFIG_SOURCE) or "command,file"
    first = str(sources).partition(",")[0].partition("=")[0].strip()
    return _enabled(values, "toolkit") and not by_nri and first != "file"


def _sharing(config: Mapping[str, Any]) -> dict[str, Sharing]:
    """Return the device plugin's configurations in the chart's values.

    Raises:
        ReadError: A configuration cannot be read; the message names its field.
    """
    configs: dict[str, Sharing] = {}
    for name, text in section(config, "data").items():
        try:
            configs[name] = _sharing_in(embedded_yaml(text))
        except ReadError as error:
            field = f"devicePlugin.config.data.{name}"
            raise ReadError(f"it cannot be read: {error}", field) from None
    return configs | {"": configs.get(str(config.get("default") or ""), Sharing())}


def _sharing_in(configuration: Any) -> Sharing:
    if not is_mapping(configuration):
        raise ReadError("it must be a mapping")
    for part, strategy in (("timeSlicing", "time-slicing"), ("mps", "mps")):
        resources = items(section(configuration, "sharing", part), "resources")
        for resource in resources:
            if resource.get("name") == labels.GPU_RESOURCE:
                if not isinstance(replicas := resource.get("replicas", 1), int):
                    raise ReadError(f"sharing.{part}: replicas must be a whole number")
                return Sharing(replicas, strategy)
    return Sharing()
