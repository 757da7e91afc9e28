"""What NetworkPolicies let pass between declared pods.

A connection needs both: an egress policy of its source and an ingress policy of its destination
(Kubernetes, "Network Policies"). A pod that no policy of a direction selects is open in it, and
policies add up. A block of private addresses may cover pods, so it counts as open.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Network
from typing import Any, Literal

from ml_foundations.catalog.inference_gateways import asked_port, listening
from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes.labels import GANG, NAMESPACE_NAME
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    mappings,
    name_of,
    section,
    texts,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.model.declared import full_name, key_of, of_kind
from ml_foundations.planning.model.peers import talk
from ml_foundations.planning.model.workloads import added_labels

_Direction = Literal["ingress", "egress"]
_PRIVATE_BLOCKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
_PRIVATE = tuple(map(IPv4Network, _PRIVATE_BLOCKS))
"""The ranges that have the addresses of pods (RFC 1918, 6598)."""
_SYSTEM = "kube-system"
_DNS = ({"k8s-app": "kube-dns"}, {"k8s-app": "node-local-dns"})
_DNS_ADDRESSES = ("169.254.20.10/32", "169.254.169.254/32")
"""The labels of GKE's DNS pods, and the addresses of their caches and of Cloud DNS."""
_METADATA = (("169.254.169.252/32", 988), ("169.254.169.254/32", 80))
"""GKE's metadata server: its address and port, in clusters without and with Dataplane V2."""
_OUTSIDE = (53, 80, 443, 988)
"""Ports of DNS, the internet and the metadata server: pods meet at others (Ray: 6379)."""


@dataclass(frozen=True)
class Pods:
    """The pods of a template, as policies see them."""

    namespace: str
    labels: Mapping[str, Any]
    about: str = ""
    spec: Manifest = field(default_factory=dict[str, Any])
    calls_itself: bool = False
    """Whether its pods talk to each other."""

    @cached_property
    def declared_ports(self) -> set[Any]:
        """The numbers of the ports that its containers declare."""
        declared: set[Any] = set()
        for container in listening(self.spec):
            declared.update(port.get("containerPort") for port in mappings(container, "ports"))
        return declared

    @cached_property
    def probed_ports(self) -> set[Any]:
        """The ports that its readiness probes ask: containers may listen without declaring them."""
        return {self.port(port) for port in map(asked_port, listening(self.spec))}

    def port(self, port_name: Any) -> Any:
        """Return the number of a port that is given by number or name."""
        for container in listening(self.spec):
            for port in mappings(container, "ports"):
                if port.get("name") == port_name:
                    return port.get("containerPort")
        return port_name


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
        reason = f"{self.caller} may not call it, its own network policies close the way"
        return f"{self.namespace}/{self.policy}: {reason}"


