"""A model server as a Deployment with a Service, and all that keeps it serving."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.parts import NOT_AWAITED
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import check
from ml_foundations.component.types import Name
from ml_foundations.kubernetes import labels as known
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.workloads.autoscaling import Autoscaling, AutoscalingArgs, autoscaler_manifest
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.pod import app_labels
from ml_foundations.workloads.pod_template import pod_template
from ml_foundations.workloads.serving import (
    ServerArgs,
    ServerSettings,
    ServerSpec,
    declare_around,
    metadata,
    server_container,
    service_ports,
)

ROLLOUT_MARGIN_SECONDS = 300
"""Time for a new node and the image, on top of the model's load time."""
AWAIT_MARGIN_SECONDS = 60
"""Pulumi outlasts Kubernetes' own deadline by this, so that it is Kubernetes that says what went wrong."""


class InferenceServiceArgs(ServerArgs):
    """Arguments of an InferenceService."""

    service_name: NotRequired[str]
    """The name of the Deployment and the Service; default is the component's."""
    deployment_name: NotRequired[str]
    """The name of the Deployment; default is service_name."""
    gpus: NotRequired[int]
    """GPUs of each pod; default 1."""
    replicas: NotRequired[int]
    """Pods; default 1. With autoscaling, the fewest pods."""
    autoscaling: NotRequired[AutoscalingArgs]
    """Whether there are more pods when there is more to do; by default there never are."""
    service_port: NotRequired[int]
    """The port on which the Service answers for the server's own; default 80."""
    health_path: NotRequired[str]
    """The path that answers when the model is loaded, or tcp where a connection is enough; default /health."""
    deregister_seconds: NotRequired[int]
    """Seconds that a stopping pod still takes requests, until all who send them know of it; default 15."""
    drain_seconds: NotRequired[int]
    """Seconds that the longest request takes, to be finished before the pod ends; default 30."""
    grace_seconds: NotRequired[int]
    """Seconds until a stopping pod is killed; default 60, and more than deregister_seconds and drain_seconds."""
    surge: NotRequired[bool]
    """Whether a rollout starts a pod before it stops one, which takes a spare GPU; default false."""
    progress_seconds: NotRequired[int]
    """How long a rollout may stand still until it has failed; default is the load time and five minutes."""
    spread: NotRequired[str]
    """Over zones and nodes: preferred, required or none; default preferred."""


