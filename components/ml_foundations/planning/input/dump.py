"""The command that prints what planning reads of a cluster."""

from ml_foundations.kubernetes.objects import plural
from ml_foundations.planning.input import field_catalog

_UNREAD_KINDS = frozenset({"Secret", "Event", "Lease", "ControllerRevision", "PodTemplate"})
_UNREAD_GROUPS = frozenset({"discovery.k8s.io", "events.k8s.io", "coordination.k8s.io"})
"""Kinds that decide nothing and are many or secret, and groups of such kinds."""


def dump_command() -> str:
    """Return a shell command that prints the objects of all kinds that planning knows.

    It asks the cluster first which of them it has: kubectl refuses a list with any other.
    """
    resources: set[str] = set()
    """As api-resources prints them, as regular expressions."""
    for pattern in field_catalog.listed_kinds():
        version, _, kind = pattern.partition(" ")
        group = version.rpartition("/")[0].replace(".", r"\.")
        name = "[a-z]+" if kind == "*" else plural(kind)
        is_unread = kind in _UNREAD_KINDS or version.rpartition("/")[0] in _UNREAD_GROUPS
        if not is_unread and (group or kind != "*"):
            resources.add(rf"{name}\.{group}" if group else name)
    known = "|".join(sorted(resources))
    listed = f"kubectl api-resources --verbs=list -o name | grep -Ex '{known}' | paste -sd, -"
    return f'kubectl get "$({listed})" -A -o yaml'
