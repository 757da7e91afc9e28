"""The arguments that all workloads have, and which of them contradict each other."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.children import ChildResource
from ml_foundations.component.objects import IN_CLUSTER, TEAM_OF_PODS, ObjectArgument
from ml_foundations.component.overrides import Affinity, Container, PodFields, container_errors
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.tolerations import Toleration
from ml_foundations.component.types import GpuNames, InputName, InputText, Name, NonEmpty, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import named_by_content, without_none
from ml_foundations.kubernetes.objects import Manifest, api_object, items, section
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.workloads import files
from ml_foundations.workloads.environment import EnvironmentSource, Key
from ml_foundations.workloads.fabric import ROOT, PodFabric, interfaces_claim, without_fabric
from ml_foundations.workloads.gpu_claim import GpuClaim
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.mounts import Mount, mount_errors
from ml_foundations.workloads.topology import TopologyArgument, TopologySlice, topology_errors

_SHARED_MEMORY = "shared-memory"
_SHARED_MEMORY_PATH = "/dev/shm"
_DELETE_MARGIN_SECONDS = 300
"""Pulumi waits for a deletion this much longer than pods may take to stop."""
AWAIT_MARGIN_SECONDS = 60
"""Pulumi outlasts Kubernetes' own deadlines by this, so that it is Kubernetes that says what went
wrong."""


POOL = ObjectArgument(
    ("GpuNodePool", "CpuNodePool"),
    "The GpuNodePool or CpuNodePool that its pods run on. "
    "It sets gpu, gpu_fabric, node_selector and tolerations. You may add to the last two.",
    {name: name for name in ("gpu", "gpu_fabric", "node_selector", "tolerations")},
)
"""The node pool of a workload."""


class _EmptyVolume(NamedTuple):
    """An emptyDir that a component adds, mounted in its container."""

    name: str
    path: str
    fields: dict[str, Any]
    """The fields of the emptyDir."""


class WorkloadSpec(ComponentSpec):
    """Arguments that all workloads have.

    They set the container, its resources and GPUs, its volumes, and the pod.
    """

    objects = {"cluster": IN_CLUSTER, "team": TEAM_OF_PODS, "pool": POOL}

    namespace: InputName
    """The namespace."""
    image: NonEmpty
    """The container image."""
    cpu: Quantity | None = None
    """CPU that each pod requests, such as 8. By default, the namespace's LimitRange decides."""
    memory: Quantity | None = None
    """Memory that each pod requests and may use, such as 64Gi. By default, the namespace's
    LimitRange decides."""
    command: list[InputText] | None = None
    """The command. By default, that of the image."""
    arguments: list[InputText] | None = None
    """Arguments of the command."""
    working_dir: str | None = Field(None, pattern="^/")
    """The directory in which the command starts. By default, that of the image."""
    env: dict[str, InputText] = {}
    """Environment variables. A value may refer to another variable, such as $(NAME)."""
    secret_env: dict[str, Key] = {}
    """Environment variables from keys of Secrets, such as {"HF_TOKEN": {"name": "hugging-face",
    "key": "token"}}."""
    config_env: dict[str, Key] = {}
    """Environment variables from keys of ConfigMaps."""
    field_env: dict[str, str] = {}
    """Environment variables from fields of the pod, such as {"NODE": "spec.nodeName"}."""
    env_from: list[EnvironmentSource] = []
    """Secrets and ConfigMaps. Each of their keys becomes an environment variable."""
    gpu: GpuNames | None = None
    """The GPU model, by any of its names, or a list of accepted models. By default, any model."""
    accelerator_label: bool = False
    """Select the GPU model, its partition and its sharing by GKE's own labels, for nodes without
    labels of GPU Feature Discovery. The default is false."""
    gpus: int = Field(0, ge=0)
    """GPUs of each pod. The default is 0."""
    gpu_claim: GpuClaim | None = None
    """Claim the GPUs by dynamic resource allocation (DRA), instead of by the device plugin. The
    nodes must support it."""
    gpu_fabric: GpuFabric | None = None
    """The network between the GPUs of its nodes, such as GpuNodePool.gpu_fabric. Pods of one node
    do not use it: NCCL then ignores its plugin."""
    requests: dict[str, Quantity] = {}
    """Requests of other resources, such as {"ephemeral-storage": "100Gi"}."""
    limits: dict[str, Quantity | None] = {}
    """Limits that differ from the requests, such as {"memory": "96Gi"}, or null for no limit. By
    default, the request is the limit."""
    mounts: list[Mount] = []
    """Volumes: claims, Secrets, ConfigMaps, buckets, scratch volumes and any others."""
    files: dict[str, str] = {}
    """Files in the container, such as a script: text by absolute path, 1 MiB in total. They are
    executable, and are in a ConfigMap, which is not for secrets. A change replaces the pods."""
    shared_memory: Quantity | None = None
    """The size of /dev/shm, such as 16Gi. It counts against memory."""
    init_containers: list[Container] = []
    """Init containers in Kubernetes' form. With restartPolicy Always, they are sidecars."""
    side_containers: list[Container] = []
    """More containers of its pods, in Kubernetes' form."""
    node_selector: dict[str, str] = {}
    """Labels that its nodes must have, such as GpuNodePool.node_selector."""
    affinity: Affinity = {}
    """The affinity of its pods, in Kubernetes' form. The conditions for the GPUs are added to each
    term."""
    tolerations: list[Toleration] = []
    """Taints that its pods tolerate, such as GpuNodePool.tolerations. Pods with GPUs always
    tolerate the GPU taint."""
    compute_class: Name | None = None
    """The ComputeClass whose nodes its pods run on, such as ComputeClass.compute_class. GKE adds
    nodes of the first priority that has some."""
    spot: bool = False
    """Tolerate the taint of Spot nodes. The default is false."""
    priority_class: InputText | None = None
    """The PriorityClass of its pods."""
    queue: InputName | None = None
    """The Kueue LocalQueue in which it waits. Kueue starts it when all its pods can start."""
    queue_priority: InputText | None = None
    """The Kueue WorkloadPriorityClass, which decides its order in the queue."""
    topology: TopologyArgument | None = None
    """The topology domain of its pods, in a queue with a topology: required:LEVEL for one domain,
    such as required:block; preferred:LEVEL for one if there is one; or unconstrained. By default,
    Kueue chooses any nodes with space."""
    topology_slices: list[TopologySlice] = []
    """Groups of its pods that share a smaller domain: one layer, or up to 3 from big to small. With
    topology, they are within its domain."""
    hostname: Name | None = None
    """The host name of its pods. By default, the pod's name."""
    subdomain: Name | None = None
    """The headless Service through which its pods have DNS names."""
    service_account: InputText | None = None
    """The service account of its pods. By default, that of team, or else the account default of the
    namespace."""
    run_as_user: int = Field(1000, ge=0)
    """The user and group of the container. The default is 1000. 0 is root, which Pod Security
    restricted refuses. Any other user gets a HOME that it may write to, unless the environment has
    HOME. With a read-only root file system, any user gets a HOME and a /tmp."""
    image_user: bool = False
    """Run as the user of the image, often root, which Pod Security restricted refuses. The default
    is false. Volumes belong to the group run_as_user."""
    privileged: bool = False
    """Run the container privileged, which Pod Security baseline refuses. The default is false."""
    host_network: bool = False
    """Use the network of the node. The default is false."""
    host_ipc: bool = False
    """Share memory with all processes of the node. The default is false."""
    runtime_class: str | None = None
    """The RuntimeClass of its pods."""
    scheduler: str | None = None
    """The scheduler of its pods. By default, Kubernetes' own."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled: Always, IfNotPresent or Never. By default, Kubernetes decides."""
    image_pull_secrets: list[InputText] = []
    """Secrets with the credentials for the image."""
    container_name: Name = "main"
    """The name of its container. The default is main."""
    grace_seconds: int = Field(30, ge=0)
    """Seconds that a stopping pod has to finish. The default is 30."""
    labels: dict[str, InputText] = {}
    """More labels of its pods."""
    selector_labels: dict[str, str] = {}
    """Labels of its pods that its selectors also contain, such as {"app": "chat"}. They cannot
    change."""
    object_labels: dict[str, InputText] = {}
    """More labels of the created objects."""
    annotations: dict[str, InputText] = {}
    """Annotations of its pods."""
    pod_overrides: PodFields = {}
    """Fields of the PodSpec in Kubernetes' form. They are merged over the component's as kubectl
    patch does. Maps are merged, and lists such as containers and volumes are merged by name. Other
    lists are replaced. null removes a field."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created objects, by kind, such as {"Job": {"metadata": {"labels": {…}}}}. They
    are merged over the component's: maps are merged, lists are replaced, and null removes a field.
    For the pod, use pod_overrides."""

    @property
    def all_mounts(self) -> Sequence[Mount]:
        """Its volumes, with those that other arguments add."""
        return self.mounts

    @property
    def workload_name(self) -> str:
        """The name of the workload's main object."""
        return getattr(self, self.name_field or "")

    @property
    def delete_timeout(self) -> str:
        """The time that Pulumi waits for a deletion."""
        return f"{self.grace_seconds + _DELETE_MARGIN_SECONDS}s"

    @property
    def models(self) -> list[str]:
        """The accepted GPU models; empty if all are."""
        return self.gpu if isinstance(self.gpu, list) else [self.gpu] if self.gpu else []

    @property
    def takes_gpus(self) -> bool:
        """Return whether any container requests GPUs, also in ``pod_overrides``."""
        containers: list[Manifest] = [*self.init_containers, *self.side_containers]
        containers += items(self.pod_overrides, "containers")
        containers += items(self.pod_overrides, "initContainers")
        asking = (
            labels.GPU_RESOURCE in section(container, "resources", amounts)
            for container in containers
            for amounts in ("requests", "limits")
        )
        return bool(self.gpus) or any(asking)

    @property
    def fabric(self) -> PodFabric:
        """The parts of its pods for the network between the GPUs of several nodes."""
        return without_fabric(self.gpu_fabric, self.gpus)

    @property
    def program(self) -> list[str] | None:
        """The command of its container."""
        return self.fabric.command(self.command)

    @property
    def program_arguments(self) -> list[Any] | None:
        """The arguments of its command."""
        return self.arguments

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of its pods."""
        return self.labels | self.app_labels

    @property
    def pod_annotations(self) -> dict[str, InputText]:
        """The annotations of its pods, without those of its network and topology."""
        return self.annotations

    @property
    def user(self) -> int | None:
        """The user that it runs as; None for the image's own."""
        if self.image_user:
            return None
        # All of Google's manifests for these networks run as root.
        is_root = self.fabric.is_used and "run_as_user" not in self.model_fields_set
        return ROOT if is_root else self.run_as_user

    @property
    def topology_levels(self) -> list[tuple[str, str]]:
        """The levels that its topology names, each with its argument."""
        level = (self.topology or "").partition(":")[2]
        named = [("topology", level)] if level else []
        for index, layer in enumerate(self.topology_slices):
            named.append((f"topology_slices[{index}]", layer.level))
        return named

    def overrides_of(self, field: str, name: str) -> list[Manifest]:
        """Return the fields that ``pod_overrides`` set for a container."""
        containers = items(self.pod_overrides, field)
        return [container for container in containers if container["name"] == name]

    @property
    def read_only_root(self) -> bool:
        """Return whether the root file system is read-only."""
        containers = self.overrides_of("containers", self.container_name)
        return any(
            section(container, "securityContext").get("readOnlyRootFilesystem")
            for container in containers
        )

    @property
    def has_home(self) -> bool:
        """Return whether the pod needs a home folder, because its user has none in the image."""
        given = {*self.env, *self.secret_env, *self.config_env, *self.field_env}
        return bool(self.user or self.read_only_root) and "HOME" not in given

    @property
    def has_tmp(self) -> bool:
        """Return whether the pod needs a /tmp, because its root file system is read-only."""
        overrides = self.overrides_of("containers", self.container_name)
        given = [mount.path for mount in self.all_mounts]
        given += [
            mount["mountPath"]
            for container in overrides
            for mount in items(container, "volumeMounts")
        ]
        return self.read_only_root and not {files.TMP, f"{files.TMP}/"}.intersection(given)

    @property
    def own_env(self) -> dict[str, dict[str, Any]]:
        """The variables that the component sets for any image."""
        # Python reads USER before /etc/passwd, which lacks the user (vllm issue 44548).
        home = {"HOME": {"value": files.HOME}, "USER": {"value": "user"}} if self.has_home else {}
        return {**home, **self.fabric.env}

    @property
    def own_mounts(self) -> list[dict[str, Any]]:
        """The volumeMounts that the component adds."""
        empty = self._empty_volumes()
        made = [{"name": volume.name, "mountPath": volume.path} for volume in empty]
        return [*made, *self.fabric.mounts, *files.files_mounts(self.files)]

    def _empty_volumes(self) -> Iterator[_EmptyVolume]:
        """Yield the empty volumes that the component adds."""
        # It counts against the container's memory limit, which bounds one without a size.
        memory = {"medium": "Memory", "sizeLimit": self.shared_memory}
        is_mounted = _SHARED_MEMORY_PATH in [mount.path for mount in self.all_mounts]
        if self.shared_memory or (self.fabric.is_used and not is_mounted):
            yield _EmptyVolume(_SHARED_MEMORY, _SHARED_MEMORY_PATH, without_none(memory))
        if self.has_home:
            yield _EmptyVolume(files.HOME_VOLUME, files.HOME, {})
        if self.has_tmp:
            yield _EmptyVolume(files.TMP_VOLUME, files.TMP, {})

    @property
    def own_volumes(self) -> list[dict[str, Any]]:
        """The volumes of the pod that the component makes by itself."""
        made: list[dict[str, Any]] = []
        for volume in self._empty_volumes():
            made.append({"name": volume.name, "emptyDir": volume.fields})
        if config_map := self.files_config_map():
            made.append(files.files_volume(config_map["metadata"]["name"]))
        return [*self.fabric.volumes, *made]

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.models and not self.takes_gpus:
            models = " or ".join(self.models)
            yield "gpus", f"is 0, but gpu is {models}; set it to the number that each pod needs"
        elif self.gpu_claim is not None and not self.gpus:
            yield "gpus", "is 0, but there is a gpu_claim; set it to the number that each pod needs"
        if self.queue_priority is not None and self.queue is None:
            reason = "but there is no queue; set queue, or leave it out"
            yield "queue_priority", f"ranks a workload in its queue, {reason}"
        yield from topology_errors(self.topology, self.topology_slices, self.queue)
        if self.image_user and self.run_as_user == 0:
            yield "image_user", "leaves the user to the image, and run_as_user is 0; leave one out"
        for name in ("cpu", "memory"):
            if name in self.requests:
                yield f"requests.{name}", f"is set by {name} alone; leave it out here"
        for field, amounts in (("requests", self.requests), ("limits", self.limits)):
            if labels.GPU_RESOURCE in amounts:
                yield f"{field}.{labels.GPU_RESOURCE}", "is set by gpus alone; leave it out here"
        requested = self.requested
        for name, limit in self.limits.items():
            request = requested.get(name, "0")
            if limit is not None and parse_quantity(limit) < parse_quantity(request):
                yield f"limits.{name}", f"is {limit}, below the request ({request})"
        shared = self.shared_memory
        memory = self.limits.get("memory", self.memory)
        if shared and memory and parse_quantity(shared) >= parse_quantity(memory):
            reason = f"is {shared}, and counts against memory ({memory}): raise memory"
            yield "shared_memory", reason
        yield from files.file_errors(self.files)
        yield from mount_errors(self.all_mounts, self.own_mounts)
        for field in ("labels", "object_labels"):
            for label in self.app_labels.keys() & getattr(self, field).keys():
                reason = "is set by the component, whose selectors know it; leave it out"
                yield f"{field}.{label}", reason
        containers = [{"name": self.container_name}, *self.side_containers]
        inits = [*self.init_containers, *self.fabric.daemons]
        made = {"containers": containers, "initContainers": inits}
        yield from container_errors(self.pod_overrides, made)

    def peer_name_errors(self) -> Iterator[tuple[str, str]]:
        """Yield errors about the names by which pods find each other, which the component sets."""
        reason = "is set by the component, so that pods find each other; use service_name instead"
        for field in ("hostname", "subdomain"):
            if getattr(self, field) is not None:
                yield field, reason

    @property
    def requested(self) -> dict[str, str]:
        """The container's requests, without GPUs."""
        return without_none({"cpu": self.cpu, "memory": self.memory}) | self.requests

    @property
    def app_labels(self) -> dict[str, str]:
        """The labels by which its pods are known."""
        return {"app.kubernetes.io/name": self.workload_name} | self.selector_labels

    @property
    def queue_labels(self) -> dict[str, str]:
        """The labels by which Kueue takes an object into a queue."""
        # Kueue's webhook suspends an object with these labels when it is created. The manifest does
        # not set suspend: an update that set it again would stop what Kueue has started.
        values = {labels.KUEUE_QUEUE: self.queue, labels.KUEUE_PRIORITY: self.queue_priority}
        return without_none(values)

    def metadata(self, **others: Any) -> dict[str, Any]:
        """Return the metadata of the main object. ``others`` are added, or replace fields."""
        names = {"name": self.workload_name, "namespace": self.namespace}
        pod_labels = others.pop("labels", self.app_labels | self.queue_labels)
        return {**names, "labels": self.object_labels | pod_labels, **others}

    @property
    def unnamed_metadata(self) -> dict[str, Any]:
        """The metadata of an object whose name follows from its content."""
        return {"namespace": self.namespace, "labels": self.app_labels}

    def claim_template(self) -> dict[str, Any] | None:
        """Return the ResourceClaimTemplate of a ``gpu_claim`` without a template."""
        if self.gpu_claim is None or self.gpu_claim.template is not None:
            return None
        metadata = self.unnamed_metadata
        spec = {"spec": {"devices": self.gpu_claim.devices(self.models, self.gpus)}}
        manifest = api_object("resource.k8s.io/v1", "ResourceClaimTemplate", metadata, spec=spec)
        # A template is immutable, so other content needs another name.
        return named_by_content(manifest, f"{self.workload_name}-gpus", "spec", self.overrides)

    def interfaces_template(self) -> dict[str, Any] | None:
        """Return the ResourceClaimTemplate of the interfaces that its pods claim."""
        if not self.fabric.claimed:
            return None
        manifest = interfaces_claim(self.unnamed_metadata, self.fabric.claimed)
        return named_by_content(manifest, f"{self.workload_name}-rdma", "spec", self.overrides)

    def files_config_map(self) -> dict[str, Any] | None:
        """Return the ConfigMap of ``files``."""
        if not self.files:
            return None
        metadata = self.unnamed_metadata
        return files.files_manifest(metadata, self.workload_name, self.files, self.overrides)

    @override
    def children(self) -> Iterator[ChildResource]:
        """Yield the claim templates and the files, if there are any, and then the workload."""
        made = {
            "gpu-claim": self.claim_template(),
            "interfaces": self.interfaces_template(),
            "files": self.files_config_map(),
        }
        before = without_none(made)
        yield from (ChildResource(role, manifest) for role, manifest in before.items())
        yield from self.workload_children([*before])

    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        """Yield the workload, which depends on earlier children, and the objects around it."""
        raise NotImplementedError
