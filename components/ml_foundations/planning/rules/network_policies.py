"""NetworkPolicies: ways between pods that one end opens and the other closes."""

import re
from collections.abc import Iterator

from ml_foundations.kubernetes.labels import GOOGLE_ACCOUNT
from ml_foundations.kubernetes.objects import Manifest, mappings, section
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.rules.findings import Finding, Severity, warning
from ml_foundations.planning.rules.network import Network, Pods
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_URL = re.compile(
    r"\b(?P<scheme>https?|grpc|tcp)://(?P<name>[a-z0-9-]+)"
    r"(?:\.(?P<namespace>[a-z0-9-]+)(?:\.svc(?:\.cluster\.local)?)?)?(?::(?P<port>\d+))?"
    r"(?=[/?\s]|$)"
)
_SCHEME_PORTS = {"http": 80, "https": 443}


@rule(
    "network-policy",
    Severity.ERROR,
    (
        "Network policies open both ends of each way that pods take, and the way to DNS and to "
        "their identity."
    ),
    source='Kubernetes, "Network Policies" and "DNS for Services and Pods"',
    example="""
        apiVersion: networking.k8s.io/v1
        kind: NetworkPolicy
        metadata: {name: closed, namespace: ml}
        spec: {podSelector: {}, policyTypes: [Egress]}
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: train, namespace: ml}
        spec: {containers: [{name: train, image: train:1}]}
    """,
)
def network_policies(stack: Stack) -> Iterator[Finding]:
    """Yield ways that only one end opens, and pods without DNS or an identity."""
    if not stack.has_policies or not stack.of_kind("NetworkPolicy"):
        return
    network = stack.network
    for call in dict.fromkeys(network.calls()):
        if not call.is_open:
            about = f"NetworkPolicy {call.namespace}/{call.policy}"
            caller = call.caller
            closed = f"the network policies of {caller} let none out to it"
            message = f"it lets pods of {caller} in, and {closed}"
            remedy = f"{_let_out(call.namespace, caller)}, or remove the rule (callers)."
            yield _warning(about, "spec.ingress", message, remedy)
    google_accounts: set[tuple[str, str]] = set()
    for account in stack.of_kind("ServiceAccount"):
        if GOOGLE_ACCOUNT in section(account, "metadata", "annotations"):
            google_accounts.add(key_of(account))
    for pods in network.pods:
        if not network.reaches_dns(pods):
            message = "its network policies close the way to DNS, so its pods resolve no name"
            remedy = (
                "Add an egress rule for port 53 of kube-dns in kube-system, as a TeamNamespace "
                "has it."
            )
            yield _warning(pods.about, "metadata.labels", message, remedy)
        yield from _called_servers(stack, pods)
        account = pods.namespace, str(pods.spec.get("serviceAccountName", "default"))
        if account in google_accounts and not network.reaches_metadata(pods):
            server = "GKE's metadata server, which gives its pods their Google account"
            message = f"its network policies close the way to {server}"
            addresses = "169.254.169.252 port 988 and 169.254.169.254 port 80"
            remedy = f"Add egress rules for {addresses}, as a TeamNamespace has them."
            yield _warning(pods.about, "metadata.labels", message, remedy)
    yield from _separated(network)


def _warning(about: str, path: str, message: str, remedy: str) -> Finding:
    return warning("network-policy", about, path, message, remedy)


def _let_out(namespace: str, caller: str) -> str:
    rule = f"Add an egress rule for namespace {namespace} in {caller}"
    return f"{rule} (egress_namespaces of a TeamNamespace)"


def _separated(network: Network) -> Iterator[Finding]:
    """Yield the workloads whose pods resolve names, and not each other."""
    first: dict[str, Pods] = {}
    reported: set[str] = set()
    for pods in network.pods:
        # Ray's workers call the head, and those of a LeaderWorkerSet its leader.
        target = pods if pods.calls_itself else first.setdefault(pods.about, pods)
        is_caller = pods.calls_itself or target is not pods
        if not is_caller or pods.about in reported or network.connects(pods, target):
            continue
        # Without DNS, that is what to correct first.
        if network.reaches_dns(pods):
            reported.add(pods.about)
            message = "its network policies close the way between its pods, which wait for others"
            remedy = "Add ingress and egress rules with a podSelector of its pods, for all ports."
            yield _warning(pods.about, "metadata.labels", message, remedy)


def _called_servers(stack: Stack, pods: Pods) -> Iterator[Finding]:
    """Yield the servers that pods do not reach, of those that their environment names by URL."""
    for container in mappings(pods.spec, "containers"):
        for variable in mappings(container, "env"):
            for url in _URL.finditer(str(variable.get("value") or "")):
                service = stack.services.get((url["namespace"] or pods.namespace, url["name"]))
                if service is not None and not any(unknown_paths(service.get("spec"))):
                    port = whole_number(url["port"], _SCHEME_PORTS.get(url["scheme"], 0))
                    yield from _called_server(stack.network, pods, service, port)


def _called_server(network: Network, pods: Pods, service: Manifest, port: int) -> Iterator[Finding]:
    spec = section(service, "spec")
    (namespace, name) = key_of(service)
    ports = [entry for entry in mappings(spec, "ports") if entry.get("port") == port]
    if not spec.get("selector") or not ports:
        return
    names = f"its environment names {namespace}/{name}"
    for server in network.servers(service):
        target = server.port(ports[0].get("targetPort", port))
        if not network.allows("egress", pods, server, target):
            closed = f"the network policies of {pods.namespace} let nothing out to it"
            remedy = f"{_let_out(namespace, pods.namespace)}."
            yield _warning(pods.about, "env", f"{names}, and {closed}", remedy)
        elif not network.allows("ingress", server, pods, target):
            message = f"{names}, whose network policies do not let it in"
            remedy = f"Add an ingress rule for namespace {pods.namespace} (callers of {name})."
            yield _warning(pods.about, "env", message, remedy)
