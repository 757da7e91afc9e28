"""What the API server makes of a pod before it stores it, and what it refuses: defaults, LimitRanges, tolerations.

Follows the admission plugins LimitRanger and ExtendedResourceToleration, and the checks of requests against limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_foundations.kubernetes.manifests import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import format_milli, milli, millis
from ml_foundations.planning.model.resources import (
    is_extended,
    is_overcommitted,
    is_pod_level,
    of_containers,
    without_overhead,
)

Requirements = Mapping[str, Any]


class Objection(NamedTuple):
    """Why the API server refuses a pod or a claim."""

    rule: str
    path: str
    """The field of the pod's spec, or of the claim's."""
    message: str
    remedy: str


def admitted(
    spec: Manifest, limit_ranges: Sequence[Manifest], runtime_classes: Mapping[str, Manifest] | None = None
) -> Manifest:
    """The spec of a pod as the API server stores it.

    Args:
        spec: The pod's own spec.
        limit_ranges: The LimitRanges of its namespace.
        runtime_classes: The RuntimeClasses that are declared, by name.
    """
    defaulted = _with_own_defaults(spec)
    if found := (runtime_classes or {}).get(spec.get("runtimeClassName") or ""):
        defaulted = _with_runtime_class(defaulted, found)
    for limit_range in limit_ranges:
        defaulted = _with_limit_range(defaulted, limit_range)
    extended = sorted(
        {name for _, container in _containers(defaulted) for name in _resources(container)[0] if is_extended(name)}
    )
    added = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in extended]
    return {**defaulted, "tolerations": [*items(defaulted, "tolerations"), *added]} if added else defaulted


def ambiguous_defaults(limit_ranges: Sequence[Manifest]) -> list[str]:
    """Resources for which several LimitRanges give different defaults: which one wins is not defined."""
    seen: dict[tuple[str, str], int] = {}
    found: list[str] = []
    for limit_range in limit_ranges:
        limits, requests = _container_defaults(limit_range)
        for kind, values in (("limits", limits), ("requests", requests)):
            for name, value in millis(values).items():
                if seen.setdefault((kind, name), value) != value:
                    found.append(name)
    return sorted(set(found))


def objections(spec: Manifest, limit_ranges: Sequence[Manifest]) -> list[Objection]:
    """Why the API server refuses a pod with an admitted spec; empty where it accepts it."""
    found = [objection for path, container in _containers(spec) for objection in _errors(path, container)]
    for limit_range in limit_ranges:
        name = name_of(limit_range)
        for item in _limits(limit_range):
            if item.get("type") == "Container":
                for path, container in _containers(spec):
                    requests, limits = map(millis, _resources(container))
                    found += _outside(item, name, f"container {container.get('name')}", path, requests, limits)
            elif item.get("type") == "Pod":
                sums = [_of_pod(spec, "requests"), _of_pod(spec, "limits")]
                found += _outside(item, name, "the pod", "resources", *sums)
    return found


def claim_objections(claim: Manifest, limit_ranges: Sequence[Manifest]) -> list[Objection]:
    """Why the API server refuses a claim because of a LimitRange."""
    requests = millis(section(claim, "spec", "resources", "requests"))
    return [
        objection
        for limit_range in limit_ranges
        for item in _limits(limit_range)
        if item.get("type") == "PersistentVolumeClaim"
        for objection in (
            *_below(item, name_of(limit_range), "the claim", "resources.requests", requests, {}),
            *_above(item, name_of(limit_range), "the claim", "resources.requests", requests, requests),
        )
    ]


def _containers(spec: Manifest) -> Iterable[tuple[str, Manifest]]:
    for key in ("containers", "initContainers"):
        for index, container in enumerate(items(spec, key)):
            yield f"{key}[{index}].resources", container


def _resources(container: Manifest) -> tuple[Requirements, Requirements]:
    resources = section(container, "resources")
    return section(resources, "requests"), section(resources, "limits")


def _with_own_defaults(spec: Manifest) -> Manifest:
    """Limits become requests where there are none: of containers first, then of the pod as a whole."""

    def defaulted(container: Manifest) -> Manifest:
        requests, limits = _resources(container)
        return (
            {**container, "resources": {"requests": {**limits, **requests}, "limits": limits}} if limits else container
        )

    result = _with_containers(spec, defaulted)
    resources = section(spec, "resources")
    limits = section(resources, "limits")
    if not limits:
        return result
    of_all = {
        name: format_milli(amount)
        for name, amount in of_containers(result, "requests").items()
        if is_pod_level(name) and is_overcommitted(name)
    }
    return {**result, "resources": {**resources, "requests": {**limits, **of_all, **section(resources, "requests")}}}


def _with_runtime_class(spec: Manifest, runtime_class: Manifest) -> Manifest:
    scheduling = section(runtime_class, "scheduling")
    return {
        **spec,
        "overhead": spec.get("overhead") or section(runtime_class, "overhead", "podFixed"),
        "nodeSelector": {**section(scheduling, "nodeSelector"), **section(spec, "nodeSelector")},
        "tolerations": [*items(spec, "tolerations"), *items(scheduling, "tolerations")],
    }


def _with_limit_range(spec: Manifest, limit_range: Manifest) -> Manifest:
    default_limits, default_requests = _container_defaults(limit_range)
    if not default_limits and not default_requests:
        return spec

    def defaulted(container: Manifest) -> Manifest:
        requests, limits = _resources(container)
        both = {"requests": {**default_requests, **requests}, "limits": {**default_limits, **limits}}
        return {**container, "resources": both}

    return _with_containers(spec, defaulted)


def _with_containers(spec: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    keys = [key for key in ("containers", "initContainers") if items(spec, key)]
    return {**spec, **{key: [change(container) for container in items(spec, key)] for key in keys}}


def _limits(limit_range: Manifest) -> list[Manifest]:
    return items(section(limit_range, "spec"), "limits")


def _container_defaults(limit_range: Manifest) -> tuple[Requirements, Requirements]:
    """Default limits and requests of containers: a maximum is a default limit, which is a default request."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for item in _limits(limit_range):
        if item.get("type") == "Container":
            default = {**section(item, "max"), **section(item, "default")}
            limits |= default
            requests |= {**section(item, "min"), **default, **section(item, "defaultRequest")}
    return limits, requests


