"""Containers that run with too little: shared memory above a limit, GPUs with a default limit."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import WHOLE, milli, millis, readable
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import PodSet

_LEAST_PER_GPU = {"cpu": 1 * WHOLE, "memory": 4 * 1024**3 * WHOLE}
"""Far less than any machine of the catalog has per GPU: such a default was not meant for GPUs."""


def shared_memory_above_limit(pods: PodSet, spec: Manifest) -> Iterator[Refusal]:
    """Yield volumes in memory that may outgrow the containers that mount them."""
    for volume in items(section(pods.template, "spec"), "volumes"):
        source = section(volume, "emptyDir")
        name = volume.get("name")
        size: Any = source.get("sizeLimit")
        is_in_memory = source.get("medium") == "Memory"
        if not is_in_memory or size in (None, UNKNOWN) or name is UNKNOWN:
            continue
        # Writes to the volume count against the container's limit (Kubernetes, "emptyDir"), so the
        # container is killed. The spec is that of the pods with the LimitRanges' defaults.
        limits = [*_limits_of_mounting(pods, spec, name)]
        if limits and all(0 < limit.amount < milli(size) for limit in limits):
            amount, path, is_default = max(limits)
            by = " by a LimitRange's default" if is_default else ""
            message = (
                f"the volume {name} in memory may grow to {size}, and counts against the memory "
                f"of its containers, which is limited to {readable(amount)}{by}"
            )
            remedy = (
                f"Set limits.memory of the container above {size}, or lower the volume's sizeLimit."
            )
            yield Refusal("shared-memory", path, message, remedy)


class _Limit(NamedTuple):
    """The memory limit of a container that mounts a volume."""

    amount: int
    """In thousandths of a byte; 0 if there is none."""
    path: str
    is_default: bool
    """Whether it is a LimitRange's default."""


def _limits_of_mounting(pods: PodSet, spec: Manifest, volume: Any) -> Iterator[_Limit]:
    """Yield the memory limits of the containers that mount a volume."""
    stored_containers = (*items(spec, "initContainers"), *items(spec, "containers"))
    stored = {container.get("name"): container for container in stored_containers}
    of_pod: Any = section(spec, "resources", "limits").get("memory")
    for key in ("initContainers", "containers"):
        for index, container in enumerate(items(section(pods.template, "spec"), key)):
            mounts = items(container, "volumeMounts")
            if not any(mount.get("name") == volume for mount in mounts):
                continue
            admitted = stored.get(container.get("name"), {})
            of_container: Any = section(admitted, "resources", "limits").get("memory")
            amounts = [milli(limit) for limit in (of_container, of_pod) if limit is not None]
            declared = section(container, "resources", "limits")
            is_default = of_container is not None and "memory" not in declared
            path = f"{pods.path}.{key}[{index}].resources.limits.memory"
            yield _Limit(min(amounts, default=0), path, is_default)


def gpus_with_defaults(pods: PodSet, spec: Manifest) -> Iterator[Refusal]:
    """Yield containers with GPUs that a LimitRange's default limits to little CPU or memory."""
    if section(pods.spec, "resources", "limits"):
        return
    stored = {container.get("name"): container for container in items(spec, "containers")}
    for index, container in enumerate(items(pods.spec, "containers")):
        name = container.get("name")
        declared = section(container, "resources")
        limits = millis(section(stored.get(name, {}), "resources", "limits"))
        gpus = limits.get(GPU_RESOURCE, 0) // WHOLE
        set_by_user = {*section(declared, "limits"), *section(declared, "requests")}
        amounts: list[str] = []
        fields: list[str] = []
        is_too_little = False
        for resource, least in _LEAST_PER_GPU.items():
            if resource in limits and resource not in set_by_user:
                amounts.append(f"{readable(limits[resource])} {resource}")
                fields.append(f"limits.{resource}")
                is_too_little = is_too_little or limits[resource] < gpus * least
        if is_too_little:
            has = f"its container {name} has {number(gpus, 'GPU')}"
            message = f"{has}, and a LimitRange's default limits it to {' and '.join(amounts)}"
            remedy = f"Set {' and '.join(fields)} of the container."
            path = f"{pods.path}.containers[{index}].resources"
            yield Refusal("gpu-defaults", path, message, remedy)
