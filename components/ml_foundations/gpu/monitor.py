"""An agent on each GPU node: NVIDIA's DCGM exporter, a log collector, or any other."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.gpu_labels import gpu_terms
from ml_foundations.catalog.machine_types import accelerator
from ml_foundations.catalog.versions import DCGM_EXPORTER_IMAGE
from ml_foundations.component.base import Child
from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.errors import duplicates
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.overrides import PodFields, container_errors
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.types import GpuName, InputName, InputText, Name, NonEmpty, Quantity
from ml_foundations.gpu.agents import agent_namespace
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import strategic_merge, without_none
from ml_foundations.kubernetes.monitoring import MonitoringSystem, monitor_manifest
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.selectors import node_affinity
from ml_foundations.typed_args import GpuMonitorComponent

_PORT = "metrics"
_POD_RESOURCES = "/var/lib/kubelet/pod-resources"
"""The folder in which the kubelet lists the GPUs of each pod: DCGM's metrics name the pod by it."""
_FILES_ANNOTATION = "ml-foundations/files"


class _Mounted(NamedTuple):
    """A volume of the pod, and where its container finds it."""

    name: str
    source: dict[str, Any]
    path: str
    read_only: bool = True


class HostPath(Spec):
    """A folder of the node."""

    path: str = Field(pattern="^/")
    """Its path on the node and in the container."""
    read_only: bool = True
    """Mount it read-only. The default is true."""


