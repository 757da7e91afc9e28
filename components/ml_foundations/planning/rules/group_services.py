"""Services that also lead to the workers of a group, which answer no requests."""

from collections.abc import Iterator
from typing import Any

from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes.objects import Manifest, mappings, section
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.rules.findings import Finding, Severity, error
from ml_foundations.planning.rules.network import Network
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack


@rule(
    "group-service",
    Severity.ERROR,
    "A Service leads to the leaders of groups, and to no workers that answer no requests.",
    source='Kubernetes, "Services": selectors; lws v0.9.0, pkg/utils/pod',
    example="""
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        metadata: {name: llm, namespace: ml}
        spec:
          leaderWorkerTemplate:
            size: 2
            leaderTemplate:
              metadata: {labels: {app: llm}}
              spec: {containers: [{name: llm, image: llm:1, ports: [{containerPort: 8000}]}]}
            workerTemplate:
              metadata: {labels: {app: llm}}
              spec: {containers: [{name: llm, image: llm:1}]}
        ---
        apiVersion: v1
        kind: Service
        metadata: {name: llm, namespace: ml}
        spec: {selector: {app: llm}, ports: [{port: 8000}]}
    """,
)
def group_services(stack: Stack) -> Iterator[Finding]:
    """Yield the Services that send requests to pods without their port.

    A leader and its workers have the labels of their object. If only the leader declares the port
    of a Service that selects both, requests to workers fail.
    """
    if not any(item["kind"] in described_kinds() for item in stack.objects):
        return
    for service in stack.of_kind("Service"):
        spec = section(service, "spec")
        if any(unknown_paths(spec)) or not spec.get("selector") or spec.get("clusterIP") == "None":
            continue
        for port in mappings(spec, "ports"):
            yield from _silent_workers(
                stack.network, service, port.get("targetPort", port.get("port"))
            )


def _silent_workers(network: Network, service: Manifest, target: Any) -> Iterator[Finding]:
    """Yield the pods behind a Service without a port that others of their workload have."""
    servers = network.servers(service)
    answering = {pods.about: pods for pods in servers if target in pods.declared_ports}
    for pods in servers:
        # Pods without a port of a name get no requests, and so have no finding.
        if target not in pods.declared_ports and pods.about in answering:
            leader = answering[pods.about].labels.items() - pods.labels.items()
            message = (
                f"it selects all pods of {pods.about}, and some have no port {target}: requests "
                "fail there"
            )
            label = " or ".join(f'{key}: "{value}"' for key, value in sorted(leader))
            remedy = f"Add {label or 'a label of the pods with the port'} to the selector."
            yield error("group-service", full_name(service), "spec.selector", message, remedy)
