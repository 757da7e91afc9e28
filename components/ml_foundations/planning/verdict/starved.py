"""Containers that run and get too little: shared memory above their limit, GPUs with a LimitRange's default."""

from collections.abc import Iterator
from typing import Any

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import WHOLE, milli, millis, readable
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.workloads import PodSet

_LEAST_PER_GPU = {"cpu": 1 * WHOLE, "memory": 4 * 1024**3 * WHOLE}
"""Less than any machine of the catalog has for each GPU, by far: a default of so little was not meant for GPUs."""


def shared_memory_above_limit(pods: PodSet, spec: Manifest) -> Iterator[Refusal]:
    """Yield volumes in memory that may outgrow the containers that mount them, which are killed then.

    What is written counts against the container's limit (Kubernetes, "emptyDir").

    Args:
        pods: The pods as they are declared.
        spec: Their spec with the LimitRanges' defaults.
    """
    for volume in filter(is_mapping, items(section(pods.template, "spec"), "volumes")):
        source = section(volume, "emptyDir")
        size: Any = source.get("sizeLimit")
        if (
            source.get("medium") != "Memory"
            or size in (None, UNKNOWN)
            or volume.get("name") is UNKNOWN
        ):
            continue
        limits = [*_limits_of_mounting(pods, spec, volume.get("name"))]
        if limits and all(0 < limit < milli(size) for limit, *_ in limits):
            limit, path, by = max(limits)
            yield told(
                "shared-memory",
                path,
                volume=volume.get("name"),
                size=size,
                limit=readable(limit),
                by=by,
            )


def _limits_of_mounting(
    pods: PodSet, spec: Manifest, volume: Any
) -> Iterator[tuple[int, str, str]]:
    """Yield the memory limits of the containers that mount a volume, 0 for none, with their fields and givers."""
    stored = {
        each.get("name"): each
        for each in (*items(spec, "initContainers"), *items(spec, "containers"))
    }
    of_pod: Any = section(spec, "resources", "limits").get("memory")
    for key in ("initContainers", "containers"):
        for index, container in enumerate(items(section(pods.template, "spec"), key)):
            mounts = filter(is_mapping, items(container, "volumeMounts"))
            if any(mount.get("name") == volume for mount in mounts):
                own: Any = section(
                    stored.get(container.get("name"), {}), "resources", "limits"
                ).get("memory")
                limit = min((milli(each) for each in (own, of_pod) if each is not None), default=0)
                is_default = own is not None and "memory" not in section(
                    container, "resources", "limits"
                )
                path = f"{pods.path}.{key}[{index}].resources.limits.memory"
                yield limit, path, " by a LimitRange's default" if is_default else ""


def gpus_with_defaults(pods: PodSet, spec: Manifest) -> Iterator[Refusal]:
    """Yield containers with GPUs that a LimitRange's default limits to little CPU or memory."""
    if section(pods.spec, "resources", "limits"):
        return
    stored = {each.get("name"): each for each in items(spec, "containers")}
    for index, container in enumerate(items(pods.spec, "containers")):
        declared = section(container, "resources")
        limits = millis(section(stored.get(container.get("name"), {}), "resources", "limits"))
        gpus = limits.get(GPU_RESOURCE, 0) // WHOLE
        given = {*section(declared, "limits"), *section(declared, "requests")}
        defaults = {
            name: limits[name] for name in _LEAST_PER_GPU if name in limits and name not in given
        }
        if any(amount < gpus * _LEAST_PER_GPU[name] for name, amount in defaults.items()):
            amounts = " and ".join(
                f"{readable(amount)} {name}" for name, amount in defaults.items()
            )
            values: dict[str, Any] = {
                "container": container.get("name"),
                "gpus": gpus,
                "amounts": amounts,
            }
            fields = " and ".join(f"limits.{name}" for name in defaults)
            plural = "" if gpus == 1 else "s"
            yield told(
                "gpu-defaults",
                f"{pods.path}.containers[{index}].resources",
                fields=fields,
                plural=plural,
                **values,
            )
