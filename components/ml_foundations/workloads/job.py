"""What Jobs have in common: ports, failures and retries, deadlines."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, TypedDict

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.resources import unknown_kinds
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import derived
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.workloads.pod import WorkloadArgs, WorkloadSettings, WorkloadSpec, app_labels, queue_labels

DEFAULT_RETRIES = 3

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
    """Failures that are retried before the Job fails; default 3."""
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
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
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
