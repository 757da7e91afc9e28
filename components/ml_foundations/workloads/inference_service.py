"""A model server as a Deployment with a Service."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field

from ml_foundations._manifest import arguments, child_options
from ml_foundations._spec import Name, check
from ml_foundations._tolerations import TolerationArgs
from ml_foundations.workloads._pod import MountArgs, WorkloadSettings, WorkloadSpec, app_labels, pod_template
from ml_foundations.workloads.training_job import SKIP_AWAIT

PROBE_SECONDS = 10
ROLLOUT_MARGIN_SECONDS = 300
"""Time for a new node and the image, on top of the model's load time."""


class InferenceServiceArgs(TypedDict):
    """Arguments of an InferenceService."""

    namespace: str
    """The namespace."""
    image: str
    """The container image."""
    cpu: str
    """CPU that each pod requests, such as 4."""
    memory: str
    """Memory that each pod requests and may use, such as 16Gi."""
    service_name: NotRequired[str]
    """The name of the Deployment and the Service; default is the component's."""
    command: NotRequired[list[str]]
    """The command; by default the image's."""
    arguments: NotRequired[list[str]]
    """Arguments of the command."""
    env: NotRequired[dict[str, str]]
    """Environment variables."""
    gpu: NotRequired[str]
    """The GPU model, by any of its names; without it, any GPU will do."""
    gpus: NotRequired[int]
    """GPUs of each pod; default 1."""
    replicas: NotRequired[int]
    """Pods; default 1."""
    port: NotRequired[int]
    """The port that the server listens on; default 8080. The Service answers on port 80."""
    health_path: NotRequired[str]
    """The path that answers when the model is loaded; default /health."""
    load_seconds: NotRequired[int]
    """How long the model takes to load, at the most; default 300. Probes and the rollout wait that long."""
    surge: NotRequired[bool]
    """Whether a rollout starts a pod before it stops one, which takes a spare GPU; default false."""
    mounts: NotRequired[list[MountArgs]]
    """Volumes: the model."""
    shared_memory: NotRequired[str]
    """Size of /dev/shm, such as 8Gi; it counts against memory."""
    node_selector: NotRequired[dict[str, str]]
    """Labels that its nodes must have, such as GpuNodePool.node_selector."""
    tolerations: NotRequired[list[TolerationArgs]]
    """Taints of nodes that its pods put up with, such as GpuNodePool.tolerations; the GPU taint needs no mention."""
    service_account: NotRequired[str]
    """The service account of its pods; default is the namespace's default."""
    grace_seconds: NotRequired[int]
    """Seconds that a pod has to finish its requests when it is stopped; default 60."""
    labels: NotRequired[dict[str, str]]
    """More labels of its pods."""
    annotations: NotRequired[dict[str, str]]
    """Annotations of its pods."""
    pod_overrides: NotRequired[dict[str, Any]]
    """Fields of the PodSpec, as Kubernetes writes them, merged over the component's: maps join, lists are replaced."""


class InferenceServiceSettings(WorkloadSettings):
    """What a stack file says about an InferenceService."""

    gpus: int = Field(1, ge=0)
    replicas: int = Field(1, ge=1)
    port: int = Field(8080, ge=1, le=65535)
    health_path: str = Field("/health", pattern="^/")
    load_seconds: int = Field(300, ge=1)
    surge: bool = False
    grace_seconds: int = Field(60, ge=0)

    @property
    def startup_failures(self) -> int:
        """Probes that may fail while the model loads."""
        return -(-self.load_seconds // PROBE_SECONDS)

    @property
    def progress_seconds(self) -> int:
        """The longest that a rollout may stand still: longer than the startup probe waits."""
        return self.startup_failures * PROBE_SECONDS + ROLLOUT_MARGIN_SECONDS


class _InferenceServiceSpec(InferenceServiceSettings, WorkloadSpec):
    service_name: Name

    @property
    def workload_name(self) -> str:
        return self.service_name


class InferenceService(pulumi.ComponentResource):
    """A Deployment behind a ClusterIP Service, with probes that wait for the model.

    Give it a kubernetes provider in its options.
    """

    service_name: str
    """The Service's name."""
    url: str
    """Where it answers, inside the cluster."""

    def __init__(self, name: str, args: InferenceServiceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the Deployment and the Service."""
        spec = check(_InferenceServiceSpec, f"InferenceService {name}", {"service_name": name, **args})
        super().__init__("ml-foundations:index:InferenceService", name, {}, opts)
        timeout = f"{spec.progress_seconds + 60}s"
        k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **arguments(deployment_manifest(spec)),
            opts=child_options(self, custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout)),
        )
        k8s.core.v1.Service(f"{name}-service", **arguments(service_manifest(spec)), opts=child_options(self))
        self.service_name = spec.workload_name
        self.url = f"http://{spec.workload_name}.{spec.namespace}.svc.cluster.local"
        self.register_outputs({"service_name": self.service_name, "url": self.url})


def deployment_manifest(spec: _InferenceServiceSpec) -> dict[str, Any]:
    """The Deployment."""
    rolling = {"maxSurge": 1, "maxUnavailable": 0} if spec.surge else {"maxSurge": 0, "maxUnavailable": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": spec.workload_name, "namespace": spec.namespace},
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": app_labels(spec)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "progressDeadlineSeconds": spec.progress_seconds,
            "template": pod_template(spec, "Always", _server(spec)),
        },
    }


def service_manifest(spec: _InferenceServiceSpec) -> dict[str, Any]:
    """The Service. Pulumi does not wait for its endpoints: the Deployment's own await covers them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": spec.workload_name, "namespace": spec.namespace, "annotations": SKIP_AWAIT},
        "spec": {
            "type": "ClusterIP",
            "selector": app_labels(spec),
            "ports": [{"name": "http", "port": 80, "targetPort": spec.port, "protocol": "TCP"}],
        },
    }


def _server(spec: _InferenceServiceSpec) -> dict[str, Any]:
    health = {"httpGet": {"path": spec.health_path, "port": spec.port}}
    return {
        "ports": [{"name": "http", "containerPort": spec.port, "protocol": "TCP"}],
        "startupProbe": health | {"periodSeconds": PROBE_SECONDS, "failureThreshold": spec.startup_failures},
        "readinessProbe": health | {"periodSeconds": 5, "failureThreshold": 3},
        "livenessProbe": health | {"periodSeconds": 10, "failureThreshold": 6},
    }
