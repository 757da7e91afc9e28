"""Pods and claims that the API server rejects for their resources: names, amounts, LimitRanges."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import (
    WHOLE,
    Amounts,
    format_milli,
    is_whole,
    milli,
    millis,
)
from ml_foundations.kubernetes.text_formats import CONTAINER_RESOURCE
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import (
    HUGE_PAGES,
    Field,
    is_extended,
    is_overcommitted,
    is_pod_level,
    of_containers,
    without_overhead,
)


class _Resources(NamedTuple):
    """Requests and limits in thousandths, with their path in the pod's spec and who has them."""

    path: str
    holder: str
    requests: Amounts
    limits: Amounts


def invalid_resources(spec: Manifest) -> tuple[Refusal, ...]:
    """Return why the API server rejects resources of a pod or a template, in any namespace."""
    containers = _of_each_container(spec)
    refusals = [refusal for container in containers for refusal in _invalid(container)]
    if "resources" in spec:
        pod = _resources_of(spec, "resources", "the pod")
        refusals += _invalid(pod, of_pod=True)
        refusals += _above_pod(spec, pod, containers)
    return tuple(refusals)


def _above_pod(
    spec: Manifest, pod: _Resources, containers: Iterable[_Resources]
) -> Iterator[Refusal]:
    """Yield refusals for containers whose requests or limits are above those of the pod."""
    limits = of_containers(spec, "limits").items()
    huge_pages = {name: amount for name, amount in limits if not is_overcommitted(name)}
    compared = [
        ("requests", "resources", of_containers(spec, "requests"), pod.requests),
        ("limits", "resources", huge_pages, pod.limits),
    ]
    for container in containers:
        if container.path.startswith("containers"):
            compared.append(("limits", container.path, container.limits, pod.limits))
    for field, path, amounts, maximums in compared:
        for name, amount in amounts.items():
            maximum = maximums.get(name, amount)
            if amount > maximum:
                shown = format_milli(amount)
                most = format_milli(maximum)
                of_pod = f"the {field} of the pod as a whole are {most}"
                message = f"its containers have {shown} of {name}, and {of_pod}"
                remedy = f"Raise resources.{field}.{name} of the pod to {shown}."
                yield Refusal("invalid", f"{path}.{field}.{name}", message, remedy)


def out_of_range(spec: Manifest, limit_ranges: Sequence[Manifest]) -> list[Refusal]:
    """Return why LimitRanges of its namespace reject a pod with an admitted spec."""
    if not limit_ranges:
        return []
    pod = _Resources("resources", "the pod", _of_pod(spec, "requests"), _of_pod(spec, "limits"))
    return _by_type(limit_ranges, {"Container": _of_each_container(spec), "Pod": [pod]})


def claim_refusals(claim: Manifest, limit_ranges: Sequence[Manifest]) -> list[Refusal]:
    """Return why LimitRanges reject a claim."""
    requests = millis(section(claim, "spec", "resources", "requests"))
    resources = _Resources("resources", "the claim", requests, {})
    return _by_type(limit_ranges, {"PersistentVolumeClaim": [resources]})


def _by_type(
    limit_ranges: Iterable[Manifest], by_type: Mapping[str, Sequence[_Resources]]
) -> list[Refusal]:
    """Return why LimitRanges reject resources, by the types that their limits are for."""
    refusals: list[Refusal] = []
    for limit_range in limit_ranges:
        for limit in items(section(limit_range, "spec"), "limits"):
            for resources in by_type.get(str(limit.get("type")), ()):
                refusals += _outside(name_of(limit_range), limit, resources)
    return refusals


def _of_each_container(spec: Manifest) -> list[_Resources]:
    return [
        _resources_of(container, f"{key}[{index}].resources", f"container {container.get('name')}")
        for key in ("containers", "initContainers")
        for index, container in enumerate(items(spec, key))
    ]


def _resources_of(holder: Manifest, path: str, name: str) -> _Resources:
    resources = section(holder, "resources")
    requests = section(resources, "requests")
    limits = section(resources, "limits")
    return _Resources(path, name, millis(requests), millis(limits))


def _of_pod(spec: Manifest, field: Field) -> Amounts:
    """Return requests or limits of the pod as LimitRanger adds them up.

    Huge pages of the pod as a whole do not count.
    """
    amounts = of_containers(spec, field)
    whole = without_overhead(spec, field)
    for name in ("cpu", "memory"):
        if name in whole:
            amounts[name] = whole[name]
    return amounts


