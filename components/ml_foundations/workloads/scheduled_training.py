"""Training again and again, by a schedule, as a CronJob."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NotRequired
from zoneinfo import available_timezones

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field, field_validator
from typing_extensions import override

from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import check
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import overridden, without_none
from ml_foundations.workloads.awaited import DELETE_MARGIN_SECONDS
from ml_foundations.workloads.completions import CompletionsArgs, CompletionsSettings
from ml_foundations.workloads.cron import shortest_interval
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.job import (
    JobArgs,
    JobSpec,
    container_fields,
    hostname_errors,
    job_fields,
    object_metadata,
)
from ml_foundations.workloads.pod import app_labels, queue_labels
from ml_foundations.workloads.pod_template import pod_template

MAX_NAME = 52
"""The controller adds eleven characters to the name of each Job (Kubernetes, "CronJob")."""
JOB_SUFFIX = "-1234567890"
MIN_STARTING_SECONDS = 10
"""The controller looks every ten seconds, and would miss a shorter window (Kubernetes, "CronJob")."""


class ScheduledTrainingArgs(CompletionsArgs, JobArgs):
    """Arguments of a ScheduledTraining."""

    schedule: str
    """When it runs, as cron says it, such as "0 2 * * 0" or @daily."""
    time_zone: NotRequired[str]
    """The time zone of the schedule, such as Europe/Berlin; default Etc/UTC."""
    concurrency_policy: NotRequired[str]
    """What a run does that meets the one before: Forbid skips it, Replace ends the other, Allow runs both.
    Default Forbid."""
    starting_deadline_seconds: NotRequired[int]
    """How late a run may start, when the control plane was away; default 600."""
    successful_jobs_history: NotRequired[int]
    """How many Jobs that succeeded are kept; default 3."""
    failed_jobs_history: NotRequired[int]
    """How many Jobs that failed are kept; default 3."""
    suspend: NotRequired[bool]
    """Whether no more runs start; by default that is left to kubectl."""
    backoff_limit: NotRequired[int]
    """Failures that are retried before a run fails; default 1, as the next run is the better retry."""
    active_deadline_seconds: NotRequired[int]
    """The longest that a run may take, retries included; default nine tenths of the schedule's shortest interval."""
    cron_name: NotRequired[str]
    """The CronJob's name, 52 characters at most; default is the component's."""


class ScheduledTrainingSettings(CompletionsSettings):
    """What a stack file says about a ScheduledTraining."""

    schedule: str
    time_zone: str = "Etc/UTC"
    concurrency_policy: Literal["Forbid", "Replace", "Allow"] = "Forbid"
    starting_deadline_seconds: int = Field(600, ge=MIN_STARTING_SECONDS)
    successful_jobs_history: int = Field(3, ge=0)
    failed_jobs_history: int = Field(3, ge=0)
    suspend: bool | None = None

    @field_validator("schedule")
    @classmethod
    def _is_a_schedule(cls, schedule: str) -> str:
        shortest_interval(schedule)
        return schedule

    @field_validator("time_zone")
    @classmethod
    def _is_a_time_zone(cls, zone: str) -> str:
        if zone not in available_timezones():
            raise ValueError("is no time zone of the IANA database, such as Etc/UTC or Europe/Berlin")
        return zone

    @property
    @override
    def own_kinds(self) -> tuple[str, ...]:
        return ("CronJob",)

    @property
    @override
    def retries(self) -> int | None:
        """The next run is the better retry."""
        if self.backoff_limit is None and self.backoff_limit_per_index is None:
            return 1
        return super().retries

    @cached_property
    def interval(self) -> int:
        """The shortest time between two runs, in seconds."""
        return shortest_interval(self.schedule)

    @property
    def deadline(self) -> int:
        """The longest that a run may take: so long that it never meets the next one."""
        return self.active_deadline_seconds or max(1, self.interval * 9 // 10)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.deadline >= self.interval:
            yield (
                "active_deadline_seconds",
                f'is {self.deadline}, and "{self.schedule}" comes every {self.interval} seconds: a run must end before',
            )
        if self.active_deadline_seconds is None and self.grace_seconds >= self.deadline:
            yield "grace_seconds", f"is {self.grace_seconds}, and a run may take {self.deadline} seconds"


class _ScheduledTrainingSpec(ScheduledTrainingSettings, JobSpec):
    cron_name: Name = Field(max_length=MAX_NAME)

    @property
    def workload_name(self) -> str:
        return self.cron_name

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.indexed:
            yield from hostname_errors("cron_name", self.cron_name, self.completions, JOB_SUFFIX)


class ScheduledTraining(pulumi.ComponentResource):
    """A CronJob that trains by a schedule, one run at a time.

    A change holds from the next run on; a run that is under way ends as it began. Give it a kubernetes provider in its
    options.
    """

    cron_name: str
    """The CronJob's name."""
    namespace: str
    """Its namespace."""

    def __init__(self, name: str, args: ScheduledTrainingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the CronJob."""
        spec = check(_ScheduledTrainingSpec, f"ScheduledTraining {name}", {"cron_name": name, **args})
        super().__init__("ml-foundations:index:ScheduledTraining", name, {}, opts)
        k8s.batch.v1.CronJob(
            f"{name}-cron",
            **arguments(cron_job_manifest(spec)),
            opts=child_options(
                self,
                depends_on=declare_claim_template(self, name, spec),
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(delete=f"{spec.grace_seconds + DELETE_MARGIN_SECONDS}s"),
            ),
        )
        self.cron_name = spec.workload_name
        self.namespace = spec.namespace
        self.register_outputs({"cron_name": self.cron_name, "namespace": self.namespace})


def cron_job_manifest(spec: _ScheduledTrainingSpec) -> dict[str, Any]:
    """The CronJob. Its queue takes the Jobs, not the CronJob itself."""
    template = pod_template(spec, spec.restart_policy, container_fields(spec))
    fields = job_fields(spec) | {"activeDeadlineSeconds": spec.deadline}
    metadata = object_metadata(spec)
    return overridden(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata | {"labels": app_labels(spec)},
            "spec": without_none(
                {
                    "schedule": spec.schedule,
                    "timeZone": spec.time_zone,
                    "concurrencyPolicy": spec.concurrency_policy,
                    "startingDeadlineSeconds": spec.starting_deadline_seconds,
                    "successfulJobsHistoryLimit": spec.successful_jobs_history,
                    "failedJobsHistoryLimit": spec.failed_jobs_history,
                    "suspend": spec.suspend,
                    "jobTemplate": {
                        "metadata": {"labels": app_labels(spec) | queue_labels(spec)},
                        "spec": without_none({**spec.completion_fields(), **fields, "template": template}),
                    },
                }
            ),
        },
        spec.overrides,
    )
