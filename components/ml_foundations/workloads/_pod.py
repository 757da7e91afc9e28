"""The pod of a workload: GPUs, where it may run, volumes, and a security context that the strictest level admits."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict

from pydantic import Field
from typing_extensions import override

from ml_foundations import labels
from ml_foundations._manifest import merged, without_none
from ml_foundations._spec import GpuProduct, Name, Quantity, Spec
from ml_foundations._tolerations import GPU_TOLERATION, Toleration, toleration_manifest
from ml_foundations.planning.quantity import parse_quantity

CONTAINER = "main"
SHARED_MEMORY = "shared-memory"
SHARED_MEMORY_PATH = "/dev/shm"


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


class WorkloadSettings(Spec):
    """What a stack file says about any workload."""

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
    tolerations: list[Toleration] = []
    service_account: str | None = None
    grace_seconds: int = Field(30, ge=0)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_overrides: dict[str, Any] = {}

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.gpu is not None and not self.gpus:
            yield "gpus", f"is 0, but gpu is {self.gpu}; say how many each pod needs"
        if self.shared_memory and parse_quantity(self.shared_memory) >= parse_quantity(self.memory):
            yield "shared_memory", f"is {self.shared_memory}, and counts against memory ({self.memory}): raise memory"
        yield from self._mount_contradictions()

    def _mount_contradictions(self) -> Iterator[tuple[str, str]]:
        taken = {SHARED_MEMORY_PATH} if self.shared_memory else set[str]()
        for index, mount in enumerate(self.mounts):
            if mount.path in taken:
                yield f"mounts[{index}].path", f"{mount.path} is taken; choose another"
            if self.shared_memory and mount.claim == SHARED_MEMORY:
                yield f"mounts[{index}].claim", f"{SHARED_MEMORY} is the name of the volume of shared_memory"
            taken.add(mount.path)


class WorkloadSpec(WorkloadSettings):
    """The checked arguments that all workloads have."""

    namespace: Name

    @property
    @abstractmethod
    def workload_name(self) -> str:
        """The name of the workload's main object."""


def app_labels(spec: WorkloadSpec) -> dict[str, str]:
    """The labels by which a workload's pods are known."""
    return {"app.kubernetes.io/name": spec.workload_name}


def pod_template(spec: WorkloadSpec, restart_policy: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """The pod template; the user's ``pod_overrides`` are merged on top: maps join, lists are replaced."""
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
    metadata = without_none({"labels": spec.labels | app_labels(spec), "annotations": spec.annotations or None})
    return {"metadata": metadata, "spec": merged(pod, spec.pod_overrides)}


def resources(spec: WorkloadSpec) -> dict[str, Any]:
    """Requests equal limits, so that a pod never gives way to another; a LimitRange has nothing to add."""
    amounts = {"cpu": spec.cpu, "memory": spec.memory} | ({labels.GPU_RESOURCE: str(spec.gpus)} if spec.gpus else {})
    return {"requests": amounts, "limits": amounts}


def _container(spec: WorkloadSpec) -> dict[str, Any]:
    mounts = [
        without_none({"name": m.claim, "mountPath": m.path, "readOnly": m.read_only or None}) for m in spec.mounts
    ]
    if spec.shared_memory:
        mounts.append({"name": SHARED_MEMORY, "mountPath": SHARED_MEMORY_PATH})
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
    claims = dict.fromkeys(mount.claim for mount in spec.mounts)
    volumes: list[dict[str, Any]] = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    if spec.shared_memory:
        # A memory-backed volume counts against the container's memory limit.
        volumes.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": spec.shared_memory}})
    return volumes


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


def _tolerations(spec: WorkloadSpec) -> list[dict[str, str]] | None:
    """The GPU taint where GPUs are asked for, and what the user names."""
    of_gpus = [GPU_TOLERATION] if spec.gpus else []
    others = [toleration for toleration in spec.tolerations if toleration not in of_gpus]
    return [toleration_manifest(toleration) for toleration in of_gpus + others] or None
