"""The quotas of Google Cloud by what takes from them, and the APIs of Google by what needs them."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.trees import UNKNOWN


def quota(kind: str, name: str) -> Mapping[str, str]:
    """Return the row of the quota that a thing takes from, such as a gpu of the type nvidia-l4."""
    return _quotas().get(f"{kind}/{name}") or _quotas()[f"{kind}/*"]


@cache
def _quotas() -> Mapping[str, Mapping[str, str]]:
    return {row["what"]: row for row in rows("quotas.csv")}


def needed_apis(resources: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Return the Google APIs that resources (type and inputs) need, each with a reason."""
    table, found = list(rows("apis.csv")), dict[str, str]()
    for type_, inputs in resources:
        for row in table:
            field, values = row["field"].split(), row["values"].split()
            if type_.startswith(row["type"]) and _has(inputs, field, values):
                found.setdefault(row["api"], row["reason"])
    return dict(sorted(found.items()))


def _has(inputs: Mapping[str, Any], path: list[str], values: list[str]) -> bool:
    """Return whether a field has, or may have, one of some values, or any if none is listed."""
    value: Any = section(inputs, *path[:-1]).get(path[-1]) if path else True
    return value is UNKNOWN or (str(value) in values if values else bool(value))
