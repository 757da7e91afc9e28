"""The kube-scheduler's filters over plain manifests: why a pod would be refused by a node.

Covered: node name, unschedulable nodes, node selector and required node affinity, taints and tolerations, and
resources with the number of pods. A pod is taken as the API server would store it, as far as requests go:
a limit without a request is a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from ml_foundations.planning.quantity import format_quantity, parse_quantity

Manifest = Mapping[str, Any]

PODS = "pods"
UNSCHEDULABLE_TAINT: Manifest = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that a pod must tolerate to run on a cordoned node."""


def pod_requests(pod: Manifest) -> dict[str, Fraction]:
    """What the scheduler counts for a pod, by resource: all its containers and its overhead."""
    spec = _section(pod, "spec")
    total = _sum(_requests(container) for container in _items(spec, "containers"))
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in _items(spec, "initContainers"):
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, own))
            peak = _maximum(peak, sidecars)
        else:
            # An init container runs beside the sidecars that started before it.
            peak = _maximum(peak, _sum((sidecars, own)))
    total = _maximum(_sum((total, sidecars)), peak)
    total |= _pod_level_requests(spec, total)
    return _sum((total, _quantities(_section(spec, "overhead"))))


def why_not(pod: Manifest, node: Manifest, used: Mapping[str, Fraction]) -> list[str]:
    """Why the scheduler would refuse to place a pod on a node; empty where it fits.

    Args:
        pod: A Pod manifest, or a pod template.
        node: A Node manifest with its status.allocatable.
        used: What the pods already on the node request, by resource, with their number as ``pods``.
    """
    filters: tuple[Callable[[], Iterable[str]], ...] = (
        lambda: _node_name(pod, node),
        lambda: _unschedulable(pod, node),
        lambda: _node_selector(pod, node),
        lambda: _node_affinity(pod, node),
        lambda: _taints(pod, node),
        lambda: _resources(pod, node, used),
    )
    return [reason for check in filters for reason in check()]


def untolerated_taints(pod: Manifest, taints: Iterable[Manifest]) -> list[Manifest]:
    """The taints that keep a pod off: NoSchedule or NoExecute ones that no toleration of it matches."""
    tolerations = _items(_section(pod, "spec"), "tolerations")
    return [
        taint
        for taint in taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def _section(manifest: Manifest, key: str) -> Manifest:
    return manifest.get(key) or {}


def _items(manifest: Manifest, key: str) -> list[Manifest]:
    return manifest.get(key) or []


def _quantities(values: Manifest) -> dict[str, Fraction]:
    return {name: parse_quantity(value) for name, value in values.items()}


def _requests(holder: Manifest) -> dict[str, Fraction]:
    resources = _section(holder, "resources")
    return _quantities(_section(resources, "limits")) | _quantities(_section(resources, "requests"))


def _pod_level_requests(spec: Manifest, containers: Mapping[str, Fraction]) -> dict[str, Fraction]:
    resources = _section(spec, "resources")
    limits, requests = _section(resources, "limits"), _section(resources, "requests")
    # A pod-level limit stands for the request only where no container requests the resource.
    defaults = {name: value for name, value in limits.items() if name not in containers}
    return {
        name: value
        for name, value in (_quantities(defaults) | _quantities(requests)).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def _maximum(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    zero = Fraction(0)
    return {name: max(one.get(name, zero), other.get(name, zero)) for name in one.keys() | other.keys()}


def _name(node: Manifest) -> str:
    return _section(node, "metadata").get("name", "")


def _labels(node: Manifest) -> Mapping[str, str]:
    return _section(node, "metadata").get("labels") or {}


def _node_name(pod: Manifest, node: Manifest) -> Iterable[str]:
    wanted = _section(pod, "spec").get("nodeName")
    if wanted and wanted != _name(node):
        yield f"the pod names the node {wanted}"


def _unschedulable(pod: Manifest, node: Manifest) -> Iterable[str]:
    if _section(node, "spec").get("unschedulable") and untolerated_taints(pod, [UNSCHEDULABLE_TAINT]):
        yield "the node is cordoned (unschedulable)"


def _node_selector(pod: Manifest, node: Manifest) -> Iterable[str]:
    labels = _labels(node)
    for key, value in _section(_section(pod, "spec"), "nodeSelector").items():
        if labels.get(key) != value:
            yield f"node selector {key}={value}: the node has {_shown(labels, key)}"


def _node_affinity(pod: Manifest, node: Manifest) -> Iterable[str]:
    affinity = _section(_section(_section(pod, "spec"), "affinity"), "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return
    failures: list[str] = []
    for term in _items(required, "nodeSelectorTerms"):
        unmet = _unmet(term, node)
        if not unmet:
            return
        failures.append(" and ".join(unmet))
    yield f"required node affinity: {'; or '.join(failures) or 'it has no term, which matches no node'}"


def _unmet(term: Manifest, node: Manifest) -> list[str]:
    expressions, fields = _items(term, "matchExpressions"), _items(term, "matchFields")
    if not expressions and not fields:
        return ["an empty term matches no node"]
    labels, names = _labels(node), {"metadata.name": _name(node)}
    return [
        f"{_described(requirement)} (the node has {_shown(values, requirement['key'])})"
        for requirements, values in ((expressions, labels), (fields, names))
        for requirement in requirements
        if not _matches(requirement, values)
    ]


def _matches(requirement: Manifest, labels: Mapping[str, str]) -> bool:
    key, operator = requirement["key"], requirement.get("operator")
    values: list[str] = requirement.get("values") or []
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt":
            actual, bound = _integer(labels.get(key)), _integer(values[0]) if len(values) == 1 else None
            if actual is None or bound is None:
                return False
            return actual > bound if operator == "Gt" else actual < bound
        case _:
            return False


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[+-]?[0-9]+", text) else None


def _described(requirement: Manifest) -> str:
    values = ", ".join(requirement.get("values") or [])
    return f"{requirement['key']} {requirement.get('operator')}{f' [{values}]' if values else ''}"


def _shown(labels: Mapping[str, str], key: str) -> str:
    return f"{key}={labels[key]}" if key in labels else f"no {key}"


def _taints(pod: Manifest, node: Manifest) -> Iterable[str]:
    for taint in untolerated_taints(pod, _items(_section(node, "spec"), "taints")):
        value = f"={taint['value']}" if taint.get("value") else ""
        yield f"untolerated taint {taint['key']}{value}:{taint['effect']}"


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case _:
            # Lt and Gt belong to a feature gate that is off by default up to Kubernetes 1.36.
            return False


def _resources(pod: Manifest, node: Manifest, used: Mapping[str, Fraction]) -> Iterable[str]:
    allocatable = _quantities(_section(_section(node, "status"), "allocatable"))
    for name, wanted in sorted((pod_requests(pod) | {PODS: Fraction(1)}).items()):
        whole = allocatable.get(name, Fraction(0))
        free = whole - used.get(name, Fraction(0))
        if wanted and wanted > free:
            shown = [format_quantity(amount) for amount in (wanted, max(free, Fraction(0)), whole)]
            yield "insufficient {}: needs {}, {} free of {}".format(name, *shown)
