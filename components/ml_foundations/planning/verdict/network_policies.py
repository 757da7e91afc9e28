"""Findings about NetworkPolicies: ways between pods that one end opens and the other closes.

A connection needs both: an egress policy of its source and an ingress policy of its destination (Kubernetes, "Network
Policies"). A pod that no policy of a direction selects is open in it, and policies add up. A block of private addresses
may cover pods, so it counts as open.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Network, ip_network
from typing import Any, Literal

from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.verdict.findings import Finding, Severity

_Direction = Literal["ingress", "egress"]
_PRIVATE = [
    ip_network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
]
"""Where the addresses of pods are (RFC 1918, 6598)."""
_SYSTEM = "kube-system"
_DNS = ({"k8s-app": "kube-dns"}, {"k8s-app": "node-local-dns"})
_DNS_ADDRESSES = ("169.254.20.10/32", "169.254.169.254/32")
"""The labels of the pods that answer names in GKE, and the addresses of their caches and of Cloud DNS."""
_METADATA = (("169.254.169.252/32", 988), ("169.254.169.254/32", 80))
"""GKE's metadata server: its address and port, in clusters without and with Dataplane V2."""
_GOOGLE_ACCOUNT = "iam.gke.io/gcp-service-account"
_URL = re.compile(
    r"\b(?P<scheme>https?|grpc|tcp)://(?P<name>[a-z0-9-]+)"
    r"(?:\.(?P<namespace>[a-z0-9-]+)(?:\.svc(?:\.cluster\.local)?)?)?(?::(?P<port>\d+))?(?=[/?\s]|$)"
)
_SCHEME_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Pods:
    """The pods of a template, as policies see them."""

    namespace: str
    labels: Mapping[str, Any]
    about: str = ""
    spec: Manifest = field(default_factory=dict[str, Any])

    def port(self, wanted: Any) -> Any:
        """Return the number of a port that is given by number or name."""
        for container in _mappings(self.spec, "containers"):
            for port in _mappings(container, "ports"):
                if port.get("name") == wanted:
                    return port.get("containerPort")
        return wanted


@dataclass(frozen=True)
class Call:
    """A namespace that a policy lets in, and whether its own policies let it out to there."""

    caller: str
    namespace: str
    policy: str
    is_open: bool

    @property
    def text(self) -> str:
        """The call for people."""
        if self.is_open:
            return f"{self.namespace}/{self.policy}: {self.caller} may call it"
        return f"{self.namespace}/{self.policy}: {self.caller} may not call it, its own network policies close the way"


