"""Guard rules about programs that run, and still cost money, sleep or data.

Whether a workload fits at all is not here: that is ``ml_foundations.planning``.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ml_foundations.kinds.kind import at
from ml_foundations.kinds.kind_files import kinds as all_kinds
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.planning.api_server.pod_security import violations
from ml_foundations.planning.model.workloads import workload_kinds


class Violation(NamedTuple):
    """A field that breaks a guard rule."""

    item: Manifest
    path: str
    problem: str


Check = Callable[[list[Manifest]], Iterator[Violation]]

POD_KINDS = workload_kinds()
"""The kinds whose objects have pod templates."""
SERVERS = ("Deployment", "StatefulSet")
CHECKPOINT = "ml-foundations/checkpoint"
"""The annotation with which a training pod says where it keeps its checkpoints."""


class Guard(NamedTuple):
    """A rule: its id, whether a violation stops the preview, the reason, and how to fix it."""

    id: str
    mandatory: bool
    about: str
    remedy: str
    check: Check


GUARDS: list[Guard] = []


def guard(remedy: str, mandatory: bool = False) -> Callable[[Check], Check]:
    """Add a rule to the pack: its id is the function's name, its reason the docstring."""

    def add(check: Check) -> Check:
        identity = check.__name__.replace("_", "-")
        about = " ".join((check.__doc__ or "").split())
        GUARDS.append(Guard(identity, mandatory, about, remedy, check))
        return check

    return add


class Pods(NamedTuple):
    """An object that has pods, with the path of their spec and their template."""

    item: Manifest
    path: str
    template: Manifest

    @property
    def spec(self) -> Manifest:
        """The spec of the pods."""
        return section(self.template, "spec")

    @property
    def containers(self) -> Iterator[tuple[str, Manifest]]:
        """Every container, with its path."""
        for field in ("initContainers", "containers"):
            for index, container in enumerate(items(self.spec, field)):
                yield f"{self.path}.{field}[{index}]", container

    @property
    def gpus(self) -> int:
        """The GPUs that the containers of a pod ask for."""
        gpus = 0
        for _, container in self.containers:
            limit = str(section(container, "resources", "limits").get(labels.GPU_RESOURCE, 0))
            if limit.isdecimal():
                gpus += int(limit)
        return gpus


def pods_of(objects: list[Manifest], *kinds: str) -> Iterator[Pods]:
    """Yield every object that has pods, of some kinds or of all."""
    for item in objects:
        if item["kind"] not in (kinds or POD_KINDS):
            continue
        for path in all_kinds()[item["kind"]].template_paths(item):
            pods = Pods(item, f"{path}.spec".lstrip("."), at(item, path) or {})
            if pods.spec:
                yield pods


@guard("Name a tag or a digest.")
def image_pinned(objects: list[Manifest]) -> Iterator[Violation]:
    """Images have a digest, or a tag other than latest: otherwise a run cannot be repeated."""
    for pods in pods_of(objects):
        for path, container in pods.containers:
            image = container.get("image")
            if isinstance(image, str) and "@" not in image:
                tag = image.rpartition("/")[2].partition(":")[2]
                if tag in ("", "latest"):
                    shown = "the tag latest" if tag else "no tag"
                    yield Violation(pods.item, f"{path}.image", f"{image} has {shown}")


@guard(f"Leave the toleration of {labels.GPU_TAINT_KEY} out.")
def cpu_pods_off_gpu_nodes(objects: list[Manifest]) -> Iterator[Violation]:
    """Pods without GPUs, except DaemonSets, keep off GPU nodes: these could not scale down."""
    for pods in pods_of(objects):
        if pods.item["kind"] == "DaemonSet" or pods.gpus or pods.spec.get("resourceClaims"):
            continue
        for index, toleration in enumerate(items(pods.spec, "tolerations")):
            if toleration.get("key") in (None, labels.GPU_TAINT_KEY):
                path = f"{pods.path}.tolerations[{index}]"
                yield Violation(pods.item, path, "tolerates the GPU taint and asks for no GPU")


