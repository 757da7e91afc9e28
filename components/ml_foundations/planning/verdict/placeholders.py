"""Values that stand for a user's own: Google refuses them, or they make a cluster that nobody can reach."""

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from typing import Any

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import name_of, namespace_of
from ml_foundations.kubernetes.trees import leaves
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.verdict.findings import Finding, Severity

PLACEHOLDER = "placeholder"
"""The rule."""
_ROWS = list(rows("placeholders.csv"))
_NETWORKS = [(ip_network(row["value"]), row) for row in _ROWS if row["kind"] == "network"]
_DOMAINS = [(f".{row['value']}", row) for row in _ROWS if row["kind"] == "domain"]
_PROJECTS = [
    (re.compile(f"(^|/){row['value']}($|/)"), row) for row in _ROWS if row["kind"] == "project"
]
_KINDS = ("ClusterRoleBinding", "Ingress", "NetworkPolicy", "RoleBinding", "Service")
"""Kinds of Kubernetes that name users, networks or domains."""


def placeholder_findings(resources: Iterable[Resource]) -> Iterator[Finding]:
    """Yield an error for each placeholder in what goes to Google Cloud, or opens a way into the cluster."""
    for type_, inputs in resources:
        if type_.startswith("gcp:"):
            name = f"{type_.rpartition(':')[2]} {inputs.get('name')}"
        elif inputs.get("kind") in _KINDS:
            name = f"{inputs['kind']} {namespace_of(inputs)}/{name_of(inputs)}"
        else:
            continue
        for path, value in leaves({key: inputs[key] for key in inputs.keys() - {"metadata"}}):
            if meaning := placeholder(value):
                remedy = "Set your own. Only a rehearsal accepts it."
                message = f'"{value}" {meaning}'
                yield Finding(PLACEHOLDER, Severity.ERROR, name, path, message, remedy)


def placeholder(value: Any) -> str:
    """Return what a value stands for, with the source; nothing if it is no placeholder.

    Example: ``placeholder("ml@example.com")`` is "is kept for examples (RFC 2606)".
    """
    if not isinstance(value, str):
        return ""
    found = [row for pattern, row in _PROJECTS if pattern.search(value)]
    domain = "." + value.lower().rpartition("@")[2].rpartition("/")[2]
    has_dot = "." in value or "@" in value
    found += [row for ending, row in _DOMAINS if has_dot and domain.endswith(ending)]
    found += [row for network, row in _NETWORKS if _is_within(value, network)]
    return f"{found[0]['meaning']} ({found[0]['source']})" if found else ""


def _is_within(value: str, network: Any) -> bool:
    """Return whether a text is an address or a block of a network."""
    try:
        block = ip_network(value, strict=False)
    except ValueError:
        return False
    return block.version == network.version and block.subnet_of(network)