class Network:
    """The declared namespaces, pods, Services and NetworkPolicies."""

    def __init__(self, objects: Iterable[Manifest]) -> None:
        self._objects = [*objects]
        self._namespaces: dict[str, Manifest] = {_SYSTEM: {}}
        self._policies: dict[str, list[Manifest]] = {}
        self._servers: dict[tuple[str, str], list[Pods]] = {}
        self._chosen: dict[tuple[str, str, str], list[Manifest] | None] = {}
        self._not_known: set[str] = set()
        for each in self._objects:
            if each["kind"] == "Namespace":
                self._namespaces[name_of(each)] = labels_of(each)
            if each["kind"] == "NetworkPolicy":
                self._policies.setdefault(namespace_of(each), []).append(each)
                if any(unknown_paths(each.get("spec"))):
                    self._not_known.add(namespace_of(each))

    @cached_property
    def pods(self) -> list[Pods]:
        """The pods of every declared workload; those on their node's network have no policies."""
        return [
            pods
            for each in self._objects
            if (pods := _pods_of(each)) and not pods.spec.get("hostNetwork")
        ]

    @cached_property
    def by_namespace(self) -> Mapping[str, list[Pods]]:
        """The same by namespace: one with thousands of workloads is not searched for each call."""
        found: dict[str, list[Pods]] = {}
        for each in self.pods:
            found.setdefault(each.namespace, []).append(each)
        return found

    def servers(self, service: Manifest) -> list[Pods]:
        """Return the pods behind a Service."""
        place = (namespace_of(service), name_of(service))
        if place not in self._servers:
            selector: Manifest = {"matchLabels": section(service, "spec", "selector")}
            there = self.by_namespace.get(place[0], [])
            self._servers[place] = [each for each in there if selects(selector, each.labels)]
        return self._servers[place]

    def calls(self) -> Iterator[Call]:
        """Yield each declared namespace that a policy of another namespace names to let it in."""
        for namespace, policies in self._policies.items():
            for policy in policies:
                spec = section(policy, "spec")
                callee = Pods(namespace, section(spec, "podSelector", "matchLabels"))
                for rule in _mappings(spec, "ingress"):
                    ports = [port.get("port") for port in _mappings(rule, "ports")] or [None]
                    for caller in _named_namespaces(rule):
                        if caller in self._namespaces and caller != namespace:
                            sources = self.by_namespace.get(caller) or [Pods(caller, {})]
                            is_open = any(
                                self.allows("egress", source, callee, ports[0])
                                for source in sources
                            )
                            yield Call(caller, namespace, name_of(policy), is_open)

    def allows(self, direction: _Direction, own: Pods, other: Pods, port: Any) -> bool:
        """Return whether the policies of one end may let a connection to a port pass."""
        rules = self._rules(direction, own)
        if rules is None:
            return True
        destination = own if direction == "ingress" else other
        return any(
            self._has_peer(rule, direction, own, other) and _has_port(rule, destination, port)
            for rule in rules
        )

    def allows_address(self, own: Pods, address: str, port: int) -> bool:
        """Return whether the policies of pods may let a connection to an address pass."""
        rules = self._rules("egress", own)
        return rules is None or any(
            _has_port(rule, own, port) and (not items(rule, "to") or _has_address(rule, address))
            for rule in rules
        )

    def _rules(self, direction: _Direction, own: Pods) -> list[Manifest] | None:
        """Return the rules for some pods; None if no policy of the direction selects them, or one is not known."""
        # Each pair of labels and policies is compared once: a thousand of both took 44 s otherwise, and take 2 s.
        key = (direction, own.namespace, str(own.labels))
        if key not in self._chosen:
            policies = (
                [] if own.namespace in self._not_known else self._policies.get(own.namespace, [])
            )
            chosen = [section(each, "spec") for each in policies]
            chosen = [each for each in chosen if direction.capitalize() in _types(each)]
            chosen = [each for each in chosen if selects(section(each, "podSelector"), own.labels)]
            rules = [rule for each in chosen for rule in items(each, direction)]
            self._chosen[key] = rules if chosen else None
        return self._chosen[key]

    def _has_peer(self, rule: Manifest, direction: _Direction, own: Pods, other: Pods) -> bool:
        peers = items(rule, "from" if direction == "ingress" else "to")
        return not peers or any(self._is_peer(peer, own, other) for peer in peers)

    def _is_peer(self, peer: Manifest, own: Pods, other: Pods) -> bool:
        if "ipBlock" in peer:
            return _may_cover_pods(section(peer, "ipBlock"))
        if "namespaceSelector" in peer:
            labels = {NAMESPACE_NAME: other.namespace, **self._namespaces.get(other.namespace, {})}
            if not selects(section(peer, "namespaceSelector"), labels):
                return False
        elif other.namespace != own.namespace:
            return False
        return "podSelector" not in peer or selects(section(peer, "podSelector"), other.labels)


