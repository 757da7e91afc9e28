"""Guard rules: what runs, and still costs money, sleep or data. Pure functions over Kubernetes manifests.

Whether a workload fits at all is not here: that is ``ml_foundations.planning``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ml_foundations.kubernetes import labels

Manifest = Mapping[str, Any]
Violation = tuple[Manifest, str, str]
"""The object, the path of the field, and what is wrong with it."""

POD_SPECS = {
    "Pod": "spec",
    "Job": "spec.template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
    "Deployment": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "DaemonSet": "spec.template.spec",
    "ReplicaSet": "spec.template.spec",
}
SERVERS = ("Deployment", "StatefulSet")
CHECKPOINT = "ml-foundations/checkpoint"
"""The annotation with which a training pod says where it keeps its checkpoints."""


@dataclass(frozen=True)
class Guard:
    """A rule: its id, whether a violation stops the preview, what it is for, and the way out."""

    id: str
    mandatory: bool
    about: str
    remedy: str
    check: Callable[[list[Manifest]], Iterator[Violation]]


GUARDS: list[Guard] = []


def guard(
    identity: str, about: str, remedy: str, mandatory: bool = False
) -> Callable[[Callable[[list[Manifest]], Iterator[Violation]]], Callable[[list[Manifest]], Iterator[Violation]]]:
    """Add a rule to the pack."""

    def add(check: Callable[[list[Manifest]], Iterator[Violation]]) -> Callable[[list[Manifest]], Iterator[Violation]]:
        GUARDS.append(Guard(identity, mandatory, about, remedy, check))
        return check

    return add


@guard("image-pinned", "An image that can change under its name cannot be run again.", "Name a tag or a digest.")
def image_pinned(objects: list[Manifest]) -> Iterator[Violation]:
    """Images have a tag other than latest, or a digest."""
    for item, path, spec in pods(objects):
        for field, container in containers(spec):
            image = container.get("image")
            if isinstance(image, str) and "@" not in image:
                tag = image.rpartition("/")[2].partition(":")[2]
                if tag in ("", "latest"):
                    yield item, f"{path}.{field}.image", f"{image} has {'no tag' if not tag else 'the tag latest'}"


@guard(
    "cpu-pods-off-gpu-nodes",
    "A pod without GPUs on a GPU node keeps an expensive machine from going away.",
    f"Leave the toleration of {labels.GPU_TAINT_KEY} out.",
)
def cpu_pods_off_gpu_nodes(objects: list[Manifest]) -> Iterator[Violation]:
    """Pods that ask for no GPU do not tolerate the GPU taint; DaemonSets that watch GPUs may."""
    for item, path, spec in pods(objects):
        if item["kind"] == "DaemonSet" or gpus(spec) or spec.get("resourceClaims"):
            continue
        for index, toleration in enumerate(spec.get("tolerations") or []):
            if toleration.get("key") in (None, labels.GPU_TAINT_KEY):
                yield item, f"{path}.tolerations[{index}]", "tolerates the GPU taint and asks for no GPU"


@guard("job-deadline", "A training run that hangs holds its GPUs for ever.", "Set activeDeadlineSeconds.")
def job_deadline(objects: list[Manifest]) -> Iterator[Violation]:
    """Jobs with GPUs have a deadline."""
    for item, path, spec in pods(objects):
        if item["kind"] in ("Job", "CronJob") and gpus(spec):
            job = path.removesuffix(".template.spec")
            if get(item, f"{job}.activeDeadlineSeconds") is None and spec.get("activeDeadlineSeconds") is None:
                yield item, f"{job}.activeDeadlineSeconds", "no deadline on a Job with GPUs"


@guard(
    "job-ttl",
    "A Job that deletes itself is missed by the next refresh, and the next up trains again.",
    "Leave ttlSecondsAfterFinished out, or make it longer than the time between two updates.",
)
def job_ttl(objects: list[Manifest]) -> Iterator[Violation]:
    """Jobs that Pulumi manages do not delete themselves."""
    for item in objects:
        if item["kind"] == "Job" and get(item, "spec.ttlSecondsAfterFinished") is not None:
            yield item, "spec.ttlSecondsAfterFinished", "the Job deletes itself"


@guard(
    "server-without-deadline",
    "A server with a deadline is killed when it passes.",
    "Leave activeDeadlineSeconds out.",
    mandatory=True,
)
def server_without_deadline(objects: list[Manifest]) -> Iterator[Violation]:
    """Deployments and StatefulSets have no deadline."""
    for item, path, spec in pods(objects):
        if item["kind"] in SERVERS and spec.get("activeDeadlineSeconds") is not None:
            yield item, f"{path}.activeDeadlineSeconds", "pods of a server end when it passes"


@guard(
    "server-probes", "Without a readiness probe, requests reach a model that is still loading.", "Add a readinessProbe."
)
def server_probes(objects: list[Manifest]) -> Iterator[Violation]:
    """The main container of a server with GPUs says when it is ready."""
    for item, path, spec in pods(objects):
        probed = any(container.get("readinessProbe") for _, container in containers(spec))
        if item["kind"] in SERVERS and gpus(spec) and not probed:
            yield item, f"{path}.containers[0].readinessProbe", "no container has a readiness probe"


@guard(
    "server-disruption-budget",
    "An upgrade of the nodes may drain every replica of a server at once.",
    "Add a PodDisruptionBudget that selects its pods.",
)
def server_disruption_budget(objects: list[Manifest]) -> Iterator[Violation]:
    """Servers with several replicas have a PodDisruptionBudget."""
    budgets = [item for item in objects if item["kind"] == "PodDisruptionBudget"]
    for item in objects:
        replicas = get(item, "spec.replicas")
        if item["kind"] not in SERVERS or not isinstance(replicas, int | float) or replicas < 2:
            continue
        pod_labels = get(item, "spec.template.metadata.labels") or {}
        if not any(_selects(budget, item, pod_labels) for budget in budgets):
            yield item, "spec.replicas", f"{int(replicas)} replicas and no PodDisruptionBudget"


@guard(
    "shared-memory",
    "PyTorch's loaders share data through /dev/shm, and 64 MiB are too few.",
    "Mount an emptyDir of medium Memory there.",
)
def shared_memory(objects: list[Manifest]) -> Iterator[Violation]:
    """Pods with several GPUs have a /dev/shm of their own, with a size."""
    for item, path, spec in pods(objects):
        if gpus(spec) < 2:
            continue
        volumes = {volume["name"]: volume.get("emptyDir") or {} for volume in spec.get("volumes") or []}
        mounted = [
            volumes.get(mount["name"], {})
            for _, container in containers(spec)
            for mount in container.get("volumeMounts") or []
            if mount.get("mountPath") == "/dev/shm"
        ]
        if not any(volume.get("medium") == "Memory" for volume in mounted):
            yield item, f"{path}.volumes", "several GPUs and no memory-backed /dev/shm"
        elif not all(volume.get("sizeLimit") for volume in mounted):
            yield item, f"{path}.volumes", "/dev/shm has no sizeLimit: it may fill the node's memory"


@guard(
    "spot-checkpoints",
    "A Spot VM goes away with half a minute's notice, and the training with it.",
    f"Keep checkpoints on a volume, and say where: annotation {CHECKPOINT}.",
)
def spot_checkpoints(objects: list[Manifest]) -> Iterator[Violation]:
    """Jobs that may run on Spot VMs say where they keep their checkpoints."""
    for item, path, spec in pods(objects):
        if item["kind"] not in ("Job", "CronJob", "Pod") or not gpus(spec):
            continue
        metadata = get(item, path.removesuffix("spec") + "metadata") or {}
        if _takes_spot(spec) and CHECKPOINT not in (metadata.get("annotations") or {}):
            yield item, f"{path}.nodeSelector", "runs on Spot VMs and names no checkpoint"


@guard(
    "gpu-quota",
    "Without a quota, one team's Job can take every GPU.",
    f"Put requests.{labels.GPU_RESOURCE} under quota.",
)
def gpu_quota(objects: list[Manifest]) -> Iterator[Violation]:
    """Namespaces in which pods ask for GPUs have a quota for them."""
    limited = {
        namespace(item)
        for item in objects
        if item["kind"] == "ResourceQuota" and f"requests.{labels.GPU_RESOURCE}" in (get(item, "spec.hard") or {})
    }
    for item, path, spec in pods(objects):
        if gpus(spec) and namespace(item) not in limited:
            yield item, f"{path}.containers", f"no quota for GPUs in the namespace {namespace(item)}"


@guard(
    "pod-security",
    "A privileged pod owns its node, and with it every other team's data there.",
    "Leave it out, or run it in a namespace of its own that says privileged.",
    mandatory=True,
)
def pod_security(objects: list[Manifest]) -> Iterator[Violation]:
    """Pods keep to the baseline of the Pod Security Standards, unless their namespace says privileged."""
    exempt = {
        get(item, "metadata.name")
        for item in objects
        if item["kind"] == "Namespace"
        and (get(item, "metadata.labels") or {}).get("pod-security.kubernetes.io/enforce") == "privileged"
    }
    for item, path, spec in pods(objects):
        if namespace(item) in exempt or namespace(item) == "kube-system":
            continue
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field) is True:
                yield item, f"{path}.{field}", "shares the node's own"
        for index, volume in enumerate(spec.get("volumes") or []):
            if "hostPath" in volume:
                yield item, f"{path}.volumes[{index}].hostPath", "mounts a folder of the node"
        for field, container in containers(spec):
            if (container.get("securityContext") or {}).get("privileged") is True:
                yield item, f"{path}.{field}.securityContext.privileged", "is privileged"


@guard(
    "visible-devices",
    "NVIDIA_VISIBLE_DEVICES lets a container see GPUs that it was not given.",
    "Leave it out: the device plugin sets it.",
    mandatory=True,
)
def visible_devices(objects: list[Manifest]) -> Iterator[Violation]:
    """No container sets NVIDIA_VISIBLE_DEVICES by itself; DaemonSets that watch GPUs may."""
    for item, path, spec in pods(objects):
        for field, container in containers(spec):
            for index, entry in enumerate(container.get("env") or []):
                if item["kind"] != "DaemonSet" and entry.get("name") == "NVIDIA_VISIBLE_DEVICES":
                    yield item, f"{path}.{field}.env[{index}]", "sets NVIDIA_VISIBLE_DEVICES"


@guard("idle-gpu-nodes", "GPU nodes of a pool's minimum cost money when nothing runs.", "Start the pool at 0.")
def idle_gpu_nodes(objects: list[Manifest]) -> Iterator[Violation]:
    """GPU pools start at no node."""
    for item in objects:
        if item["kind"] == "NodePool" and get(item, "nodeConfig.guestAccelerators"):
            scaling = item.get("autoscaling") or {}
            least = scaling.get("totalMinNodeCount") or scaling.get("minNodeCount") or 0
            if isinstance(least, int | float) and least > 0:
                yield item, "autoscaling", f"at least {int(least)} GPU nodes at any time"


def pods(objects: list[Manifest]) -> Iterator[tuple[Manifest, str, Manifest]]:
    """Every object that has pods, with the path of their spec and the spec."""
    for item in objects:
        path = POD_SPECS.get(item["kind"])
        spec = get(item, path) if path else None
        if path and isinstance(spec, Mapping):
            yield item, path, spec


def containers(spec: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Every container of a pod, with its place in the spec."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            yield f"{field}[{index}]", container


def gpus(spec: Manifest) -> int:
    """The GPUs that the containers of a pod ask for."""
    amounts = (
        ((c.get("resources") or {}).get("limits") or {}).get(labels.GPU_RESOURCE, 0) for _, c in containers(spec)
    )
    return sum(int(amount) for amount in amounts if str(amount).isdigit())


def get(item: Any, path: str) -> Any:
    """What is at a path, or None."""
    for key in path.split("."):
        if not isinstance(item, Mapping) or key not in item:
            return None
        item = item[key]
    return item


def namespace(item: Manifest) -> str:
    """The namespace of an object."""
    return get(item, "metadata.namespace") or "default"


def _selects(budget: Manifest, item: Manifest, pod_labels: Manifest) -> bool:
    wanted = get(budget, "spec.selector.matchLabels") or {}
    return namespace(budget) == namespace(item) and bool(wanted) and wanted.items() <= pod_labels.items()


def _takes_spot(spec: Manifest) -> bool:
    tolerated = any(toleration.get("key") == labels.GKE_SPOT for toleration in spec.get("tolerations") or [])
    return tolerated or (spec.get("nodeSelector") or {}).get(labels.GKE_SPOT) == "true"
