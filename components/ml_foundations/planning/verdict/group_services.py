"""Findings about Services that also lead to the workers of a group, which answer no requests."""

from collections.abc import Iterator, Sequence
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, mappings, section
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.model.declared import full_name, of_kind
from ml_foundations.planning.model.kind_files import described_kinds
from ml_foundations.planning.verdict.findings import Finding, error
from ml_foundations.planning.verdict.network_policies import Network


def group_service_findings(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """Yield findings of the rule ``group-service``.

    A leader and its workers have the labels of their object. If only the leader declares the port
    of a Service that selects both, requests to workers fail.
    """
    if not any(item["kind"] in described_kinds() for item in objects):
        return
    network = Network(objects)
    for service in of_kind(objects, "Service"):
        spec = section(service, "spec")
        if any(unknown_paths(spec)) or not spec.get("selector") or spec.get("clusterIP") == "None":
            continue
        for port in mappings(spec, "ports"):
            yield from _silent_workers(network, service, port.get("targetPort", port.get("port")))


def _silent_workers(network: Network, service: Manifest, target: Any) -> Iterator[Finding]:
    """Yield the pods behind a Service without a port that others of their workload have."""
    servers = network.servers(service)
    answering = {pods.about: pods for pods in servers if target in pods.declared_ports}
    for pods in servers:
        # Pods without a port of a name get no requests, and so have no finding.
        if target not in pods.declared_ports and pods.about in answering:
            leader = answering[pods.about].labels.items() - pods.labels.items()
            message = f"it selects all pods of {pods.about}, and some have no port {target}"
            label = " or ".join(f'{key}: "{value}"' for key, value in sorted(leader))
            remedy = f"Add {label or 'a label of the pods with the port'} to the selector."
            text = f"{message}: requests fail there"
            yield error("group-service", full_name(service), "spec.selector", text, remedy)
