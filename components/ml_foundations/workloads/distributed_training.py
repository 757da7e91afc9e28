"""A training on several nodes, whose pods get their ranks and the address of the first one."""

import re
from collections.abc import Iterator
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.base import OptionalChild
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.kubernetes import labels
from ml_foundations.typed_args import DistributedTrainingComponent
from ml_foundations.workloads.environment import env_rendezvous
from ml_foundations.workloads.several_nodes import SeveralNodesSpec
from ml_foundations.workloads.trained_model import TrainedModelSpec

_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(run|launch)\b")


class DistributedTrainingSpec(TrainedModelSpec, SeveralNodesSpec):
    """Arguments of a DistributedTraining."""

    launcher: Literal["torchrun", "env", "none"] | None = None
    """The environment variables of the pods: torchrun, env or none.

    torchrun sets the variables that torchrun reads (PET_…). env sets RANK, WORLD_SIZE, MASTER_ADDR
    and MASTER_PORT, for programs that start one process in each pod. none sets none of them. The
    default is torchrun. It is none if a command is set and no part of command, arguments and files
    contains torchrun or torch.distributed.run.
    """
    processes_per_node: int | None = Field(None, ge=1)
    """Processes that torchrun starts in each pod. By default, gpus, or 1 without GPUs."""
    rendezvous_port: int = Field(29500, ge=1, le=65535)
    """The port of the first pod for the rendezvous. The default is 29500."""

    @property
    def started_by(self) -> str:
        """The launcher; what is an Output, or the image's own command, may be torchrun."""
        words: list[Any] = [*(self.command or []), *(self.arguments or []), *self.files.values()]
        starts = any(not isinstance(word, str) or _TORCHRUN.search(word) for word in words)
        return self.launcher or ("torchrun" if starts or not self.command else "none")

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.processes_per_node is not None and self.started_by != "torchrun":
            reason = f"is for torchrun, and launcher is {self.started_by}; leave it out"
            yield "processes_per_node", reason

    @override
    def warnings(self) -> Iterator[str]:
        if self.launcher is None and self.started_by == "none" and self.nodes > 1:
            fix = "Set launcher to torchrun (PET_…), to env (RANK, MASTER_ADDR, …) or to none"
            yield f"the command contains no torchrun, so the pods get no rank and no address. {fix}"
        yield from super().warnings()

    @override
    def rendezvous(self) -> dict[str, dict[str, Any]]:
        if self.started_by == "none":
            return {}
        path = f"metadata.annotations['{labels.JOB_INDEX}']"
        address = self.master_address
        port = self.rendezvous_port
        if self.started_by == "env":
            return env_rendezvous(path, self.nodes, address, port)
        processes = self.processes_per_node or self.gpus or 1
        # torchrun reads its arguments from variables (PyTorch, torch.distributed.argparse_util).
        return {
            "PET_NNODES": {"value": str(self.nodes)},
            "PET_NPROC_PER_NODE": {"value": str(processes)},
            "PET_NODE_RANK": {"valueFrom": {"fieldRef": {"fieldPath": path}}},
            "PET_MASTER_ADDR": {"value": address},
            "PET_MASTER_PORT": {"value": str(port)},
        }


class DistributedTraining(DistributedTrainingComponent[DistributedTrainingSpec]):
    """Pods that train together, each with its rank and the address of the first pod.

    Use the command ``torchrun train.py``, without arguments for the rendezvous, or set
    ``launcher``. In a queue, all pods start at once or not at all. A change of the pods ends the
    run and starts a new one.
    """

    job_name: KnownOutput[str]
    """The name of the Job or the JobSet."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    master_address: KnownOutput[str]
    """The address of the first pod, inside the namespace."""
    job = OptionalChild("job")
    """The Job. None if it is a JobSet."""
    job_set = OptionalChild("jobset")
    """The JobSet. None if it is a Job."""