def _of_pod(spec: Manifest, field: Any) -> dict[str, int]:
    """Requests or limits of the pod as LimitRanger sums them: huge pages of the pod as a whole do not count."""
    containers = of_containers(spec, field)
    whole = without_overhead(spec, field)
    return containers | {name: whole[name] for name in ("cpu", "memory") if name in whole}


def _errors(path: str, container: Manifest) -> Iterable[Objection]:
    requests, limits = map(millis, _resources(container))
    for name, wanted in sorted(requests.items()):
        shown, limit = format_milli(wanted), limits.get(name)
        if is_extended(name) and wanted % 1000:
            yield Objection(
                "extended-resource-fraction",
                f"{path}.requests.{name}",
                f"requests {shown} of {name}, which comes in whole units only",
                f"Request a whole number of {name}.",
            )
        if limit is None and not is_overcommitted(name):
            yield Objection(
                "extended-resource-limit",
                f"{path}.limits.{name}",
                f"requests {shown} of {name} without a limit, which the API server refuses",
                f"Set limits.{name} to {shown}.",
            )
        elif limit is not None and (wanted > limit or (wanted != limit and not is_overcommitted(name))):
            relation = "at most" if is_overcommitted(name) else "exactly"
            yield Objection(
                "request-above-limit" if is_overcommitted(name) else "extended-resource-limit",
                f"{path}.requests.{name}",
                f"requests {shown} of {name}; with its limit of {format_milli(limit)} it must be {relation} that",
                f"Set requests.{name} and limits.{name} to the same amount.",
            )


def _outside(
    item: Manifest, name: str, what: str, path: str, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterable[Objection]:
    yield from _below(item, name, what, f"{path}.requests", requests, limits)
    yield from _above(item, name, what, f"{path}.limits", requests, limits)
    yield from _ratio(item, name, what, path, requests, limits)


def _below(
    item: Manifest, name: str, what: str, path: str, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterable[Objection]:
    for resource, least in section(item, "min").items():
        given = [values[resource] for values in (requests, limits) if resource in values]
        if resource not in requests:
            yield Objection(
                "limit-range-min",
                f"{path}.{resource}",
                f"LimitRange {name} asks of {what} at least {least} of {resource}, and it requests none",
                f"Request at least {least} of {resource}.",
            )
        elif min(given) < milli(least):
            yield Objection(
                "limit-range-min",
                f"{path}.{resource}",
                f"LimitRange {name} asks of {what} at least {least} of {resource}; it has {format_milli(min(given))}",
                f"Raise {resource} to {least}, or lower the minimum of LimitRange {name}.",
            )


def _above(
    item: Manifest, name: str, what: str, path: str, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterable[Objection]:
    for resource, most in section(item, "max").items():
        given = [values[resource] for values in (requests, limits) if resource in values]
        if resource not in limits:
            yield Objection(
                "limit-range-max",
                f"{path}.{resource}",
                f"LimitRange {name} allows {what} at most {most} of {resource}, and it has no limit",
                f"Set a limit of at most {most} for {resource}.",
            )
        elif max(given) > milli(most):
            yield Objection(
                "limit-range-max",
                f"{path}.{resource}",
                f"LimitRange {name} allows {what} at most {most} of {resource}, and it has {format_milli(max(given))}",
                f"Lower {resource} to {most}, or raise the maximum of LimitRange {name}.",
            )


def _ratio(
    item: Manifest, name: str, what: str, path: str, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterable[Objection]:
    for resource, most in section(item, "maxLimitRequestRatio").items():
        request, limit = requests.get(resource, 0), limits.get(resource, 0)
        if not request or not limit:
            problem = f"{'requests' if not request else 'limits'} none"
        elif limit * 1000 > milli(most) * request:
            problem = f"requests {format_milli(request)} with a limit of {format_milli(limit)}"
        else:
            continue
        yield Objection(
            "limit-range-ratio",
            f"{path}.requests.{resource}",
            f"LimitRange {name} allows {what} a limit of at most {most} times the request of {resource}, "
            f"and it {problem}",
            f"Raise the request of {resource}, or lower its limit.",
        )
