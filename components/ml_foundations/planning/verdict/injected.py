"""Findings about what GKE adds to pods: containers, gates, folders and libraries of their nodes.

The table is catalog/injections.yaml. Admission adds its containers; these rules judge the result.
"""

from collections.abc import Iterator, Sequence

from ml_foundations.catalog import injections as facts
from ml_foundations.catalog.injections import injections
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, section, texts
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.interfaces import accepting_nodes
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import gpus
from ml_foundations.planning.model.workloads import PodSet

_CACHE_VOLUME = "gke-gcsfuse-cache"
"""The name of a pod's own volume for the sidecar's copies of files."""
_NCCL_SETTINGS = ("NCCL_NET", "NCCL_TUNER", "NCCL_FASTRAK", "NCCL_GPUDIRECTTCPX")
"""How variables begin that set NCCL's plugin up, or switch it off."""
_NCCL_SCRIPTS = ("set_nccl_env", "nccl-env-profile")
"""Parts of the names of the scripts that do."""


def injected_advice(
    cluster: Cluster, namespace: str, pod_set: PodSet, pod: PodClass, nodes: Sequence[NodeClass]
) -> Iterator[Refusal]:
    """Yield warnings about what GKE adds to a set of pods, which ``nodes`` accept."""
    yield from _limited_containers(pod_set, pod.spec)
    yield from _unlimited_cache(cluster, namespace, pod_set, nodes)
    if cluster.is_declared and nodes:
        yield from _missing_folders(cluster, pod_set, nodes)
    if gpus(pod.requests) > 1:
        yield from _plugin_without_settings(cluster, pod_set, nodes)


def _limited_containers(pod_set: PodSet, spec: Manifest) -> Iterator[Refusal]:
    """Yield containers that GKE adds without limits, and that a LimitRange limits."""
    by_name = {item.container: item for item in injections().values() if item.container}
    for container in items(spec, "initContainers"):
        if (injection := by_name.get(str(container.get("name")))) is None:
            continue
        raised = injection.resources_of(annotations_of(pod_set.template))["limits"]
        limits = section(container, "resources", "limits")
        if added := {name: limits[name] for name in limits if name not in raised}:
            amounts = " and ".join(f"{amount} of {name}" for name, amount in added.items())
            limited = f"a LimitRange limits {injection.container}, which GKE adds, to {amounts}"
            message = f"{limited}: it is slow, or is killed while files are read"
            more = ", ".join(f"{injection.annotations}{name}-limit" for name in added)
            remedy = f"Annotate its pods with more ({more})."
            yield Refusal("injected-limits", "metadata.annotations", message, remedy)


def _unlimited_cache(
    cluster: Cluster, namespace: str, pod_set: PodSet, nodes: Sequence[NodeClass]
) -> Iterator[Refusal]:
    """Yield buckets whose files may fill the boot disks of nodes without local SSDs."""
    spec = section(pod_set.template, "spec")
    for bucket in cluster.volumes.buckets(spec, namespace):
        inline = section(bucket, "csi", "volumeAttributes").get("mountOptions")
        options = [*str(inline).split(","), *texts(bucket, "mountOptions")]
        volume_names = [volume.get("name") for volume in items(spec, "volumes")]
        disks = [0 if node.local_ssd_gib else node.disk_gib for node in nodes]
        is_unlimited = f"{facts.FILE_CACHE}-1" in options and _CACHE_VOLUME not in volume_names
        if is_unlimited and disks and all(disks):
            disk = f"the boot disk of {min(disks)} GiB"
            message = f"copies of the files of a bucket may fill {disk}: the node evicts its pods"
            fewer = f"limit them ({facts.FILE_CACHE}N; file_cache of a ModelCache)"
            remedy = f"Use nodes with local SSDs, or {fewer}."
            yield Refusal("bucket-cache", f"{pod_set.path}.volumes", message, remedy)
            return


def _missing_folders(
    cluster: Cluster, pod_set: PodSet, nodes: Sequence[NodeClass]
) -> Iterator[Refusal]:
    """Yield folders of the node that must exist, and that no node of the pods has."""
    by_folder = {item.folder: item for item in injections().values() if item.folder}
    for index, volume in enumerate(items(section(pod_set.template, "spec"), "volumes")):
        host = section(volume, "hostPath")
        for folder, made in by_folder.items():
            is_in = f"{host.get('path')}/".startswith(f"{folder}/")
            if not is_in or host.get("type") != "Directory":
                continue
            systems = {node.labels.get(labels.GKE_OS_DISTRIBUTION, made.os) for node in nodes}
            daemons = _installers(cluster, made.installer) if made.installer else ()
            is_made = not made.installer or any(
                accepting_nodes(daemon, nodes) for daemon in daemons
            )
            if not is_made or (made.os and systems.isdisjoint({made.os, UNKNOWN})):
                message = f"{made.by} makes {folder}, and no node for its pods has that"
                needed = made.installer or f"the distribution {made.os}"
                remedy = f"Give the nodes {needed} (gpu_network of the pool), or remove the volume."
                path = f"{pod_set.path}.volumes[{index}].hostPath"
                yield Refusal("host-folder", path, message, remedy)


def _installers(cluster: Cluster, image: str) -> list[Manifest]:
    """Return the pods of the DaemonSets that have a part of an image."""
    specs: list[Manifest] = []
    for manifest in cluster.by_kind["DaemonSet"]:
        spec = section(manifest, "spec", "template", "spec")
        containers = (*items(spec, "initContainers"), *items(spec, "containers"))
        if any(image in str(container.get("image")) for container in containers):
            specs.append(spec)
    return specs


def _plugin_without_settings(
    cluster: Cluster, pod_set: PodSet, nodes: Sequence[NodeClass]
) -> Iterator[Refusal]:
    """Yield pods whose GPUs find NCCL's plugin on the node, without its settings.

    Source: llm-d, pull request 1282 (GKE's device plugin mounts the folder with the plugin).
    """
    advertised = [node for node in nodes if labels.GKE_NO_DEVICE_PLUGIN not in node.labels]
    with_plugin: list[NodeClass] = []
    for daemon in _installers(cluster, facts.NCCL_PLUGIN):
        with_plugin += accepting_nodes(daemon, advertised)
    containers = items(section(pod_set.template, "spec"), "containers") if with_plugin else ()
    for index, container in enumerate(containers):
        names = [str(variable.get("name")) for variable in items(container, "env")]
        words = f"{container.get('command')} {container.get('args')}"
        is_set_up = any(script in words for script in _NCCL_SCRIPTS)
        is_set_up |= any(name.startswith(_NCCL_SETTINGS) for name in names)
        is_set_up |= bool(container.get("envFrom"))
        if labels.GPU_RESOURCE in section(container, "resources", "limits") and not is_set_up:
            nodes_with_plugin = f"nodes of {with_plugin[0].name} have NCCL's plugin"
            message = f"{nodes_with_plugin}, and nothing sets it up: NCCL may fail at the start"
            off = "NCCL_NET_PLUGIN and NCCL_TUNER_PLUGIN to none"
            remedy = f"Set {off} (pool or gpu_fabric of our workloads does), or its variables."
            path = f"{pod_set.path}.containers[{index}].env"
            yield Refusal("nccl-plugin", path, message, remedy)
