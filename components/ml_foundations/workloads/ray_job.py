"""A program on its own Ray cluster, by KubeRay."""

import shlex
from collections.abc import Iterator
from typing import Any

import pulumi
import yaml
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import InputText, Name
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import RayJobComponent
from ml_foundations.workloads.ray_cluster import API_VERSION, RaySpec

_SUBMITTER = ("500m", "1Gi")
"""CPU and memory of the pod that submits the program and follows its log."""


class RayJobSpec(RaySpec):
    """Arguments of a RayJob."""

    kind = "RayJob"
    name_field = "job_name"

    job_name: Name
    """The name of the RayJob. By default, the name of the component."""
    entrypoint: list[InputText] = Field(min_length=1)
    """The command that runs on the head, such as ["python", "/data/score.py"]. Its tasks run on the
    workers."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment, such as {"pip": ["torch==2.9.0"]}."""
    backoff_limit: int = Field(0, ge=0)
    """How often the job is started again on a new cluster after a failure. The default is 0."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """The most seconds that it may run."""
    ttl_seconds_after_finished: int = Field(0, ge=0)
    """Seconds that its cluster stays after its end, such as for its logs. The default is 0."""

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        job = {
            "entrypoint": _entrypoint(self.entrypoint),
            "runtimeEnvYAML": yaml.safe_dump(self.runtime_env) if self.runtime_env else None,
            "backoffLimit": self.backoff_limit,
            "activeDeadlineSeconds": self.active_deadline_seconds,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": self.ttl_seconds_after_finished,
            "rayClusterSpec": self.cluster(),
            # KubeRay's own would have no security context, which Pod Security restricted refuses.
            "submitterPodTemplate": self.without_gpus(*_SUBMITTER, "Never"),
        }
        metadata = self.metadata(annotations=NOT_AWAITED)
        manifest = api_object(API_VERSION, "RayJob", metadata, spec=without_none(job))
        # KubeRay ignores changes of a job that runs.
        options = pulumi.ResourceOptions(
            delete_before_replace=True,
            replace_on_changes=["spec"],
            custom_timeouts=pulumi.CustomTimeouts(delete=self.delete_timeout),
        )
        yield self.operator_policy()
        yield ChildResource("job", manifest, [*depends_on, "operator-network"], options)


class RayJob(RayJobComponent[RayJobSpec]):
    """A program on its own Ray cluster: a head, and workers on GPU nodes.

    It needs a RayOperator. Its cluster ends with the program. In a queue, the head and all workers
    start at once or not at all. A change ends the run and starts a new one.
    """

    job_name: KnownOutput[str]
    """The name of the RayJob."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    job = Child("job")
    """The RayJob."""


def _entrypoint(words: list[Any]) -> Any:
    """Return the words of a command as one text, in which a shell finds them again."""
    if all(isinstance(word, str) for word in words):
        return shlex.join(words)
    return pulumi.Output.all(*words).apply(shlex.join)
