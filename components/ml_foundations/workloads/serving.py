"""The arguments that servers share: ports, probes, timeouts, callers and metrics."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.objects import ObjectArgument
from ml_foundations.component.overrides import Probe
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputName, InputText, Name
from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.merging import strategic_merge
from ml_foundations.kubernetes.monitoring import MonitoringSystem, monitor_manifest
from ml_foundations.kubernetes.objects import Manifest, api_object, items
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.workloads.mounts import Mount
from ml_foundations.workloads.pod import WorkloadSpec

PROBE = "^(/|tcp$)"
"""A path that answers, or tcp: a connection is enough."""
_PROBE_SECONDS = 10
"""How often a server is asked while it loads; its startup probe ends on a multiple of this."""
_PATIENCE_SECONDS = 3600
"""A server that loads slower than was said is left to load: its startup probe waits an hour at
least."""
_PORT_NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class Port(Spec):
    """An additional port of a server."""

    name: str = Field(pattern=_PORT_NAME, max_length=15)
    """The port's name, such as metrics."""
    port: int = Field(ge=1, le=65535)
    """The number of the port, in the container and in the Service."""


class ExtraService(Spec):
    """An additional Service of a server."""

    name: Name
    """The Service's name."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """ClusterIP, NodePort or LoadBalancer. The default is ClusterIP."""
    headless: bool = False
    """Create a headless Service, which only adds DNS names for pods and has no address. The default
    is false."""
    ports: dict[str, int] = {}
    """The Service's ports: the names of the server's ports, with the Service's numbers. By default,
    all ports with the server's numbers."""
    annotations: dict[str, InputText] = {}
    """The Service's annotations, such as {"networking.gke.io/load-balancer-type": "Internal"}."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.headless and self.type != "ClusterIP":
            yield "headless", f"is true, so type is ClusterIP, not {self.type}"


MODEL_CACHE = ObjectArgument(
    ("ModelCache",),
    "The ModelCache with the weights of its model. It sets model_cache to its mount.",
    {"model_cache": "model_cache"},
)
"""The weights of a server."""


class ServerSpec(WorkloadSpec):
    """Arguments that all servers have.

    They set ports, probes, rollouts and metrics.
    """

    objects = {**WorkloadSpec.objects, "model_cache": MODEL_CACHE}

    model_cache: Mount | None = None
    """The weights of its model, such as ModelCache.model_cache. They are mounted read-only."""
    port: int = Field(8080, ge=1, le=65535)
    """The port that the server listens on. The default is 8080."""
    port_name: str = Field("http", pattern=_PORT_NAME, max_length=15)
    """The name of this port, in the container and in the Service. The default is http."""
    ports: list[Port] = []
    """Additional ports, such as one for metrics or gRPC. The Service has them too."""
    services: list[ExtraService] = []
    """Additional Services."""
    health_path: str | None = Field("/health", pattern=PROBE)
    """The path that answers when the model is loaded, or tcp if a connection is enough. The default
    is /health."""
    live_path: str | None = Field(None, pattern=PROBE)
    """The path that answers as long as the server needs no restart, or tcp. By default,
    health_path."""
    probes: dict[Literal["startup", "readiness", "liveness"], Probe | None] = {}
    """Fields of the probes in Kubernetes' form, such as {"readiness": {"periodSeconds": 1}}, or
    null for no probe."""
    load_seconds: int = Field(600, ge=1)
    """The most seconds that the model needs to load. The default is 600. After that, a rollout
    fails. A server that still loads is restarted after this time or an hour, the longer of the
    two."""
    max_unavailable: int = Field(1, ge=1)
    """Pods that a rollout or a drain of nodes may stop at once. The default is 1."""
    timeout_seconds: int | None = Field(None, ge=1)
    """Seconds that Pulumi waits for a rollout. By default, enough for one pod after another."""
    disruption_budget: bool = True
    """Create a PodDisruptionBudget, which limits drains of nodes to max_unavailable. The default is
    true."""
    callers: list[InputName] | None = None
    """Other namespaces whose pods may connect. By default, the policies of the server's namespace
    decide."""
    monitoring: MonitoringSystem = "none"
    """Who scrapes the metrics: google (by PodMonitoring), prometheus (by ServiceMonitor) or none.
    The default is none."""
    metrics_path: str = Field("/metrics", pattern="^/")
    """The path of the metrics. The default is /metrics."""
    metrics_port: str | None = None
    """The name of the port with the metrics. By default, port_name."""

    @property
    @override
    def all_mounts(self) -> Sequence[Mount]:
        return [*self.mounts, *([] if self.model_cache is None else [self.model_cache])]

    @property
    def port_numbers(self) -> dict[str, int]:
        """The container's ports, by name."""
        return {self.port_name: self.port} | {port.name: port.port for port in self.ports}

    @property
    def serving_labels(self) -> dict[str, str]:
        """The labels of the pods that answer requests."""
        return self.app_labels

    @property
    def scraped_labels(self) -> dict[str, str]:
        """The labels of all pods that have the server's port."""
        return self.serving_labels

    def target_port(self, name: str) -> int | str:
        """Return the port of pods to which a Service leads, by the name of the server's port."""
        return name

    @property
    def scraped_port(self) -> str:
        """The name of the port with the metrics."""
        return self.metrics_port or self.port_name

    @property
    def patience_seconds(self) -> int:
        """Seconds after which a server that still loads is restarted."""
        return max(self.load_seconds, _PATIENCE_SECONDS)

    @property
    @abstractmethod
    def timeout(self) -> int:
        """Seconds that Pulumi waits for a rollout."""

    @property
    def timeouts(self) -> pulumi.CustomTimeouts:
        """The time that Pulumi waits for each operation."""
        rollout = f"{self.timeout}s"
        return pulumi.CustomTimeouts(create=rollout, update=rollout, delete=self.delete_timeout)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        taken = {self.port_name: self.port}
        for index, port in enumerate(self.ports):
            if port.name in taken or port.port in taken.values():
                reason = f"{port.name} ({port.port}) is taken; choose another name and number"
                yield f"ports[{index}]", reason
            taken[port.name] = port.port
        if self.scraped_port not in taken:
            yield "metrics_port", not_among(str(self.scraped_port), "port", taken)
        yield from self._renamed_ports()
        for index, service in enumerate(self.services):
            for name in service.ports.keys() - self.port_numbers:
                yield f"services[{index}].ports.{name}", not_among(name, "port", self.port_numbers)

    def _renamed_ports(self) -> Iterator[tuple[str, str]]:
        """Yield ports that an override renames, because probes and the Service use their names."""
        names = {number: name for name, number in self.port_numbers.items()}
        has_probes = any("Probe" in key for key in self.container())
        has_users = getattr(self, "service", True) or self.services or has_probes
        for index, container in enumerate(items(self.pod_overrides, "containers")):
            if container["name"] != self.container_name:
                continue
            path = f"pod_overrides.containers[{index}].ports"
            if has_users and container.get("ports", ()) is None:
                ports = ", ".join(names.values())
                yield path, f"is null, but probes and Services use the ports {ports}; leave it out"
            for place, port in enumerate(items(container, "ports")):
                name = port.get("name")
                used = names.get(port["containerPort"])
                if used and name not in (None, used):
                    argument = "port_name" if used == self.port_name else "ports"
                    use = f"probes and the Service use the name {used}"
                    reason = f'is "{name}", but {use}; set {argument} instead'
                    yield f"{path}[{place}].name", reason

    def container(self) -> dict[str, Any]:
        """Return the container's ports and probes."""
        failures = -(-self.patience_seconds // _PROBE_SECONDS)
        health = self.health_path
        live = self.live_path
        # Kubernetes checks liveness only after the startup probe has found the model loaded.
        probes = {
            "startup": self._probe(health or live, _PROBE_SECONDS, failures),
            "readiness": self._probe(health, 5, 3),
            "liveness": self._probe(live or health, 10, 10),
        }
        ports: list[Manifest] = []
        for name, port in self.port_numbers.items():
            ports.append({"name": name, "containerPort": port, "protocol": "TCP"})
        fields: dict[str, Any] = {"ports": ports}
        given: dict[str, Any] = {**self.probes}
        for key, probe in probes.items():
            more = given.get(key, {} if probe else None)
            if more is not None:
                fields[f"{key}Probe"] = strategic_merge(probe, more)
        return fields

    def _probe(self, path: str | None, period: int, failures: int) -> dict[str, Any]:
        """Return a probe. A server under load answers late, and must not count as failed."""
        if path is None:
            return {}
        port = {"port": self.port_name}
        asked = {"tcpSocket": port} if path == "tcp" else {"httpGet": {"path": path, **port}}
        times = {"timeoutSeconds": 5, "periodSeconds": period, "failureThreshold": failures}
        return asked | times

    def service_child(
        self,
        name: str,
        numbers: Mapping[str, int],
        spec: Mapping[str, Any],
        role: str = "service",
        annotations: Mapping[str, str] | None = None,
    ) -> ChildResource:
        """Return a Service with these ports, by name."""
        ports: list[Manifest] = []
        for key, port in numbers.items():
            ports.append(
                {"name": key, "port": port, "targetPort": self.target_port(key), "protocol": "TCP"}
            )
        # Pulumi waits for the pods, not for the Service's endpoints.
        metadata = self.metadata(name=name, annotations=NOT_AWAITED | dict(annotations or {}))
        fields = {**spec, "selector": self.serving_labels, "ports": ports}
        return ChildResource(role, api_object("v1", "Service", metadata, spec=fields))

    def surrounding_children(self) -> Iterator[ChildResource]:
        """Yield Services, PodDisruptionBudget, NetworkPolicy and scraping, as they are needed."""
        for service in self.services:
            fields = {"type": service.type} | ({"clusterIP": "None"} if service.headless else {})
            numbers = service.ports or self.port_numbers
            role = f"service-{service.name}"
            yield self.service_child(service.name, numbers, fields, role, service.annotations)
        if self.disruption_budget:
            # It delays a drain, but not for pods that are not ready.
            budget = {
                "maxUnavailable": self.max_unavailable,
                "selector": {"matchLabels": self.app_labels},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            }
            metadata = self.metadata()
            manifest = api_object("policy/v1", "PodDisruptionBudget", metadata, spec=budget)
            yield ChildResource("disruption-budget", manifest)
        if self.callers is not None:
            yield ChildResource("network-policy", _network_policy(self, self.callers))
        if self.monitoring != "none":
            scraped = (self.scraped_labels, self.scraped_port, self.metrics_path)
            monitor = monitor_manifest(self.monitoring, self.metadata(), *scraped)
            yield ChildResource("monitoring", monitor)


def _network_policy(spec: ServerSpec, callers: list[str]) -> dict[str, Any]:
    """Return the policy that lets its namespace and the callers' connect to the declared ports."""
    by_name = [{"matchLabels": {NAMESPACE_NAME: name}} for name in callers]
    namespaces = [{"namespaceSelector": selector} for selector in by_name]
    ports = [{"port": number, "protocol": "TCP"} for number in spec.port_numbers.values()]
    pods = {"podSelector": {"matchLabels": spec.app_labels}}
    neighbours: dict[str, Any] = {"from": [{"podSelector": {}}, *namespaces], "ports": ports}
    policy = {**pods, "policyTypes": ["Ingress"], "ingress": [neighbours, {"from": [pods]}]}
    return api_object("networking.k8s.io/v1", "NetworkPolicy", spec.metadata(), spec=policy)
