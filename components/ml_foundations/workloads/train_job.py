"""A training by Kubeflow Trainer, with the pods of a TrainingRuntime."""

from collections.abc import Iterator
from typing import Any

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.versions import TRAINER_API
from ml_foundations.component.base import Child
from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.objects import IN_CLUSTER, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import InputName, InputText, Name, NonEmpty
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import TrainJobComponent
from ml_foundations.workloads.job import checkpoint_annotations


class TrainJobSpec(ComponentSpec):
    """Arguments of a TrainJob."""

    objects = {
        "cluster": IN_CLUSTER,
        "runtime": ObjectArgument(
            ("TrainingRuntime",),
            "The TrainingRuntime. It sets runtime, namespace and command_prefix.",
            {
                "runtime": "runtime_name",
                "namespace": "namespace",
                "command_prefix": "command_prefix",
            },
            gives_provider=True,
        ),
    }

    name_field = "job_name"

    job_name: Name
    """The name of the TrainJob. By default, the name of the component."""
    namespace: InputName
    """The namespace."""
    runtime: Name
    """The name of the TrainingRuntime in the namespace, such as TrainingRuntime.runtime_name."""
    nodes: int | None = Field(None, ge=1)
    """The nodes that train together. By default, those of the runtime."""
    image: NonEmpty | None = None
    """The container image. By default, that of the runtime."""
    command: list[InputText] | None = None
    """The command, such as ["torchrun", "train.py"]. By default, that of the runtime. torchrun
    reads its arguments from the environment."""
    command_prefix: list[str] = []
    """What comes before the command, such as TrainingRuntime.command_prefix."""
    arguments: list[InputText] | None = None
    """Arguments of the command."""
    env: dict[str, InputText] = {}
    """More environment variables."""
    processes_per_node: int | None = Field(None, ge=1)
    """Processes of torchrun in each pod. By default, one for each GPU."""
    queue: InputName | None = None
    """The Kueue LocalQueue in which it waits. Kueue starts it when all its pods can start."""
    queue_priority: InputText | None = None
    """The Kueue WorkloadPriorityClass, which decides its order in the queue."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """The most seconds that it may run."""
    checkpoint_seconds: int | None = Field(None, ge=1)
    """Seconds between its checkpoints, at most. A disruption loses so much of its work, which the
    report of a rehearsed disruption prices."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created object, by kind, such as {"TrainJob": {"spec": {…}}}. They are merged
    over the component's: maps are merged, lists are replaced, and null removes a field."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.queue_priority is not None and self.queue is None:
            reason = "but there is no queue; set queue, or leave it out"
            yield "queue_priority", f"ranks a workload in its queue, {reason}"

    @override
    def children(self) -> Iterator[ChildResource]:
        command = None if self.command is None else [*self.command_prefix, *self.command]
        trainer = {
            "numNodes": self.nodes,
            "image": self.image,
            "command": command,
            "args": self.arguments,
            "env": [{"name": name, "value": value} for name, value in self.env.items()] or None,
            "numProcPerNode": self.processes_per_node,
        }
        spec = {
            "runtimeRef": {
                "apiGroup": TRAINER_API.split("/")[0],
                "kind": "TrainingRuntime",
                "name": self.runtime,
            },
            "trainer": without_none(trainer),
            "activeDeadlineSeconds": self.active_deadline_seconds,
        }
        queue = {labels.KUEUE_QUEUE: self.queue, labels.KUEUE_PRIORITY: self.queue_priority}
        names = {"name": self.job_name, "namespace": self.namespace}
        job_labels = {"app.kubernetes.io/name": self.job_name, **without_none(queue)}
        annotations = NOT_AWAITED | checkpoint_annotations(self.checkpoint_seconds)
        metadata = {**names, "labels": job_labels, "annotations": annotations}
        manifest = api_object(TRAINER_API, "TrainJob", metadata, spec=without_none(spec))
        # Trainer keeps the spec of a TrainJob that runs.
        options = pulumi.ResourceOptions(delete_before_replace=True, replace_on_changes=["spec"])
        yield ChildResource("job", manifest, options=options)


class TrainJob(TrainJobComponent[TrainJobSpec]):
    """A training on the nodes and with the pods of a TrainingRuntime, by Kubeflow Trainer.

    In a queue, all pods start at once or not at all. A change ends the run and starts a new one.
    """

    job_name: KnownOutput[str]
    """The name of the TrainJob."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    job = Child("job")
    """The TrainJob."""
