"""A training run as a Job."""

from collections.abc import Iterator

import pulumi
from typing_extensions import override

from ml_foundations.component.base import Component
from ml_foundations.component.parts import Part
from ml_foundations.component.types import Name
from ml_foundations.typed_args import TrainingJobArgs
from ml_foundations.workloads.awaited import AwaitedSpec
from ml_foundations.workloads.completions import CompletionsSpec


class TrainingJobSpec(CompletionsSpec, AwaitedSpec):
    """Arguments of a TrainingJob."""

    name_field = "job_name"

    job_name: Name
    """The Job's name; default is the component's."""
    elastic: bool = False
    """Whether parallelism is an initial value that others may change, as Kueue does for partial admission: a
    change of it in the program then waits until the Job is replaced. By default such a change replaces the Job."""

    @property
    @override
    def may_hang(self) -> str | None:
        return super().may_hang or (None if self.backoff_limit_per_index is None else "backoff_limit_per_index")

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.indexed:
            yield from self.hostname_errors(self.completions)

    @override
    def own_parts(self, after: list[str]) -> Iterator[Part]:
        body = self.job_body(self.completion_fields(), self.template())
        yield self.job_part(body, after, ignore=["spec.parallelism"] if self.elastic else [])


class TrainingJob(Component[TrainingJobSpec, TrainingJobArgs]):
    """A Job that trains on GPUs, or preprocesses without them.

    A change of the pod replaces the Job: the old run is ended first, so that two runs never fight for GPUs.
    Give it a kubernetes provider in its options.
    """

    job_name: str
    """The Job's name."""
    namespace: pulumi.Input[str]
    """Its namespace."""
