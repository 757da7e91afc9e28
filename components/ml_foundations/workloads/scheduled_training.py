"""Training on a schedule, as a CronJob."""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal
from zoneinfo import available_timezones

import pulumi
from pydantic import Field, field_validator
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import Name
from ml_foundations.kinds.kind_files import package_kinds
from ml_foundations.kubernetes.cron import shortest_interval
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import ScheduledTrainingComponent
from ml_foundations.workloads.job import CompletionsSpec
from ml_foundations.workloads.trained_model import TrainedModelSpec

_MAX_NAME = package_kinds()["CronJob"].longest_name
"""The controller adds eleven characters to the name of each Job (Kubernetes, "CronJob")."""
_JOB_SUFFIX = "-1234567890"
_MIN_STARTING_SECONDS = 10
"""The controller looks every ten seconds, and would miss a shorter window (Kubernetes,
"CronJob")."""


class ScheduledTrainingSpec(TrainedModelSpec, CompletionsSpec):
    """Arguments of a ScheduledTraining."""

    name_field = "cron_name"

    schedule: str
    """The cron schedule, such as "0 2 * * 0" or @daily."""
    time_zone: str = "Etc/UTC"
    """The time zone of the schedule, such as Europe/Berlin. The default is Etc/UTC."""
    concurrency_policy: Literal["Forbid", "Replace", "Allow"] = "Forbid"
    """What happens if a run is due while the previous one still runs: Forbid skips it, Replace ends
    the previous run, Allow runs both. The default is Forbid."""
    starting_deadline_seconds: int = Field(600, ge=_MIN_STARTING_SECONDS)
    """Seconds that a run may start late, after the control plane was not available. The default is
    600."""
    successful_jobs_history: int = Field(3, ge=0)
    """The number of successful Jobs that are kept. The default is 3."""
    failed_jobs_history: int = Field(3, ge=0)
    """The number of failed Jobs that are kept. The default is 3."""
    suspend: bool | None = None
    """Start no more runs. By default, Pulumi does not set it, so that you can set it with
    kubectl."""
    backoff_limit: int | None = Field(None, ge=0)
    """Failures that are retried before a run fails. The default is 1, because the next run is the
    better retry."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """The most seconds of a run, including retries. By default, 90 % of the schedule's shortest
    interval."""
    cron_name: Name = Field(max_length=_MAX_NAME)
    """The CronJob's name, 52 characters at most. By default, the name of the component."""

    @field_validator("schedule")
    @classmethod
    def _is_a_schedule(cls, schedule: str) -> str:
        shortest_interval(schedule)
        return schedule

    @field_validator("time_zone")
    @classmethod
    def _is_a_time_zone(cls, zone: str) -> str:
        if zone not in available_timezones():
            known = "the IANA database, such as Etc/UTC or Europe/Berlin"
            raise ValueError(f"is not a time zone of {known}")
        return zone

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
    @override
    def deadline(self) -> int:
        """The longest that a run may take: so long that it never meets the next one."""
        return self.active_deadline_seconds or max(1, self.interval * 9 // 10)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.grace_seconds >= self.deadline:
            reason = f"is {self.grace_seconds}, but a run may last {self.deadline} seconds"
            yield "grace_seconds", reason
        if self.deadline >= self.interval:
            often = f'"{self.schedule}" comes every {self.interval} seconds'
            reason = f"is {self.deadline}, and {often}: a run must end before"
            yield "active_deadline_seconds", reason
        if self.indexed:
            yield from self.hostname_errors(f"{_JOB_SUFFIX}-{self.completions - 1}")

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        body = {
            "schedule": self.schedule,
            "timeZone": self.time_zone,
            "concurrencyPolicy": self.concurrency_policy,
            "startingDeadlineSeconds": self.starting_deadline_seconds,
            "successfulJobsHistoryLimit": self.successful_jobs_history,
            "failedJobsHistoryLimit": self.failed_jobs_history,
            "suspend": self.suspend,
            "jobTemplate": {
                # Its Jobs wait in the queue, not the CronJob itself.
                "metadata": {"labels": self.app_labels | self.queue_labels},
                "spec": self.job_body(self.completion_fields(), self.template()),
            },
        }
        metadata = self.metadata(labels=self.app_labels)
        cron_job = api_object("batch/v1", "CronJob", metadata, spec=without_none(body))
        timeouts = pulumi.CustomTimeouts(delete=self.delete_timeout)
        options = pulumi.ResourceOptions(delete_before_replace=True, custom_timeouts=timeouts)
        yield ChildResource("cron", cron_job, depends_on, options)


class ScheduledTraining(ScheduledTrainingComponent[ScheduledTrainingSpec]):
    """A CronJob that trains by a schedule, one run at a time.

    A change applies from the next run on. A current run is not affected.
    """

    cron_name: KnownOutput[str]
    """The CronJob's name."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    cron_job = Child("cron")
    """The CronJob."""
