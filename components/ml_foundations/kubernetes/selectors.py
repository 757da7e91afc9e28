"""Label selectors, node selectors, and those of devices."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, section, texts
from ml_foundations.kubernetes.trees import UNKNOWN

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
"""The fields of an affinity that hold what must be, and preferences."""


def node_affinity(*expressions: Manifest) -> dict[str, Any]:
    """Return the affinity of a pod for nodes that meet all of the expressions."""
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def cel(conditions: Iterable[str]) -> list[dict[str, Any]]:
    """Return selectors of devices, by conditions in CEL."""
    return [{"cel": {"expression": condition}} for condition in conditions]


def devices(device_class: str, count: int, conditions: Iterable[str]) -> dict[str, Any]:
    """Return a claim's request for a number of devices of a class that meet all conditions."""
    request = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return request | ({"selectors": selectors} if (selectors := cel(conditions)) else {})


def selects(selector: Manifest | None, labels: Mapping[str, Any]) -> bool:
    """Return whether a label selector selects labels.

    No selector selects nothing, an empty one selects everything.
    """
    if selector is None:
        return False
    expressions = items(selector, "matchExpressions")
    has_labels = _has(labels, section(selector, "matchLabels"))
    return has_labels and all(_matches(requirement, labels) for requirement in expressions)


def _has(labels: Mapping[str, Any], required: Mapping[str, Any]) -> bool:
    return all(labels.get(key) == value for key, value in required.items())


def selects_node(spec: Manifest, node: Manifest) -> bool:
    """Return whether a pod's node selector and required node affinity select a node."""
    required = required_node_affinity(spec)
    if not _has(labels_of(node), section(spec, "nodeSelector")):
        return False
    terms = items(required or {}, "nodeSelectorTerms")
    return required is None or any(not unmet(term, node) for term in terms)


def wanted_values(spec: Manifest, key: str) -> list[str]:
    """Return the values of a node label that a pod selects, by selector or required affinity."""
    selected = section(spec, "nodeSelector").get(key)
    values = [selected] if selected else []
    for term in items(required_node_affinity(spec) or {}, "nodeSelectorTerms"):
        for expression in items(term, "matchExpressions"):
            if expression.get("key") == key and expression.get("operator") == "In":
                values += expression.get("values") or ()
    return [*dict.fromkeys(values)]


def required_node_affinity(spec: Manifest) -> Manifest | None:
    """Return the required node affinity of a pod's spec."""
    return section(spec, "affinity", "nodeAffinity").get(REQUIRED)


class Unmet(NamedTuple):
    """A requirement of a term that a node does not meet."""

    requirement: Manifest
    labels: Mapping[str, Any]
    """The node's labels or fields that it is about."""
    is_certain: bool


def unmet(term: Manifest, node: Manifest) -> list[Unmet]:
    """Return the requirements of a term that a node does not meet.

    An empty term, which matches no node, gives an empty requirement.
    """
    expressions = items(term, "matchExpressions")
    fields = items(term, "matchFields")
    if not expressions and not fields:
        return [Unmet({}, {}, is_certain=True)]
    violations: list[Unmet] = []
    of_fields = {"metadata.name": name_of(node)}
    for requirements, values in ((expressions, labels_of(node)), (fields, of_fields)):
        for requirement in requirements:
            if not (met := _matches(requirement, values)):
                violations.append(Unmet(requirement, values, is_certain=met is not None))
    return violations


def _matches(requirement: Manifest, labels: Mapping[str, Any]) -> bool | None:
    """Return whether labels meet a requirement, or None if a label is unknown."""
    key = requirement.get("key")
    operator = requirement.get("operator")
    values = texts(requirement, "values")
    if not isinstance(key, str):
        return None
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
            actual = _integer(labels.get(key))
            bound = _integer(values[0]) if len(values) == 1 else None
            if actual is None or bound is None:
                return False
            return actual > bound if operator == "Gt" else actual < bound
        case _:
            return False


def _integer(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[+-]?[0-9]+", str(text)):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
