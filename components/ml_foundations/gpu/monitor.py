"""An agent on every GPU node, and on no other: NVIDIA's DCGM exporter, a log collector, or any other."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.versions import DCGM_EXPORTER_IMAGE
from ml_foundations.component.parts import NOT_AWAITED
from ml_foundations.component.resources import arguments, child_options, unknown_kinds
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.types import GpuProduct, Name, Quantity
from ml_foundations.gpu.critical_pods import critical_pods_quota
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import overridden, strategic_merge, without_none
from ml_foundations.kubernetes.monitoring import MonitoringSystem, monitor_kinds, monitor_manifest

CONTAINER = "main"
PORT = "metrics"
DRIVER_VOLUME = "nvidia-driver"
FILES_VOLUME = "files"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
"""Where the kubelet says which pod has which GPU: DCGM's metrics name the pod by it."""
FILES_ANNOTATION = "ml-foundations/files"


class HostPathArgs(TypedDict):
    """A folder of the node."""

    path: str
    """Its path on the node, and in the container too."""
    read_only: NotRequired[bool]
    """Whether it is only read; default true."""


class HostPath(Spec):
    """A checked HostPathArgs."""

    path: str = Field(pattern="^/")
    read_only: bool = True


class GpuMonitorArgs(TypedDict):
    """Arguments of a GpuMonitor."""

    monitor_name: NotRequired[str]
    """The DaemonSet's name; default is the component's."""
    namespace: NotRequired[str]
    """Its namespace; default is the name. An agent looks into nodes, which a team's namespace does not allow."""
    create_namespace: NotRequired[bool]
    """Whether the namespace is made, with a quota for critical pods; default true."""
    image: NotRequired[str]
    """The container image; default is NVIDIA's DCGM exporter."""
    container_name: NotRequired[str]
    """The name of its container; default main."""
    command: NotRequired[list[str]]
    """The command; by default the image's."""
    arguments: NotRequired[list[str]]
    """Arguments of the command."""
    env: NotRequired[dict[str, str]]
    """Environment variables. NODE_NAME is there; what the DCGM exporter needs is, where it is the image."""
    cpu: NotRequired[str]
    """CPU that each pod requests; default 100m."""
    memory: NotRequired[str]
    """Memory that each pod requests and may use; default 1Gi, which the DCGM exporter needs where there are 8 GPUs."""
    gpu: NotRequired[str]
    """Only nodes with this GPU model, by any of its names; default is every GPU node."""
    driver: NotRequired[str]
    """Whose driver gives the agent access to the GPUs: google, operator, or none for no access; default google."""
    port: NotRequired[int]
    """The port of its metrics; 0 for none. Default 9400."""
    host_paths: NotRequired[list[HostPathArgs]]
    """Folders of the node; default is where the kubelet says which pod has which GPU."""
    files: NotRequired[dict[str, str]]
    """Files of configuration: name and text. Pods are replaced when they change."""
    files_path: NotRequired[str]
    """The folder of these files in the container; default /etc/monitor."""
    critical: NotRequired[bool]
    """Whether its pods come before all others on a node; default true."""
    critical_pods: NotRequired[int]
    """How many such pods the namespace may run: one for each GPU node. Default 1000."""
    max_unavailable: NotRequired[str]
    """Nodes, as a number or a percentage, on which a rollout may replace the pod at once; default 10%."""
    monitoring: NotRequired[str]
    """Who scrapes metrics: google (by PodMonitoring), prometheus (by ServiceMonitor) or none; default none."""
    pod_overrides: NotRequired[dict[str, Any]]
    """Fields of the PodSpec, as Kubernetes writes them, merged over the component's as kubectl patch does: maps join,
    containers, volumes and the like join by name, other lists are replaced, and null takes a field away."""
    overrides: NotRequired[dict[str, dict[str, Any]]]
    """Fields of the objects that it makes, by kind, such as {"Service": {"metadata": {"labels": {…}}}}, merged over the
    component's: maps join, lists are replaced, and null takes a field away. For the pod, see pod_overrides."""


