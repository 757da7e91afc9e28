"""A training run over several nodes: an Indexed Job, or a JobSet, whose pods find each other."""

from collections.abc import Iterator
from typing import Any, NotRequired

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.parts import NOT_AWAITED
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import check
from ml_foundations.component.types import Name
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import overridden, without_none
from ml_foundations.workloads.awaited import (
    AwaitedArgs,
    AwaitedSettings,
    AwaitedSpec,
    await_annotations,
    declare_job,
    timeouts,
)
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.job import JobArgs, container_fields, hostname_errors, job_fields, object_metadata
from ml_foundations.workloads.pod_template import pod_template

RETRIES_PER_NODE = 3
"""When one pod fails its peers fail with it, so failures count by the node."""
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
JOBSET_JOB = "workers"
"""The name of the one Job in a JobSet."""
JOBSET_IMMUTABLE = ("spec.replicatedJobs", "spec.network", "spec.successPolicy", "spec.failurePolicy", "spec.managedBy")
"""Fields that JobSet's webhook keeps as they are while it runs (jobset, pkg/webhooks/jobset_webhook.go)."""
POD_SUFFIX = "-xxxxx"
"""What the Job controller adds to the name of a pod; JobSet's webhook wants room for it."""


class DistributedTrainingArgs(AwaitedArgs, JobArgs):
    """Arguments of a DistributedTraining."""

    nodes: int
    """Pods that train together, one a node where each takes all GPUs of a node."""
    job_name: NotRequired[str]
    """The name of the Job and its headless Service; default is the component's."""
    service_name: NotRequired[str]
    """The name of the headless Service; default is job_name."""
    processes_per_node: NotRequired[int]
    """Processes that torchrun starts in each pod; default is gpus, and 1 without GPUs."""
    rendezvous_port: NotRequired[int]
    """The port of the first pod at which all meet; default 29500."""
    jobset: NotRequired[bool]
    """Whether it is a JobSet, which starts all pods anew when one fails; its controller must be installed."""
    max_restarts: NotRequired[int]
    """Of a JobSet: how often all pods start anew before it fails; default 3."""
    backoff_limit: NotRequired[int]
    """Failures of single pods that are retried; default 3 for each node, and 0 in a JobSet, which starts all anew."""


class DistributedTrainingSettings(AwaitedSettings):
    """What a stack file says about a DistributedTraining."""

    nodes: int = Field(ge=1)
    service_name: Name | None = None
    processes_per_node: int | None = Field(None, ge=1)
    rendezvous_port: int = Field(29500, ge=1, le=65535)
    jobset: bool = False
    max_restarts: int | None = Field(None, ge=0)

    @property
    @override
    def own_kinds(self) -> tuple[str, ...]:
        """The Job in a JobSet is one of them: what is said of it goes into the JobSet's template."""
        return ("JobSet", "Job") if self.jobset else ("Job", "Service")

    @property
    @override
    def retries(self) -> int | None:
        """In a JobSet any failure ends the Job, so that all start anew."""
        default = 0 if self.jobset else RETRIES_PER_NODE * self.nodes
        return default if self.backoff_limit is None else self.backoff_limit

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.max_restarts is not None and not self.jobset:
            yield "max_restarts", "takes jobset: true; of a Job, backoff_limit counts the failures of single pods"
        if self.jobset and self.ignore_disruptions:
            yield "ignore_disruptions", "leaves the other pods waiting; a JobSet starts all anew, see max_restarts"
        if self.jobset and self.wait_for_completion:
            yield "wait_for_completion", "Pulumi does not know when a JobSet is done; leave one out"


class _DistributedTrainingSpec(DistributedTrainingSettings, AwaitedSpec):
    job_name: Name

    @property
    def workload_name(self) -> str:
        return self.job_name

    @property
    def subdomain(self) -> str:
        """The headless Service, through which the pods have names."""
        return self.service_name or self.job_name

    @property
    def master_address(self) -> str:
        """The name of the first pod, in the namespace."""
        job = f"{self.job_name}-{JOBSET_JOB}-0" if self.jobset else self.job_name
        return f"{job}-0.{self.subdomain}"

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.jobset:
            yield from hostname_errors("job_name", self.job_name, self.nodes, f"-{JOBSET_JOB}-0", POD_SUFFIX)
        else:
            yield from hostname_errors("job_name", self.job_name, self.nodes)


