"""The NVIDIA GPU Operator, by its Helm chart."""

from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field

from ml_foundations import labels
from ml_foundations._manifest import arguments, child_options, merged
from ml_foundations._spec import Name, Spec, check, quantity
from ml_foundations._versions import GPU_OPERATOR

CRITICAL = ("system-node-critical", "system-cluster-critical")
GOOGLE_DRIVER_DIR = "/home/kubernetes/bin/nvidia"
"""Where Google's driver installer puts the driver (NVIDIA, "GPU Operator with Google GKE")."""


class GpuOperatorArgs(TypedDict):
    """Arguments of a GpuOperator."""

    driver: NotRequired[str]
    """Who installs the driver: operator (on Ubuntu) or google (its installer, COS or Ubuntu). Default operator."""
    namespace: NotRequired[str]
    """The operator's namespace; default gpu-operator."""
    driver_version: NotRequired[str]
    """The driver's version; by default the chart's."""
    toolkit: NotRequired[bool]
    """Whether the container toolkit is installed; default true."""
    device_plugin: NotRequired[bool]
    """Whether the operator's device plugin advertises the GPUs; default true, but not beside Google's driver.

    GPUs must be advertised once: GKE's own device plugin runs on all nodes of pools that GKE gives the driver.
    """
    dcgm_exporter: NotRequired[bool]
    """Whether GPU metrics are exported; default true."""
    service_monitor: NotRequired[bool]
    """Whether Prometheus is told to scrape them; needs its CRDs. Default false."""
    gpu_feature_discovery: NotRequired[bool]
    """Whether nodes are labelled with what their GPUs are; default true."""
    critical_pods: NotRequired[int]
    """How many critical pods the namespace may run; several per GPU node. Default 100."""
    values: NotRequired[dict[str, Any]]
    """More values of the chart, merged on top."""


class GpuOperatorSettings(Spec):
    """What a stack file says about the GPU Operator."""

    driver: Literal["operator", "google"] = "operator"
    namespace: Name = "gpu-operator"
    driver_version: str | None = None
    toolkit: bool = True
    device_plugin: bool | None = None
    dcgm_exporter: bool = True
    service_monitor: bool = False
    gpu_feature_discovery: bool = True
    critical_pods: int = Field(100, ge=1)
    values: dict[str, Any] = {}


class GpuOperator(pulumi.ComponentResource):
    """The GPU Operator in a namespace of its own: driver, toolkit, device plugin, DCGM exporter, feature discovery.

    Give it a kubernetes provider in its options. Its pods are critical, which GKE allows only under a quota for
    critical pods: it comes with one (NVIDIA/gpu-operator issue 660).
    """

    namespace: str
    """The operator's namespace."""
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
        k8s.helm.v3.Release(
            f"{name}-release",
            name=GPU_OPERATOR.name,
            chart=GPU_OPERATOR.name,
            version=GPU_OPERATOR.version,
            repository_opts={"repo": GPU_OPERATOR.repo},
            namespace=spec.namespace,
            values=chart_values(spec),
            timeout=900,
            opts=child_options(self, depends_on=[quota]),
        )
        self.namespace = spec.namespace
        self.version = GPU_OPERATOR.version
        self.register_outputs({"namespace": self.namespace, "version": self.version})


def namespace_manifest(spec: GpuOperatorSettings) -> dict[str, Any]:
    """The driver and the device plugin need privileges, so the namespace allows them."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": spec.namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }


def quota_manifest(spec: GpuOperatorSettings) -> dict[str, Any]:
    """The quota without which GKE admits no critical pods outside of kube-system."""
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": list(CRITICAL)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu-operator-critical-pods", "namespace": spec.namespace},
        "spec": {"hard": {"pods": quantity(spec.critical_pods)}, "scopeSelector": {"matchExpressions": [scope]}},
    }


def chart_values(spec: GpuOperatorSettings) -> dict[str, Any]:
    """Values of the chart (NVIDIA/gpu-operator, deployments/gpu-operator/values.yaml of the pinned version)."""
    operator = spec.driver == "operator"
    values: dict[str, Any] = {
        "daemonsets": {"tolerations": [{"key": labels.GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}]},
        "driver": {"enabled": operator},
        "toolkit": {"enabled": spec.toolkit},
        "devicePlugin": {"enabled": operator if spec.device_plugin is None else spec.device_plugin},
        "dcgmExporter": {"enabled": spec.dcgm_exporter, "serviceMonitor": {"enabled": spec.service_monitor}},
        "gfd": {"enabled": spec.gpu_feature_discovery},
        "nfd": {"enabled": True},
    }
    if spec.driver_version is not None:
        values["driver"]["version"] = spec.driver_version
    if not operator:
        values["hostPaths"] = {"driverInstallDir": GOOGLE_DRIVER_DIR}
        values["toolkit"]["installDir"] = GOOGLE_DRIVER_DIR
        values["toolkit"]["env"] = [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]
        values["cdi"] = {"enabled": True}
    return merged(values, spec.values)
