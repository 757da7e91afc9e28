"""Pods and claims that the API server refuses for what they request: names, amounts, limits, and LimitRanges."""

from collections.abc import Iterable, Sequence
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import (
    WHOLE,
    Amounts,
    format_milli,
    is_whole,
    milli,
    millis,
)
from ml_foundations.planning.api_server.text_formats import CONTAINER_RESOURCE
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import (
    HUGE_PAGES,
    Field,
    is_extended,
    is_overcommitted,
    is_pod_level,
    of_containers,
    without_overhead,
)


def invalid_resources(spec: Manifest) -> tuple[Refusal, ...]:
    """Resources of a pod or a template that the API server refuses whatever the namespace."""
    found = [
        each
        for path, _, requests, limits in _of_each(spec)
        for each in _invalid(path, requests, limits)
    ]
    if "resources" not in spec:
        return tuple(found)
    found += _invalid("resources", *_resources(spec), of_pod=True)
    whole = {field: millis(section(spec, "resources", field)) for field in ("requests", "limits")}
    sums = of_containers(spec, "requests")
    huge = {
        name: sum
        for name, sum in of_containers(spec, "limits").items()
        if not is_overcommitted(name)
    }
    containers = [
        (path, limits) for path, _, _, limits in _of_each(spec) if path.startswith("containers")
    ]
    of_pod = [("requests", "resources", sums), ("limits", "resources", huge)]
    for field, path, parts in (*of_pod, *(("limits", *each) for each in containers)):
        for name, amount in parts.items():
            if amount > whole[field].get(name, amount):
                shown, most = format_milli(amount), format_milli(whole[field][name])
                where = f"{path}.{field}.{name}"
                found.append(
                    told(
                        "pod-below-containers",
                        where,
                        shown=shown,
                        name=name,
                        field=field,
                        most=most,
                    )
                )
    return tuple(found)


def out_of_range(spec: Manifest, limit_ranges: Sequence[Manifest]) -> list[Refusal]:
    """Why the LimitRanges of its namespace refuse a pod with an admitted spec."""
    found: list[Refusal] = []
    for name, item in _limits(limit_ranges):
        if item.get("type") == "Container":
            for container in _of_each(spec):
                found += _outside(name, item, *container)
        elif item.get("type") == "Pod":
            sums = _of_pod(spec, "requests"), _of_pod(spec, "limits")
            found += _outside(name, item, "resources", "the pod", *sums)
    return found


def claim_refusals(claim: Manifest, limit_ranges: Sequence[Manifest]) -> list[Refusal]:
    """Why the API server refuses a claim because of a LimitRange."""
    requests = millis(section(claim, "spec", "resources", "requests"))
    return [
        refusal
        for name, item in _limits(limit_ranges)
        if item.get("type") == "PersistentVolumeClaim"
        for refusal in _outside(
            name, item, "resources", "the claim", requests, {}, max_of="requests"
        )
    ]


def _limits(limit_ranges: Sequence[Manifest]) -> Iterable[tuple[str, Manifest]]:
    for limit_range in limit_ranges:
        yield from (
            (name_of(limit_range), item) for item in items(section(limit_range, "spec"), "limits")
        )


def _of_each(spec: Manifest) -> list[tuple[str, str, Amounts, Amounts]]:
    """Requests and limits of each container, with its path and its name."""
    return [
        (f"{key}[{index}].resources", f"container {container.get('name')}", *_resources(container))
        for key in ("containers", "initContainers")
        for index, container in enumerate(items(spec, key))
    ]


def _resources(container: Manifest) -> tuple[Amounts, Amounts]:
    resources = section(container, "resources")
    return millis(section(resources, "requests")), millis(section(resources, "limits"))


def _of_pod(spec: Manifest, field: Field) -> Amounts:
    """Requests or limits of the pod as LimitRanger sums them: huge pages of the pod as a whole do not count."""
    whole = without_overhead(spec, field)
    return of_containers(spec, field) | {
        name: whole[name] for name in ("cpu", "memory") if name in whole
    }


def _invalid(
    path: str, requests: Amounts, limits: Amounts, *, of_pod: bool = False
) -> Iterable[Refusal]:
    for name, amount in dict.fromkeys((*limits.items(), *requests.items())):
        size = name.removeprefix(HUGE_PAGES)
        may_have = is_pod_level(name) if of_pod else CONTAINER_RESOURCE.matches(name)
        if not may_have or amount < 0 or (size != name and not _is_multiple(amount, size)):
            yield told(
                "no-such-resource", f"{path}.limits.{name}", amount=format_milli(amount), name=name
            )
    if any(name.startswith(HUGE_PAGES) for name in requests | limits) and not {"cpu", "memory"} & {
        *requests,
        *limits,
    }:
        yield Refusal(
            "invalid",
            path,
            "has huge pages without cpu or memory",
            "Request cpu or memory as well.",
        )
    for name, wanted in sorted((limits | requests).items()):
        shown, limit = format_milli(wanted), limits.get(name)
        if is_extended(name) and not is_whole(wanted):
            yield told("fraction", f"{path}.requests.{name}", shown=shown, name=name)
        if limit is None and not is_overcommitted(name):
            yield told("no-limit", f"{path}.limits.{name}", shown=shown, name=name)
        elif (
            limit is not None and wanted != limit and (wanted > limit or not is_overcommitted(name))
        ):
            rule = "request-above-limit" if is_overcommitted(name) else "request-apart-from-limit"
            yield told(
                rule, f"{path}.requests.{name}", shown=shown, name=name, limit=format_milli(limit)
            )


def _is_multiple(amount: int, size: str) -> bool:
    try:
        return amount % milli(size) == 0
    except (ValueError, ZeroDivisionError):
        return False


def _outside(
    name: str,
    item: Manifest,
    path: str,
    what: str,
    requests: Amounts,
    limits: Amounts,
    max_of: str = "limits",
) -> Iterable[Refusal]:
    for field, own, extreme in (("min", "requests", min), ("max", max_of, max)):
        for resource, text in section(item, field).items():
            bound, where = milli(text), f"{path}.{own}.{resource}"
            given = extreme(
                [bound, *(values[resource] for values in (requests, limits) if resource in values)]
            )
            said: dict[str, Any] = {"name": name, "what": what, "text": text, "resource": resource}
            if resource not in (requests if own == "requests" else limits):
                yield told(f"limit-range-{field}-needed", where, own=own.removesuffix("s"), **said)
            elif given != bound:
                yield told(f"limit-range-{field}", where, has=format_milli(given), **said)
    for resource, most in section(item, "maxLimitRequestRatio").items():
        request, limit = requests.get(resource, 0), limits.get(resource, 0)
        if not request or not limit:
            has = f"{'requests' if not request else 'limits'} none"
        elif limit * WHOLE > milli(most) * request:
            has = f"requests {format_milli(request)} with a limit of {format_milli(limit)}"
        else:
            continue
        where = f"{path}.requests.{resource}"
        yield told(
            "limit-ratio", where, name=name, what=what, most=most, resource=resource, has=has
        )
