"""Jobs on several nodes: an Indexed Job, or a JobSet, whose pods find each other."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.children import NOT_AWAITED, ChildResource
from ml_foundations.component.types import Name
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import overridden, without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.workloads.fabric import PodFabric
from ml_foundations.workloads.fabric_rules import fabric_errors, fabric_warnings, used_fabric
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.job import AwaitedSpec

_RETRIES_PER_NODE = 3
"""When one pod fails its peers fail with it, so failures count by the node."""
_MAX_RESTARTS = 3
_JOBSET_JOB = "workers"
"""The name of the one Job in a JobSet."""
_IMMUTABLE = ("replicatedJobs", "network", "successPolicy", "failurePolicy", "managedBy")
_JOBSET_IMMUTABLE = [f"spec.{field}" for field in _IMMUTABLE]
"""Fields that JobSet's webhook keeps as they are while it runs (jobset,
pkg/webhooks/jobset_webhook.go)."""
_POD_SUFFIX = "-xxxxx"
"""What the Job controller adds to the name of a pod; JobSet's webhook wants room for it."""
_GANG = {labels.GANG: "true"}


class SeveralNodesSpec(AwaitedSpec):
    """Arguments of Jobs on several nodes.

    They set the nodes, and how their pods find each other.
    """

    name_field = "job_name"

    nodes: int = Field(ge=1)
    """Pods that run together. If each requests all GPUs of a node, it is the number of nodes."""
    gpu_fabric: GpuFabric | None = None
    """The network between the GPUs of its nodes, such as GpuNodePool.gpu_fabric.

    Pods that request all GPUs of a node get it: interfaces, the vendor's daemon, libraries of the
    node and its environment for NCCL. They run as root, unless run_as_user is set. Their namespace
    must have the Pod Security level privileged. Only several nodes use it.
    """
    job_name: Name
    """The name of the Job and its headless Service. By default, the name of the component."""
    service_name: Name | None = None
    """The name of the headless Service. By default, job_name."""
    jobset: bool = False
    """Create a JobSet, which restarts all pods when one fails. It needs a JobSetController. The
    default is false."""
    max_restarts: int | None = Field(None, ge=0)
    """For a JobSet: restarts of all pods before it fails. The default is 3."""
    backoff_limit: int | None = Field(None, ge=0)
    """Failures of single pods that are retried. The default is 3 for each node. In a JobSet it is
    0, because a failure restarts all pods."""

    @property
    @override
    def retries(self) -> int | None:
        """In a JobSet any failure ends the Job, so that all pods restart."""
        default = 0 if self.jobset else _RETRIES_PER_NODE * self.nodes
        return default if self.backoff_limit is None else self.backoff_limit

    @property
    @override
    def ignores_disruptions(self) -> bool:
        """In a JobSet a disruption restarts all pods."""
        return not self.jobset and super().ignores_disruptions

    @property
    @override
    def fabric(self) -> PodFabric:
        return used_fabric(self.gpu_fabric, self.nodes, self.gpus)

    def rendezvous(self) -> dict[str, dict[str, Any]]:
        """Return the variables by which the pods find each other."""
        return {}

    @property
    def headless_service(self) -> str:
        """The headless Service, through which the pods have names."""
        return self.service_name or self.job_name

    @property
    def master_address(self) -> str:
        """The name of the first pod, in the namespace."""
        return self.pod_address("0")

    def pod_address(self, index: str) -> str:
        """Return the name of a pod, in the namespace."""
        job = f"{self.job_name}-{_JOBSET_JOB}-0" if self.jobset else self.job_name
        return f"{job}-{index}.{self.headless_service}"

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from self.peer_name_errors()
        if self.max_restarts is not None and not self.jobset:
            yield "max_restarts", "requires jobset: true; for a Job, set backoff_limit"
        if self.jobset and self.ignore_disruptions:
            reason = "leaves the other pods waiting; a JobSet restarts all, see max_restarts"
            yield "ignore_disruptions", reason
        if self.jobset and self.wait_for_completion:
            yield "wait_for_completion", "Pulumi does not know when a JobSet is done; leave one out"
        yield from fabric_errors(self)
        for index, layer in enumerate(self.topology_slices):
            if self.nodes % layer.size:
                reason = f"is {layer.size}, and must divide nodes ({self.nodes})"
                yield f"topology_slices[{index}].size", reason
        last = f"-{self.nodes - 1}"
        of_jobset = f"-{_JOBSET_JOB}-0{last}{_POD_SUFFIX}"
        yield from self.hostname_errors(of_jobset if self.jobset else last)

    @override
    def warnings(self) -> Iterator[str]:
        yield from fabric_warnings(self, self.nodes)

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        if self.jobset:
            options = self.replacing("JobSet", _JOBSET_IMMUTABLE)
            yield ChildResource("jobset", _jobset(self), depends_on, options)
        else:
            yield ChildResource("service", _service(self))
            yield self.job_child(_job_body(self), ["service", *depends_on], _GANG)

    @override
    def overridable_kinds(self) -> dict[str, str]:
        """Return the kinds, with the Job in a JobSet, whose template its overrides change."""
        return {**super().overridable_kinds(), "Job": "batch/v1"}


def _service(spec: SeveralNodesSpec) -> dict[str, Any]:
    name = spec.headless_service
    app_labels = spec.app_labels
    metadata = spec.metadata(name=name, labels=app_labels, annotations=NOT_AWAITED)
    selector = {labels.JOB_NAME: spec.job_name} | spec.selector_labels
    # The pods become ready by finding each other, so their addresses are published before.
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return api_object("v1", "Service", metadata, spec=service)


def _jobset(spec: SeveralNodesSpec) -> dict[str, Any]:
    """Return the JobSet, which creates the headless Service itself."""
    body = _job_body(spec)
    # The JobSet's own clean-up comes after its end; a Job of its own must stay until then.
    ttl = body.pop("ttlSecondsAfterFinished", None)
    fatal = {"name": "fatal", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    policy = {
        "maxRestarts": _MAX_RESTARTS if spec.max_restarts is None else spec.max_restarts,
        "rules": [fatal] if "podFailurePolicy" in body else None,
    }
    template = overridden({"kind": "Job", "spec": body}, spec.overrides)
    del template["kind"]
    jobs = [{"name": _JOBSET_JOB, "replicas": 1, "template": template}]
    jobset = {
        "failurePolicy": without_none(policy),
        "network": {"subdomain": spec.service_name} if spec.service_name else None,
        "ttlSecondsAfterFinished": ttl,
        "replicatedJobs": jobs,
    }
    metadata = spec.metadata(annotations=NOT_AWAITED | _GANG | spec.own_annotations)
    return api_object("jobset.x-k8s.io/v1alpha2", "JobSet", metadata, spec=without_none(jobset))


def _job_body(spec: SeveralNodesSpec) -> dict[str, Any]:
    # JobSet names the pods' Service itself.
    pod = {} if spec.jobset else {"subdomain": spec.headless_service}
    count = {"completions": spec.nodes, "parallelism": spec.nodes}
    indexes = {"completionMode": "Indexed", **count}
    return spec.job_body(indexes, spec.template(spec.rendezvous(), pod=pod))