class Network:
    """The declared namespaces, pods, Services and NetworkPolicies."""

    def __init__(self, objects: Iterable[Manifest]) -> None:
        self._objects = [*objects]
        declared = {name_of(item): labels_of(item) for item in of_kind(self._objects, "Namespace")}
        self._namespaces: dict[str, Manifest] = {_SYSTEM: {}, **declared}
        self._policies: dict[str, list[Manifest]] = {}
        self._servers: dict[tuple[str, str], list[Pods]] = {}
        self._selected_rules: dict[tuple[str, str, str], list[Manifest] | None] = {}
        self._unknown_namespaces: set[str] = set()
        """The namespaces with a policy that is not known yet."""
        for policy in of_kind(self._objects, "NetworkPolicy"):
            namespace, _ = key_of(policy)
            self._policies.setdefault(namespace, []).append(policy)
            if any(unknown_paths(policy.get("spec"))):
                self._unknown_namespaces.add(namespace)

    @cached_property
    def pods(self) -> list[Pods]:
        """The pods of every declared workload; those on their node's network have no policies."""
        all_pods = itertools.chain.from_iterable(map(_pods_of, self._objects))
        return [pods for pods in all_pods if not pods.spec.get("hostNetwork")]

    @cached_property
    def by_namespace(self) -> Mapping[str, list[Pods]]:
        """The same by namespace: one with thousands of workloads is not searched for each call."""
        by_namespace: dict[str, list[Pods]] = {}
        for pods in self.pods:
            by_namespace.setdefault(pods.namespace, []).append(pods)
        return by_namespace

    def servers(self, service: Manifest) -> list[Pods]:
        """Return the pods behind a Service."""
        key = key_of(service)
        if key not in self._servers:
            selector: Manifest = {"matchLabels": section(service, "spec", "selector")}
            candidates = self.by_namespace.get(key[0], [])
            self._servers[key] = [pods for pods in candidates if selects(selector, pods.labels)]
        return self._servers[key]

    def calls(self) -> Iterator[Call]:
        """Yield each declared namespace that a policy of another namespace names to let it in."""
        for namespace, policies in self._policies.items():
            for policy in policies:
                for rule in mappings(section(policy, "spec"), "ingress"):
                    for caller in _named_namespaces(rule):
                        if caller in self._namespaces and caller != namespace:
                            yield self._call(caller, policy, rule)

    def _call(self, caller: str, policy: Manifest, rule: Manifest) -> Call:
        labels = section(policy, "spec", "podSelector", "matchLabels")
        namespace, name = key_of(policy)
        callee = Pods(namespace, labels)
        ports = [port.get("port") for port in mappings(rule, "ports")] or [None]
        sources = self.by_namespace.get(caller) or [Pods(caller, {})]
        is_open = any(self.allows("egress", source, callee, ports[0]) for source in sources)
        return Call(caller, namespace, name, is_open)

    def allows(self, direction: _Direction, pods: Pods, peers: Pods, port: Any) -> bool:
        """Return whether the policies of one end may let a connection to a port pass."""
        rules = self._rules(direction, pods)
        if rules is None:
            return True
        destination = pods if direction == "ingress" else peers
        about = [rule for rule in rules if self._is_about(rule, direction, pods, peers)]
        return any(_has_port(rule, destination, port) for rule in about)

    def connects(self, source: Pods, target: Pods) -> bool:
        """Return whether pods may reach others at ports that are not those of DNS and the like."""
        return self._has_way("egress", source, target) and self._has_way("ingress", target, source)

    def _has_way(self, direction: _Direction, pods: Pods, peers: Pods) -> bool:
        rules = self._rules(direction, pods)
        if rules is None:
            return True
        inside = [rule for rule in rules if not _is_for_outside(rule)]
        return any(self._is_about(rule, direction, pods, peers) for rule in inside)

    def _is_about(self, rule: Manifest, direction: _Direction, pods: Pods, peer_pods: Pods) -> bool:
        peers = mappings(rule, "from" if direction == "ingress" else "to")
        return not peers or any(self._is_peer(peer, pods, peer_pods) for peer in peers)

    def allows_address(
        self, pods: Pods, address: str, port: int, direction: _Direction = "egress"
    ) -> bool:
        """Return whether the policies of pods may let a connection to or from an address pass."""
        rules = self._rules(direction, pods)
        if rules is None:
            return True
        for rule in rules:
            peers = mappings(rule, "from" if direction == "ingress" else "to")
            is_about = not peers or _has_address(peers, address)
            if is_about and _has_port(rule, pods, port):
                return True
        return False

    def reaches_dns(self, pods: Pods) -> bool:
        """Return whether pods reach a DNS server: without one they resolve no name."""
        servers = [Pods(_SYSTEM, server_labels) for server_labels in _DNS]
        if any(self.allows("egress", pods, server, 53) for server in servers):
            return True
        return any(self.allows_address(pods, address, 53) for address in _DNS_ADDRESSES)

    def reaches_metadata(self, pods: Pods) -> bool:
        """Return whether pods reach GKE's metadata server: without it they get no token."""
        return any(self.allows_address(pods, address, port) for address, port in _METADATA)

    def _rules(self, direction: _Direction, pods: Pods) -> list[Manifest] | None:
        """Return the rules for some pods; None if no policy selects them, or one is not known."""
        # Each pair of labels and policies is compared once: a thousand of both took 44 s otherwise,
        # and take 2 s.
        key = (direction, pods.namespace, str(pods.labels))
        if key not in self._selected_rules:
            self._selected_rules[key] = self._select_rules(direction, pods)
        return self._selected_rules[key]

    def _select_rules(self, direction: _Direction, pods: Pods) -> list[Manifest] | None:
        if pods.namespace in self._unknown_namespaces:
            return None
        rules: list[Manifest] | None = None
        for policy in self._policies.get(pods.namespace, ()):
            spec = section(policy, "spec")
            # By default, a policy is about ingress, and about egress if it has such rules.
            default = ["Ingress", "Egress"] if items(spec, "egress") else ["Ingress"]
            if direction.capitalize() not in (texts(spec, "policyTypes") or default):
                continue
            if selects(section(spec, "podSelector"), pods.labels):
                rules = [*(rules or ()), *mappings(spec, direction)]
            elif _may_select(section(spec, "podSelector"), pods.labels):
                return None
        return rules

    def _is_peer(self, peer: Manifest, pods: Pods, peer_pods: Pods) -> bool:
        if "ipBlock" in peer:
            return _may_cover_pods(section(peer, "ipBlock"))
        if "namespaceSelector" in peer:
            labels = {
                NAMESPACE_NAME: peer_pods.namespace,
                **self._namespaces.get(peer_pods.namespace, {}),
            }
            if not selects(section(peer, "namespaceSelector"), labels):
                return False
        elif peer_pods.namespace != pods.namespace:
            return False
        return "podSelector" not in peer or _may_select(
            section(peer, "podSelector"), peer_pods.labels
        )


