"""A training run as a Job."""

from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations._manifest import arguments, child_options, without_none
from ml_foundations._spec import Name, check
from ml_foundations._tolerations import TolerationArgs
from ml_foundations.workloads._pod import MountArgs, WorkloadSettings, WorkloadSpec, pod_template

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


class TrainingJobArgs(TypedDict):
    """Arguments of a TrainingJob."""

    namespace: str
    """The namespace."""
    image: str
    """The container image."""
    cpu: str
    """CPU that each pod requests, such as 8."""
    memory: str
    """Memory that each pod requests and may use, such as 64Gi."""
    job_name: NotRequired[str]
    """The Job's name; default is the component's."""
    command: NotRequired[list[str]]
    """The command; by default the image's."""
    arguments: NotRequired[list[str]]
    """Arguments of the command."""
    env: NotRequired[dict[str, str]]
    """Environment variables."""
    gpu: NotRequired[str]
    """The GPU model, by any of its names; without it, any GPU will do."""
    gpus: NotRequired[int]
    """GPUs of each pod; default 0: a preprocessing Job, which never runs on a GPU node."""
    mounts: NotRequired[list[MountArgs]]
    """Volumes: data, checkpoints."""
    shared_memory: NotRequired[str]
    """Size of /dev/shm, such as 16Gi; it counts against memory."""
    completions: NotRequired[int]
    """Pods that must succeed; default 1."""
    parallelism: NotRequired[int]
    """Pods that run at once; default 1."""
    backoff_limit: NotRequired[int]
    """Retries before the Job fails; default 3."""
    active_deadline_seconds: NotRequired[int]
    """The longest that the Job may take, retries included."""
    ttl_seconds_after_finished: NotRequired[int]
    """Delete the Job so long after its end. Beware: a later refresh finds it gone, and the next up trains again."""
    wait_for_completion: NotRequired[bool]
    """Whether pulumi up waits until the Job has completed; default false: it goes on once the Job is accepted."""
    node_selector: NotRequired[dict[str, str]]
    """Labels that its nodes must have, such as GpuNodePool.node_selector."""
    tolerations: NotRequired[list[TolerationArgs]]
    """Taints of nodes that its pods put up with, such as GpuNodePool.tolerations; the GPU taint needs no mention."""
    service_account: NotRequired[str]
    """The service account of its pods; default is the namespace's default."""
    grace_seconds: NotRequired[int]
    """Seconds that a pod has to write a checkpoint when it is stopped; default 30."""
    labels: NotRequired[dict[str, str]]
    """More labels of its pods."""
    annotations: NotRequired[dict[str, str]]
    """Annotations of its pods."""
    pod_overrides: NotRequired[dict[str, Any]]
    """Fields of the PodSpec, as Kubernetes writes them, merged over the component's: maps join, lists are replaced."""


class TrainingJobSettings(WorkloadSettings):
    """What a stack file says about a TrainingJob."""

    completions: int = Field(1, ge=1)
    parallelism: int = Field(1, ge=1)
    backoff_limit: int = Field(3, ge=0)
    active_deadline_seconds: int | None = Field(None, ge=1)
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    wait_for_completion: bool = False

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        if self.wait_for_completion and self.ttl_seconds_after_finished is not None:
            yield "ttl_seconds_after_finished", "a Job that is waited for must not delete itself; leave one out"


class _TrainingJobSpec(TrainingJobSettings, WorkloadSpec):
    job_name: Name

    @property
    def workload_name(self) -> str:
        return self.job_name


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
        k8s.batch.v1.Job(
            f"{name}-job",
            **arguments(job_manifest(spec)),
            opts=child_options(
                self,
                delete_before_replace=True,
                replace_on_changes=list(IMMUTABLE),
                custom_timeouts=_timeouts(spec),
            ),
        )
        self.job_name = spec.workload_name
        self.namespace = spec.namespace
        self.register_outputs({"job_name": self.job_name, "namespace": self.namespace})


def job_manifest(spec: _TrainingJobSpec) -> dict[str, Any]:
    """The Job."""
    metadata = {"name": spec.workload_name, "namespace": spec.namespace}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata | ({} if spec.wait_for_completion else {"annotations": NOT_AWAITED}),
        "spec": without_none(
            {
                "completions": spec.completions,
                "parallelism": spec.parallelism,
                "backoffLimit": spec.backoff_limit,
                "activeDeadlineSeconds": spec.active_deadline_seconds,
                "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
                "template": pod_template(spec, "Never", {}),
            }
        ),
    }


def _timeouts(spec: _TrainingJobSpec) -> pulumi.CustomTimeouts:
    """Waiting outlasts the Job's own deadline, and deleting its pods' grace."""
    delete = f"{spec.grace_seconds + 300}s"
    if spec.wait_for_completion and spec.active_deadline_seconds is not None:
        return pulumi.CustomTimeouts(create=f"{spec.active_deadline_seconds + 60}s", delete=delete)
    return pulumi.CustomTimeouts(delete=delete)
