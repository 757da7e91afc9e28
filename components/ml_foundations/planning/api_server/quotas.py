"""ResourceQuotas as the API server charges them: what a pod, a claim and a workload count against, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.kubernetes.manifests import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import millis
from ml_foundations.planning.model.resources import (
    Amounts,
    is_extended,
    is_pod_level,
    pod_limits,
    pod_requests,
    total,
)

ONE = 1000

OBJECT_COUNTS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("count/deployments.apps", "count/replicasets.apps"),
    "ReplicaSet": ("count/replicasets.apps",),
    "StatefulSet": ("count/statefulsets.apps",),
    "DaemonSet": ("count/daemonsets.apps",),
    "Job": ("count/jobs.batch",),
    "CronJob": ("count/cronjobs.batch", "count/jobs.batch"),
    "ReplicationController": ("count/replicationcontrollers", "replicationcontrollers"),
    "JobSet": ("count/jobsets.jobset.x-k8s.io",),
}
"""What the objects of a workload count against; a Deployment makes a ReplicaSet, a run of a CronJob a Job."""

_MUST_BE_GIVEN = ("cpu", "memory")


def pod_charge(spec: Manifest) -> Amounts:
    """What a pod with an admitted spec counts against, by the names of quotas, in thousandths."""
    requests, limits = pod_requests(spec), pod_limits(spec)
    charge: Amounts = {"pods": ONE, "count/pods": ONE}
    for name, amount in requests.items():
        if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
            charge[name] = amount
            charge[f"requests.{name}"] = amount
        elif is_extended(name):
            charge[f"requests.{name}"] = amount
    for name in ("cpu", "memory", "ephemeral-storage"):
        if name in limits:
            charge[f"limits.{name}"] = limits[name]
    return charge


def object_charge(kind: str) -> Amounts:
    """What the objects of a workload count against, its pods and claims apart."""
    return dict.fromkeys(OBJECT_COUNTS.get(kind, ()), ONE)


def claim_charge(claim: Manifest) -> Amounts:
    """What a PersistentVolumeClaim counts against; its class by name where it has one."""
    spec = section(claim, "spec")
    storage = millis(section(spec, "resources", "requests")).get("storage", 0)
    charge = {"persistentvolumeclaims": ONE, "count/persistentvolumeclaims": ONE, "requests.storage": storage}
    if storage_class := spec.get("storageClassName"):
        prefix = f"{storage_class}.storageclass.storage.k8s.io"
        charge |= {f"{prefix}/requests.storage": storage, f"{prefix}/persistentvolumeclaims": ONE}
    return charge


def covers_pod(quota: Manifest, spec: Manifest) -> bool:
    """Whether a quota's scopes take in a pod with an admitted spec."""
    return all(_in_scope(requirement, spec) for requirement in _scopes(quota))


def covers_objects(quota: Manifest) -> bool:
    """Whether a quota counts objects other than pods: scopes are about pods alone."""
    return not _scopes(quota)


def hard(quota: Manifest) -> Amounts:
    """What a quota allows."""
    return millis(section(quota, "spec", "hard"))


def used(quota: Manifest) -> Amounts:
    """What a quota says is used; empty for one that is not created yet."""
    return millis(section(quota, "status", "used"))


def missing_requirements(quota: Manifest, spec: Manifest) -> list[tuple[str, str]]:
    """Resources that a quota on them makes containers give, and the containers that do not."""
    if any(is_pod_level(name) for field in ("requests", "limits") for name in section(spec, "resources", field)):
        return []
    found: list[tuple[str, str]] = []
    for name in section(quota, "spec", "hard"):
        field, dot, resource = name.partition(".")
        field, resource = (field, resource) if dot else ("requests", name)
        if resource not in _MUST_BE_GIVEN or field not in ("requests", "limits"):
            continue
        for container in (*items(spec, "containers"), *items(spec, "initContainers")):
            if resource not in section(container, "resources", field):
                found.append((f"{field}.{resource}", container.get("name", "")))
    return found


def excess(quota: Manifest, charge: Mapping[str, int], taken: Mapping[str, int]) -> dict[str, tuple[int, int, int]]:
    """What a charge takes too much of: the charge, what is free and what is allowed, by the quota's resource."""
    allowed = hard(quota)
    return {
        name: (amount, allowed[name] - taken.get(name, 0), allowed[name])
        for name, amount in charge.items()
        if name in allowed and taken.get(name, 0) + amount > allowed[name]
    }


def most_pods(quota: Manifest, charge: Mapping[str, int], taken: Mapping[str, int], wanted: int) -> int:
    """How many pods with a charge a quota accepts."""
    allowed = hard(quota)
    for name, amount in charge.items():
        if name in allowed:
            free = allowed[name] - taken.get(name, 0)
            if free < 0:
                return 0
            if amount:
                wanted = min(wanted, free // amount)
    return max(0, wanted)


def charges(parts: Iterable[tuple[Mapping[str, int], int]]) -> Amounts:
    """The sum of charges, each so many times."""
    return total({name: amount * count for name, amount in charge.items()} for charge, count in parts)


def described(quota: Manifest) -> str:
    """A quota for messages."""
    return f"ResourceQuota {name_of(quota)}"


def _scopes(quota: Manifest) -> list[Manifest]:
    spec = section(quota, "spec")
    plain: Sequence[str] = spec.get("scopes") or []
    named = [{"scopeName": scope, "operator": "Exists"} for scope in plain]
    return [*named, *items(section(spec, "scopeSelector"), "matchExpressions")]


def _in_scope(requirement: Manifest, spec: Manifest) -> bool:
    match requirement["scopeName"]:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return is_best_effort(spec)
        case "NotBestEffort":
            return not is_best_effort(spec)
        case "PriorityClass":
            return _has_priority_class(requirement, spec.get("priorityClassName"))
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec)
        case _:
            return False


def is_best_effort(spec: Manifest) -> bool:
    """Whether a pod asks for neither cpu nor memory: the quality of service BestEffort."""
    holders = [spec] if spec.get("resources") else [*items(spec, "containers"), *items(spec, "initContainers")]
    return not any(
        amount
        for holder in holders
        for field in ("requests", "limits")
        for name, amount in millis(section(holder, "resources", field)).items()
        if name in ("cpu", "memory")
    )


def _has_priority_class(requirement: Manifest, name: Any) -> bool:
    values: list[str] = requirement.get("values") or []
    match requirement.get("operator"):
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return name in values
        case "NotIn":
            return not name or name not in values
        case _:
            return False


def _crosses_namespaces(spec: Manifest) -> bool:
    affinity = section(spec, "affinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        holder = section(affinity, kind)
        required = items(holder, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = items(holder, "preferredDuringSchedulingIgnoredDuringExecution")
        for term in [*required, *(section(weighted, "podAffinityTerm") for weighted in preferred)]:
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False
