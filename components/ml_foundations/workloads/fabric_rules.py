"""Which workloads get the network between the GPUs of several nodes, and what contradicts it."""

from collections.abc import Iterator

from ml_foundations.kubernetes.objects import items
from ml_foundations.workloads.fabric import (
    PodFabric,
    daemon_errors,
    pod_fabric,
    without_fabric,
)
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.pod import WorkloadSpec


def used_fabric(gpu_fabric: GpuFabric | None, nodes: int, gpus: int) -> PodFabric:
    """Return what the pods of a workload get: no network on one node, or without all its GPUs."""
    if gpu_fabric is None or nodes == 1 or gpus < gpu_fabric.gpus_per_node:
        return without_fabric(gpu_fabric, gpus * nodes)
    return pod_fabric(gpu_fabric)


def fabric_errors(spec: WorkloadSpec) -> Iterator[tuple[str, str]]:
    """Yield arguments that keep the pods of a workload from the network."""
    gpu_fabric = spec.gpu_fabric
    if gpu_fabric is None or not spec.fabric.is_used:
        return
    if spec.fabric.script and not spec.program:
        reason = f"is required: it first reads {spec.fabric.script}"
        yield "command", f"{reason}, which the image's own command cannot; set the command"
    if spec.host_network:
        reason = "leaves the pods without the interfaces of gpu_fabric"
        yield "host_network", f"{reason}; leave one out"
    containers = [*spec.init_containers, *spec.side_containers]
    overrides = items(spec.pod_overrides, "initContainers")
    yield from daemon_errors(spec.fabric, gpu_fabric.kind, containers, overrides)


def fabric_warnings(spec: WorkloadSpec, nodes: int) -> Iterator[str]:
    """Yield why the pods of a workload may not use the network."""
    whole = spec.gpu_fabric.gpus_per_node if spec.gpu_fabric and nodes > 1 else 0
    if 0 < spec.gpus < whole:
        of_node = f"gpus is {spec.gpus}, and its nodes have {whole}"
        fix = f"Set gpus to {whole}, with fewer pods"
        yield f"{of_node}: only pods of whole nodes get the network between GPUs. {fix}"
    if spec.fabric.is_used and spec.user:
        reason = "added capabilities have no effect for it, and no manifest of Google has it"
        yield f"run_as_user is {spec.user}, in the network between GPUs: {reason}. Leave it out"