class DistributedTraining(pulumi.ComponentResource):
    """Pods that train together, each with its rank and with the first one's address in torchrun's environment.

    Start ``torchrun train.py`` in them, without arguments for the rendezvous. In a queue they start all at once or not
    at all. Any change of the pods ends the run and starts a new one. Give it a kubernetes provider in its options.
    """

    job_name: str
    """The name of the Job or the JobSet."""
    namespace: str
    """Its namespace."""
    master_address: str
    """Where the pods meet: the first one's name, inside the namespace."""

    def __init__(self, name: str, args: DistributedTrainingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the Service and the Job, or the JobSet."""
        spec = check(_DistributedTrainingSpec, f"DistributedTraining {name}", {"job_name": name, **args})
        super().__init__("ml-foundations:index:DistributedTraining", name, {}, opts)
        claims = declare_claim_template(self, name, spec)
        if spec.jobset:
            self._declare_jobset(name, spec, claims)
        else:
            service = k8s.core.v1.Service(
                f"{name}-service", **arguments(service_manifest(spec)), opts=child_options(self)
            )
            declare_job(self, name, spec, job_manifest(spec), [service, *claims])
        self.job_name = spec.workload_name
        self.namespace = spec.namespace
        self.master_address = spec.master_address
        self.register_outputs(
            {"job_name": self.job_name, "namespace": self.namespace, "master_address": self.master_address}
        )

    def _declare_jobset(self, name: str, spec: _DistributedTrainingSpec, after: list[pulumi.Resource]) -> None:
        manifest = overridden(jobset_manifest(spec), spec.overrides)
        k8s.apiextensions.CustomResource(
            f"{name}-jobset",
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            **arguments(manifest),
            opts=child_options(
                self,
                depends_on=after,
                delete_before_replace=True,
                replace_on_changes=list(JOBSET_IMMUTABLE),
                ignore_changes=["spec.suspend"] if "suspend" in manifest["spec"] else [],
                custom_timeouts=timeouts(spec),
            ),
        )


def service_manifest(spec: _DistributedTrainingSpec) -> dict[str, Any]:
    """The headless Service. It publishes pods before they are ready: they become so by finding each other."""
    return overridden(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                **object_metadata(spec, NOT_AWAITED),
                "name": spec.subdomain,
                "labels": {"app.kubernetes.io/name": spec.workload_name},
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {labels.JOB_NAME: spec.job_name},
            },
        },
        spec.overrides,
    )


def job_manifest(spec: _DistributedTrainingSpec) -> dict[str, Any]:
    """The Indexed Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": object_metadata(spec, {**await_annotations(spec), labels.GANG: "true"}),
        "spec": without_none({**_indexed(spec), **job_fields(spec), "template": _template(spec, spec.subdomain)}),
    }


def jobset_manifest(spec: _DistributedTrainingSpec) -> dict[str, Any]:
    """The JobSet, which makes the headless Service itself."""
    whole = spec.model_copy(update={"ignore_disruptions": False})
    fields = {**_indexed(spec), **job_fields(whole), "template": _template(spec, None)}
    # The JobSet's own clean-up comes after its end; a Job of its own must stay until then.
    ttl = fields.pop("ttlSecondsAfterFinished")
    job = overridden({"kind": "Job", "spec": without_none(fields)}, spec.overrides)
    template = {key: part for key, part in job.items() if key != "kind"}
    fatal = {"name": "fatal", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": object_metadata(spec, {**NOT_AWAITED, labels.GANG: "true"}),
        "spec": without_none(
            {
                "failurePolicy": without_none(
                    {
                        "maxRestarts": 3 if spec.max_restarts is None else spec.max_restarts,
                        "rules": [fatal] if "podFailurePolicy" in without_none(fields) else None,
                    }
                ),
                "network": {"subdomain": spec.service_name} if spec.service_name else None,
                "ttlSecondsAfterFinished": ttl,
                "replicatedJobs": [
                    {"name": JOBSET_JOB, "replicas": 1, "template": template},
                ],
            }
        ),
    }


def _indexed(spec: _DistributedTrainingSpec) -> dict[str, Any]:
    return {"completionMode": "Indexed", "completions": spec.nodes, "parallelism": spec.nodes}


def _template(spec: _DistributedTrainingSpec, subdomain: str | None) -> dict[str, Any]:
    """The pods, in whose environment torchrun finds its arguments by their names with PET_ before (PyTorch Elastic)."""
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{labels.JOB_INDEX}']"}}
    rendezvous: dict[str, dict[str, Any]] = {
        "PET_NNODES": {"value": str(spec.nodes)},
        "PET_NPROC_PER_NODE": {"value": str(spec.processes_per_node or spec.gpus or 1)},
        "PET_NODE_RANK": {"valueFrom": rank},
        "PET_MASTER_ADDR": {"value": spec.master_address},
        "PET_MASTER_PORT": {"value": str(spec.rendezvous_port)},
    }
    template = pod_template(spec, spec.restart_policy, container_fields(spec), rendezvous)
    # JobSet names the pods' Service itself.
    template["spec"] = without_none({"subdomain": subdomain}) | template["spec"]
    return template
