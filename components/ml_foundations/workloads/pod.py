"""The arguments that all workloads have: their pods, and what goes together in them."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.tolerations import Toleration, TolerationArgs
from ml_foundations.component.types import GpuProduct, Name, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.workloads.environment import EnvironmentSource, EnvironmentSourceArgs, Key, KeyArgs
from ml_foundations.workloads.mounts import Mount, MountArgs, mount_errors

CONTAINER = "main"
SHARED_MEMORY = "shared-memory"
SHARED_MEMORY_PATH = "/dev/shm"


class GpuClaimArgs(TypedDict):
    """How a pod claims its GPUs by dynamic resource allocation (DRA), instead of from the device plugin."""

    device_class: NotRequired[str]
    """The DeviceClass; default gpu.nvidia.com, of NVIDIA's DRA driver."""
    selectors: NotRequired[list[str]]
    """CEL expressions that each GPU must meet, such as
    device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0; beside what gpu says."""
    template: NotRequired[str]
    """A ResourceClaimTemplate that there is already, such as one of DeviceClasses; by default one is made."""


class GpuClaim(Spec):
    """A checked GpuClaimArgs."""

    device_class: str = Field(labels.GPU_DEVICE_CLASS, min_length=1)
    selectors: list[str] = []
    template: Name | None = None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.template is not None and len(self.model_fields_set) > 1:
            yield "template", "says itself which GPUs it wants; leave device_class and selectors out"


class WorkloadArgs(TypedDict):
    """Arguments that all workloads have."""

    namespace: str
    """The namespace."""
    image: str
    """The container image."""
    cpu: str
    """CPU that each pod requests, such as 8."""
    memory: str
    """Memory that each pod requests and may use, such as 64Gi."""
    command: NotRequired[list[str]]
    """The command; by default the image's."""
    arguments: NotRequired[list[str]]
    """Arguments of the command."""
    working_dir: NotRequired[str]
    """The directory in which the command starts; by default the image's."""
    env: NotRequired[dict[str, str]]
    """Environment variables. A value may refer to another variable, as $(NAME)."""
    secret_env: NotRequired[dict[str, KeyArgs]]
    """Environment variables from keys of Secrets, such as {"HF_TOKEN": {"name": "hugging-face", "key": "token"}}."""
    config_env: NotRequired[dict[str, KeyArgs]]
    """Environment variables from keys of ConfigMaps."""
    field_env: NotRequired[dict[str, str]]
    """Environment variables from fields of the pod, such as {"NODE": "spec.nodeName"}."""
    env_from: NotRequired[list[EnvironmentSourceArgs]]
    """Secrets and ConfigMaps of which every key becomes an environment variable."""
    gpu: NotRequired[str]
    """The GPU model, by any of its names; without it, any GPU will do."""
    gpus: NotRequired[int]
    """GPUs of each pod."""
    gpu_claim: NotRequired[GpuClaimArgs]
    """Claim the GPUs by dynamic resource allocation (DRA), which the nodes must offer, not from the device plugin."""
    requests: NotRequired[dict[str, str]]
    """Requests of other resources, such as {"ephemeral-storage": "100Gi"}."""
    limits: NotRequired[dict[str, str | None]]
    """Limits that differ from the requests, such as {"memory": "96Gi"}; null for none. By default they are the same."""
    mounts: NotRequired[list[MountArgs]]
    """Volumes: claims, Secrets, ConfigMaps, buckets, scratch space and any other."""
    shared_memory: NotRequired[str]
    """Size of /dev/shm, such as 16Gi; it counts against memory."""
    init_containers: NotRequired[list[dict[str, Any]]]
    """Containers that run before, as Kubernetes writes them; with restartPolicy Always, as sidecars beside it."""
    node_selector: NotRequired[dict[str, str]]
    """Labels that its nodes must have, such as GpuNodePool.node_selector."""
    tolerations: NotRequired[list[TolerationArgs]]
    """Taints of nodes that its pods put up with, such as GpuNodePool.tolerations; the GPU taint needs no mention."""
    spot: NotRequired[bool]
    """Whether its pods put up with the taint of Spot nodes; default false."""
    priority_class: NotRequired[str]
    """The PriorityClass of its pods."""
    queue: NotRequired[str]
    """The Kueue LocalQueue that it waits in: Kueue starts it when there is room for all of it."""
    queue_priority: NotRequired[str]
    """The Kueue WorkloadPriorityClass that ranks it in its queue."""
    service_account: NotRequired[str]
    """The service account of its pods; default is the namespace's default."""
    run_as_user: NotRequired[int]
    """The user and group that it runs as; default 1000. 0 is root, which Pod Security restricted refuses."""
    image_pull_policy: NotRequired[str]
    """Always, IfNotPresent or Never; default is Kubernetes' own."""
    image_pull_secrets: NotRequired[list[str]]
    """Secrets with which the image is pulled."""
    container_name: NotRequired[str]
    """The name of its container; default main."""
    grace_seconds: NotRequired[int]
    """Seconds that a pod has to finish when it is stopped."""
    labels: NotRequired[dict[str, str]]
    """More labels of its pods."""
    annotations: NotRequired[dict[str, str]]
    """Annotations of its pods."""
    pod_overrides: NotRequired[dict[str, Any]]
    """Fields of the PodSpec, as Kubernetes writes them, merged over the component's as kubectl patch does: maps join,
    containers, volumes and the like join by name, other lists are replaced, and null takes a field away."""
    overrides: NotRequired[dict[str, dict[str, Any]]]
    """Fields of the objects that it makes, by kind, such as {"Job": {"metadata": {"labels": {…}}}}, merged over the
    component's: maps join, lists are replaced, and null takes a field away. For the pod, see pod_overrides."""


