"""The arguments that Jobs share: ports, failures, retries, completions and waiting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import derived
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object, section
from ml_foundations.workloads.pod import AWAIT_MARGIN_SECONDS, WorkloadSpec
from ml_foundations.workloads.pod_template import pod_template

_DEFAULT_RETRIES = 3
_IGNORE_DISRUPTIONS = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""Preemption, drains and the loss of a node do not count as failures."""
_IMMUTABLE = [
    *("spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex"),
    *("spec.successPolicy", "spec.managedBy"),
]
"""Immutable fields of a Job. The provider does not know them all, so a change must replace it."""

_LONGEST_WAIT_SECONDS = 7 * 86400
"""How long Pulumi waits for a Job without a deadline. Its own ten minutes are less than a new node
of a scarce type needs."""
_AWAITED = {"pulumi.com/replaceUnready": "true"}
"""A failed Job stays failed, so that the next update replaces it."""


def checkpoint_annotations(seconds: int | None) -> dict[str, str]:
    """Return the annotation of a training that writes a checkpoint at least so often."""
    return {} if seconds is None else {labels.CHECKPOINT_SECONDS: str(seconds)}


class ContainerPort(Spec):
    """A port on which a pod listens."""

    port: int = Field(ge=1, le=65535)
    """The number of the port."""
    name: str | None = Field(None, max_length=15)
    """The name of the port."""


