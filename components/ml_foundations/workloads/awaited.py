"""A Job under Pulumi: whether it is waited for, and how an old one makes room for a new one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from typing_extensions import override

from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.kubernetes.objects import api_object, section
from ml_foundations.workloads.job import JobSpec
from ml_foundations.workloads.pod import AWAIT_MARGIN_SECONDS

_FIELDS = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "successPolicy",
    "managedBy",
)
_IMMUTABLE = [f"spec.{field}" for field in _FIELDS]
"""Fields that a live Job keeps: the provider does not know them all, so a change must replace the
Job."""

# A Job that failed stays failed: the next update replaces it.
_AWAITED = {"pulumi.com/replaceUnready": "true"}


class AwaitedSpec(JobSpec):
    """Arguments of a Job that Pulumi can wait for.

    They set how long ``pulumi up`` waits.
    """

    wait_for_completion: bool = False
    """Wait in pulumi up until the Job has completed. The default is false: pulumi up continues when
    the Job is accepted."""

    @property
    def may_hang(self) -> str | None:
        """The argument with which a Job can fail in ways that Pulumi does not see."""
        return next(
            (
                field
                for field in ("fail_on_exit_codes", "pod_failure_rules")
                if getattr(self, field)
            ),
            None,
        )

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        deadline = self.active_deadline_seconds
        if deadline is not None and self.grace_seconds >= deadline:
            yield "grace_seconds", f"is {self.grace_seconds}; the whole Job may run {deadline}"
        if self.wait_for_completion:
            yield from self._wait_errors()

    def _wait_errors(self) -> Iterator[tuple[str, str]]:
        if self.queue is not None:
            reason = "a queued Job starts when there is room, which may be days; leave one out"
            yield "wait_for_completion", reason
        if self.ttl_seconds_after_finished is not None:
            reason = "a Job that is waited for must not delete itself; leave one out"
            yield "ttl_seconds_after_finished", reason
        if self.may_hang and self.active_deadline_seconds is None:
            reason = f"is required, because Pulumi does not see failures by {self.may_hang}"
            yield "active_deadline_seconds", reason

    def job_child(
        self,
        body: Mapping[str, Any],
        depends_on: Sequence[str],
        annotations: Mapping[str, str] | None = None,
        ignore: Sequence[str] = (),
    ) -> ChildResource:
        """Return the Job, with more annotations and fields whose changes Pulumi ignores."""
        awaited = _AWAITED if self.wait_for_completion else NOT_AWAITED
        metadata = self.metadata(annotations=awaited | dict(annotations or {}))
        manifest = api_object("batch/v1", "Job", metadata, spec=body)
        return ChildResource("job", manifest, depends_on, self.replacing("Job", _IMMUTABLE, ignore))

    def replacing(
        self, kind: str, immutable: list[str], ignore: Sequence[str] = ()
    ) -> pulumi.ResourceOptions:
        """Return options that delete the old object first, so that two runs never compete for GPUs.

        A live object keeps its immutable fields; Pulumi ignores changes of others.
        """
        # An object that is declared suspended is started by somebody else.
        suspended = section(self.overrides, kind, "spec").get("suspend") is not None
        waits = f"{(self.active_deadline_seconds or 0) + AWAIT_MARGIN_SECONDS}s"
        outlasts = (
            waits if self.wait_for_completion and self.active_deadline_seconds is not None else None
        )
        return pulumi.ResourceOptions(
            delete_before_replace=True,
            replace_on_changes=immutable,
            ignore_changes=[*ignore, *(["spec.suspend"] if suspended else [])],
            custom_timeouts=pulumi.CustomTimeouts(
                create=outlasts, update=outlasts, delete=self.delete_timeout
            ),
        )
