"""What a program's resources need of a Google Cloud project, and what controllers make there."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping

_Resources = Iterable[tuple[str, Mapping[str, Any]]]
"""Type and inputs of each resource."""

_ADMIN = "roles/container.admin"
_WITHIN_ADMIN = "roles/container.developer"
"""A role, and one whose permissions are all in it."""
_TABLES = {
    "gcp": (("apis.csv",), ("roles.csv",)),
    "kubernetes": (("apis.csv", "leftovers.csv", "inside_cluster.csv"),),
}
"""The tables in which a type of a provider has a row: one of each group."""


def needed_apis(resources: _Resources) -> dict[str, str]:
    """Return the Google APIs that resources need, each with a reason."""
    return _needed("apis.csv", "api", "reason", resources)


def needed_roles(resources: _Resources) -> dict[str, str]:
    """Return the roles on the project that creating resources needs, each with a reason."""
    roles = _needed("roles.csv", "role", "reason", resources)
    if _ADMIN in roles:
        roles.pop(_WITHIN_ADMIN, None)
    return roles


def finding_commands(resources: _Resources) -> dict[str, str]:
    """Return the commands that find what GKE's controllers make for resources, and what it is."""
    return _needed("leftovers.csv", "command", "what", resources)


def unlisted(resources: _Resources) -> list[str]:
    """Return the types of resources that the tables lack: their APIs and roles are not known."""
    unknown: set[str] = set()
    for type_, _ in resources:
        for tables in _TABLES.get(type_.partition(":")[0], ()):
            listed = [row["type"] for name in tables for row in rows(name)]
            if not any(map(type_.startswith, listed)):
                unknown.add(type_)
    return sorted(unknown)


def _needed(table: str, column: str, reason_column: str, resources: _Resources) -> dict[str, str]:
    table_rows = list(rows(table))
    needed = dict[str, str]()
    for type_, inputs in resources:
        for row in table_rows:
            field = row["field"].split()
            values = row["values"].split()
            if type_.startswith(row["type"]) and _has(inputs, field, values):
                needed.setdefault(row[column], row[reason_column])
    return dict(sorted(needed.items()))


def _has(inputs: Mapping[str, Any], path: list[str], values: list[str]) -> bool:
    """Return whether a field has, or may have, one of some values, or any if none is listed."""
    if not path:
        return True
    for value in _below(inputs, path):
        if value is UNKNOWN or (str(value) in values if values else bool(value)):
            return True
    return False


def _below(tree: Any, path: list[str]) -> Iterator[Any]:
    """Yield the values of a field, in each item of the lists on its way."""
    if tree is UNKNOWN or not path:
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:  # pyright: ignore[reportUnknownVariableType]
            yield from _below(item, path)
    elif is_mapping(tree):
        yield from _below(tree.get(path[0]), path[1:])