def network_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield findings of the rule ``network-policy``: ways that only one end opens, names and identities cut off."""
    objects = [*objects]
    if not any(each["kind"] == "NetworkPolicy" for each in objects):
        return
    network = Network(objects)
    for call in dict.fromkeys(network.calls()):
        if not call.is_open:
            message = f"it lets pods of {call.caller} in, and the network policies of {call.caller} let none out to it"
            fix = f"Add {call.namespace} to egress_namespaces of the namespace {call.caller}, or take it out of callers."
            yield _finding(
                f"NetworkPolicy {call.namespace}/{call.policy}", "spec.ingress", message, fix
            )
    services = {
        (namespace_of(each), name_of(each)): each for each in objects if each["kind"] == "Service"
    }
    accounts = {
        (namespace_of(each), name_of(each))
        for each in objects
        if each["kind"] == "ServiceAccount" and _GOOGLE_ACCOUNT in annotations_of(each)
    }
    for pods in network.pods:
        yield from _names(network, pods)
        yield from _called_servers(network, pods, services)
        if (pods.namespace, str(pods.spec.get("serviceAccountName", "default"))) in accounts:
            yield from _identity(network, pods)


def _finding(about: str, path: str, message: str, remedy: str) -> Finding:
    return Finding("network-policy", Severity.WARNING, about, path, message, remedy)


def _names(network: Network, pods: Pods) -> Iterator[Finding]:
    by_pods = (network.allows("egress", pods, Pods(_SYSTEM, labels), 53) for labels in _DNS)
    by_address = (network.allows_address(pods, address, 53) for address in _DNS_ADDRESSES)
    if not any(by_pods) and not any(by_address):
        message = "its network policies close the way to DNS, so its pods resolve no name"
        remedy = (
            "Add an egress rule for port 53 of kube-dns in kube-system, as a TeamNamespace has it."
        )
        yield _finding(pods.about, "metadata.labels", message, remedy)


def _identity(network: Network, pods: Pods) -> Iterator[Finding]:
    if not any(network.allows_address(pods, address, port) for address, port in _METADATA):
        message = "its network policies close the way to GKE's metadata server, which gives its pods their Google account"
        remedy = "Add egress rules for 169.254.169.252 port 988 and 169.254.169.254 port 80, as a TeamNamespace has them."
        yield _finding(pods.about, "metadata.labels", message, remedy)


def _called_servers(
    network: Network, pods: Pods, services: Mapping[tuple[str, str], Manifest]
) -> Iterator[Finding]:
    """Judge the servers that the environment of some pods names by their addresses in the cluster."""
    for container in _mappings(pods.spec, "containers"):
        for variable in _mappings(container, "env"):
            for url in _URL.finditer(str(variable.get("value") or "")):
                place = (url["namespace"] or pods.namespace, url["name"])
                if place in services and not any(unknown_paths(services[place].get("spec"))):
                    port = int(url["port"] or _SCHEME_PORTS.get(url["scheme"], 0))
                    yield from _called_server(network, pods, services[place], port)


def _called_server(network: Network, pods: Pods, service: Manifest, port: int) -> Iterator[Finding]:
    spec, namespace = section(service, "spec"), namespace_of(service)
    targets = [
        each.get("targetPort", each.get("port"))
        for each in _mappings(spec, "ports")
        if each.get("port") == port
    ]
    if not spec.get("selector") or not targets:
        return
    for server in network.servers(service):
        target, name = server.port(targets[0]), f"{namespace}/{name_of(service)}"
        if not network.allows("egress", pods, server, target):
            message = f"its environment names {name}, and the network policies of {pods.namespace} let nothing out to it"
            remedy = f"Add {namespace} to egress_namespaces of the namespace {pods.namespace}."
            yield _finding(pods.about, "env", message, remedy)
        elif not network.allows("ingress", server, pods, target):
            message = f"its environment names {name}, whose network policies do not let it in"
            remedy = f"Add {pods.namespace} to callers of {name_of(service)}."
            yield _finding(pods.about, "env", message, remedy)


def _pods_of(manifest: Manifest) -> Pods | None:
    """Return the pods of a Pod, or of a workload with a template; None if there are none or they are not known."""
    holder = section(manifest, "spec", "jobTemplate") if manifest["kind"] == "CronJob" else manifest
    template = manifest if manifest["kind"] == "Pod" else section(holder, "spec").get("template")
    if not is_mapping(template) or "containers" not in section(template, "spec"):
        return None
    labels = labels_of(template)
    if UNKNOWN in (
        section(manifest, "metadata").get("namespace"),
        section(template, "metadata").get("labels"),
    ):
        return None
    about = f"{manifest['kind']} {namespace_of(manifest)}/{name_of(manifest)}"
    return Pods(namespace_of(manifest), labels, about, section(template, "spec"))


def _types(policy: Manifest) -> list[Any]:
    """Return the directions of a policy: by default Ingress, and Egress if it has rules for that."""
    default = ["Ingress", "Egress"] if items(policy, "egress") else ["Ingress"]
    return [*(policy.get("policyTypes") or default)]


def _named_namespaces(rule: Manifest) -> Iterator[str]:
    """Yield the namespaces that a rule for ingress names."""
    for peer in _mappings(rule, "from"):
        selector = section(peer, "namespaceSelector")
        if (name := section(selector, "matchLabels").get(NAMESPACE_NAME)) is not None:
            yield str(name)
        for expression in _mappings(selector, "matchExpressions"):
            if expression.get("key") == NAMESPACE_NAME and expression.get("operator") == "In":
                yield from map(str, items(expression, "values"))


def _has_port(rule: Manifest, destination: Pods, port: Any) -> bool:
    ports = items(rule, "ports")
    number = destination.port(port)
    return not ports or number is None or any(_covers(each, destination, number) for each in ports)


def _covers(entry: Manifest, destination: Pods, number: Any) -> bool:
    first = destination.port(entry.get("port"))
    if first is None or not isinstance(first, int) or not isinstance(number, int):
        return first is None or first == number
    last = entry.get("endPort")
    return first <= number <= (last if isinstance(last, int) else first)


def _may_cover_pods(block: Manifest) -> bool:
    """Return whether a block of addresses has private ones, where pods are."""
    covered, excepted = _blocks([block.get("cidr")]), _blocks(items(block, "except"))
    return any(
        private.overlaps(network) and not any(private.subnet_of(each) for each in excepted)
        for network in covered
        for private in _PRIVATE
        if isinstance(private, IPv4Network)
    )


def _has_address(rule: Manifest, address: str) -> bool:
    wanted = IPv4Network(address)
    for peer in items(rule, "to"):
        block = section(peer, "ipBlock")
        is_excepted = any(wanted.subnet_of(each) for each in _blocks(items(block, "except")))
        if not is_excepted and any(wanted.subnet_of(each) for each in _blocks([block.get("cidr")])):
            return True
    return False


def _mappings(manifest: Manifest, key: str) -> list[Manifest]:
    """Return the items of a list that are known."""
    return [each for each in items(manifest, key) if is_mapping(each)]


def _blocks(texts: Iterable[Any]) -> list[IPv4Network]:
    found: list[IPv4Network] = []
    for text in texts:
        try:
            found.append(IPv4Network(str(text), strict=False))
        except ValueError:
            continue  # IPv6, or invalid, which the API server refuses
    return found