@guard("Set activeDeadlineSeconds.")
def job_deadline(objects: list[Manifest]) -> Iterator[Violation]:
    """Jobs with GPUs have a deadline: a training run that hangs holds its GPUs for ever."""
    for pods in pods_of(objects, "Job", "CronJob"):
        path = pods.path.removesuffix(".template.spec")
        job_spec = section(pods.item, *path.split("."))
        deadlines = [spec.get("activeDeadlineSeconds") for spec in (job_spec, pods.spec)]
        if pods.gpus and deadlines == [None, None]:
            yield Violation(
                pods.item, f"{path}.activeDeadlineSeconds", "no deadline on a Job with GPUs"
            )


@guard("Leave ttlSecondsAfterFinished out, or make it longer than the time between two updates.")
def job_ttl(objects: list[Manifest]) -> Iterator[Violation]:
    """Jobs of Pulumi do not delete themselves: the next update would run them again."""
    for item in objects:
        ttl = section(item, "spec").get("ttlSecondsAfterFinished")
        if item["kind"] == "Job" and ttl is not None:
            yield Violation(item, "spec.ttlSecondsAfterFinished", "the Job deletes itself")


@guard("Leave activeDeadlineSeconds out.", mandatory=True)
def server_without_deadline(objects: list[Manifest]) -> Iterator[Violation]:
    """Deployments and StatefulSets have no deadline: a server with one is killed when it passes."""
    for pods in pods_of(objects, *SERVERS):
        if pods.spec.get("activeDeadlineSeconds") is not None:
            path = f"{pods.path}.activeDeadlineSeconds"
            yield Violation(pods.item, path, "pods of a server end when it passes")


@guard("Add a readinessProbe.")
def server_probes(objects: list[Manifest]) -> Iterator[Violation]:
    """A server with GPUs has a readiness probe: without it, requests reach a loading model."""
    for pods in pods_of(objects, *SERVERS):
        has_probe = any(container.get("readinessProbe") for _, container in pods.containers)
        if pods.gpus and not has_probe:
            path = f"{pods.path}.containers[0].readinessProbe"
            yield Violation(pods.item, path, "no container has a readiness probe")


@guard("Add a PodDisruptionBudget that selects its pods.")
def server_disruption_budget(objects: list[Manifest]) -> Iterator[Violation]:
    """Servers with replicas have a PodDisruptionBudget: an upgrade may drain all at once."""
    budgets = [item for item in objects if item["kind"] == "PodDisruptionBudget"]
    for item in objects:
        replicas = section(item, "spec").get("replicas")
        if item["kind"] not in SERVERS or not isinstance(replicas, int | float) or replicas < 2:
            continue
        pod_labels = labels_of(section(item, "spec", "template"))
        near = [budget for budget in budgets if namespace_of(budget) == namespace_of(item)]
        selectors = [section(budget, "spec").get("selector") for budget in near]
        if not any(selects(selector, pod_labels) for selector in selectors):
            yield Violation(
                item, "spec.replicas", f"{int(replicas)} replicas and no PodDisruptionBudget"
            )


@guard("Mount an emptyDir of medium Memory there.")
def shared_memory(objects: list[Manifest]) -> Iterator[Violation]:
    """Pods with several GPUs have a large /dev/shm: PyTorch's loaders need more than 64 MiB."""
    for pods in pods_of(objects):
        if pods.gpus < 2:
            continue
        path = f"{pods.path}.volumes"
        mounted = _shared_memory_of(pods)
        if not any(volume.get("medium") == "Memory" for volume in mounted):
            yield Violation(pods.item, path, "several GPUs and no memory-backed /dev/shm")
        elif not all(volume.get("sizeLimit") for volume in mounted):
            yield Violation(
                pods.item, path, "/dev/shm has no sizeLimit: it may fill the node's memory"
            )


