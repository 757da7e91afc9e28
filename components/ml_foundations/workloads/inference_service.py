"""A model server as a Deployment or a LeaderWorkerSet, with a Service."""

from collections.abc import Iterator
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.inference_gateways import PREFILL
from ml_foundations.catalog.nodes import NEW_NODE_SECONDS
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, Ref, cloud_child
from ml_foundations.component.errors import duplicates
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import InputText, Name, concat
from ml_foundations.kubernetes import labels as known
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import InferenceServiceComponent
from ml_foundations.workloads.autoscaling import POD_LABEL, Autoscaling
from ml_foundations.workloads.pod import AWAIT_MARGIN_SECONDS
from ml_foundations.workloads.pod_template import pod_template
from ml_foundations.workloads.prefill import DividedServerSpec


class InferenceServiceSpec(DividedServerSpec):
    """Arguments of an InferenceService."""

    name_field = "service_name"

    service_name: Name
    """The name of the Deployment or LeaderWorkerSet, and of the Service. By default, the name of
    the component."""
    gpus: int = Field(1, ge=0)
    """GPUs of each pod. The default is 1."""
    autoscaling: Autoscaling | None = None
    """When there are more pods or groups than replicas. By default, never."""
    service_port: int = Field(80, ge=1, le=65535)
    """The Service's port for the server's own port. The default is 80."""
    service: bool = True
    """Create a Service. The default is true. If it is false, only the Services in `services` are
    created."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """The type of the Service: ClusterIP, NodePort or LoadBalancer. The default is ClusterIP, which
    only the cluster can reach."""
    api_key_env: str | None = Field(None, pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable from which the server reads its API key, such as VLLM_API_KEY. By
    default, there is no key. Pulumi creates a random key once. It is in the Secret
    `<service_name>-api-key`, under `key`."""
    served_models: list[str] = []
    """The names of the models and LoRA adapters that it serves, as requests name them. An
    InferenceGateway with several servers routes by them."""
    model: str | None = Field(None, pattern=r"^[^/]")
    """Its model, for planning: a name in the catalog, such as Qwen/Qwen3-8B, or the folder of its
    config.json, below the folder in which the program runs. By default, arguments name it."""
    deregister_seconds: int = Field(15, ge=0)
    """Seconds that a stopping pod still accepts requests, until all clients know that it stops. The
    default is 15."""
    drain_seconds: int = Field(30, ge=0)
    """Seconds of the longest request. It is finished before the pod ends. The default is 30."""
    grace_seconds: int = Field(60, ge=0)
    """Seconds until a stopping pod is killed. It must be more than deregister_seconds and
    drain_seconds together. The default is 60."""
    progress_seconds: int | None = Field(None, ge=1)
    """Seconds without progress after which a rollout fails. By default, load_seconds plus 1200 for
    a new node."""
    spread: Literal["preferred", "required", "none"] = "preferred"
    """How pods spread over zones and nodes: preferred, required or none. The default is preferred.
    It is for replicas of one node."""

    @property
    def url(self) -> pulumi.Input[str]:
        """The address inside the cluster; empty without a Service."""
        if not self.service:
            return ""
        port = "" if self.service_port == 80 else f":{self.service_port}"
        return concat(f"http://{self.service_name}.", self.namespace, f".svc.cluster.local{port}")

    @property
    def model_server(self) -> dict[str, Any]:
        """The arguments of a ModelServer."""
        return {
            "name": self.service_name,
            "namespace": self.namespace,
            "selector": self.scraped_labels,
            "port": self.port,
            "health_path": self.health_path,
            "metrics_path": self.metrics_path,
            "served_models": self.served_models,
            **({"is_divided": True} if self.role else {}),
            **({"needs_key": True} if self.needs_key else {}),
        }

    @property
    def api_key_secret(self) -> str:
        """The name of the Secret with its API key; empty without one."""
        return f"{self.service_name}-api-key" if self.api_key_env else ""

    @property
    def needs_key(self) -> bool:
        """Return whether it accepts only requests with an API key, also with one that you made."""
        return bool(self.api_key_env) or "VLLM_API_KEY" in self.secret_env

    @property
    @override
    def pod_annotations(self) -> dict[str, InputText]:
        return without_none({known.MODEL: self.model}) | super().pod_annotations

    @property
    @override
    def own_env(self) -> dict[str, dict[str, Any]]:
        key = {"secretKeyRef": {"name": self.api_key_secret, "key": "key"}}
        variables = {self.api_key_env: {"valueFrom": key}} if self.api_key_env else {}
        return super().own_env | variables

    @property
    @override
    def most_replicas(self) -> int:
        return self.autoscaling.max_replicas if self.autoscaling else self.replicas

    @property
    def is_in_queue(self) -> bool:
        """Return whether its groups wait in a queue."""
        return self.is_grouped and self.queue is not None

    @property
    def scales_by_gke(self) -> bool:
        """Return whether GKE serves the metric of the autoscaler."""
        return self.autoscaling is not None and self.autoscaling.served_by == "gke"

    @property
    def progress(self) -> int:
        """Seconds that a rollout may stand still: no fewer than the model takes to load."""
        return self.progress_seconds or self.load_seconds + NEW_NODE_SECONDS

    @property
    @override
    def timeout(self) -> int:
        """The seconds that Pulumi waits for a rollout, which replaces pods one after another."""
        at_once = 1 if self.surge else self.max_unavailable
        steps = max(1, -(-self.most_replicas // at_once))
        rollout = self.progress + (steps - 1) * (self.load_seconds + self.grace_seconds)
        return self.timeout_seconds or rollout + AWAIT_MARGIN_SECONDS

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        load = self.load_seconds
        progress = self.progress
        if progress < load:
            loading = f"the model may load for {load} s (load_seconds)"
            yield "progress_seconds", f"is {progress}, but {loading}: make it more"
        if self.timeout < progress:
            pause = f"a rollout may pause for {progress} s (progress_seconds)"
            reason = f"is {self.timeout}, but {pause}; set it to more"
            yield "timeout_seconds", reason
        if self.replicas == 0 and (self.autoscaling is not None or self.is_grouped):
            yield "replicas", "is 0, but autoscaling and several nodes need 1 or more; set it to 1"
        stopping = self.deregister_seconds + self.drain_seconds
        if stopping >= self.grace_seconds:
            first = f"deregister_seconds {self.deregister_seconds}"
            both = f"{first}, drain_seconds {self.drain_seconds}"
            reason = f"and a pod needs {stopping} to stop ({both}); set it to more"
            yield "grace_seconds", f"is {self.grace_seconds}, {reason}"
        if self.is_grouped and self.spread == "required":
            reason = "is required, and the pods of a group belong together; leave it out"
            yield "spread", f"{reason}, or set topology"
        names = [service.name for service in self.services]
        taken = [self.service_name] if self.service else []
        yield from duplicates("services[{}].name", names, taken)
        if self.api_key_env in {*self.env, *self.secret_env, *self.config_env, *self.field_env}:
            reason = f"{self.api_key_env} is also a variable that you set. Remove one of the two"
            yield "api_key_env", reason
        if self.autoscaling is not None and self.autoscaling.max_replicas < self.replicas:
            most = self.autoscaling.max_replicas
            yield "autoscaling", f"max_replicas is {most}, below replicas ({self.replicas})"

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        if self.api_key_env:
            # A random key of 32 letters and digits, and the Secret that holds it.
            type_ = "random:index/randomPassword:RandomPassword"
            password = {"length": 32, "special": False}
            yield cloud_child("api-key", type_, password, ["result"], depends_on)
            key = {"key": Ref("api-key", "result")}
            secret_metadata = self.metadata(name=self.api_key_secret)
            secret = api_object("v1", "Secret", secret_metadata, stringData=key)
            yield ChildResource("api-key-secret", secret, depends_on=["api-key"])
            depends_on = [*depends_on, "api-key-secret"]
        server = _server(self, "groups" if self.is_grouped else "deployment", depends_on)
        yield server
        if (prefill := self.prefill_spec) is not None:
            yield _server(prefill, PREFILL, depends_on)
        if self.service:
            numbers = self.port_numbers | {self.port_name: self.service_port}
            yield self.service_child(self.service_name, numbers, {"type": self.service_type})
        metadata = self.metadata()
        scaling = self.autoscaling
        if scaling is not None:
            if self.scales_by_gke:
                scraped = (self.port_numbers[self.scraped_port], self.metrics_path)
                metric = scaling.served_metric(metadata, self.service_name, *scraped)
                yield ChildResource("autoscaling-metric", metric)
            served = server.manifest
            target = {"apiVersion": served["apiVersion"], "kind": served["kind"]}
            target |= {"name": self.deployment}
            autoscaler = scaling.manifest(metadata, target, self.replicas)
            yield ChildResource("autoscaler", autoscaler)
        yield from self.surrounding_children()


class InferenceService(InferenceServiceComponent[InferenceServiceSpec]):
    """A model server: a Deployment behind a ClusterIP Service, or a LeaderWorkerSet.

    Its probes wait for the model, its pods finish their requests before they stop, and its rollouts
    need no spare GPUs by default. With ``autoscaling``, a HorizontalPodAutoscaler sets the number
    of pods, and Pulumi does not change it. With ``nodes``, each replica is a group of pods, and the
    Service leads to the leaders alone.
    """

    service_name: KnownOutput[str]
    """The Service's name."""
    url: pulumi.Output[str]
    """Its address inside the cluster. Empty without a Service."""
    api_key_secret: KnownOutput[str]
    """The name of the Secret with its API key. Empty without one."""
    model_server: KnownOutput[dict[str, Any]]
    """Its pods, port and models. InferenceGateway accepts it among its servers."""
    deployment = OptionalChild("deployment")
    """The Deployment. None if replicas have several nodes."""
    leader_worker_set = OptionalChild("groups")
    """The LeaderWorkerSet. None if replicas have one node."""
    prefill_servers = OptionalChild(PREFILL)
    """The Deployment or LeaderWorkerSet of prefill. None without prefill."""
    service = OptionalChild("service")
    """The Service. None if service is false."""
    autoscaler = OptionalChild("autoscaler")
    """The HorizontalPodAutoscaler. None without autoscaling."""


def _server(spec: InferenceServiceSpec, role: str, depends_on: list[str]) -> ChildResource:
    """Return the Deployment or the LeaderWorkerSet of a spec."""
    container = spec.container()
    if spec.deregister_seconds:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": spec.deregister_seconds}}}
    if spec.is_grouped:
        served = spec.leader_worker_set(container, spec.sidecars())
        answering = served["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    else:
        served = _deployment(spec, container)
        answering = served["spec"]["template"]
    # Only pods that answer requests have these labels.
    scaled = {POD_LABEL: spec.service_name} if spec.scales_by_gke else {}
    answering["metadata"]["labels"].update(scaled | spec.answering_labels)
    options = pulumi.ResourceOptions(
        # Under another name, the new pods come first only where there are GPUs for both.
        delete_before_replace=not spec.surge or spec.is_in_queue,
        ignore_changes=["spec.replicas"] if spec.autoscaling else None,
        # Kueue's webhook keeps the templates of a LeaderWorkerSet in a queue as they are.
        replace_on_changes=["spec.leaderWorkerTemplate"] if spec.is_in_queue else None,
        custom_timeouts=spec.timeouts,
    )
    return ChildResource(role, served, depends_on, options)


def _deployment(spec: InferenceServiceSpec, container: dict[str, Any]) -> dict[str, Any]:
    spread = spec.spread != "none" and "topologySpreadConstraints" not in spec.pod_overrides
    pod = {"topologySpreadConstraints": _spread(spec)} if spread else {}
    template = pod_template(spec, "Always", container, pod=pod | spec.sidecars())
    deployment = {
        "replicas": spec.replicas,
        "selector": {"matchLabels": spec.app_labels | spec.role_labels},
        "strategy": _strategy(spec),
        "progressDeadlineSeconds": spec.progress,
        "template": template,
    }
    return api_object("apps/v1", "Deployment", spec.metadata(name=spec.deployment), spec=deployment)


def _strategy(spec: InferenceServiceSpec) -> dict[str, Any]:
    # Without spare GPUs, an old pod is deleted before a new one starts: a single pod has a gap.
    if spec.surge:
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    if spec.most_replicas == 1:
        return {"type": "Recreate"}
    rollout = {"maxSurge": 0, "maxUnavailable": spec.max_unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": rollout}


def _spread(spec: InferenceServiceSpec) -> list[dict[str, Any]]:
    """Return the spread over zones, and over nodes in each."""
    common = {
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule" if spec.spread == "required" else "ScheduleAnyway",
        "labelSelector": {"matchLabels": spec.app_labels | spec.role_labels},
        "matchLabelKeys": ["pod-template-hash"],  # counts the pods of each rollout separately
    }
    return [{**common, "topologyKey": key} for key in (known.ZONE, known.HOSTNAME)]
