"""GPUs that are claimed (DRA) and GPUs that are counted by model: what a stack file must say for either to work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ml_foundations.catalog.machine_types import gpu_by_name
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings
from ml_foundations.tenancy.quota import model_class

if TYPE_CHECKING:
    from ml_foundations.workloads.pod import WorkloadSettings
    from settings import Settings, Team


def suits(pool: GpuNodePoolSettings, workload: WorkloadSettings) -> bool:
    """Whether a pool has the GPUs of a workload, in the way in which the workload asks for them."""
    return workload.gpu in (None, pool.product) and pool.dra == (workload.gpu_claim is not None)


def pool_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Why the GPUs of a pool cannot be claimed."""
    for name, pool in settings.node_pools.items():
        if isinstance(pool, GpuNodePoolSettings) and pool.dra and settings.device_classes is None:
            yield f"nodePools.{name}.dra", "is true, but there is no deviceClasses; declare it"


def claim_errors(path: str, workload: WorkloadSettings, team_name: str, team: Team) -> Iterator[tuple[str, str]]:
    """Why a team's quota admits none of a workload's pods."""
    if workload.gpu_claim is not None and workload.gpus > team.quota.claimed_gpus:
        quota = f"teams.{team_name}.quota.claimedGpus is {team.quota.claimed_gpus}"
        yield f"{path}.gpus", f"is {workload.gpus}, and {quota}; raise it"
    elif workload.gpus and team.quota.gpus_by_model and workload.gpu is None:
        models = ", ".join(team.quota.gpus_by_model)
        yield f"{path}.gpu", f"is required: the team's GPUs are counted by model ({models})"
    elif workload.gpus and team.quota.gpus_by_model and workload.gpu_claim is None:
        yield from _model_errors(path, workload, team_name, team)


def _model_errors(path: str, workload: WorkloadSettings, team_name: str, team: Team) -> Iterator[tuple[str, str]]:
    model = gpu_by_name(workload.gpu or "").accelerator_type
    most = team.quota.gpus_by_model.get(model, 0)
    wanted = model_class(team_name, model)
    if workload.gpus > most:
        yield f"{path}.gpus", f"is {workload.gpus}, and teams.{team_name}.quota.gpusByModel allows {most} {model}"
    elif workload.priority_class not in (None, wanted):
        yield f"{path}.priorityClass", f"is {workload.priority_class}; GPUs of its model are counted by {wanted}"


def priority_class(workload: WorkloadSettings, team_name: str, team: Team) -> str | None:
    """The PriorityClass of a workload: that of its GPU model, where GPUs are counted by model."""
    if workload.priority_class is None and workload.gpus and team.quota.gpus_by_model and not workload.gpu_claim:
        return model_class(team_name, gpu_by_name(workload.gpu or "").accelerator_type)
    return workload.priority_class