class GpuMonitorSettings(Spec):
    """What a stack file says about a GpuMonitor."""

    namespace: Name | None = None
    create_namespace: bool = True
    image: str = Field(DCGM_EXPORTER_IMAGE, min_length=1)
    container_name: Name = CONTAINER
    command: list[str] | None = None
    arguments: list[str] | None = None
    env: dict[str, str] = {}
    cpu: Quantity = "100m"
    memory: Quantity = "1Gi"
    gpu: GpuProduct | None = None
    driver: Literal["google", "operator", "none"] = "google"
    port: int = Field(9400, ge=0, le=65535)
    host_paths: list[HostPath] = [HostPath(path=POD_RESOURCES)]
    files: dict[str, str] = {}
    files_path: str = Field("/etc/monitor", pattern="^/")
    critical: bool = True
    critical_pods: int = Field(1000, ge=1)
    max_unavailable: str = Field("10%", pattern=r"^[1-9][0-9]*%?$")
    monitoring: MonitoringSystem = "none"
    pod_overrides: dict[str, Any] = {}
    overrides: dict[str, dict[str, Any]] = {}

    @property
    def is_dcgm_exporter(self) -> bool:
        """Whether the agent is NVIDIA's DCGM exporter."""
        return self.image.partition("@")[0].rpartition("/")[2].partition(":")[0] == "dcgm-exporter"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the objects that the component makes."""
        namespace = ("Namespace", "ResourceQuota") if self.create_namespace else ()
        files = ("ConfigMap",) if self.files else ()
        service = ("Service",) if self.port else ()
        return (*namespace, *files, "DaemonSet", *service, *monitor_kinds(self.monitoring))

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.monitoring != "none" and not self.port:
            yield "monitoring", f"is {self.monitoring}, but port is 0: there are no metrics"
        paths = [host.path for host in self.host_paths]
        for index, path in enumerate(paths):
            if path in paths[:index] or (path == self.files_path and self.files):
                yield f"host_paths[{index}].path", f"{path} is taken; choose another"
        yield from unknown_kinds(self.overrides, self.kinds)


class _GpuMonitorSpec(GpuMonitorSettings):
    monitor_name: Name

    @property
    def in_namespace(self) -> str:
        return self.namespace or self.monitor_name


class GpuMonitor(pulumi.ComponentResource):
    """A DaemonSet whose pods run on every GPU node, whatever its taints, and on no other node.

    Give it a kubernetes provider in its options. By default it is NVIDIA's DCGM exporter, for clusters in which the
    GPU Operator does not run it.
    """

    monitor_name: str
    """The DaemonSet's name."""
    namespace: str
    """Its namespace."""

    def __init__(self, name: str, args: GpuMonitorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the DaemonSet and what goes with it."""
        spec = check(_GpuMonitorSpec, f"GpuMonitor {name}", {"monitor_name": name, **args})
        super().__init__("ml-foundations:index:GpuMonitor", name, {}, opts)
        inside = child_options(self, depends_on=self._namespace(name, spec))
        if spec.files:
            files = k8s.core.v1.ConfigMap(f"{name}-files", **arguments(files_manifest(spec)), opts=inside)
            inside = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[files]))
        k8s.apps.v1.DaemonSet(f"{name}-daemon-set", **arguments(daemon_set_manifest(spec)), opts=inside)
        if spec.port:
            k8s.core.v1.Service(f"{name}-service", **arguments(service_manifest(spec)), opts=inside)
        if spec.monitoring != "none":
            manifest = scraping_manifest(spec)
            k8s.apiextensions.CustomResource(
                f"{name}-monitoring",
                api_version=manifest["apiVersion"],
                kind=manifest["kind"],
                **arguments(manifest),
                opts=inside,
            )
        self.monitor_name = spec.monitor_name
        self.namespace = spec.in_namespace
        self.register_outputs({"monitor_name": self.monitor_name, "namespace": self.namespace})

    def _namespace(self, name: str, spec: _GpuMonitorSpec) -> list[pulumi.Resource]:
        """What must be there before the pods: GKE admits critical pods only under a quota for them."""
        if not spec.create_namespace:
            return []
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace", **arguments(namespace_manifest(spec)), opts=child_options(self)
        )
        if not spec.critical:
            return [namespace]
        quota = k8s.core.v1.ResourceQuota(
            f"{name}-critical-pods", **arguments(quota_manifest(spec)), opts=child_options(self, depends_on=[namespace])
        )
        return [quota]


def namespace_manifest(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """Folders of the node need privileges, so the namespace allows them."""
    security = {"pod-security.kubernetes.io/enforce": "privileged"}
    return overridden(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.in_namespace, "labels": security}},
        spec.overrides,
    )


def quota_manifest(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """The quota without which GKE admits no critical pods outside of kube-system."""
    name = f"{spec.monitor_name}-critical-pods"
    return overridden(critical_pods_quota(name, spec.in_namespace, spec.critical_pods), spec.overrides)


def files_manifest(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """The ConfigMap with the agent's files."""
    return overridden(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(spec), "data": spec.files}, spec.overrides
    )


def daemon_set_manifest(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """The DaemonSet. No version is in its selector, which could never change."""
    pod = without_none(
        {
            "priorityClassName": "system-node-critical" if spec.critical else None,
            "runtimeClassName": "nvidia" if spec.driver == "operator" else None,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "affinity": _affinity(spec),
            # Every GPU node: whatever taints a pool has beside the GPU taint, and while a node is not ready.
            "tolerations": [{"operator": "Exists"}],
            "containers": [_container(spec)],
            "volumes": _volumes(spec) or None,
        }
    )
    digest = hashlib.sha256(json.dumps(spec.files, sort_keys=True).encode()).hexdigest()[:16]
    metadata = {"labels": _labels(spec)} | ({"annotations": {FILES_ANNOTATION: digest}} if spec.files else {})
    return overridden(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": _metadata(spec),
            "spec": {
                "selector": {"matchLabels": _labels(spec)},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": _at_once(spec)},
                "template": {"metadata": metadata, "spec": strategic_merge(pod, spec.pod_overrides)},
            },
        },
        spec.overrides,
    )


