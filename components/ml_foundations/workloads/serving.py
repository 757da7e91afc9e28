"""What servers have in common: ports, probes, a graceful end, who may connect, who scrapes, and the last word."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.resources import arguments, child_options, unknown_kinds
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.kubernetes.monitoring import MonitoringSystem, monitor_kinds, monitor_manifest
from ml_foundations.workloads.pod import WorkloadArgs, WorkloadSettings, WorkloadSpec, app_labels, queue_labels

PROBE_SECONDS = 10
"""How often a server is asked while it loads; its startup probe ends on a multiple of this."""
PROBE = "^(/|tcp$)"
"""A path that answers, or tcp: a connection is enough."""
PORT_NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class PortArgs(TypedDict):
    """A port beside the server's own."""

    name: str
    """The port's name, such as metrics."""
    port: int
    """Its number, in the container and in the Service."""


class Port(Spec):
    """A checked PortArgs."""

    name: str = Field(pattern=PORT_NAME, max_length=15)
    port: int = Field(ge=1, le=65535)


class ServerArgs(WorkloadArgs):
    """Arguments that all servers have."""

    port: NotRequired[int]
    """The port that the server listens on; default 8080. It is named http."""
    ports: NotRequired[list[PortArgs]]
    """More ports, such as one for metrics or gRPC; the Service has them too."""
    live_path: NotRequired[str]
    """The path that answers as long as the server need not be restarted, or tcp; default is health_path."""
    load_seconds: NotRequired[int]
    """How long the model takes to load, at the most; default 300. Probes and the rollout wait that long."""
    max_unavailable: NotRequired[int]
    """Pods that a rollout, or a drain of nodes, may stop at once; default 1."""
    timeout_seconds: NotRequired[int]
    """How long Pulumi waits for a rollout; the default is enough for one pod after the other."""
    disruption_budget: NotRequired[bool]
    """Whether drains of nodes are held to max_unavailable, by a PodDisruptionBudget; default true."""
    callers: NotRequired[list[str]]
    """Lets only pods of these namespaces and its own connect; by default the namespace's own policies rule."""
    monitoring: NotRequired[str]
    """Who scrapes metrics: google (by PodMonitoring), prometheus (by ServiceMonitor) or none; default none."""
    metrics_path: NotRequired[str]
    """The path of the metrics; default /metrics."""
    metrics_port: NotRequired[str]
    """The name of the port with the metrics; default http."""


