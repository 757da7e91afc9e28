"""A training run as a Job."""

from collections.abc import Iterator
from typing import Any, NotRequired

import pulumi
from typing_extensions import override

from ml_foundations.component.spec import check
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.workloads.awaited import AwaitedArgs, AwaitedSettings, AwaitedSpec, await_annotations, declare_job
from ml_foundations.workloads.completions import CompletionsArgs, CompletionsSettings
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.job import JobArgs, container_fields, hostname_errors, job_fields, object_metadata
from ml_foundations.workloads.pod_template import pod_template


class TrainingJobArgs(CompletionsArgs, AwaitedArgs, JobArgs):
    """Arguments of a TrainingJob."""

    job_name: NotRequired[str]
    """The Job's name; default is the component's."""
    elastic: NotRequired[bool]
    """Whether parallelism is the start only, and somebody else may change it, as Kueue does with partial admission:
    a change of it in the program then waits for the next replacement. By default it replaces the Job."""


class TrainingJobSettings(CompletionsSettings, AwaitedSettings):
    """What a stack file says about a TrainingJob."""

    elastic: bool = False

    @property
    @override
    def own_kinds(self) -> tuple[str, ...]:
        return ("Job",)

    @property
    @override
    def may_hang(self) -> str | None:
        return super().may_hang or (None if self.backoff_limit_per_index is None else "backoff_limit_per_index")


class _TrainingJobSpec(TrainingJobSettings, AwaitedSpec):
    job_name: Name

    @property
    def workload_name(self) -> str:
        return self.job_name

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.indexed:
            yield from hostname_errors("job_name", self.job_name, self.completions)


class TrainingJob(pulumi.ComponentResource):
    """A Job that trains on GPUs, or preprocesses without them.

    A change of the pod replaces the Job: the old run is ended first, so that two runs never fight for GPUs.
    Give it a kubernetes provider in its options.
    """

    job_name: str
    """The Job's name."""
    namespace: str
    """Its namespace."""

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the Job."""
        spec = check(_TrainingJobSpec, f"TrainingJob {name}", {"job_name": name, **args})
        super().__init__("ml-foundations:index:TrainingJob", name, {}, opts)
        after = declare_claim_template(self, name, spec)
        declare_job(self, name, spec, job_manifest(spec), after, ["spec.parallelism"] if spec.elastic else [])
        self.job_name = spec.workload_name
        self.namespace = spec.namespace
        self.register_outputs({"job_name": self.job_name, "namespace": self.namespace})


def job_manifest(spec: _TrainingJobSpec) -> dict[str, Any]:
    """The Job."""
    template = pod_template(spec, spec.restart_policy, container_fields(spec))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": object_metadata(spec, await_annotations(spec)),
        "spec": without_none({**spec.completion_fields(), **job_fields(spec), "template": template}),
    }
