"""A check or a chore, once, as a bare Pod."""

from collections.abc import Iterator
from typing import Any, NotRequired

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.resources import arguments, child_options, unknown_kinds
from ml_foundations.component.spec import check
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.pod import WorkloadArgs, WorkloadSettings, WorkloadSpec, app_labels, queue_labels
from ml_foundations.workloads.pod_template import pod_template

AWAIT_MARGIN_SECONDS = 300
"""Time for a new node and the image, on top of the Task's own."""


class TaskArgs(WorkloadArgs):
    """Arguments of a Task."""

    task_name: NotRequired[str]
    """The Pod's name; default is the component's."""
    active_deadline_seconds: NotRequired[int]
    """The longest that it may run; default 600."""
    wait_for_completion: NotRequired[bool]
    """Whether pulumi up waits until it has succeeded; default false: it goes on once the Pod is accepted."""


class TaskSettings(WorkloadSettings):
    """What a stack file says about a Task."""

    active_deadline_seconds: int = Field(600, ge=1)
    wait_for_completion: bool = False

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.wait_for_completion and self.queue is not None:
            yield "wait_for_completion", "a queued Task starts when there is room, which may be days; leave one out"
        claim = ("ResourceClaimTemplate",) if self.gpu_claim is not None else ()
        yield from unknown_kinds(self.overrides, ("Pod", *claim))


class _TaskSpec(TaskSettings, WorkloadSpec):
    task_name: Name

    @property
    def workload_name(self) -> str:
        return self.task_name


class Task(pulumi.ComponentResource):
    """A Pod that does one thing and ends, such as nvidia-smi on a new node pool.

    It is never retried. Any change makes it run anew. Give it a kubernetes provider in its options.
    """

    task_name: str
    """The Pod's name."""
    namespace: str
    """Its namespace."""

    def __init__(self, name: str, args: TaskArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the Pod."""
        spec = check(_TaskSpec, f"Task {name}", {"task_name": name, **args})
        super().__init__("ml-foundations:index:Task", name, {}, opts)
        k8s.core.v1.Pod(
            f"{name}-pod",
            **arguments(pod_manifest(spec)),
            opts=child_options(
                self,
                depends_on=declare_claim_template(self, name, spec),
                delete_before_replace=True,
                # Kubernetes lets the image of a Pod that has ended change, and runs nothing.
                replace_on_changes=["spec"],
                custom_timeouts=pulumi.CustomTimeouts(
                    create=f"{spec.active_deadline_seconds + AWAIT_MARGIN_SECONDS}s",
                    delete=f"{spec.grace_seconds + AWAIT_MARGIN_SECONDS}s",
                ),
            ),
        )
        self.task_name = spec.workload_name
        self.namespace = spec.namespace
        self.register_outputs({"task_name": self.task_name, "namespace": self.namespace})


def pod_manifest(spec: _TaskSpec) -> dict[str, Any]:
    """The Pod."""
    template = pod_template(spec, "Never", {})
    # skipAwait would not await its deletion either, and a replacement of the same name would meet it.
    waited_for = "{.status.phase}=Succeeded" if spec.wait_for_completion else "{.metadata.uid}"
    return overridden(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": spec.workload_name,
                "namespace": spec.namespace,
                "labels": spec.labels | app_labels(spec) | queue_labels(spec),
                "annotations": template["metadata"].get("annotations", {})
                | {"pulumi.com/waitFor": f"jsonpath={waited_for}"},
            },
            "spec": {"activeDeadlineSeconds": spec.active_deadline_seconds, **template["spec"]},
        },
        spec.overrides,
    )
