"""What Jobs have in common: failures and retries, deadlines, and a life under Pulumi without surprises."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations._manifest import arguments, child_options, without_none
from ml_foundations._overrides import overridden, unknown_kinds
from ml_foundations._spec import Spec, derived
from ml_foundations.workloads._pod import WorkloadArgs, WorkloadSettings, WorkloadSpec, app_labels, queue_labels

IMMUTABLE = (
    "spec.completionMode",
    "spec.podFailurePolicy",
    "spec.backoffLimitPerIndex",
    "spec.successPolicy",
    "spec.managedBy",
)
"""Fields that a live Job keeps: the provider does not know them all, so a change must replace the Job."""

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
# A Job that is not awaited must be gone at once when it is deleted, or its replacement would meet it.
NOT_AWAITED = SKIP_AWAIT | {"pulumi.com/deletionPropagationPolicy": "background"}
# A Job that failed stays failed: the next update makes it anew.
AWAITED = {"pulumi.com/replaceUnready": "true"}

DEFAULT_RETRIES = 3
AWAIT_MARGIN_SECONDS = 60
"""Pulumi outlasts the Job's own deadline by this, so that it is Kubernetes that says what went wrong."""
DELETE_MARGIN_SECONDS = 300
"""Pulumi waits for a deletion so much longer than pods may take to stop."""

IGNORE_DISRUPTIONS = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
"""Preemption, drains and the loss of a node are no failures of the training."""


class ContainerPortArgs(TypedDict):
    """A port on which a pod listens."""

    port: int
    """Its number."""
    name: NotRequired[str]
    """Its name."""


class ContainerPort(Spec):
    """A checked ContainerPortArgs."""

    port: int = Field(ge=1, le=65535)
    name: str | None = Field(None, max_length=15)


class JobArgs(WorkloadArgs):
    """Arguments that all Jobs have."""

    ports: NotRequired[list[ContainerPortArgs]]
    """Ports on which its pods listen; Kubernetes takes them for documentation."""
    restart_policy: NotRequired[str]
    """Never: a failed pod makes room for another one; OnFailure: its container starts again. Default Never."""
    backoff_limit: NotRequired[int]
    """Failures that are retried before the Job fails."""
    fail_on_exit_codes: NotRequired[list[int]]
    """Exit codes of errors that no retry mends, such as a wrong argument: the Job fails at once."""
    ignore_disruptions: NotRequired[bool]
    """Whether preempted, drained and lost pods do not count as failures; default true where restart_policy is Never."""
    pod_failure_rules: NotRequired[list[dict[str, Any]]]
    """More rules of the podFailurePolicy, as Kubernetes writes them; they come after fail_on_exit_codes."""
    active_deadline_seconds: NotRequired[int]
    """The longest that the Job may take, retries included."""
    ttl_seconds_after_finished: NotRequired[int]
    """Delete the Job so long after its end. Beware: a later refresh finds it gone, and the next up trains again."""


class JobSettings(WorkloadSettings):
    """What a stack file says about any Job."""

    ports: list[ContainerPort] = []
    restart_policy: Literal["Never", "OnFailure"] = "Never"
    backoff_limit: int | None = Field(None, ge=0)
    fail_on_exit_codes: list[int] = []
    ignore_disruptions: bool | None = None
    pod_failure_rules: list[dict[str, Any]] = []
    active_deadline_seconds: int | None = Field(None, ge=1)
    ttl_seconds_after_finished: int | None = Field(None, ge=0)

    @property
    @abstractmethod
    def own_kinds(self) -> tuple[str, ...]:
        """The kinds of the objects that the component makes."""

    @property
    def retries(self) -> int | None:
        """Failures before the Job fails; None where they count per index."""
        return DEFAULT_RETRIES if self.backoff_limit is None else self.backoff_limit

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        if self.restart_policy != "Never":
            for field in ("fail_on_exit_codes", "pod_failure_rules", "ignore_disruptions"):
                if getattr(self, field):
                    yield field, f"takes restart_policy Never, not {self.restart_policy}"
        if wrong := [code for code in self.fail_on_exit_codes if not 1 <= code <= 255]:
            yield "fail_on_exit_codes", f"{wrong} are no exit codes of a failure: 1 to 255"
        if self.active_deadline_seconds is not None and self.grace_seconds >= self.active_deadline_seconds:
            yield "grace_seconds", f"is {self.grace_seconds}; the whole Job may take {self.active_deadline_seconds}"
        claim = ("ResourceClaimTemplate",) if self.gpu_claim is not None else ()
        yield from unknown_kinds(self.overrides, (*self.own_kinds, *claim))


class JobSpec(JobSettings, WorkloadSpec):
    """The checked arguments that all Jobs have."""


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
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
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