class GpuMonitorSpec(ComponentSpec):
    """Arguments of a GpuMonitor."""

    objects = {"cluster": IN_CLUSTER}

    name_field = "monitor_name"

    monitor_name: Name
    """The DaemonSet's name. By default, the name of the component."""
    namespace: InputName | None = None
    """Its namespace. By default, monitor_name. The namespace of a team does not allow access to
    nodes."""
    create_namespace: bool = True
    """Create the namespace, with a quota for critical pods. The default is true."""
    image: NonEmpty = DCGM_EXPORTER_IMAGE
    """The container image. By default, NVIDIA's DCGM exporter."""
    container_name: Name = "main"
    """The name of its container. The default is main."""
    command: list[InputText] | None = None
    """The command. By default, that of the image."""
    arguments: list[InputText] | None = None
    """Arguments of the command."""
    env: dict[str, InputText] = {}
    """Environment variables. The component always sets NODE_NAME. For the DCGM exporter, it also
    sets those that the exporter needs."""
    cpu: Quantity = "100m"
    """CPU that each pod requests. The default is 100m."""
    memory: Quantity = "1Gi"
    """Memory that each pod requests and may use. The default is 1Gi, which the DCGM exporter needs
    for 8 GPUs."""
    gpu: GpuName | None = None
    """The GPU model of the nodes, by any of its names. By default, it runs on every GPU node."""
    driver: Literal["google", "operator", "none"] = "google"
    """The driver through which the agent has access to the GPUs: google, operator, or none for no
    access. The default is google."""
    port: int = Field(9400, ge=0, le=65535)
    """The port of its metrics, 0 for none. The default is 9400."""
    host_paths: list[HostPath] = [HostPath(path=_POD_RESOURCES)]
    """Folders of the node. By default, the folder in which the kubelet publishes the pod of each
    GPU."""
    files: dict[str, str] = {}
    """Configuration files, by name. A change replaces the pods."""
    files_path: str = Field("/etc/monitor", pattern="^/")
    """The folder of these files in the container. The default is /etc/monitor."""
    critical: bool = True
    """Run its pods before all other pods of a node. The default is true."""
    critical_pods: int = Field(1000, ge=1)
    """The number of critical pods that the namespace may run: one for each GPU node. The default is
    1000."""
    max_unavailable: str = Field("10%", pattern=r"^[1-9][0-9]*%?$")
    """The nodes on which a rollout may replace the pod at once, as a number or a percentage. The
    default is 10%."""
    monitoring: MonitoringSystem = "none"
    """Who scrapes the metrics: google (by PodMonitoring), prometheus (by ServiceMonitor) or none.
    The default is none."""
    pod_overrides: PodFields = {}
    """Fields of the PodSpec in Kubernetes' form. They are merged over the component's as kubectl
    patch does. Maps are merged, and lists such as containers and volumes are merged by name. Other
    lists are replaced. null removes a field."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created objects, by kind, such as {"Service": {"metadata": {"labels": {…}}}}.
    They are merged over the component's: maps are merged, lists are replaced, and null removes a
    field. For the pod, use pod_overrides."""

    @property
    def is_dcgm_exporter(self) -> bool:
        """Return whether the agent is NVIDIA's DCGM exporter."""
        image: Any = self.image  # not known here where it is an output
        if not isinstance(image, str):
            return False
        return image.partition("@")[0].rpartition("/")[2].partition(":")[0] == "dcgm-exporter"

    @property
    def in_namespace(self) -> str:
        """The namespace."""
        return self.namespace or self.monitor_name

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.monitoring != "none" and self.port == 0:
            yield "monitoring", f"is {self.monitoring}, but port is 0: there are no metrics"
        made = {"containers": [{"name": self.container_name}], "initContainers": []}
        yield from container_errors(self.pod_overrides, made)
        paths = [host.path for host in self.host_paths]
        yield from duplicates("host_paths[{}].path", paths, [self.files_path] if self.files else [])

    @override
    def children(self) -> Iterator[ChildResource]:
        before: list[str] = []
        if self.create_namespace:
            quota = f"{self.monitor_name}-critical-pods"
            most = self.critical_pods if self.critical else None
            yield from agent_namespace(self.in_namespace, quota, most)
            # GKE admits critical pods only under a quota for them.
            before.append("critical-pods" if self.critical else "namespace")
        if self.files:
            config_map = api_object("v1", "ConfigMap", _metadata(self), data=self.files)
            yield ChildResource("files", config_map, before)
            before = [*before, "files"]
        yield ChildResource("daemon-set", _daemon_set(self), before)
        if self.port:
            ports = [{"name": _PORT, "port": self.port, "targetPort": _PORT, "protocol": "TCP"}]
            spec = {"selector": _labels(self), "ports": ports}
            # A cluster without GPU nodes has no endpoints, so Pulumi would wait in vain.
            metadata = _metadata(self) | {"annotations": NOT_AWAITED}
            service = api_object("v1", "Service", metadata, spec=spec)
            yield ChildResource("service", service, before)
        if self.monitoring != "none":
            pods = _labels(self)
            scraping = monitor_manifest(self.monitoring, _metadata(self), pods, _PORT, "/metrics")
            yield ChildResource("monitoring", scraping, before)