class WorkloadSettings(Spec):
    """What a stack file says about any workload."""

    image: str = Field(min_length=1)
    command: list[str] | None = None
    arguments: list[str] | None = None
    working_dir: str | None = Field(None, pattern="^/")
    env: dict[str, str] = {}
    secret_env: dict[str, Key] = {}
    config_env: dict[str, Key] = {}
    field_env: dict[str, str] = {}
    env_from: list[EnvironmentSource] = []
    gpu: GpuProduct | None = None
    gpus: int = Field(0, ge=0)
    gpu_claim: GpuClaim | None = None
    cpu: Quantity
    memory: Quantity
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity | None] = {}
    mounts: list[Mount] = []
    shared_memory: Quantity | None = None
    init_containers: list[dict[str, Any]] = []
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    spot: bool = False
    priority_class: str | None = None
    queue: Name | None = None
    queue_priority: str | None = None
    service_account: str | None = None
    run_as_user: int = Field(1000, ge=0)
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: list[str] = []
    container_name: Name = CONTAINER
    grace_seconds: int = Field(30, ge=0)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_overrides: dict[str, Any] = {}
    overrides: dict[str, dict[str, Any]] = {}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.gpu is not None and not self.gpus:
            yield "gpus", f"is 0, but gpu is {self.gpu}; say how many each pod needs"
        elif self.gpu_claim is not None and not self.gpus:
            yield "gpus", "is 0, but there is a gpu_claim; say how many each pod needs"
        if self.queue_priority is not None and self.queue is None:
            yield "queue_priority", "ranks a workload in its queue, and there is no queue"
        yield from self._amount_errors()
        names = {SHARED_MEMORY} if self.shared_memory else set[str]()
        paths = {SHARED_MEMORY_PATH} if self.shared_memory else set[str]()
        yield from mount_errors(self.mounts, paths | self.own_paths, names | self.own_volumes)

    @property
    def own_paths(self) -> set[str]:
        """Paths at which the component mounts something of its own."""
        return set()

    @property
    def own_volumes(self) -> set[str]:
        """Names of volumes that the component makes by itself."""
        return set()

    def _amount_errors(self) -> Iterator[tuple[str, str]]:
        for field, amounts in (("requests", self.requests), ("limits", self.limits)):
            if labels.GPU_RESOURCE in amounts:
                yield f"{field}.{labels.GPU_RESOURCE}", "is said by gpus, and by nothing else"
        for name in ("cpu", "memory"):
            if name in self.requests:
                yield f"requests.{name}", f"is said by {name}, and by nothing else"
        requested = {"cpu": self.cpu, "memory": self.memory} | self.requests
        for name, limit in self.limits.items():
            if limit is not None and parse_quantity(limit) < parse_quantity(requested.get(name, "0")):
                yield f"limits.{name}", f"is {limit}, below the request ({requested[name]})"
        memory = self.limits.get("memory", self.memory)
        if self.shared_memory and memory and parse_quantity(self.shared_memory) >= parse_quantity(memory):
            yield "shared_memory", f"is {self.shared_memory}, and counts against memory ({memory}): raise memory"


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


def queue_labels(spec: WorkloadSettings) -> dict[str, str]:
    """The labels by which Kueue takes an object into a queue.

    Kueue's webhook suspends what has them as it is created. The manifest says nothing of ``suspend``: an update that
    said it again would stop what Kueue has started.
    """
    return without_none({labels.KUEUE_QUEUE: spec.queue, labels.KUEUE_PRIORITY: spec.queue_priority})
