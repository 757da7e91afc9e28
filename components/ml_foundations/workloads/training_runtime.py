"""The pods of TrainJobs: what a platform engineer sets once for all trainings of a team."""

from collections.abc import Iterator
from typing import Any

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.versions import TRAINER_API
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.labels import TRAIN_JOB_STEP
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import TrainingRuntimeComponent
from ml_foundations.workloads.fabric import PodFabric
from ml_foundations.workloads.fabric_rules import fabric_errors, used_fabric
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.pod_template import pod_template

_JOB = "node"
"""The name of the Job and of the container that Trainer changes (trainer v2.2.1, pkg/constants)."""
_MANY = 2
"""A TrainJob sets the nodes, so that the pods are made for several."""


class TrainingRuntimeSpec(WorkloadSpec):
    """Arguments of a TrainingRuntime."""

    name_field = "runtime_name"

    runtime_name: Name
    """The name of the runtime. By default, the name of the component."""
    nodes: int = Field(1, ge=1)
    """The nodes of a TrainJob that sets none. The default is 1."""
    gpu_fabric: GpuFabric | None = None
    """The network between the GPUs of its nodes, such as GpuNodePool.gpu_fabric. A TrainJob cannot
    add it."""
    container_name: Name = _JOB
    """The name of its container, which Trainer changes. The default is node."""

    @property
    @override
    def fabric(self) -> PodFabric:
        return used_fabric(self.gpu_fabric, _MANY, self.gpus)

    @property
    @override
    def program(self) -> list[str] | None:
        # A TrainJob replaces the command, and so repeats what comes before it.
        return self.fabric.command(self.command or []) or None

    @property
    def command_prefix(self) -> list[str]:
        """The words before the command of a TrainJob."""
        return self.fabric.command([]) or []

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from fabric_errors(self)
        if self.queue is not None:
            yield "queue", "is for a TrainJob, which waits in it; set queue of the TrainJob"
        if self.container_name != _JOB:
            reason = f"is {self.container_name}, and Trainer changes the container {_JOB} alone"
            yield "container_name", f"{reason}; leave it out"

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        template = pod_template(self, "Never", {})
        job = {
            "metadata": {"labels": {TRAIN_JOB_STEP: "trainer"}},
            "spec": {"backoffLimit": 0, "template": template},
        }
        jobs = [{"name": _JOB, "template": job}]
        spec: dict[str, Any] = {
            "mlPolicy": {"numNodes": self.nodes, "torch": {}},
            "template": {"spec": {"replicatedJobs": jobs}},
        }
        manifest = api_object(TRAINER_API, "TrainingRuntime", self.metadata(), spec=spec)
        yield ChildResource("runtime", manifest, depends_on)


class TrainingRuntime(TrainingRuntimeComponent[TrainingRuntimeSpec]):
    """The pods of TrainJobs in a namespace: image, GPUs, network, volumes and nodes.

    It needs a TrainerController. A TrainJob names it, and sets command and number of nodes.
    """

    runtime_name: KnownOutput[str]
    """The name of the runtime. TrainJob accepts it as runtime."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    command_prefix: KnownOutput[list[str]]
    """What comes before the command of a TrainJob, for the network between GPUs."""
    runtime = Child("runtime")
    """The TrainingRuntime."""