class InferenceServiceSettings(ServerSettings):
    """What a stack file says about an InferenceService."""

    deployment_name: Name | None = None
    gpus: int = Field(1, ge=0)
    replicas: int = Field(1, ge=1)
    autoscaling: Autoscaling | None = None
    service_port: int = Field(80, ge=1, le=65535)
    deregister_seconds: int = Field(15, ge=0)
    drain_seconds: int = Field(30, ge=0)
    surge: bool = False
    progress_seconds: int | None = Field(None, ge=1)
    spread: Literal["preferred", "required", "none"] = "preferred"

    @property
    @override
    def own_kinds(self) -> tuple[str, ...]:
        return ("Deployment", "HorizontalPodAutoscaler") if self.autoscaling else ("Deployment",)

    @property
    def most_replicas(self) -> int:
        """The most pods that there ever are."""
        return self.autoscaling.max_replicas if self.autoscaling else self.replicas

    @property
    def progress(self) -> int:
        """Seconds that a rollout may stand still: no fewer than the startup probe waits."""
        return self.progress_seconds or self.startup_seconds + ROLLOUT_MARGIN_SECONDS

    @property
    def timeout(self) -> int:
        """Seconds that Pulumi waits: for a rollout that goes from one pod, or few of them, to the next."""
        at_once = 1 if self.surge else self.max_unavailable
        steps = -(-self.most_replicas // at_once)
        rollout = self.progress + (steps - 1) * (self.startup_seconds + self.grace_seconds)
        return self.timeout_seconds or rollout + AWAIT_MARGIN_SECONDS

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.autoscaling and self.autoscaling.max_replicas < self.replicas:
            yield "autoscaling", f"max_replicas is {self.autoscaling.max_replicas}, below replicas ({self.replicas})"
        stopping = self.deregister_seconds + self.drain_seconds
        if stopping >= self.grace_seconds:
            yield (
                "grace_seconds",
                f"is {self.grace_seconds}, and a pod needs {stopping} to stop "
                f"(deregister_seconds {self.deregister_seconds}, drain_seconds {self.drain_seconds}): make it more",
            )
        if self.progress < self.startup_seconds:
            yield (
                "progress_seconds",
                f"is {self.progress}, but the model may load for {self.startup_seconds} s (load_seconds): make it more",
            )
        if self.timeout < self.progress:
            yield (
                "timeout_seconds",
                f"is {self.timeout}, but a rollout may stand still for {self.progress} s (progress_seconds): "
                "make it more",
            )


class _InferenceServiceSpec(InferenceServiceSettings, ServerSpec):
    service_name: Name

    @property
    def workload_name(self) -> str:
        return self.service_name

    @property
    def deployment(self) -> str:
        """The name of the Deployment."""
        return self.deployment_name or self.service_name


class InferenceService(pulumi.ComponentResource):
    """A Deployment behind a ClusterIP Service: probes that wait for the model, pods that drain, rollouts that fit.

    Give it a kubernetes provider in its options. With ``autoscaling``, a HorizontalPodAutoscaler sets the number of
    pods, and Pulumi leaves it alone.
    """

    service_name: str
    """The Service's name."""
    url: str
    """Where it answers, inside the cluster."""

    def __init__(self, name: str, args: InferenceServiceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the Deployment, the Service and what goes with them."""
        spec = check(_InferenceServiceSpec, f"InferenceService {name}", {"service_name": name, **args})
        super().__init__("ml-foundations:index:InferenceService", name, {}, opts)
        k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **arguments(deployment_manifest(spec)),
            opts=_deployment_options(self, spec, declare_claim_template(self, name, spec)),
        )
        k8s.core.v1.Service(f"{name}-service", **arguments(service_manifest(spec)), opts=child_options(self))
        if spec.autoscaling is not None:
            k8s.autoscaling.v2.HorizontalPodAutoscaler(
                f"{name}-autoscaler",
                **arguments(autoscaler_manifest(spec, spec.autoscaling, spec.deployment, spec.replicas)),
                opts=child_options(self),
            )
        declare_around(self, name, spec)
        self.service_name = spec.workload_name
        port = "" if spec.service_port == 80 else f":{spec.service_port}"
        self.url = f"http://{spec.workload_name}.{spec.namespace}.svc.cluster.local{port}"
        self.register_outputs({"service_name": self.service_name, "url": self.url})


def _deployment_options(
    parent: pulumi.Resource, spec: _InferenceServiceSpec, after: list[pulumi.Resource]
) -> pulumi.ResourceOptions:
    timeout = f"{spec.timeout}s"
    return child_options(
        parent,
        depends_on=after,
        # Under another name, the new pods come first only where there are GPUs for both.
        delete_before_replace=not spec.surge,
        ignore_changes=["spec.replicas"] if spec.autoscaling else None,
        custom_timeouts=pulumi.CustomTimeouts(
            create=timeout, update=timeout, delete=f"{spec.grace_seconds + ROLLOUT_MARGIN_SECONDS}s"
        ),
    )


def deployment_manifest(spec: _InferenceServiceSpec) -> dict[str, Any]:
    """The Deployment."""
    template = pod_template(spec, "Always", server_container(spec) | _lifecycle(spec))
    if "topologySpreadConstraints" not in spec.pod_overrides:
        template["spec"] |= _spread(spec)
    return overridden(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(spec) | {"name": spec.deployment},
            "spec": {
                "replicas": spec.replicas,
                "selector": {"matchLabels": app_labels(spec)},
                "strategy": _strategy(spec),
                "progressDeadlineSeconds": spec.progress,
                "template": template,
            },
        },
        spec.overrides,
    )


def service_manifest(spec: _InferenceServiceSpec) -> dict[str, Any]:
    """The Service. Pulumi does not wait for its endpoints: the Deployment's own await covers them."""
    return overridden(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(spec) | {"annotations": NOT_AWAITED},
            "spec": {
                "type": "ClusterIP",
                "selector": app_labels(spec),
                "ports": service_ports(spec, spec.service_port),
            },
        },
        spec.overrides,
    )


def _strategy(spec: _InferenceServiceSpec) -> dict[str, Any]:
    """Without a spare GPU, an old pod must go before a new one comes; a single one goes altogether."""
    if spec.surge:
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    if spec.most_replicas == 1:
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": spec.max_unavailable}}


def _lifecycle(spec: _InferenceServiceSpec) -> dict[str, Any]:
    if not spec.deregister_seconds:
        return {}
    return {"lifecycle": {"preStop": {"sleep": {"seconds": spec.deregister_seconds}}}}


def _spread(spec: _InferenceServiceSpec) -> dict[str, Any]:
    """Over zones, and in each over nodes; pods of one rollout are counted apart from those of the last."""
    if spec.spread == "none":
        return {}
    common = {
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule" if spec.spread == "required" else "ScheduleAnyway",
        "labelSelector": {"matchLabels": app_labels(spec)},
        "matchLabelKeys": ["pod-template-hash"],
    }
    return {"topologySpreadConstraints": [{**common, "topologyKey": key} for key in (known.ZONE, known.HOSTNAME)]}