class ServerSettings(WorkloadSettings):
    """What a stack file says about any server."""

    port: int = Field(8080, ge=1, le=65535)
    ports: list[Port] = []
    health_path: str = Field("/health", pattern=PROBE)
    live_path: str | None = Field(None, pattern=PROBE)
    load_seconds: int = Field(300, ge=1)
    grace_seconds: int = Field(60, ge=0)
    max_unavailable: int = Field(1, ge=1)
    timeout_seconds: int | None = Field(None, ge=1)
    disruption_budget: bool = True
    callers: list[Name] | None = None
    monitoring: MonitoringSystem = "none"
    metrics_path: str = Field("/metrics", pattern="^/")
    metrics_port: str = "http"

    @property
    @abstractmethod
    def own_kinds(self) -> tuple[str, ...]:
        """The kinds of the objects that only this component makes."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all objects that the component makes."""
        budget = ("PodDisruptionBudget",) if self.disruption_budget else ()
        policy = ("NetworkPolicy",) if self.callers is not None else ()
        claim = ("ResourceClaimTemplate",) if self.gpu_claim is not None else ()
        return (*self.own_kinds, "Service", *budget, *policy, *monitor_kinds(self.monitoring), *claim)

    @property
    def startup_failures(self) -> int:
        """Probes that may fail while the model loads."""
        return -(-self.load_seconds // PROBE_SECONDS)

    @property
    def startup_seconds(self) -> int:
        """How long the startup probe waits."""
        return self.startup_failures * PROBE_SECONDS

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        taken = {"http": self.port}
        for index, port in enumerate(self.ports):
            if port.name in taken or port.port in taken.values():
                yield f"ports[{index}]", f"{port.name} ({port.port}) is taken; choose another name and number"
            taken[port.name] = port.port
        if self.monitoring != "none" and self.metrics_port not in taken:
            yield "metrics_port", f'there is no port "{self.metrics_port}". Ports: {", ".join(taken)}'
        yield from unknown_kinds(self.overrides, self.kinds)


class ServerSpec(ServerSettings, WorkloadSpec):
    """The checked arguments that all servers have."""


def declare_around(component: pulumi.Resource, name: str, spec: ServerSpec) -> None:
    """Declare what any server may have around it: a PodDisruptionBudget, a NetworkPolicy, and who scrapes it."""
    if spec.disruption_budget:
        k8s.policy.v1.PodDisruptionBudget(
            f"{name}-disruption-budget", **arguments(disruption_budget_manifest(spec)), opts=child_options(component)
        )
    if spec.callers is not None:
        k8s.networking.v1.NetworkPolicy(
            f"{name}-network-policy",
            **arguments(network_policy_manifest(spec, spec.callers)),
            opts=child_options(component),
        )
    if spec.monitoring != "none":
        manifest = monitor_manifest(
            spec.monitoring, metadata(spec), app_labels(spec), spec.metrics_port, spec.metrics_path
        )
        k8s.apiextensions.CustomResource(
            f"{name}-monitoring",
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            **arguments(overridden(manifest, spec.overrides)),
            opts=child_options(component),
        )


def metadata(spec: ServerSpec) -> dict[str, Any]:
    """Name, namespace and labels of each object."""
    return {"name": spec.workload_name, "namespace": spec.namespace, "labels": app_labels(spec) | queue_labels(spec)}


def server_container(spec: ServerSpec) -> dict[str, Any]:
    """Ports and probes: liveness is asked only once the startup probe has found the model loaded."""
    numbers = {"http": spec.port} | {port.name: port.port for port in spec.ports}
    ready = _probe(spec.health_path)
    live = _probe(spec.live_path or spec.health_path)
    return {
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in numbers.items()],
        "startupProbe": ready | {"periodSeconds": PROBE_SECONDS, "failureThreshold": spec.startup_failures},
        "readinessProbe": ready | {"periodSeconds": 5, "failureThreshold": 3},
        "livenessProbe": live | {"periodSeconds": 10, "failureThreshold": 10},
    }


def service_ports(spec: ServerSpec, first: int) -> list[dict[str, Any]]:
    """The ports of a Service: the server's own under the number ``first``, the others under theirs."""
    numbers = {"http": first} | {port.name: port.port for port in spec.ports}
    return [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in numbers.items()]


def network_policy_manifest(spec: ServerSpec, callers: list[str]) -> dict[str, Any]:
    """Pods of its own namespace and of the callers' may connect, to the declared ports; its own among each other."""
    namespaces = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}} for name in callers]
    ports = [{"port": number, "protocol": "TCP"} for number in (spec.port, *(port.port for port in spec.ports))]
    return overridden(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(spec),
            "spec": {
                "podSelector": {"matchLabels": app_labels(spec)},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [{"podSelector": {}}, *namespaces], "ports": ports},
                    {"from": [{"podSelector": {"matchLabels": app_labels(spec)}}]},
                ],
            },
        },
        spec.overrides,
    )


def disruption_budget_manifest(spec: ServerSpec) -> dict[str, Any]:
    """The PodDisruptionBudget: it holds back a drain, but never for ever, nor for a pod that serves nobody."""
    return overridden(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(spec),
            "spec": {
                "maxUnavailable": spec.max_unavailable,
                "selector": {"matchLabels": app_labels(spec)},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        },
        spec.overrides,
    )


def _probe(path: str) -> dict[str, Any]:
    """A server under load answers late, and must not be taken for a dead one."""
    asked = {"tcpSocket": {"port": "http"}} if path == "tcp" else {"httpGet": {"path": path, "port": "http"}}
    return asked | {"timeoutSeconds": 5}