def _pods_of(manifest: Manifest) -> Iterator[Pods]:
    """Yield the pods of a Pod, or of each template of a workload, if they are known."""
    namespace, _ = key_of(manifest)
    if (described := described_kinds().get(manifest["kind"])) is not None:
        # Its controller makes these pods, such as leader and workers.
        known = () if any(unknown_paths(manifest.get("spec"))) else described.templates(manifest)
        for pods in known:
            if _is_known(manifest, pods.manifest) and pods.count > 0:
                spec = section(pods.manifest, "spec")
                pod_labels = {**dict.fromkeys(described.own_labels, UNKNOWN), **pods.labels}
                yield Pods(namespace, pod_labels, full_name(manifest), spec)
        return
    if manifest["kind"] == "Pod":
        holders: list[Manifest] = [{"spec": {"template": manifest}}]
    elif manifest["kind"] == "CronJob":
        holders = [section(manifest, "spec", "jobTemplate")]
    elif manifest["kind"] == "JobSet":
        holders = mappings(section(manifest, "spec"), "replicatedJobs")
    else:
        holders = [manifest]
    is_gang = annotations_of(manifest).get(GANG) == "true"
    for holder in holders:
        path = ("template", "spec") if manifest["kind"] == "JobSet" else ("spec",)
        body = section(holder, *path)
        template: Any = body.get("template")
        if _is_known(manifest, template):
            is_several = is_gang and body.get("parallelism", 1) != 1
            pod_labels = {**labels_of(template), **added_labels(manifest, holder)}
            spec = section(template, "spec")
            calls_itself = talk(body) or is_several
            yield Pods(namespace, pod_labels, full_name(manifest), spec, calls_itself)


def _is_known(manifest: Manifest, template: Any) -> bool:
    """Return whether a template has pods whose namespace and labels are known."""
    if not is_mapping(template) or "containers" not in section(template, "spec"):
        return False
    namespace = section(manifest, "metadata").get("namespace")
    return UNKNOWN not in (namespace, section(template, "metadata").get("labels"))


def _may_select(selector: Manifest, labels: Mapping[str, Any]) -> bool:
    """Return whether a selector may select labels, some of whose values are not known."""
    unknown = {key for key, value in labels.items() if value is UNKNOWN}
    match_labels = section(selector, "matchLabels")
    exact = {key: value for key, value in match_labels.items() if key not in unknown}
    expressions: list[Manifest] = []
    for expression in mappings(selector, "matchExpressions"):
        is_of_value = expression.get("operator") in ("In", "NotIn")
        if not (is_of_value and expression.get("key") in unknown):
            expressions.append(expression)
    return selects({"matchLabels": exact, "matchExpressions": expressions}, labels)


def _named_namespaces(rule: Manifest) -> Iterator[str]:
    """Yield the namespaces that a rule for ingress names."""
    for peer in mappings(rule, "from"):
        selector = section(peer, "namespaceSelector")
        if (name := section(selector, "matchLabels").get(NAMESPACE_NAME)) is not None:
            yield str(name)
        for expression in mappings(selector, "matchExpressions"):
            if expression.get("key") == NAMESPACE_NAME and expression.get("operator") == "In":
                yield from texts(expression, "values")


def _has_port(rule: Manifest, destination: Pods, port: Any) -> bool:
    """Return whether a rule may be about a port, given by number or name; None is any port."""
    entries = items(rule, "ports")
    number = destination.port(port)
    is_any = not entries or number is None
    return is_any or any(_covers(entry, destination, number) for entry in entries)


def _is_for_outside(rule: Manifest) -> bool:
    entries = mappings(rule, "ports")
    is_single = [entry.get("port") in _OUTSIDE and "endPort" not in entry for entry in entries]
    return bool(entries) and all(is_single)


def _covers(entry: Manifest, destination: Pods, number: Any) -> bool:
    first = destination.port(entry.get("port"))
    if not isinstance(first, int) or not isinstance(number, int):
        return first is None or first == number
    last = entry.get("endPort")
    return first <= number <= (last if isinstance(last, int) else first)


def _may_cover_pods(block: Manifest) -> bool:
    """Return whether a block of addresses has private ones, where pods are."""
    excepted = _networks(texts(block, "except"))
    for network in _networks([block.get("cidr")]):
        for private in _PRIVATE:
            if private.overlaps(network) and not any(map(private.subnet_of, excepted)):
                return True
    return False


def _has_address(peers: Iterable[Manifest], address: str) -> bool:
    network = IPv4Network(address)
    for peer in peers:
        block = section(peer, "ipBlock")
        is_excepted = any(map(network.subnet_of, _networks(texts(block, "except"))))
        if not is_excepted and any(map(network.subnet_of, _networks([block.get("cidr")]))):
            return True
    return False


def _networks(texts: Iterable[Any]) -> list[IPv4Network]:
    networks: list[IPv4Network] = []
    for text in texts:
        try:
            networks.append(IPv4Network(str(text), strict=False))
        except ValueError:
            continue  # IPv6, or invalid, which the API server refuses
    return networks