class GpuMonitor(GpuMonitorComponent[GpuMonitorSpec]):
    """A DaemonSet whose pods run on every GPU node, despite its taints, and on no other node.

    By default, it is NVIDIA's DCGM exporter, for clusters in which the GPU Operator does not run
    it.
    """

    monitor_name: KnownOutput[str]
    """The DaemonSet's name."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    daemon_set = Child("daemon-set")
    """The DaemonSet."""

    @override
    def outputs(self, spec: GpuMonitorSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        return {"namespace": spec.in_namespace}


def _daemon_set(spec: GpuMonitorSpec) -> dict[str, Any]:
    """Return the DaemonSet. Its selector is immutable, so it contains no version."""
    # GKE labels each GPU node with its accelerator.
    terms: list[dict[str, Any]] = [{"key": labels.GKE_ACCELERATOR, "operator": "Exists"}]
    if spec.gpu is not None:
        [of_model] = gpu_terms([accelerator(spec.gpu)], by_gke=False)
        terms += of_model
    volumes = [{"name": mounted.name} | mounted.source for mounted in _mounted(spec)]
    pod = without_none(
        {
            "priorityClassName": "system-node-critical" if spec.critical else None,
            "runtimeClassName": "nvidia" if spec.driver == "operator" else None,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "affinity": node_affinity(*terms),
            # It runs on every GPU node, despite other taints, and while a node is not ready.
            "tolerations": [{"operator": "Exists"}],
            "containers": [_container(spec)],
            "volumes": volumes or None,
        }
    )
    most = spec.max_unavailable
    at_once = most if most.endswith("%") else int(most)
    metadata: dict[str, Any] = {"labels": _labels(spec)}
    if spec.files:
        # A ConfigMap's change restarts no pods. Another annotation does.
        digest = hashlib.sha256(json.dumps(spec.files, sort_keys=True).encode()).hexdigest()
        metadata["annotations"] = {_FILES_ANNOTATION: digest[:16]}
    daemon_set = {
        "selector": {"matchLabels": _labels(spec)},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": at_once}},
        "template": {"metadata": metadata, "spec": strategic_merge(pod, spec.pod_overrides)},
    }
    return api_object("apps/v1", "DaemonSet", _metadata(spec), spec=daemon_set)


def _labels(spec: GpuMonitorSpec) -> dict[str, str]:
    return {"app.kubernetes.io/name": spec.monitor_name}


def _metadata(spec: GpuMonitorSpec) -> dict[str, Any]:
    return {"name": spec.monitor_name, "namespace": spec.in_namespace, "labels": _labels(spec)}


def _container(spec: GpuMonitorSpec) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = []
    for name, _, path, read_only in _mounted(spec):
        mount = {"name": name, "mountPath": path, "readOnly": read_only or None}
        mounts.append(without_none(mount))
    ports = [{"name": _PORT, "containerPort": spec.port, "protocol": "TCP"}]
    fields = {
        "name": spec.container_name,
        "image": spec.image,
        "command": spec.command,
        "args": spec.arguments,
        "env": _env(spec),
        "ports": ports if spec.port else None,
        "resources": {
            "requests": {"cpu": spec.cpu, "memory": spec.memory},
            "limits": {"memory": spec.memory},
        },
        "securityContext": _security(spec),
        "volumeMounts": mounts or None,
    }
    return without_none(fields)


def _env(spec: GpuMonitorSpec) -> list[dict[str, Any]]:
    """Return the variables for finding GPUs and, of the exporter, the pods that use them."""
    values: dict[str, str] = {}
    if spec.is_dcgm_exporter:
        values = {"DCGM_EXPORTER_LISTEN": f":{spec.port}", "DCGM_EXPORTER_KUBERNETES": "true"}
        # GKE's device plugin names GPUs by their device, the operator's by their UUID.
        if spec.driver == "google":
            values["DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE"] = "device-name"
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


def _security(spec: GpuMonitorSpec) -> dict[str, Any]:
    as_root: Mapping[str, Any] = {"runAsUser": 0, "runAsNonRoot": False}
    # The agent needs privileges for GPUs that it does not request, SYS_ADMIN for their profiling.
    if spec.driver == "google":
        return {**as_root, "privileged": True}
    if spec.driver == "operator":
        return {**as_root, "capabilities": {"add": ["SYS_ADMIN"]}}
    # It reads files of other users, such as logs of the node.
    capabilities = {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}
    return {**as_root, "allowPrivilegeEscalation": False, "capabilities": capabilities}


def _mounted(spec: GpuMonitorSpec) -> Iterator[_Mounted]:
    for index, host in enumerate(spec.host_paths):
        source = {"hostPath": {"path": host.path}}
        yield _Mounted(f"host-{index}", source, host.path, host.read_only)
    if spec.driver == "google":
        source = {"hostPath": {"path": GOOGLE_DRIVER_DIR}}
        yield _Mounted("nvidia-driver", source, "/usr/local/nvidia")
    if spec.files:
        yield _Mounted("files", {"configMap": {"name": spec.monitor_name}}, spec.files_path)