class CompletionsArgs(TypedDict):
    """How many pods a Job has, and how their failures count."""

    completions: NotRequired[int]
    """Pods that must succeed; default 1."""
    parallelism: NotRequired[int]
    """Pods that run at once; default 1."""
    indexed: NotRequired[bool]
    """Whether each pod has a number of its own, from 0 on, as JOB_COMPLETION_INDEX; default false."""
    backoff_limit_per_index: NotRequired[int]
    """Failures that are retried for each index, rather than for the Job. Takes indexed."""
    max_failed_indexes: NotRequired[int]
    """Indexes that may fail before the Job fails; by default all. Takes backoff_limit_per_index."""
    success_rules: NotRequired[list[dict[str, Any]]]
    """Rules of the successPolicy, as Kubernetes writes them: when some indexes are enough. Takes indexed."""


class CompletionsSettings(JobSettings):
    """What a stack file says about the pods of a Job."""

    completions: int = Field(1, ge=1)
    parallelism: int = Field(1, ge=0)
    indexed: bool = False
    backoff_limit_per_index: int | None = Field(None, ge=0)
    max_failed_indexes: int | None = Field(None, ge=0)
    success_rules: list[dict[str, Any]] = []

    @property
    @override
    def retries(self) -> int | None:
        if self.backoff_limit is None and self.backoff_limit_per_index is not None:
            return None
        return super().retries

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        for field in ("backoff_limit_per_index", "success_rules"):
            if getattr(self, field) not in (None, []) and not self.indexed:
                yield field, "takes indexed: true"
        if self.backoff_limit_per_index is not None and self.restart_policy != "Never":
            yield "backoff_limit_per_index", f"takes restart_policy Never, not {self.restart_policy}"
        if self.max_failed_indexes is not None and self.backoff_limit_per_index is None:
            yield "max_failed_indexes", "takes backoff_limit_per_index"
        if self.max_failed_indexes is not None and self.max_failed_indexes > self.completions:
            yield "max_failed_indexes", f"is {self.max_failed_indexes}, above completions ({self.completions})"

    def completion_fields(self) -> dict[str, Any]:
        """The fields of the Job's spec."""
        return {
            "completions": self.completions,
            "parallelism": self.parallelism,
            "completionMode": "Indexed" if self.indexed else None,
            "backoffLimitPerIndex": self.backoff_limit_per_index,
            "maxFailedIndexes": self.max_failed_indexes,
            "successPolicy": {"rules": self.success_rules} if self.success_rules else None,
        }


def hostname_errors(field: str, name: str, pods: int, before: str = "", after: str = "") -> Iterator[tuple[str, str]]:
    """The host name of a pod of an Indexed Job is the Job's with the index, and the last index is the longest.

    Args:
        field: The argument that the error is about.
        name: Its value.
        pods: How many indexes there are.
        before: What stands between the name and the index.
        after: What comes after the index.
    """
    try:
        derived(name, f"{before}-{pods - 1}{after}")
    except ValueError as error:
        yield field, f"is too long for the host names of its pods: {error}"


def object_metadata(spec: JobSpec, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Name, namespace, labels and annotations of a workload's main object."""
    return without_none(
        {
            "name": spec.workload_name,
            "namespace": spec.namespace,
            "labels": app_labels(spec) | queue_labels(spec),
            "annotations": dict(annotations) if annotations else None,
        }
    )


def await_annotations(spec: AwaitedSpec) -> dict[str, str]:
    """What tells Pulumi to wait for a Job, or not to."""
    return AWAITED if spec.wait_for_completion else NOT_AWAITED


def job_fields(spec: JobSpec) -> dict[str, Any]:
    """The fields of a Job's spec that say how it fails and ends."""
    return {
        "backoffLimit": spec.retries,
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
        "podFailurePolicy": _pod_failure_policy(spec),
    }


def container_fields(spec: JobSpec) -> dict[str, Any]:
    """The fields of a Job's container beside those of any workload."""
    ports = [without_none({"name": port.name, "containerPort": port.port}) for port in spec.ports]
    return {"ports": ports} if ports else {}


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


def _pod_failure_policy(spec: JobSpec) -> dict[str, Any] | None:
    """The first rule that a failure meets decides: what no retry mends first, disruptions last."""
    if spec.restart_policy != "Never":
        return None
    fatal = {"containerName": spec.container_name, "operator": "In", "values": sorted({*spec.fail_on_exit_codes})}
    rules = [
        *([{"action": "FailJob", "onExitCodes": fatal}] if spec.fail_on_exit_codes else []),
        *spec.pod_failure_rules,
        *([IGNORE_DISRUPTIONS] if spec.ignore_disruptions is not False else []),
    ]
    return {"rules": rules} if rules else None
