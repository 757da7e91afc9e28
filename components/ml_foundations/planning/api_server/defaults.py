"""Defaults that the API server sets before it stores a pod: requests, limits and tolerations.

Follows the admission plugins RuntimeClass, LimitRanger, DefaultTolerationSeconds and
ExtendedResourceToleration.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog.gke_kinds import FUSE_PROFILE
from ml_foundations.catalog.injections import PREFETCH, PREFETCHES, SIDECAR, injections
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import format_milli, millis
from ml_foundations.kubernetes.selectors import wanted_values
from ml_foundations.planning.input.field_catalog import wrong_quantity
from ml_foundations.planning.model.resources import (
    is_extended,
    is_overcommitted,
    is_pod_level,
    of_containers,
)


def _toleration(key: str, effect: str, **fields: Any) -> Manifest:
    return {"key": key, "operator": "Exists", "effect": effect, **fields}


def _of_node_conditions(effect: str, conditions: str, **fields: Any) -> list[Manifest]:
    """Return tolerations of the taints that Kubernetes gives to nodes in some conditions."""
    keys = (f"node.kubernetes.io/{condition}" for condition in conditions.split())
    return [_toleration(key, effect, **fields) for key in keys]


_FOR_MINUTES = _of_node_conditions("NoExecute", "not-ready unreachable", tolerationSeconds=300)
_OF_DAEMONS = (
    *_of_node_conditions("NoExecute", "not-ready unreachable"),
    *_of_node_conditions("NoSchedule", "disk-pressure memory-pressure pid-pressure unschedulable"),
)
_ON_HOST_NETWORK = _of_node_conditions("NoSchedule", "network-unavailable")


def daemon_tolerations(spec: Manifest) -> Sequence[Manifest]:
    """Return the tolerations that the DaemonSet controller adds to its pods."""
    return (*_OF_DAEMONS, *_ON_HOST_NETWORK) if spec.get("hostNetwork") else _OF_DAEMONS


def admitted(
    spec: Manifest,
    limit_ranges: Sequence[Manifest],
    runtime_classes: Mapping[str, Manifest] | None = None,
) -> Manifest:
    """Return a declared spec as the API server stores it, by its namespace's LimitRanges."""
    defaulted = _with_own_defaults(spec)
    if runtime_class := (runtime_classes or {}).get(spec.get("runtimeClassName") or ""):
        scheduling = section(runtime_class, "scheduling")
        selector = section(scheduling, "nodeSelector")
        defaulted = {
            **defaulted,
            "overhead": defaulted.get("overhead") or section(runtime_class, "overhead", "podFixed"),
            "nodeSelector": {**selector, **section(defaulted, "nodeSelector")},
            "tolerations": [*items(defaulted, "tolerations"), *items(scheduling, "tolerations")],
        }
    for limit_range in limit_ranges:
        defaulted = _with_limit_range(defaulted, limit_range)
    requested: set[str] = set()
    for container in (*items(defaulted, "containers"), *items(defaulted, "initContainers")):
        requested.update(section(container, "resources", "requests"))
    tolerations = [*items(defaulted, "tolerations"), *_FOR_MINUTES]
    for name in filter(is_extended, sorted(requested)):
        tolerations.append(_toleration(name, "NoSchedule"))
    return {**defaulted, "tolerations": tolerations}


def queued(stored: Manifest, spec: Manifest) -> Manifest:
    """Return a template as Kueue copies it, of the spec of its pods as the API server stores them.

    Kueue sets requests, limits and overhead itself (pkg/workload/resources.go), and no tolerations
    and node selectors.
    """
    kept = ("nodeSelector", "tolerations")
    counted = {key: value for key, value in stored.items() if key not in kept}
    return {**counted, **{key: spec[key] for key in kept if key in spec}}


def with_default_class(spec: Manifest, namespace: Manifest, *, is_daemon: bool) -> Manifest:
    """Return a pod's spec with the ComputeClass of its namespace, by the namespace's labels."""
    keys = (labels.DEFAULT_CLASS, *(() if is_daemon else (labels.DEFAULT_CLASS_EXCEPT_DAEMONS,)))
    default = next(filter(None, map(namespace.get, keys)), None)
    if default is None or wanted_values(spec, labels.COMPUTE_CLASS):
        return spec
    selector = {**section(spec, "nodeSelector"), labels.COMPUTE_CLASS: default}
    return {**spec, "nodeSelector": selector}


