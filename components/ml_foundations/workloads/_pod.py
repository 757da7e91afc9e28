"""The pod of a workload: GPUs, where it may run, volumes, and a security context that the strictest level admits."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from pydantic import Field, model_validator

from ml_foundations import labels
from ml_foundations._manifest import without_none
from ml_foundations._spec import GpuProduct, Name, Quantity, Spec

CONTAINER = "main"
SHARED_MEMORY = "shared-memory"


class MountArgs(TypedDict):
    """A volume of a workload."""

    claim: str
    """The name of the claim."""
    path: str
    """Where it is mounted."""
    read_only: NotRequired[bool]
    """Whether it is only read; default false."""


class Mount(Spec):
    """A checked MountArgs."""

    claim: Name
    path: str = Field(pattern="^/")
    read_only: bool = False


class WorkloadSpec(Spec):
    """The checked arguments that all workloads have."""

    workload_name: Name
    namespace: Name
    image: str = Field(min_length=1)
    command: list[str] | None = None
    arguments: list[str] | None = None
    env: dict[str, str] = {}
    gpu: GpuProduct | None = None
    gpus: int = Field(0, ge=0)
    cpu: Quantity
    memory: Quantity
    mounts: list[Mount] = []
    shared_memory: Quantity | None = None
    node_selector: dict[str, str] = {}
    service_account: str | None = None
    grace_seconds: int = Field(30, ge=0)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_overrides: dict[str, Any] = {}

    @model_validator(mode="after")
    def _gpu_and_gpus_go_together(self) -> "WorkloadSpec":
        if self.gpu is not None and not self.gpus:
            raise ValueError(f'gpus: is 0, but gpu is "{self.gpu}"; say how many each pod needs')
        return self


def app_labels(spec: WorkloadSpec) -> dict[str, str]:
    """The labels by which a workload's pods are known."""
    return {"app.kubernetes.io/name": spec.workload_name}


def pod_template(spec: WorkloadSpec, restart_policy: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """The pod template; ``container`` and the user's ``pod_overrides`` are laid on top."""
    pod: dict[str, Any] = without_none(
        {
            "restartPolicy": restart_policy,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "serviceAccountName": spec.service_account,
            "terminationGracePeriodSeconds": spec.grace_seconds,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "nodeSelector": spec.node_selector or None,
            "affinity": _affinity(spec),
            "tolerations": _tolerations(spec),
            "containers": [_container(spec) | dict(container)],
            "volumes": _volumes(spec) or None,
        }
    )
    metadata = without_none({"labels": app_labels(spec) | spec.labels, "annotations": spec.annotations or None})
    return {"metadata": metadata, "spec": pod | spec.pod_overrides}


def resources(spec: WorkloadSpec) -> dict[str, Any]:
    """Requests equal limits, so that a pod never gives way to another; a LimitRange has nothing to add."""
    amounts = {"cpu": spec.cpu, "memory": spec.memory} | ({labels.GPU_RESOURCE: str(spec.gpus)} if spec.gpus else {})
    return {"requests": amounts, "limits": amounts}


def _container(spec: WorkloadSpec) -> dict[str, Any]:
    mounts = [
        without_none({"name": m.claim, "mountPath": m.path, "readOnly": m.read_only or None}) for m in spec.mounts
    ]
    if spec.shared_memory:
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})
    return without_none(
        {
            "name": CONTAINER,
            "image": spec.image,
            "command": spec.command,
            "args": spec.arguments,
            "env": [{"name": name, "value": value} for name, value in spec.env.items()] or None,
            "resources": resources(spec),
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": mounts or None,
        }
    )


def _volumes(spec: WorkloadSpec) -> list[dict[str, Any]]:
    claims = [{"name": m.claim, "persistentVolumeClaim": {"claimName": m.claim}} for m in spec.mounts]
    if spec.shared_memory:
        # A memory-backed volume counts against the container's memory limit.
        claims.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": spec.shared_memory}})
    return claims


def _affinity(spec: WorkloadSpec) -> dict[str, Any] | None:
    """GPU pods go to nodes of their GPU product; pods without GPUs to no GPU node."""
    if spec.gpu is not None:
        term = {"key": labels.GPU_PRODUCT, "operator": "In", "values": [spec.gpu]}
    elif not spec.gpus:
        term = {"key": labels.GKE_ACCELERATOR, "operator": "DoesNotExist"}
    else:
        return None
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _tolerations(spec: WorkloadSpec) -> Sequence[dict[str, str]] | None:
    if not spec.gpus:
        return None
    return [
        {
            "key": labels.GPU_TAINT_KEY,
            "operator": "Equal",
            "value": labels.GPU_TAINT_VALUE,
            "effect": labels.GPU_TAINT_EFFECT,
        }
    ]
