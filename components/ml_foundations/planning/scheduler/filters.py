"""The kube-scheduler's filters of one pod on one node: why the pod would be refused.

Covered: node name, unschedulable nodes, node selector and required node affinity, taints and tolerations, and
resources with the number of pods. A pod is taken as the API server would store it, as far as requests go:
a limit without a request is a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from ml_foundations.kubernetes.manifests import UNKNOWN, Manifest, items, labels_of, section
from ml_foundations.kubernetes.quantities import format_quantity, millis
from ml_foundations.kubernetes.selectors import matches
from ml_foundations.kubernetes.tolerations import UNSCHEDULABLE_TAINT, described_taint, untolerated_taints
from ml_foundations.planning.model import resources
from ml_foundations.planning.model.resources import PODS, WHOLE

__all__ = ["PODS", "Refusal", "pod_requests", "refusals", "why_not"]


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


def _name(node: Manifest) -> Any:
    return section(node, "metadata").get("name", "")


def _node_name(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    wanted, name = spec.get("nodeName"), _name(node)
    if wanted and name is UNKNOWN:
        yield Refusal("node-name", "nodeName", f"the node {wanted} may be one of this pool", certain=False)
    elif wanted and wanted != name:
        yield Refusal("node-name", "nodeName", f"the pod names the node {wanted}")


def _unschedulable(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    tolerations, is_cordoned = items(spec, "tolerations"), section(node, "spec").get("unschedulable")
    if is_cordoned and untolerated_taints(tolerations, [UNSCHEDULABLE_TAINT]):
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


def _described(requirement: Manifest) -> str:
    values = ", ".join(map(str, requirement.get("values") or []))
    return f"{requirement['key']} {requirement.get('operator')}{f' [{values}]' if values else ''}"


def _shown(labels: Mapping[str, Any], key: str) -> str:
    return f"{key}={labels[key]}" if key in labels else f"no {key}"


def _taints(spec: Manifest, node: Manifest) -> Iterable[Refusal]:
    for taint in untolerated_taints(items(spec, "tolerations"), items(section(node, "spec"), "taints")):
        yield Refusal("taint", "tolerations", f"untolerated taint {described_taint(taint)}")


def _insufficient(pod: Manifest, node: Manifest, used: Mapping[str, Fraction]) -> Iterable[str]:
    allocatable = millis(section(node, "status", "allocatable"))
    for name, wanted in sorted((pod_requests(pod) | {PODS: Fraction(1)}).items()):
        whole = Fraction(resources.in_scheduler_units(name, allocatable.get(name, 0)), WHOLE)
        free = whole - used.get(name, Fraction(0))
        if wanted and wanted > free:
            shown = [format_quantity(amount) for amount in (wanted, max(free, Fraction(0)), whole)]
            yield "insufficient {}: needs {}, {} free of {}".format(name, *shown)
