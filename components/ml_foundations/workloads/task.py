"""A check or a chore that runs once, as a bare Pod."""

from collections.abc import Iterator

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.nodes import NEW_NODE_SECONDS
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import TaskComponent
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.pod_template import pod_template


class TaskSpec(WorkloadSpec):
    """Arguments of a Task."""

    name_field = "task_name"

    task_name: Name
    """The Pod's name. By default, the name of the component."""
    active_deadline_seconds: int = Field(600, ge=1)
    """The most seconds that it may run. The default is 600."""
    wait_for_completion: bool = False
    """Wait in pulumi up until the Pod has succeeded. The default is false: pulumi up continues when
    the Pod is accepted."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.wait_for_completion and self.queue is not None:
            reason = "a queued Task starts when there is room, which may be days; leave one out"
            yield "wait_for_completion", reason

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        fields = {"activeDeadlineSeconds": self.active_deadline_seconds}
        template = pod_template(self, "Never", {}, pod=fields)
        # With skipAwait, Pulumi would not wait for its deletion, and a replacement would fail.
        waited_for = "{.status.phase}=Succeeded" if self.wait_for_completion else "{.metadata.uid}"
        annotations = dict(template["metadata"].get("annotations", {}))
        annotations["pulumi.com/waitFor"] = f"jsonpath={waited_for}"
        labels = self.labels | self.app_labels | self.queue_labels
        metadata = self.metadata(labels=labels, annotations=annotations)
        pod = api_object("v1", "Pod", metadata, spec=template["spec"])
        ends = f"{self.active_deadline_seconds + NEW_NODE_SECONDS}s"
        options = pulumi.ResourceOptions(
            delete_before_replace=True,
            # Kubernetes lets the image of a Pod that has ended change, and runs nothing.
            replace_on_changes=["spec"],
            custom_timeouts=pulumi.CustomTimeouts(create=ends, delete=self.delete_timeout),
        )
        yield ChildResource("pod", pod, depends_on, options)


class Task(TaskComponent[TaskSpec]):
    """A Pod that runs once, such as nvidia-smi on a new node pool.

    It is never retried. A change runs it again.
    """

    task_name: KnownOutput[str]
    """The Pod's name."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    pod = Child("pod")
    """The Pod."""