def with_gke_tolerations(spec: Manifest) -> Manifest:
    """Return a pod's spec with tolerations of its ComputeClasses, and of Arm if it selects that."""
    taints = [(labels.COMPUTE_CLASS, name) for name in wanted_values(spec, labels.COMPUTE_CLASS)]
    if wanted_values(spec, labels.ARCH) == ["arm64"]:
        taints.append((labels.ARCH, "arm64"))
    if not taints:
        return spec
    added = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints]
    return {**spec, "tolerations": [*items(spec, "tolerations"), *added]}


def with_injected(spec: Manifest, annotations: Manifest, buckets: Iterable[Manifest]) -> Manifest:
    """Return the spec of a pod with the containers that GKE's webhook adds for mounted buckets.

    The webhook acts before LimitRanger does so again. ``buckets`` are volumes, as a pod or a
    PersistentVolume has them.
    """
    if str(annotations.get(labels.GCS_FUSE_VOLUMES)).lower() != "true":
        return spec
    # With a wrong amount, the webhook refuses the pods.
    amounts = {
        key: value
        for key, value in annotations.items()
        if isinstance(value, str) and not wrong_quantity(value)
    }
    added: list[Manifest] = []
    for name in (SIDECAR, PREFETCH) if any(map(_prefetches, buckets)) else (SIDECAR,):
        injection = injections()[name]
        resources = injection.resources_of(amounts)
        added.append(
            {"name": injection.container, "restartPolicy": "Always", "resources": resources}
        )
    return {**spec, "initContainers": [*added, *items(spec, "initContainers")]}


def is_profiled(bucket: Manifest) -> bool:
    """Return whether a volume has one of GKE's classes for buckets."""
    return str(bucket.get("storageClassName")).startswith(FUSE_PROFILE)


def _prefetches(bucket: Manifest) -> bool:
    attribute = section(bucket, "csi", "volumeAttributes").get(PREFETCHES)
    return is_profiled(bucket) if attribute is None else str(attribute).lower() == "true"


def ambiguous_defaults(limit_ranges: Sequence[Manifest]) -> list[str]:
    """Return the resources with different defaults in several LimitRanges: any of them may win."""
    seen: dict[tuple[str, str], int] = {}
    ambiguous: set[str] = set()
    for limit_range in limit_ranges:
        for kind, values in _container_defaults(limit_range).items():
            for name, value in millis(values).items():
                if seen.setdefault((kind, name), value) != value:
                    ambiguous.add(name)
    return sorted(ambiguous)


def _with_own_defaults(spec: Manifest) -> Manifest:
    """Return a spec with limits as requests, if it has none: of containers, then of the pod."""
    result = _with_containers(spec, _limits_as_requests)
    resources = section(spec, "resources")
    limits = section(resources, "limits")
    if not limits:
        return result
    # Without requests, the pod has those of its containers together, and else its limits.
    requests = dict(limits)
    for name, amount in of_containers(result, "requests").items():
        if is_pod_level(name) and is_overcommitted(name):
            requests[name] = format_milli(amount)
    requests |= section(resources, "requests")
    return {**result, "resources": {**resources, "requests": requests}}


def _limits_as_requests(container: Manifest) -> Manifest:
    resources = section(container, "resources")
    limits = section(resources, "limits")
    if not limits:
        return container
    requests = {**limits, **section(resources, "requests")}
    return {**container, "resources": {"requests": requests, "limits": limits}}


def _with_limit_range(spec: Manifest, limit_range: Manifest) -> Manifest:
    defaults = _container_defaults(limit_range)

    def defaulted(container: Manifest) -> Manifest:
        resources: dict[str, Any] = {}
        for kind, values in defaults.items():
            resources[kind] = {**values, **section(container, "resources", kind)}
        return {**container, "resources": resources}

    return _with_containers(spec, defaulted) if any(defaults.values()) else spec


def _with_containers(spec: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    changed = dict(spec)
    for key in ("containers", "initContainers"):
        if containers := items(spec, key):
            changed[key] = [*map(change, containers)]
    return changed


def _container_defaults(limit_range: Manifest) -> Mapping[str, Mapping[str, Any]]:
    """Return default requests and limits: a maximum is a default limit, that a default request."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for item in items(section(limit_range, "spec"), "limits"):
        if item.get("type") == "Container":
            default = {**section(item, "max"), **section(item, "default")}
            limits |= default
            requests |= {**section(item, "min"), **default, **section(item, "defaultRequest")}
    return {"requests": requests, "limits": limits}
