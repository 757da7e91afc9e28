"""Probes and Services that ask a port on which the server of a pod does not listen."""

from collections.abc import Iterator
from typing import Any

from ml_foundations.catalog.inference_gateways import asked_port, listening, ports_of
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.words import names, verb
from ml_foundations.models.reasons import Cause, Reason, warning
from ml_foundations.models.serving import Serving
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.rules.stack import Stack

_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_port(
    stack: Stack, workload: Workload, pods: PodSet, container: Manifest, serving: Serving
) -> Iterator[Reason]:
    """Yield who asks a port of the pod at which its only container does not answer."""
    if serving.port is None or [*listening(section(pods.template, "spec"))] != [container]:
        return
    declared = ports_of(container)
    by_port: dict[int, list[str]] = {}
    for asker, ports in (*_of_probes(container), *_of_services(stack, workload.namespace, pods)):
        targets = [declared.get(port) if isinstance(port, str) else port for port in ports]
        numbers = [target for target in targets if isinstance(target, int)]
        if numbers and len(numbers) == len(targets):
            port = serving.port if serving.port in numbers else min(numbers)
            by_port.setdefault(port, []).append(asker)
    for port, askers in by_port.items():
        who = names(askers)
        if port != serving.port:
            ask = verb(len(askers), "asks", "ask")
            yield warning(Cause.PORT, serving.port, port, who=who, ask=ask)
        elif serving.host in _LOOPBACK:
            reach = verb(len(askers), "does", "do")
            yield warning(Cause.LOOPBACK, serving.host, None, who=who, do=reach)


def _of_probes(container: Manifest) -> Iterator[tuple[str, list[Any]]]:
    """Yield the probes that ask the pod's address, with the port."""
    for probe in _PROBES:
        if not section(container, probe, "httpGet").get("host"):
            yield f"its {probe}", [asked_port(container, probe)]


def _of_services(stack: Stack, namespace: str, pods: PodSet) -> Iterator[tuple[str, list[Any]]]:
    """Yield the Services that lead to the pods, with their ports of the pods.

    Services without an address may be for the names of the pods alone.
    """
    for key, value in pods.labels.items():
        for service in stack.services_by_label.get((namespace, key, str(value)), ()):
            spec = section(service, "spec")
            selector: Manifest = {"matchLabels": section(spec, "selector")}
            if spec.get("clusterIP") != "None" and selects(selector, pods.labels):
                ports = items(spec, "ports")
                yield (
                    f"Service {name_of(service)}",
                    [port.get("targetPort", port.get("port")) for port in ports],
                )
