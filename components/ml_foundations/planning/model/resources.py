"""Requests and limits of pods, summed over their containers as Kubernetes does, in thousandths."""

from collections.abc import Mapping
from itertools import chain
from typing import Literal

from ml_foundations.kubernetes.labels import DEVICES_OF_CLASS, GPU_RESOURCE
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, millis, total

PODS = "pods"
"""The resource that each pod takes one of; a node has as many as it may run pods."""
HUGE_PAGES = "hugepages-"
"""What the names of huge pages begin with; the size of a page follows."""

Field = Literal["requests", "limits"]


def resource_name(name: str) -> str:
    """Return the name of a resource in messages: of claimed devices, their class."""
    of_class = name.startswith(DEVICES_OF_CLASS)
    return name.removeprefix(DEVICES_OF_CLASS).partition("#")[0] if of_class else name


def pod_requests(spec: Manifest) -> Amounts:
    """Return what counts for a pod at admission: containers, pod-level requests and overhead."""
    return total((without_overhead(spec, "requests"), millis(section(spec, "overhead"))))


def pod_limits(spec: Manifest) -> Amounts:
    """Return what a pod may use at most; overhead adds to what is limited."""
    limits = without_overhead(spec, "limits")
    overhead = millis(section(spec, "overhead"))
    return total((limits, {name: amount for name, amount in overhead.items() if limits.get(name)}))


def without_overhead(spec: Manifest, field: Field) -> Amounts:
    """Return the requests or limits of a pod: of the pod as a whole, else of its containers."""
    sums = of_containers(spec, field)
    if "resources" not in spec:
        return sums
    resources = section(spec, "resources")
    amounts = millis(section(resources, field))
    limits = millis(section(resources, "limits"))
    if field == "requests" and limits:
        # The requests of containers have priority over the pod-level limit, not for huge pages.
        requested = {name: sums[name] for name in sums if is_overcommitted(name)}
        amounts = limits | requested | amounts
    return sums | {name: amounts[name] for name in amounts if is_pod_level(name)}


def of_containers(spec: Manifest, field: Field) -> Amounts:
    """Return the requests or limits of a pod's containers together."""
    sums = total(of_container(container, field) for container in items(spec, "containers"))
    if not items(spec, "initContainers"):
        return sums
    sidecars: Amounts = {}
    peak: Amounts = {}
    # An init container runs next to the sidecars that started before it, and ends before the next.
    for container in items(spec, "initContainers"):
        amounts = of_container(container, field)
        if container.get("restartPolicy") == "Always":
            sidecars = total((sidecars, amounts))
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, total((sidecars, amounts)))
    return maximum(total((sums, sidecars)), peak)


def requesting(spec: Manifest, resource: str) -> list[str]:
    """Return the containers that run together when a pod requests most of a resource.

    The list is empty if a single container requests it, or the pod as a whole.
    """
    if "resources" in spec:
        return []
    sidecars = list[Manifest]()
    together = [items(spec, "containers")]
    for container in items(spec, "initContainers"):
        together.append([*sidecars, container])
        if container.get("restartPolicy") == "Always":
            sidecars.append(container)
    together[0] = [*together[0], *sidecars]

    def amount(container: Manifest) -> int:
        return of_container(container, "requests").get(resource, 0)

    busiest = max(together, key=lambda containers: sum(map(amount, containers)))
    alone = len([*filter(amount, chain.from_iterable(together))]) == 1
    return [] if alone else [str(container.get("name")) for container in filter(amount, busiest)]


def gpus(amounts: Amounts) -> int:
    """Return the GPUs among amounts."""
    return amounts.get(GPU_RESOURCE, 0) // WHOLE


def is_pod_level(name: str) -> bool:
    """Return whether a resource may be given for the pod as a whole."""
    return name in ("cpu", "memory") or name.startswith(HUGE_PAGES)


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one: of a domain other than kubernetes.io."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_overcommitted(name: str) -> bool:
    """Return whether limits may be above requests."""
    return not is_extended(name) and not name.startswith(HUGE_PAGES)


def maximum(first: Mapping[str, int], second: Mapping[str, int]) -> Amounts:
    """Return the larger amount of each resource."""
    return {name: max(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}


def of_container(container: Manifest, field: Field) -> Amounts:
    """Return the requests or limits of one container."""
    resources = section(container, "resources")
    declared = millis(section(resources, field))
    # A limit without a request is a request: the API server stores it so.
    return millis(section(resources, "limits")) | declared if field == "requests" else declared
