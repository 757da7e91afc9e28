"""The names in a ResourceQuota under which Kubernetes counts nothing, by its quota evaluators.

Source: kubernetes/kubernetes, pkg/quota/v1/evaluator/core and pkg/quota/v1/generic/evaluator.go.
"""

from typing import NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, plural, section, texts

_GROUPS = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), "apps"),
    "ControllerRevision": "apps",
    **dict.fromkeys(("Job", "CronJob"), "batch"),
    **dict.fromkeys(("Ingress", "NetworkPolicy"), "networking.k8s.io"),
    **dict.fromkeys(("Role", "RoleBinding"), "rbac.authorization.k8s.io"),
    "HorizontalPodAutoscaler": "autoscaling",
    "Lease": "coordination.k8s.io",
    "PodDisruptionBudget": "policy",
}
_COUNTS = {plural(kind): f"count/{plural(kind)}.{group}" for kind, group in _GROUPS.items()}
_OF_CORE = {
    *("configmaps", "endpoints", "limitranges", "persistentvolumeclaims", "pods", "podtemplates"),
    *("replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services"),
}
"""The resources of the core group that have a namespace; the API server leaves events out of
quotas."""
_OF_CLASSES = (
    ".storageclass.storage.k8s.io/requests.storage",
    ".storageclass.storage.k8s.io/persistentvolumeclaims",
    ".deviceclass.resource.k8s.io/devices",
)
_OF_PODS = "requests."
"""The prefix of extended resources."""
OF_CLAIMS = "VolumeAttributesClass"
"""The scope of claims; a quota with any other scope counts pods only."""


class Uncounted(NamedTuple):
    """A reason why a quota counts nothing under a name, how to fix it, and a name that counts."""

    reason: str
    fix: str
    """How to fix it, without the end of a sentence."""
    instead: str = ""


def scoped_to(spec: Manifest) -> str:
    """Return the only objects that a quota counts because of its scopes; nothing if it has none."""
    requirements = items(section(spec, "scopeSelector"), "matchExpressions")
    scopes = {
        *texts(spec, "scopes"),
        *(requirement.get("scopeName") for requirement in requirements),
    }
    return ("persistentvolumeclaims" if OF_CLAIMS in scopes else "pods") if scopes else ""


def uncounted(name: str, scoped_to: str = "") -> Uncounted | None:
    """Return why a quota of any objects, or of ``scoped_to``, counts nothing under a name.

    None if it counts, or if the API server refuses the name.
    """
    if "/" not in name or "deviceclass.resource.kubernetes.io/" in name:
        return None
    prefix, _, counted = name.partition("/")
    if prefix == "count":
        is_of_others = scoped_to not in ("", counted)
        return _object_count(counted) or (_scoped(name, scoped_to) if is_of_others else None)
    if name.endswith(_OF_CLASSES):
        is_of_claims = ".storageclass." in name and scoped_to == "persistentvolumeclaims"
        return _scoped(name, scoped_to) if scoped_to and not is_of_claims else None
    if "kubernetes.io/" in name or ".storageclass." in name or ".deviceclass." in name:
        return Uncounted("Kubernetes knows no such resource of a quota", f"Remove {name}")
    if name.startswith(_OF_PODS):
        return _scoped(name, scoped_to) if scoped_to == "persistentvolumeclaims" else None
    request = f"{_OF_PODS}{name.removeprefix('limits.')}"
    return _replaced("of extended resources it counts requests only", request)


def _object_count(resource: str) -> Uncounted | None:
    if "." in resource or resource in _OF_CORE:
        return None
    reason = f"the core API group has no {resource} in a namespace"
    if plural(resource) in _OF_CORE:
        return _replaced(reason, f"count/{plural(resource)}")
    if fixed := _COUNTS.get(resource) or _COUNTS.get(plural(resource)):
        return _replaced(reason, fixed)
    fix = f"Add its API group, as in count/jobs.batch, or remove count/{resource}"
    return Uncounted(reason, fix)


def _replaced(reason: str, instead: str) -> Uncounted:
    return Uncounted(reason, f"Replace it with {instead}", instead)


def _scoped(name: str, scoped_to: str) -> Uncounted:
    reason = f"a quota with its scopes counts {scoped_to} only"
    return Uncounted(reason, f"Move {name} to a ResourceQuota without scopes")