class JobSpec(WorkloadSpec):
    """Arguments that all Jobs have.

    They set how failures are retried, and when the Job ends.
    """

    ports: list[ContainerPort] = []
    """Ports on which its pods listen. To Kubernetes, they are only documentation."""
    restart_policy: Literal["Never", "OnFailure"] = "Never"
    """Never: a new pod replaces a failed one. OnFailure: the container restarts in the same pod.
    The default is Never."""
    backoff_limit: int | None = Field(None, ge=0)
    """Failures that are retried before the Job fails. The default is 3."""
    fail_on_exit_codes: list[int] = []
    """Exit codes of errors that no retry can fix, such as that of an invalid argument. The Job then
    fails at once."""
    ignore_disruptions: bool | None = None
    """Do not count preempted, drained and lost pods as failures. The default is true if
    restart_policy is Never."""
    pod_failure_rules: list[dict[str, Any]] = []
    """More rules of the podFailurePolicy in Kubernetes' form. They follow the rule of
    fail_on_exit_codes."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """The most seconds that the Job may run, including retries."""
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    """Seconds after its end until the Job is deleted. A later refresh finds it missing, and the
    next up trains again."""

    @property
    def retries(self) -> int | None:
        """Failures before the Job fails; None if they count per index."""
        return _DEFAULT_RETRIES if self.backoff_limit is None else self.backoff_limit

    @property
    def deadline(self) -> int | None:
        """The longest that the Job may take, in seconds."""
        return self.active_deadline_seconds

    @property
    def ignores_disruptions(self) -> bool:
        """Return whether preempted, drained and lost pods do not count as failures."""
        return self.ignore_disruptions is not False

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.restart_policy != "Never":
            for field in ("fail_on_exit_codes", "pod_failure_rules", "ignore_disruptions"):
                if getattr(self, field):
                    yield field, f"requires restart_policy Never, not {self.restart_policy}"
        if wrong := [code for code in self.fail_on_exit_codes if not 1 <= code <= 255]:
            yield "fail_on_exit_codes", f"{wrong} are not exit codes of a failure, 1 to 255"

    def hostname_errors(self, suffix: str) -> Iterator[tuple[str, str]]:
        """Yield an error if the host name of the Job's last pod, with this suffix, is too long."""
        try:
            derived(self.workload_name, suffix)
        except ValueError as error:
            yield self.name_field or "", f"is too long for the host names of its pods: {error}"

    def template(
        self,
        env: Mapping[str, Mapping[str, Any]] | None = None,
        container: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the pod template, with the component's variables and further fields."""
        fields = dict(container or {})
        for port in self.ports:
            declared = without_none({"name": port.name, "containerPort": port.port})
            fields.setdefault("ports", []).append(declared)
        return pod_template(self, self.restart_policy, fields, env, pod)

    def job_body(self, indexes: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of the Job, with the fields about its number of pods."""
        fields = {
            **indexes,
            "backoffLimit": self.retries,
            "activeDeadlineSeconds": self.deadline,
            "ttlSecondsAfterFinished": self.ttl_seconds_after_finished,
            "podFailurePolicy": self._pod_failure_policy(),
            "template": template,
        }
        return without_none(fields)

    def _pod_failure_policy(self) -> dict[str, Any] | None:
        if self.restart_policy != "Never":
            return None
        # The first match decides: errors that no retry can fix come first, disruptions last.
        rules = list(self.pod_failure_rules)
        if self.fail_on_exit_codes:
            codes = {"operator": "In", "values": sorted({*self.fail_on_exit_codes})}
            fatal = {"containerName": self.container_name, **codes}
            rules.insert(0, {"action": "FailJob", "onExitCodes": fatal})
        if self.ignores_disruptions:
            rules.append(_IGNORE_DISRUPTIONS)
        return {"rules": rules} if rules else None


class CompletionsSpec(JobSpec):
    """Arguments about the pods of a Job.

    They set the number of pods, and how their failures count.
    """

    completions: int = Field(1, ge=1)
    """Pods that must succeed. The default is 1."""
    parallelism: int = Field(1, ge=0)
    """Pods that run at once. The default is 1."""
    indexed: bool = False
    """Number the pods from 0 on, with the variable JOB_COMPLETION_INDEX. The default is false."""
    backoff_limit_per_index: int | None = Field(None, ge=0)
    """Failures that are retried for each index, instead of for the whole Job. Requires indexed."""
    max_failed_indexes: int | None = Field(None, ge=0)
    """Indexes that may fail before the Job fails. By default, all. Requires
    backoff_limit_per_index."""
    success_rules: list[dict[str, Any]] = []
    """Rules of the successPolicy in Kubernetes' form, for Jobs that succeed with some of the
    indexes. Requires indexed."""

    @property
    @override
    def retries(self) -> int | None:
        if self.backoff_limit is None and self.backoff_limit_per_index is not None:
            return None
        return super().retries

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.backoff_limit_per_index is not None:
            if not self.indexed:
                yield "backoff_limit_per_index", "requires indexed: true"
            if self.restart_policy != "Never":
                reason = f"requires restart_policy Never, not {self.restart_policy}"
                yield "backoff_limit_per_index", reason
        if self.success_rules and not self.indexed:
            yield "success_rules", "requires indexed: true"
        if self.max_failed_indexes is not None:
            if self.backoff_limit_per_index is None:
                yield "max_failed_indexes", "requires backoff_limit_per_index"
            if self.max_failed_indexes > self.completions:
                reason = f"is {self.max_failed_indexes}, above completions ({self.completions})"
                yield "max_failed_indexes", reason

    def completion_fields(self) -> dict[str, Any]:
        """Return the fields of the Job's spec about its number of pods."""
        return {
            "completions": self.completions,
            "parallelism": self.parallelism,
            "completionMode": "Indexed" if self.indexed else None,
            "backoffLimitPerIndex": self.backoff_limit_per_index,
            "maxFailedIndexes": self.max_failed_indexes,
            "successPolicy": {"rules": self.success_rules} if self.success_rules else None,
        }


class AwaitedSpec(JobSpec):
    """Arguments of a Job that Pulumi can wait for.

    They set how long ``pulumi up`` waits.
    """

    wait_for_completion: bool = False
    """Wait in pulumi up until the Job has completed. The default is false: pulumi up continues when
    the Job is accepted."""
    checkpoint_seconds: int | None = Field(None, ge=1)
    """Seconds between its checkpoints, at most. A disruption loses so much of its work, which the
    report of a rehearsed disruption prices."""

    @property
    def own_annotations(self) -> dict[str, str]:
        """The annotations that its arguments set, such as the one with checkpoint_seconds."""
        return checkpoint_annotations(self.checkpoint_seconds)

    @property
    def may_hang(self) -> str | None:
        """The argument with which a Job can fail in ways that Pulumi does not see."""
        if self.fail_on_exit_codes:
            return "fail_on_exit_codes"
        return "pod_failure_rules" if self.pod_failure_rules else None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        deadline = self.active_deadline_seconds
        if deadline is not None and self.grace_seconds >= deadline:
            yield "grace_seconds", f"is {self.grace_seconds}; the whole Job may run {deadline}"
        if deadline is not None and (self.checkpoint_seconds or 0) >= deadline:
            reason = f"is {self.checkpoint_seconds}; the whole Job may run {deadline}"
            yield "checkpoint_seconds", reason
        if not self.wait_for_completion:
            return
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
        job_annotations = awaited | self.own_annotations | dict(annotations or {})
        metadata = self.metadata(annotations=job_annotations)
        manifest = api_object("batch/v1", "Job", metadata, spec=body)
        return ChildResource("job", manifest, depends_on, self.replacing("Job", _IMMUTABLE, ignore))

    def replacing(
        self, kind: str, immutable: list[str], ignore: Sequence[str] = ()
    ) -> pulumi.ResourceOptions:
        """Return options that delete the old object first, so that two runs never compete for GPUs.

        ``ignore`` are fields whose changes Pulumi ignores.
        """
        # If the program sets suspend, something else starts the object later.
        suspended = section(self.overrides, kind, "spec").get("suspend") is not None
        timeout = None
        if self.wait_for_completion:
            longest = self.active_deadline_seconds or _LONGEST_WAIT_SECONDS
            timeout = f"{longest + AWAIT_MARGIN_SECONDS}s"
        return pulumi.ResourceOptions(
            delete_before_replace=True,
            replace_on_changes=immutable,
            ignore_changes=[*ignore, *(["spec.suspend"] if suspended else [])],
            custom_timeouts=pulumi.CustomTimeouts(timeout, timeout, self.delete_timeout),
        )
