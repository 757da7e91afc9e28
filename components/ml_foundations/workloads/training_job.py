"""A training run as a Job."""

from collections.abc import Iterator

import pulumi
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import Name
from ml_foundations.typed_args import TrainingJobComponent
from ml_foundations.workloads.job import AwaitedSpec, CompletionsSpec
from ml_foundations.workloads.trained_model import TrainedModelSpec


class TrainingJobSpec(TrainedModelSpec, CompletionsSpec, AwaitedSpec):
    """Arguments of a TrainingJob."""

    name_field = "job_name"

    job_name: Name
    """The Job's name. By default, the name of the component."""
    elastic: bool = False
    """Let others change parallelism while the Job runs, as Kueue does for partial admission. A
    change in the program then waits until the Job is replaced. The default is false: a change
    replaces the Job."""

    @property
    @override
    def may_hang(self) -> str | None:
        per_index = self.backoff_limit_per_index is not None
        return super().may_hang or ("backoff_limit_per_index" if per_index else None)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.indexed:
            yield from self.hostname_errors(f"-{self.completions - 1}")

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        body = self.job_body(self.completion_fields(), self.template())
        yield self.job_child(body, depends_on, ignore=["spec.parallelism"] if self.elastic else [])


class TrainingJob(TrainingJobComponent[TrainingJobSpec]):
    """A Job that trains on GPUs, or preprocesses data without them.

    A change of the pod replaces the Job. The old run ends first, so that two runs never compete for
    GPUs.
    """

    job_name: KnownOutput[str]
    """The Job's name."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    job = Child("job")
    """The Job."""
