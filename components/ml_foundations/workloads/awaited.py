"""A Job under Pulumi: whether it is waited for, and how an old one makes room for a new one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from typing_extensions import override

from ml_foundations.component.parts import NOT_AWAITED
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.workloads.job import JobSettings, JobSpec

IMMUTABLE = (
    "spec.completionMode",
    "spec.podFailurePolicy",
    "spec.backoffLimitPerIndex",
    "spec.successPolicy",
    "spec.managedBy",
)
"""Fields that a live Job keeps: the provider does not know them all, so a change must replace the Job."""

# A Job that failed stays failed: the next update makes it anew.
AWAITED = {"pulumi.com/replaceUnready": "true"}

AWAIT_MARGIN_SECONDS = 60
"""Pulumi outlasts the Job's own deadline by this, so that it is Kubernetes that says what went wrong."""
DELETE_MARGIN_SECONDS = 300
"""Pulumi waits for a deletion so much longer than pods may take to stop."""


class AwaitedArgs(TypedDict):
    """Whether pulumi up waits for a Job."""

    wait_for_completion: NotRequired[bool]
    """Whether pulumi up waits until the Job has completed; default false: it goes on once the Job is accepted."""


class AwaitedSettings(JobSettings):
    """What a stack file says about a Job that Pulumi can wait for."""

    wait_for_completion: bool = False

    @property
    def may_hang(self) -> str | None:
        """The argument with which a Job can fail in ways that Pulumi does not see."""
        return next((field for field in ("fail_on_exit_codes", "pod_failure_rules") if getattr(self, field)), None)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if not self.wait_for_completion:
            return
        if self.ttl_seconds_after_finished is not None:
            yield "ttl_seconds_after_finished", "a Job that is waited for must not delete itself; leave one out"
        if self.queue is not None:
            yield "wait_for_completion", "a queued Job starts when there is room, which may be days; leave one out"
        if self.may_hang and self.active_deadline_seconds is None:
            yield (
                "active_deadline_seconds",
                f"is required with wait_for_completion and {self.may_hang}, whose failures Pulumi does not see",
            )


class AwaitedSpec(AwaitedSettings, JobSpec):
    """The checked arguments of a Job that Pulumi can wait for."""


def await_annotations(spec: AwaitedSpec) -> dict[str, str]:
    """What tells Pulumi to wait for a Job, or not to."""
    return AWAITED if spec.wait_for_completion else NOT_AWAITED


def declare_job(
    component: pulumi.Resource,
    name: str,
    spec: AwaitedSpec,
    manifest: Mapping[str, Any],
    after: Sequence[pulumi.Resource],
    ignore: Sequence[str] = (),
) -> None:
    """Declare a Job: the old one is gone before a new one comes, so that the two never fight for GPUs."""
    job = overridden(manifest, spec.overrides)
    # Whoever declares that a Job starts suspended leaves it to somebody else to start it.
    suspended = ["spec.suspend"] if "suspend" in job["spec"] else []
    k8s.batch.v1.Job(
        f"{name}-job",
        **arguments(job),
        opts=child_options(
            component,
            depends_on=list(after),
            delete_before_replace=True,
            replace_on_changes=list(IMMUTABLE),
            ignore_changes=[*ignore, *suspended],
            custom_timeouts=timeouts(spec),
        ),
    )


def timeouts(spec: AwaitedSpec) -> pulumi.CustomTimeouts:
    """Waiting outlasts the Job's own deadline, and deleting its pods' grace."""
    delete = f"{spec.grace_seconds + DELETE_MARGIN_SECONDS}s"
    if spec.wait_for_completion and spec.active_deadline_seconds is not None:
        create = f"{spec.active_deadline_seconds + AWAIT_MARGIN_SECONDS}s"
        return pulumi.CustomTimeouts(create=create, update=create, delete=delete)
    return pulumi.CustomTimeouts(delete=delete)
