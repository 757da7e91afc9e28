"""The kube-scheduler's filters of one pod on one node: why the pod would be refused.

Covered: node name, unschedulable nodes, node selector and required node affinity, taints and tolerations, and
resources with the number of pods. A pod is taken as the API server would store it, as far as requests go:
a limit without a request is a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from ml_foundations.kubernetes.manifests import UNKNOWN, Manifest, items, labels_of, section
from ml_foundations.kubernetes.quantities import format_quantity, millis
from ml_foundations.planning.model import resources
from ml_foundations.planning.model.resources import PODS, WHOLE

__all__ = ["PODS", "Refusal", "pod_requests", "refusals", "untolerated_taints", "why_not"]

UNSCHEDULABLE_TAINT: Manifest = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that a pod must tolerate to run on a cordoned node."""


class Refusal(NamedTuple):
    """Why a node refuses a pod."""

    rule: str
    path: str
    """The field of the pod's spec that decides."""
    message: str
    certain: bool = True
    """Whether the node refuses the pod; otherwise a value that is not known decides."""


def pod_requests(pod: Manifest) -> dict[str, Fraction]:
    """What the scheduler counts for a pod, by resource: all its containers and its overhead."""
    found = resources.pod_requests(section(pod, "spec"))
    return {name: Fraction(resources.in_scheduler_units(name, amount), WHOLE) for name, amount in found.items()}


def why_not(pod: Manifest, node: Manifest, used: Mapping[str, Fraction]) -> list[str]:
    """Why the scheduler would refuse to place a pod on a node; empty where it fits.

    Args:
        pod: A Pod manifest, or a pod template.
        node: A Node manifest with its status.allocatable.
        used: What the pods already on the node request, by resource, with their number as ``pods``.
    """
    refused = [refusal.message for refusal in refusals(section(pod, "spec"), node)]
    return refused + list(_insufficient(pod, node, used))


def refusals(spec: Manifest, node: Manifest) -> list[Refusal]:
    """Why a node refuses the pods of a spec whatever room it has; a name or label may be ``UNKNOWN``."""
    return [
        *_node_name(spec, node),
        *_unschedulable(spec, node),
        *_node_selector(spec, node),
        *_node_affinity(spec, node),
        *_taints(spec, node),
    ]


def matches_node_affinity(spec: Manifest, node: Manifest) -> bool:
    """Whether node selector and required node affinity allow a node."""
    return not [*_node_selector(spec, node), *_node_affinity(spec, node)]


def untolerated_taints(pod: Manifest, taints: Iterable[Manifest]) -> list[Manifest]:
    """The taints that keep a pod off: NoSchedule or NoExecute ones that no toleration of it matches."""
    tolerations = items(section(pod, "spec"), "tolerations")
    return [
        taint
        for taint in taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def _name(node: Manifest) -> Any:
    return section(node, "metadata").get("name", "")


def _node_name(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    wanted, name = spec.get("nodeName"), _name(node)
    if wanted and name is UNKNOWN:
        yield Refusal("node-name", "nodeName", f"the node {wanted} may be one of this pool", certain=False)
    elif wanted and wanted != name:
        yield Refusal("node-name", "nodeName", f"the pod names the node {wanted}")


def _unschedulable(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    if section(node, "spec").get("unschedulable") and untolerated_taints({"spec": spec}, [UNSCHEDULABLE_TAINT]):
        yield Refusal("node-unschedulable", "tolerations", "the node is cordoned (unschedulable)")


def _node_selector(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    labels = labels_of(node)
    for key, value in section(spec, "nodeSelector").items():
        if labels.get(key) != value:
            message = f"node selector {key}={value}: the node has {_shown(labels, key)}"
            yield Refusal("node-selector", f"nodeSelector.{key}", message, labels.get(key) is not UNKNOWN)


def _node_affinity(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    affinity = section(spec, "affinity", "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return
    failures: list[str] = []
    certain = True
    for term in items(required, "nodeSelectorTerms"):
        unmet = _unmet(term, node)
        if not unmet:
            return
        certain = certain and any(known for _, known in unmet)
        failures.append(" and ".join(text for text, _ in unmet))
    message = f"required node affinity: {'; or '.join(failures) or 'it has no term, which matches no node'}"
    yield Refusal("node-affinity", "affinity.nodeAffinity", message, certain)


def _unmet(term: Manifest, node: Manifest) -> list[tuple[str, bool]]:
    """The requirements of a term that a node does not meet, and whether that is known."""
    expressions, fields = items(term, "matchExpressions"), items(term, "matchFields")
    if not expressions and not fields:
        return [("an empty term matches no node", True)]
    labels, names = labels_of(node), {"metadata.name": _name(node)}
    return [
        (f"{_described(requirement)} (the node has {_shown(values, requirement['key'])})", met is not None)
        for requirements, values in ((expressions, labels), (fields, names))
        for requirement in requirements
        if not (met := matches(requirement, values))
    ]


def matches(requirement: Manifest, labels: Mapping[str, Any]) -> bool | None:
    """Whether labels meet a requirement of a node selector or a label selector; None where a label is unknown."""
    key, operator = requirement["key"], requirement.get("operator")
    values: list[str] = requirement.get("values") or []
    if labels.get(key) is UNKNOWN and operator in ("In", "NotIn", "Gt", "Lt"):
        return None
    match operator:
        case "In":
            return key in labels and labels[key] in values
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


def selects(selector: Manifest | None, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector selects labels; no selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    equal = section(selector, "matchLabels")
    return all(labels.get(key) == value for key, value in equal.items()) and all(
        matches(requirement, labels) for requirement in items(selector, "matchExpressions")
    )


def _integer(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[+-]?[0-9]+", str(text)):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _described(requirement: Manifest) -> str:
    values = ", ".join(map(str, requirement.get("values") or []))
    return f"{requirement['key']} {requirement.get('operator')}{f' [{values}]' if values else ''}"


def _shown(labels: Mapping[str, Any], key: str) -> str:
    return f"{key}={labels[key]}" if key in labels else f"no {key}"


def _taints(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    for taint in untolerated_taints({"spec": spec}, items(section(node, "spec"), "taints")):
        yield Refusal("taint", "tolerations", f"untolerated taint {described_taint(taint)}")


def described_taint(taint: Manifest) -> str:
    """A taint as kubectl writes it: key=value:effect."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


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


def _insufficient(pod: Manifest, node: Manifest, used: Mapping[str, Fraction]) -> Iterable[str]:
    allocatable = millis(section(node, "status", "allocatable"))
    for name, wanted in sorted((pod_requests(pod) | {PODS: Fraction(1)}).items()):
        whole = Fraction(resources.in_scheduler_units(name, allocatable.get(name, 0)), WHOLE)
        free = whole - used.get(name, Fraction(0))
        if wanted and wanted > free:
            shown = [format_quantity(amount) for amount in (wanted, max(free, Fraction(0)), whole)]
            yield "insufficient {}: needs {}, {} free of {}".format(name, *shown)
