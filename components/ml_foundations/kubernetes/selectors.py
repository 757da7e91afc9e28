"""Label selectors and node selectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ml_foundations.kubernetes.manifests import UNKNOWN, Manifest, items, section


def selects(selector: Manifest | None, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector selects labels; no selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    equal = section(selector, "matchLabels")
    return all(labels.get(key) == value for key, value in equal.items()) and all(
        matches(requirement, labels) for requirement in items(selector, "matchExpressions")
    )


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


def _integer(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[+-]?[0-9]+", str(text)):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