def _shared_memory_of(pods: Pods) -> list[Manifest]:
    """Return the ``emptyDir`` of each volume that a container mounts at /dev/shm."""
    volumes: dict[str, Manifest] = {}
    for volume in items(pods.spec, "volumes"):
        volumes[volume["name"]] = section(volume, "emptyDir")
    mounted: list[Manifest] = []
    for _, container in pods.containers:
        for mount in items(container, "volumeMounts"):
            if mount.get("mountPath") == "/dev/shm":
                mounted.append(volumes.get(mount["name"], {}))
    return mounted


@guard(f"Keep checkpoints on a volume, and say where: annotation {CHECKPOINT}.")
def spot_checkpoints(objects: list[Manifest]) -> Iterator[Violation]:
    """Jobs on Spot VMs name their checkpoints: such a VM stops with half a minute's notice."""
    for pods in pods_of(objects, "Job", "CronJob", "Pod"):
        is_spot = section(pods.spec, "nodeSelector").get(labels.GKE_SPOT) == "true"
        for toleration in items(pods.spec, "tolerations"):
            is_spot |= toleration.get("key") == labels.GKE_SPOT
        if pods.gpus and is_spot and CHECKPOINT not in annotations_of(pods.template):
            yield Violation(
                pods.item, f"{pods.path}.nodeSelector", "runs on Spot VMs and names no checkpoint"
            )


@guard(f"Put requests.{labels.GPU_RESOURCE} under quota.")
def gpu_quota(objects: list[Manifest]) -> Iterator[Violation]:
    """Namespaces with GPU pods have a quota for GPUs: without it, a Job can take every GPU."""
    limited: set[str] = set()
    for item in objects:
        is_quota = item["kind"] == "ResourceQuota"
        if is_quota and f"requests.{labels.GPU_RESOURCE}" in section(item, "spec", "hard"):
            limited.add(namespace_of(item))
    for pods in pods_of(objects):
        namespace = namespace_of(pods.item)
        if pods.gpus and namespace not in limited:
            message = f"no quota for GPUs in the namespace {namespace}"
            yield Violation(pods.item, f"{pods.path}.containers", message)


@guard("Leave it out, or run it in a separate namespace that says privileged.", mandatory=True)
def pod_security(objects: list[Manifest]) -> Iterator[Violation]:
    """Pods meet the baseline of Pod Security: a privileged pod can read all data of its node."""
    level = "pod-security.kubernetes.io/enforce"
    exempt = {"kube-system"}
    for item in objects:
        if item["kind"] == "Namespace" and labels_of(item).get(level) == "privileged":
            exempt.add(name_of(item))
    for pods in pods_of(objects):
        if namespace_of(pods.item) not in exempt:
            for note in violations({"enforce": "baseline"}, pods.template):
                message = f"breaks Pod Security baseline: {note.reason}"
                yield Violation(pods.item, f"{pods.path}.{note.path}", message)


@guard("Leave it out: the device plugin sets it.", mandatory=True)
def visible_devices(objects: list[Manifest]) -> Iterator[Violation]:
    """Only DaemonSets set NVIDIA_VISIBLE_DEVICES: others would use GPUs of other pods."""
    for pods in pods_of(objects, *(POD_KINDS - {"DaemonSet"})):
        for path, container in pods.containers:
            for index, entry in enumerate(items(container, "env")):
                if entry.get("name") == "NVIDIA_VISIBLE_DEVICES":
                    yield Violation(
                        pods.item, f"{path}.env[{index}]", "sets NVIDIA_VISIBLE_DEVICES"
                    )


@guard("Start the pool at 0.")
def idle_gpu_nodes(objects: list[Manifest]) -> Iterator[Violation]:
    """GPU pools start at no node: the nodes of a minimum cost money when nothing runs."""
    for item in objects:
        if item["kind"] == "NodePool" and section(item, "nodeConfig").get("guestAccelerators"):
            scaling = section(item, "autoscaling")
            least = scaling.get("totalMinNodeCount") or scaling.get("minNodeCount") or 0
            if isinstance(least, int | float) and least > 0:
                yield Violation(item, "autoscaling", f"at least {int(least)} GPU nodes at any time")
