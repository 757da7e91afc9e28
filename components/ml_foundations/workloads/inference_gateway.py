"""One address for several model servers: a Gateway of GKE with an InferencePool for each server."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.catalog.versions import (
    BODY_ROUTER_IMAGE,
    DIVIDED_PICKER_IMAGE,
    ENDPOINT_PICKER_IMAGE,
)
from ml_foundations.component.base import Child
from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.data import yaml_file
from ml_foundations.component.objects import TEAM, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import MAX_LABEL, Cidr, InputName, Name, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, api_object, section
from ml_foundations.kubernetes.words import number
from ml_foundations.typed_args import InferenceGatewayComponent
from ml_foundations.workloads.model_server import ModelServer

_PICKER = "-picker"
_ROUTER = "-router"
_HEALTH_SECONDS = 2
"""How often and how long the load balancer asks a server: less than its default, so that it leaves
a stopped pod soon (gateway-api-inference-extension v1.5.0, inferencepool/templates/gke.yaml)."""


class InferenceGatewaySpec(ComponentSpec):
    """Arguments of an InferenceGateway."""

    objects = {
        "team": TEAM,
        "cluster": ObjectArgument(
            ("GkeCluster",),
            "The GkeCluster. It sets proxy_only_cidr.",
            {"proxy_only_cidr": "proxy_only_cidr"},
        ),
        "servers": ObjectArgument(
            ("InferenceService",),
            "Each is the InferenceService itself, or the arguments of a ModelServer.",
            item="model_server",
        ),
    }

    name_field = "gateway_name"

    gateway_name: Name = Field(max_length=MAX_LABEL - len(_ROUTER))
    """The name of the Gateway and its HTTPRoute. By default, the name of the component."""
    namespace: InputName
    """The namespace. Its servers are in the same namespace."""
    servers: list[ModelServer] = Field(min_length=1, max_length=facts.MOST_RULES)
    """The model servers behind its address. If there are several, each names its models, and
    requests are routed by the model in their body."""
    gateway_class: Literal["gke-l7-rilb", "gke-l7-regional-external-managed"] = "gke-l7-rilb"
    """The class of the load balancer: gke-l7-rilb (internal) or gke-l7-regional-external-managed
    (external). The default is gke-l7-rilb. Global classes serve no InferencePools."""
    certificate: InputName | None = None
    """The regional certificate of Certificate Manager with which it serves HTTPS. An external
    gateway requires it. By default, an internal gateway serves HTTP."""
    unauthenticated: bool = False
    """Let an external gateway answer anybody: its servers need no API key, or check callers in
    another way. The default is false."""
    paths: list[Annotated[str, Field(pattern="^/")]] = Field(["/v1"], min_length=1)
    """The paths, with all below them, whose requests reach the servers. The default is /v1. An API
    key of vLLM protects no other paths, such as /pause and /invocations."""
    address: InputName | None = None
    """The name of a reserved regional address. By default, GKE chooses an address."""
    proxy_only_cidr: Cidr | None = None
    """The addresses of the load balancer's proxies, such as GkeCluster.proxy_only_cidr. Network
    policies let them in."""
    failure_mode: Literal["FailOpen", "FailClose"] = "FailOpen"
    """What happens to requests if the endpoint picker does not answer: FailOpen sends them to any
    pod, FailClose rejects them. The default is FailOpen."""
    request_seconds: int = Field(300, ge=1, le=86400)
    """Seconds after which the load balancer ends a request. The default is 300."""
    picker_cpu: Quantity = "4"
    """CPU of each endpoint picker. The default is 4."""
    picker_memory: Quantity = "8Gi"
    """Memory of each endpoint picker. The default is 8Gi."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created objects, by kind. They are merged over the component's: maps are
    merged, lists are replaced, and null removes a field."""

    @property
    def is_routed(self) -> bool:
        """Return whether requests are routed by the model in their body."""
        return len(self.servers) > 1

    @property
    def proxies(self) -> list[str]:
        """The sources of requests and health checks."""
        return [str(self.proxy_only_cidr), *facts.GOOGLE_PROXIES]

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.proxy_only_cidr is None:
            yield (
                "proxy_only_cidr",
                "is not set, and the proxies need a subnetwork; "
                "set proxy_only_cidr of the GkeCluster, or the range of an existing subnetwork",
            )
        if self.gateway_class == facts.EXTERNAL_CLASS and self.certificate is None:
            reason = "is not set, and an external gateway would serve API keys in plain text"
            yield "certificate", f"{reason}; name a certificate"
        if self.gateway_class == facts.EXTERNAL_CLASS:
            yield from self._door_errors()
        yield from self._server_errors()
        yield from self._model_errors()

    def _door_errors(self) -> Iterator[tuple[str, str]]:
        """Yield the servers that would answer anybody on the internet."""
        policy = section(self.overrides, "GCPBackendPolicy", "spec", "default")
        if self.unauthenticated or section(policy, "iap").get("enabled") is True:
            return
        others = "overrides.GCPBackendPolicy.spec.default.iap, or unauthenticated: true"
        for index, server in enumerate(self.servers):
            if not server.needs_key:
                reason = f"is false, and {server.name} would answer anybody on the internet"
                yield f"servers[{index}].needs_key", f"{reason}; set api_key_env of it, {others}"

    def _server_errors(self) -> Iterator[tuple[str, str]]:
        names = Counter(server.name for server in self.servers)
        for index, server in enumerate(self.servers):
            path = f"servers[{index}]"
            longest = MAX_LABEL - len(_PICKER)
            places: list[Any] = [server.namespace, self.namespace]
            if all(isinstance(place, str) for place in places) and len(set(places)) > 1:
                reason = (
                    f"is in {server.namespace}, and an InferencePool selects pods of one namespace"
                )
                yield path, f"{reason}; make the gateway in {server.namespace}"
            if len(server.name) > longest:
                yield f"{path}.name", f"is longer than {longest} characters; choose a shorter name"
            if names[server.name] > 1:
                yield f"{path}.name", f"{server.name} is the name of several servers; change one"
            if not (server.health_path or "").startswith("/"):
                reason = f"is {server.health_path}, and the load balancer asks a path"
                yield f"{path}.health_path", f"{reason}; set health_path of the server"

    def _model_errors(self) -> Iterator[tuple[str, str]]:
        models = Counter[str]()
        for server in self.servers:
            models.update(server.served_models)
        for index, server in enumerate(self.servers):
            if self.is_routed and not server.served_models:
                reason = "is empty, and requests name the model of one of several servers"
                yield f"servers[{index}].served_models", f"{reason}; name those of {server.name}"
            if len(server.served_models) * len(self.paths) > facts.MOST_MODELS:
                reason = f"are {len(self.paths)}, for each model of {server.name}"
                yield "paths", f"{reason}, and a rule has {facts.MOST_MODELS} matches at most"
            for model in sorted(set(server.served_models)):
                if models[model] > 1:
                    reason = f'"{model}" is named {models[model]} times; a name has one server'
                    yield f"servers[{index}].served_models", reason
        paths = len(self.paths)
        if models.total() * paths > facts.MOST_MATCHES:
            of = number(models.total(), "model") + (f" on {paths} paths" if paths > 1 else "")
            reason = f"name {of}, and a route has {facts.MOST_MATCHES}"
            yield "servers", f"{reason} at most; make a second gateway"

    @override
    def children(self) -> Iterator[ChildResource]:
        yield ChildResource("gateway", _gateway(self))
        yield ChildResource("agents-network", _agents_policy(self))
        for server in self.servers:
            yield from _server_children(self, server)
        if self.is_routed:
            name = f"{self.gateway_name}{_ROUTER}"
            yield from _agent(self, ("router",), "router", {"agent": name})
        pools = [f"{server.name}-pool" for server in self.servers]
        yield ChildResource("route", _route(self), depends_on=["gateway", *pools])


class InferenceGateway(InferenceGatewayComponent[InferenceGatewaySpec]):
    """One address for model servers, which sends each request to the pod that answers it soonest.

    It is a Gateway of GKE. Each server gets an InferencePool, and an endpoint picker that knows the
    queues and caches of its pods. The cluster needs ``gateway_api`` and ``proxy_only_cidr``.
    """

    gateway_name: KnownOutput[str]
    """The name of the Gateway."""
    gateway = Child("gateway")
    """The Gateway. Its status has the address."""
    route = Child("route")
    """The HTTPRoute."""


def _metadata(spec: InferenceGatewaySpec, name: str) -> dict[str, Any]:
    gateway_labels = {labels.INFERENCE_GATEWAY: spec.gateway_name}
    return {"name": name, "namespace": spec.namespace, "labels": gateway_labels}


def _gateway(spec: InferenceGatewaySpec) -> dict[str, Any]:
    listener: dict[str, Any] = {"name": "http", "protocol": "HTTP", "port": 80}
    if spec.certificate is not None:
        tls = {"mode": "Terminate", "options": {facts.CERTIFICATE_OPTION: spec.certificate}}
        listener = {"name": "https", "protocol": "HTTPS", "port": 443, "tls": tls}
    fields: dict[str, Any] = {"gatewayClassName": spec.gateway_class, "listeners": [listener]}
    if spec.address is not None:
        fields["addresses"] = [{"type": "NamedAddress", "value": spec.address}]
    metadata = _metadata(spec, spec.gateway_name)
    return api_object(facts.GATEWAY_API, "Gateway", metadata, spec=fields)


def _route(spec: InferenceGatewaySpec) -> dict[str, Any]:
    """Return the HTTPRoute. A reference to an InferencePool has no port."""
    rules: list[Manifest] = []
    for server in spec.servers:
        pool = {"group": facts.POOL_GROUP, "kind": "InferencePool", "name": server.name}
        matches: list[dict[str, Any]] = [{}]
        if spec.is_routed:
            named = {"type": "Exact", "name": facts.MODEL_HEADER}
            matches = [{"headers": [{**named, "value": model}]} for model in server.served_models]
        open_paths = [{"path": {"type": "PathPrefix", "value": path}} for path in spec.paths]
        both = [path | match for match in matches for path in open_paths]
        rules.append({"matches": both, "backendRefs": [pool]})
    parent = {"group": facts.GATEWAY_GROUP, "kind": "Gateway", "name": spec.gateway_name}
    fields = {"parentRefs": [parent], "rules": rules}
    metadata = _metadata(spec, spec.gateway_name)
    return api_object(facts.GATEWAY_API, "HTTPRoute", metadata, spec=fields)


def _server_children(spec: InferenceGatewaySpec, server: ModelServer) -> Iterator[ChildResource]:
    picker = f"{server.name}{_PICKER}"
    pool = {
        "selector": {"matchLabels": server.selector},
        "targetPorts": [{"number": server.port}],
        "endpointPickerRef": {
            "kind": "Service",
            "name": picker,
            "port": {"number": facts.PICKER_PORT},
            "failureMode": spec.failure_mode,
        },
    }
    check = {"requestPath": server.health_path, "port": server.port}
    health = {
        "checkIntervalSec": _HEALTH_SECONDS,
        "timeoutSec": _HEALTH_SECONDS,
        "config": {"type": "HTTP", "httpHealthCheck": check},
    }
    metadata = _metadata(spec, server.name)
    target = {"group": facts.POOL_GROUP, "kind": "InferencePool", "name": server.name}
    manifest = api_object(facts.POOL_API, "InferencePool", metadata, spec=pool)
    yield ChildResource(f"{server.name}-pool", manifest)
    policies = {
        "HealthCheckPolicy": health,
        "GCPBackendPolicy": {"timeoutSec": spec.request_seconds},
    }
    for kind, default in policies.items():
        policy = {"targetRef": target, "default": default}
        suffix = f"{server.name}-{'health' if kind == 'HealthCheckPolicy' else 'backend'}"
        yield ChildResource(suffix, api_object(facts.POLICY_API, kind, metadata, spec=policy))
    # It lets proxies and health checks reach a server. Without the second rule, it would close the
    # server to callers that no other policy names.
    allowed: dict[str, Any] = {
        "podSelector": {"matchLabels": server.selector},
        "policyTypes": ["Ingress"],
        "ingress": [_from_proxies(spec, [server.port]), {"from": [{"podSelector": {}}]}],
    }
    metadata = _metadata(spec, f"{server.name}-gateway")
    manifest = api_object("networking.k8s.io/v1", "NetworkPolicy", metadata, spec=allowed)
    yield ChildResource(f"{server.name}-network", manifest)
    words = {"agent": picker, "pool": server.name, "metrics_path": server.metrics_path}
    if server.is_divided:
        words |= {"picker_image": DIVIDED_PICKER_IMAGE}
    kinds = ("picker", "divided") if server.is_divided else ("picker",)
    yield from _agent(spec, kinds, f"{server.name}-picker", words)


def _agent(
    spec: InferenceGatewaySpec, kinds: Iterable[str], suffix: str, words: Mapping[str, str]
) -> Iterator[ChildResource]:
    """Yield the objects of an endpoint picker or of the body-based router."""
    all_words = {
        "pool": "",
        "metrics_path": "",
        "gateway": spec.gateway_name,
        "cpu": spec.picker_cpu,
        "memory": spec.picker_memory,
        "picker_image": ENDPOINT_PICKER_IMAGE,
        "router_image": BODY_ROUTER_IMAGE,
        **words,
    }
    parts: Manifest = yaml_file("workloads", "gateway_agents.yaml", **all_words)
    objects: dict[str, Any] = {}
    for kind in kinds:
        objects |= parts[kind]
    earlier: list[str] = []
    for role, manifest in objects.items():
        metadata = _metadata(spec, manifest["metadata"]["name"])
        if role == "service":
            metadata["annotations"] = NOT_AWAITED
        for subject in manifest.get("subjects", ()):
            subject["namespace"] = spec.namespace
        whole = {**manifest, "metadata": metadata}
        yield ChildResource(f"{suffix}-{role}", whole, depends_on=earlier)
        earlier = [*earlier, f"{suffix}-{role}"]


def _agents_policy(spec: InferenceGatewaySpec) -> dict[str, Any]:
    """Return the policy that lets proxies reach the agents, and these the servers and the API."""
    ports = (
        facts.PICKER_PORT,
        facts.PICKER_HEALTH_PORT,
        facts.ROUTER_PORT,
        facts.ROUTER_HEALTH_PORT,
    )
    scraped = {"ports": [{"port": facts.PICKER_METRICS_PORT, "protocol": "TCP"}]}
    # Nobody knows the address of the API server here, so the port is open to any address.
    outside = [("TCP", 443), ("TCP", 53), ("UDP", 53)]
    any_address = {"ports": [{"port": port, "protocol": protocol} for protocol, port in outside]}
    policy: dict[str, Any] = {
        "podSelector": {"matchLabels": {labels.INFERENCE_GATEWAY: spec.gateway_name}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [_from_proxies(spec, ports), scraped],
        "egress": [{"to": [{"podSelector": {}}]}, any_address],
    }
    metadata = _metadata(spec, f"{spec.gateway_name}-agents")
    return api_object("networking.k8s.io/v1", "NetworkPolicy", metadata, spec=policy)


def _from_proxies(spec: InferenceGatewaySpec, ports: Iterable[int]) -> dict[str, Any]:
    blocks = [{"ipBlock": {"cidr": block}} for block in spec.proxies]
    return {"from": blocks, "ports": [{"port": port, "protocol": "TCP"} for port in ports]}
