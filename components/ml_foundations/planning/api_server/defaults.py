"""Defaults that the API server sets before it stores a pod: requests, limits and tolerations.

Follows the admission plugins RuntimeClass, LimitRanger, DefaultTolerationSeconds and
ExtendedResourceToleration.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import format_milli, millis
from ml_foundations.planning.model.resources import (
    is_extended,
    is_overcommitted,
    is_pod_level,
    of_containers,
)

_GCSFUSE = "gke-gcsfuse/"
_FOR_MINUTES = tuple(
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
)


def admitted(
    spec: Manifest,
    limit_ranges: Sequence[Manifest],
    runtime_classes: Mapping[str, Manifest] | None = None,
) -> Manifest:
    """Return the spec of a pod as the API server stores it.

    Args:
        spec: The declared spec.
        limit_ranges: The LimitRanges of its namespace.
        runtime_classes: The RuntimeClasses by name.
    """
    defaulted = _with_own_defaults(spec)
    if found := (runtime_classes or {}).get(spec.get("runtimeClassName") or ""):
        defaulted = _with_runtime_class(defaulted, found)
    for limit_range in limit_ranges:
        defaulted = _with_limit_range(defaulted, limit_range)
    containers = [*items(defaulted, "containers"), *items(defaulted, "initContainers")]
    requested = {
        name for container in containers for name in section(container, "resources", "requests")
    }
    extended = [
        {"key": name, "operator": "Exists", "effect": "NoSchedule"}
        for name in sorted(requested)
        if is_extended(name)
    ]
    return {
        **defaulted,
        "tolerations": [*items(defaulted, "tolerations"), *_FOR_MINUTES, *extended],
    }


def with_gcsfuse(spec: Manifest, annotations: Manifest) -> Manifest:
    """Return the spec of a pod with the sidecar that GKE adds for mounted buckets.

    Source: GKE, "Configure the Cloud Storage FUSE CSI driver sidecar container".
    """
    if annotations.get(f"{_GCSFUSE}volumes") != "true":
        return spec
    found: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for name, default in {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"}.items():
        request, limit = (
            annotations.get(f"{_GCSFUSE}{name}-{kind}") for kind in ("request", "limit")
        )
        limit = request if limit is None else limit
        if limit not in (None, "0"):
            found["limits"][name] = limit
        found["requests"][name] = request or found["limits"].get(name, default)
    sidecar = {"name": "gke-gcsfuse-sidecar", "restartPolicy": "Always", "resources": found}
    return {**spec, "initContainers": [sidecar, *items(spec, "initContainers")]}


def ambiguous_defaults(limit_ranges: Sequence[Manifest]) -> list[str]:
    """Return the resources with different defaults in several LimitRanges: any of them may win."""
    seen: dict[tuple[str, str], int] = {}
    found: set[str] = set()
    for limit_range in limit_ranges:
        limits, requests = _container_defaults(limit_range)
        for kind, values in (("limits", limits), ("requests", requests)):
            for name, value in millis(values).items():
                if seen.setdefault((kind, name), value) != value:
                    found.add(name)
    return sorted(found)


def _with_own_defaults(spec: Manifest) -> Manifest:
    """Return a spec with limits as requests, if it has none: of containers, then of the pod."""
    result = _with_containers(spec, _limits_as_requests)
    resources = section(spec, "resources")
    limits = section(resources, "limits")
    if not limits:
        return result
    of_all = {
        name: format_milli(amount)
        for name, amount in of_containers(result, "requests").items()
        if is_pod_level(name) and is_overcommitted(name)
    }
    return {
        **result,
        "resources": {
            **resources,
            "requests": {**limits, **of_all, **section(resources, "requests")},
        },
    }


def _limits_as_requests(container: Manifest) -> Manifest:
    resources = section(container, "resources")
    limits = section(resources, "limits")
    if not limits:
        return container
    return {
        **container,
        "resources": {"requests": {**limits, **section(resources, "requests")}, "limits": limits},
    }


def _with_runtime_class(spec: Manifest, runtime_class: Manifest) -> Manifest:
    scheduling = section(runtime_class, "scheduling")
    return {
        **spec,
        "overhead": spec.get("overhead") or section(runtime_class, "overhead", "podFixed"),
        "nodeSelector": {**section(scheduling, "nodeSelector"), **section(spec, "nodeSelector")},
        "tolerations": [*items(spec, "tolerations"), *items(scheduling, "tolerations")],
    }


def _with_limit_range(spec: Manifest, limit_range: Manifest) -> Manifest:
    limits, requests = _container_defaults(limit_range)

    def defaulted(container: Manifest) -> Manifest:
        own = section(container, "resources")
        both = {
            "requests": {**requests, **section(own, "requests")},
            "limits": {**limits, **section(own, "limits")},
        }
        return {**container, "resources": both}

    return _with_containers(spec, defaulted) if limits or requests else spec


def _with_containers(spec: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    keys = [key for key in ("containers", "initContainers") if items(spec, key)]
    return {**spec, **{key: [*map(change, items(spec, key))] for key in keys}}


def _container_defaults(limit_range: Manifest) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return default limits and requests: a maximum is a default limit, that a default request."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for item in items(section(limit_range, "spec"), "limits"):
        if item.get("type") == "Container":
            default = {**section(item, "max"), **section(item, "default")}
            limits |= default
            requests |= {**section(item, "min"), **default, **section(item, "defaultRequest")}
    return limits, requests
