"""Whether a model's files fit the place of their download, and processes have shared memory.

Sources: vllm 0.14 to 0.33 (model_loader/weight_utils.py, shm_broadcast.py, docs/deployment/k8s.md),
huggingface_hub (constants.py), and Kubernetes, "Local ephemeral storage" and EmptyDirVolumeSource.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, milli
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.models.facts import DTYPE_BYTES, catalog_model
from ml_foundations.models.memory import REFUSAL_MARGIN
from ml_foundations.models.reasons import GIB, Cause, Reason, refused, warning
from ml_foundations.models.serving import Serving
from ml_foundations.models.weights import weights
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.resources import without_overhead
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.rules.stack import Stack

_DECIDING = {"memory", "model", "download_dir"}
"""Fields without which it is not known what is downloaded, or where to."""
_DEFAULT_SHARED_MIB = 64
"""The size of a container's /dev/shm. A queue of vLLM between processes has 160 MiB."""


class _Place(NamedTuple):
    """A place of the files, and the most bytes that it has."""

    name: str
    limit: int
    is_certain: bool = True


def check_download(
    stack: Stack,
    workload: Workload,
    pods: PodSet,
    container: Manifest,
    serving: Serving,
    nodes: Sequence[NodeClass],
) -> Iterator[Reason]:
    """Yield the places that are smaller than the files of a server's model.

    Args:
        stack: The stack, whose claims count.
        workload: The workload of the server.
        pods: Its pods.
        container: The server's container.
        serving: Its arguments.
        nodes: The nodes where the pods can be placed; none if they are not known.
    """
    facts = catalog_model(serving.model)
    folder = serving.download_dir or serving.cache_folder
    spec = section(pods.template, "spec")
    contexts = (section(spec, "securityContext"), section(container, "securityContext"))
    is_root = not any(context.get("runAsUser") for context in contexts)
    is_known = is_root or not str(folder).startswith("/root/")
    is_known &= not any(unknown_paths(container.get("volumeMounts")))
    if facts is None or folder is None or not is_known or serving.unknown & _DECIDING:
        return
    whole = replace(serving, tensor=1, pipeline=1, data=1, quantization=None)
    bounds = weights(whole, facts, facts.dtype) if facts.dtype in DTYPE_BYTES else None
    size = bounds[0].low if isinstance(bounds, tuple) else Fraction(0)
    for place in _places(stack, workload, spec, container, folder, nodes):
        if size > place.limit * (1 + REFUSAL_MARGIN):
            reason = refused if place.is_certain else warning
            words = {"model": facts.name, "place": place.name}
            yield reason(Cause.DOWNLOAD, size, place.limit, **words)


def check_shared_memory(pods: PodSet, container: Manifest, serving: Serving) -> Iterator[Reason]:
    """Yield that a server of several processes has only the container's own /dev/shm.

    It may start, as the memory is used page by page, and NCCL may use the GPUs' own connections.
    """
    spec = section(pods.template, "spec")
    is_known = not serving.unknown & {"tensor", "pipeline", "nodes", "executor"}
    is_known &= not any(unknown_paths([container.get("volumeMounts"), spec.get("hostIPC")]))
    # A replica may be on several nodes, or a node have several replicas.
    processes = min(serving.world, serving.world * serving.data // serving.nodes)
    has_volume = _volume_at("/dev/shm", spec, container) is not None or spec.get("hostIPC")
    is_vllm = serving.engine == "vllm" and serving.executor in (None, "mp")
    is_vllm &= serving.data_local != 0
    if is_vllm and is_known and processes > 1 and not has_volume:
        path = serving.paths.get("tensor", serving.paths.get("pipeline", ""))
        yield warning(Cause.SHARED_MEMORY, processes, _DEFAULT_SHARED_MIB, path)


def _places(
    stack: Stack,
    workload: Workload,
    spec: Manifest,
    container: Manifest,
    folder: str,
    nodes: Sequence[NodeClass],
) -> Iterator[_Place]:
    """Yield what limits the files in a folder of a container."""
    volume = _volume_at(folder, spec, container)
    source = volume or {"emptyDir": {}}
    empty = source.get("emptyDir")
    name = f"the volume {source.get('name')}"
    if size := _bytes(section(source, "emptyDir").get("sizeLimit")):
        yield _Place(name, size)
    if size := _bytes(_claimed(stack, workload, source)):
        # The volume may be larger than its claim asks for.
        yield _Place(name, size, is_certain=False)
    medium = section(source, "emptyDir").get("medium")
    if empty is None or empty is UNKNOWN or medium is UNKNOWN:
        return
    in_memory = medium == "Memory"
    resource = "memory" if in_memory else "ephemeral-storage"
    limited = spec if volume else {"containers": [container]}
    if limit := _limit(limited, resource):
        yield _Place(f"the limit of {resource}", limit)
    disks = [node.disk_gib for node in nodes]
    if not in_memory and all(disks) and not any(node.local_ssd_gib for node in nodes):
        for node in nodes:
            if node.disk_gib == max(disks):
                yield _Place(f"the boot disk of {node.name}", node.disk_gib * GIB)
                return


def _limit(spec: Manifest, resource: str) -> int | None:
    """Return the bytes of a resource that a pod may use, None if that is not limited or known."""
    starting: Any = spec.get("initContainers", ())
    if starting is UNKNOWN or UNKNOWN in (starting or ()):
        return None
    containers = items(spec, "containers")
    every = [*containers, *items(spec, "initContainers")]
    if any(unknown_paths([spec.get("resources"), *(item.get("resources") for item in every)])):
        return None
    # Memory is limited only if init containers have limits, too (kubelet, ResourceConfigForPod).
    deciding = every if resource == "memory" else containers
    if not all(section(item, "resources", "limits").get(resource) for item in deciding):
        return None
    return without_overhead(spec, "limits").get(resource, 0) // WHOLE


def _volume_at(folder: str, spec: Manifest, container: Manifest) -> Manifest | None:
    """Return the volume that has a folder, None if it is the container's own."""
    volumes = {volume.get("name"): volume for volume in items(spec, "volumes")}
    name = None
    longest = 0
    for mount in items(container, "volumeMounts"):
        path = str(mount.get("mountPath")).rstrip("/")
        if f"{folder}/".startswith(f"{path}/") and len(path) >= longest:
            name = mount.get("name")
            longest = len(path)
    # The claims of a StatefulSet are mounted without a volume.
    return None if name is None else volumes.get(name, {"name": name})


def _claimed(stack: Stack, workload: Workload, volume: Manifest) -> Any:
    """Return the size that the claim of a volume asks for, None if it is not known."""
    claim: Manifest = section(volume, "ephemeral", "volumeClaimTemplate")
    name = section(volume, "persistentVolumeClaim").get("claimName")
    for declared in stack.of_kind("PersistentVolumeClaim"):
        if key_of(declared) == (workload.namespace, name):
            claim = declared
    for template in workload.claims:
        if name_of(template) == volume.get("name"):
            claim = template
    return section(claim, "spec", "resources", "requests").get("storage")


def _bytes(quantity: Any) -> int | None:
    if quantity is None or quantity is UNKNOWN:
        return None
    return milli(quantity) // WHOLE