def _invalid(resources: _Resources, *, of_pod: bool = False) -> Iterator[Refusal]:
    path, _, requests, limits = resources
    for name, amount in dict.fromkeys((*limits.items(), *requests.items())):
        # A pod as a whole can have cpu, memory and huge pages only.
        is_name = is_pod_level(name) if of_pod else CONTAINER_RESOURCE.matches(name)
        page_size = name.removeprefix(HUGE_PAGES)
        is_page = page_size == name or _is_multiple(amount, page_size)
        if not is_name or amount < 0 or not is_page:
            shown = f"{format_milli(amount)} of {name}"
            message = f"has {shown}, which is not an amount of a resource that it can have"
            remedy = "Correct the name or the amount."
            yield Refusal("invalid", f"{path}.limits.{name}", message, remedy)
    names = requests.keys() | limits.keys()
    has_huge_pages = any(name.startswith(HUGE_PAGES) for name in names)
    if has_huge_pages and names.isdisjoint({"cpu", "memory"}):
        message = "has huge pages without cpu or memory"
        remedy = "Request cpu or memory as well."
        yield Refusal("invalid", path, message, remedy)
    for name, amount in sorted((limits | requests).items()):
        yield from _invalid_amount(path, name, amount, limits.get(name))


def _invalid_amount(path: str, name: str, amount: int, limit: int | None) -> Iterator[Refusal]:
    """Yield why a request is not a whole number, or does not agree with its limit."""
    shown = format_milli(amount)
    request_path = f"{path}.requests.{name}"
    if is_extended(name) and not is_whole(amount):
        message = f"requests {shown} of {name}, which comes in whole units only"
        remedy = f"Request a whole number of {name}."
        yield Refusal("extended-resource-fraction", request_path, message, remedy)
    if limit is None:
        if not is_overcommitted(name):
            message = f"requests {shown} of {name} without a limit, which the API server refuses"
            remedy = f"Set limits.{name} to {shown}."
            yield Refusal("extended-resource-limit", f"{path}.limits.{name}", message, remedy)
    elif amount > limit or (amount != limit and not is_overcommitted(name)):
        rule = "extended-resource-limit"
        relation = "exactly"
        if is_overcommitted(name):
            rule = "request-above-limit"
            relation = "at most"
        must_be = f"with its limit of {format_milli(limit)} it must be {relation} that"
        remedy = f"Set requests.{name} and limits.{name} to the same amount."
        yield Refusal(rule, request_path, f"requests {shown} of {name}; {must_be}", remedy)


def _is_multiple(amount: int, size: str) -> bool:
    try:
        return amount % milli(size) == 0
    except (ValueError, ZeroDivisionError):
        return False


def _outside(limit_range: str, limit: Manifest, resources: _Resources) -> Iterator[Refusal]:
    """Yield why a limit of a LimitRange rejects the resources of a container, a pod or a claim."""
    path, holder, requests, limits = resources
    # A claim has requests only, so its maximum is about these.
    maximum_of = "requests" if limit.get("type") == "PersistentVolumeClaim" else "limits"
    for bound_name, field, relation, remedy in (
        ("min", "requests", "at least", "Raise {} to {}, or lower the minimum"),
        ("max", maximum_of, "at most", "Lower {} to {}, or raise the maximum"),
    ):
        for resource, text in section(limit, bound_name).items():
            bound = milli(text)
            # LimitRanger compares a bound with the request and with the limit, if both exist.
            amounts = [of[resource] for of in (requests, limits) if resource in of]
            extreme = (min if bound_name == "min" else max)([bound, *amounts])
            rule = f"limit-range-{bound_name}"
            where = f"{path}.{field}.{resource}"
            allowed = f"LimitRange {limit_range} allows {holder} {relation} {text} of {resource}"
            if resource not in (requests if field == "requests" else limits):
                message = f"{allowed}, and it has no {field.removesuffix('s')}"
                yield Refusal(rule, where, message, f"Set {field}.{resource} to {relation} {text}.")
            elif extreme != bound:
                message = f"{allowed}, and it has {format_milli(extreme)}"
                fix = f"{remedy.format(resource, text)} of LimitRange {limit_range}."
                yield Refusal(rule, where, message, fix)
    yield from _above_ratio(limit_range, limit, resources)


def _above_ratio(limit_range: str, limit: Manifest, resources: _Resources) -> Iterator[Refusal]:
    """Yield why a limit that is too many times its request is rejected."""
    for resource, ratio in section(limit, "maxLimitRequestRatio").items():
        request = resources.requests.get(resource, 0)
        maximum = resources.limits.get(resource, 0)
        if not request or not maximum:
            given = f"{'limits' if request else 'requests'} none"
        elif maximum * WHOLE > milli(ratio) * request:
            given = f"requests {format_milli(request)} with a limit of {format_milli(maximum)}"
        else:
            continue
        path, holder, *_ = resources
        most = f"a limit of at most {ratio} times the request of {resource}"
        message = f"LimitRange {limit_range} allows {holder} {most}, and it {given}"
        remedy = f"Raise the request of {resource}, or lower its limit."
        yield Refusal("limit-range-ratio", f"{path}.requests.{resource}", message, remedy)