def service_manifest(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """The Service of the metrics; where there is no GPU node yet, nobody answers, and Pulumi does not wait for it."""
    return overridden(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(spec) | {"annotations": NOT_AWAITED},
            "spec": {
                "selector": _labels(spec),
                "ports": [{"name": PORT, "port": spec.port, "targetPort": PORT, "protocol": "TCP"}],
            },
        },
        spec.overrides,
    )


def scraping_manifest(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """What tells the monitoring system where the metrics are."""
    manifest = monitor_manifest(spec.monitoring, _metadata(spec), _labels(spec), PORT, "/metrics")
    return overridden(manifest, spec.overrides)


def _labels(spec: _GpuMonitorSpec) -> dict[str, str]:
    return {"app.kubernetes.io/name": spec.monitor_name}


def _metadata(spec: _GpuMonitorSpec) -> dict[str, Any]:
    return {"name": spec.monitor_name, "namespace": spec.in_namespace, "labels": _labels(spec)}


def _at_once(spec: _GpuMonitorSpec) -> dict[str, Any]:
    given = spec.max_unavailable
    return {"maxUnavailable": given if given.endswith("%") else int(given)}


def _affinity(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """GKE labels every GPU node with its accelerator, whoever installs the driver."""
    terms: list[dict[str, Any]] = [{"key": labels.GKE_ACCELERATOR, "operator": "Exists"}]
    if spec.gpu is not None:
        terms.append({"key": labels.GPU_PRODUCT, "operator": "In", "values": [spec.gpu]})
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _container(spec: _GpuMonitorSpec) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [
        without_none({"name": name, "mountPath": host.path, "readOnly": host.read_only or None})
        for name, host in _named_hosts(spec).items()
    ]
    if spec.driver == "google":
        mounts.append({"name": DRIVER_VOLUME, "mountPath": "/usr/local/nvidia", "readOnly": True})
    if spec.files:
        mounts.append({"name": FILES_VOLUME, "mountPath": spec.files_path, "readOnly": True})
    amounts = {"cpu": spec.cpu, "memory": spec.memory}
    return without_none(
        {
            "name": spec.container_name,
            "image": spec.image,
            "command": spec.command,
            "args": spec.arguments,
            "env": _env(spec),
            "ports": [{"name": PORT, "containerPort": spec.port, "protocol": "TCP"}] if spec.port else None,
            "resources": {"requests": amounts, "limits": {"memory": spec.memory}},
            "securityContext": _security(spec),
            "volumeMounts": mounts or None,
        }
    )


def _env(spec: _GpuMonitorSpec) -> list[dict[str, Any]]:
    """What the agent must know to find the GPUs, and, where it is the DCGM exporter, to name the pods that use them."""
    values: dict[str, str] = {}
    if spec.is_dcgm_exporter:
        values = {"DCGM_EXPORTER_LISTEN": f":{spec.port}", "DCGM_EXPORTER_KUBERNETES": "true"}
        # GKE's device plugin names GPUs by their device, the operator's by their UUID.
        values |= {"DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE": "device-name"} if spec.driver == "google" else {}
    if spec.driver == "google":
        values["LD_LIBRARY_PATH"] = "/usr/local/nvidia/lib64"
    if spec.driver == "operator":
        values["NVIDIA_VISIBLE_DEVICES"] = "all"
    node: dict[str, Any] = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}
    named = values | spec.env
    return [
        *([] if "NODE_NAME" in named else [{"name": "NODE_NAME", "valueFrom": node}]),
        *({"name": name, "value": value} for name, value in named.items()),
    ]


def _security(spec: _GpuMonitorSpec) -> dict[str, Any]:
    """GPUs that the pod does not request are reached with privileges only; profiling metrics need SYS_ADMIN."""
    as_root: Mapping[str, Any] = {"runAsUser": 0, "runAsNonRoot": False}
    if spec.driver == "google":
        return {**as_root, "privileged": True}
    if spec.driver == "operator":
        return {**as_root, "capabilities": {"add": ["SYS_ADMIN"]}}
    return {**as_root, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}}


def _named_hosts(spec: _GpuMonitorSpec) -> dict[str, HostPath]:
    return {f"host-{index}": host for index, host in enumerate(spec.host_paths)}


def _volumes(spec: _GpuMonitorSpec) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": name, "hostPath": {"path": host.path}} for name, host in _named_hosts(spec).items()
    ]
    if spec.driver == "google":
        volumes.append({"name": DRIVER_VOLUME, "hostPath": {"path": GOOGLE_DRIVER_DIR}})
    if spec.files:
        volumes.append({"name": FILES_VOLUME, "configMap": {"name": spec.monitor_name}})
    return volumes
