"""Defaults of a stack file: values that follow from a section's place, or from other sections."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import fabrics
from ml_foundations.catalog.machine_types import MACHINE_TYPES, accelerator
from ml_foundations.catalog.operator_nodes import CRITICAL_PODS_BESIDE, CRITICAL_PODS_PER_GPU_NODE
from ml_foundations.component.partial import InvalidArgumentError, validated
from ml_foundations.component.spec import Spec
from ml_foundations.gke.cluster import GkeClusterSpec
from ml_foundations.gke.compute_class import ComputeClassSpec
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.gke.metrics_adapter import MetricsAdapterSpec
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.gpu.operator import Mode
from ml_foundations.kubernetes import labels, regular_files
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.storage.checkpoints import CheckpointConfigurationSpec
from ml_foundations.tenancy.quota import gpu_key, priority_class_name
from ml_foundations.tenancy.training_queue import TeamQueue
from pydantic.alias_generators import to_camel
from references import resolve
from team import SECTIONS

_ONLY_GPU = GpuNodePoolSpec.model_fields.keys() - CpuNodePoolSpec.model_fields.keys()
ONLY_GPU = set(map(to_camel, _ONLY_GPU))
"""Keys that only a pool of GPU nodes has."""

FOLDER = Path(__file__).parent
"""The folder of stack files. A text of `files` such as @scripts/train.py is a path below it."""

_QUEUED_KINDS = {
    **{"tasks": "Pod", "inferenceServices": "Deployment", "shardedSets": "StatefulSet"},
    **{"trainJobs": "TrainJob", "rayJobs": "RayJob", "rayClusters": "RayCluster"},
}
"""Sections of a team whose kinds of workloads Kueue manages only if one of them has a queue."""


_OF_POOLS = ("project", "location", "cluster_name", "node_service_account", "pool_name")
DERIVED: Mapping[type[Spec], tuple[str, ...]] = {
    GkeClusterSpec: ("project",),
    CpuNodePoolSpec: _OF_POOLS,
    GpuNodePoolSpec: (*_OF_POOLS, "multi_networking"),
    ComputeClassSpec: ("compute_class",),
    MetricsAdapterSpec: ("project",),
    GpuMonitorSpec: ("monitor_name",),
    CheckpointConfigurationSpec: ("project", "configuration_name"),
    TeamQueue: ("namespace",),
    **{spec: ("namespace", spec.name_field or "") for spec in SECTIONS.values()},
}
"""The arguments that follow from a section's place, so that a stack file does not have them."""


class DerivedArguments(NamedTuple):
    """The arguments of a section that follow from its place in the file."""

    path: str
    """The section's path."""
    section: dict[str, Any]
    """The section, without these arguments."""
    values: dict[str, Any]
    """The arguments, by their keys. One that only the program will know is empty."""
    errors: Sequence[tuple[str, str]] = ()
    """The path in the section of each name of another section that does not exist, and why."""


class FilledFile(NamedTuple):
    """The sections of a stack file with their defaults."""

    sections: dict[str, Any]
    derived: list[DerivedArguments]


def is_existing(cluster: Any) -> bool:
    """Return whether a cluster section describes a cluster that exists."""
    return isinstance(cluster, dict) and bool(cluster.keys() & {"kubeconfig", "context"})


def has_gpus(pool: Any) -> bool:
    """Return whether a node pool's section has GPUs, by its machine type or its keys."""
    if not isinstance(pool, dict):
        return False
    machine = MACHINE_TYPES.get(str(pool.get("machineType")))
    return bool(ONLY_GPU & pool.keys()) or (machine is not None and machine.gpu is not None)


def with_defaults(file: Mapping[str, Any]) -> FilledFile:
    """Return a stack file's sections with the defaults that follow from other sections."""
    sections: dict[str, Any] = json.loads(json.dumps(file))
    # Each step reads what the steps before it have filled in.
    _fill_storage(sections)
    _fill_operator(sections)
    cluster = _section(sections, "cluster")
    for pool in _gpu_pools(sections):
        _default(pool, "deletionProtection", cluster.get("deletionProtection"))
        if fabrics.allows_networks(pool) and not is_existing(cluster):
            _default(cluster, "multiNetworking", True)
    _fill_compute_classes(sections)
    _fill_checkpoints(sections)
    for _, monitor in _entries(sections, "gpuMonitors"):
        _read_files(monitor)
    gpu_pools = fabrics.gpu_pools(_entries(sections, "nodePools"))
    for _, team in _entries(sections, "teams"):
        workload_pool = f"{sections.get('project')}.svc.id.goog"
        _default(_section(team, "serviceAccount"), "workloadPool", workload_pool)
        _fill_workloads(team, gpu_pools)
        if not is_existing(cluster):
            _fill_from_cluster(team, cluster)
    _fill_queued_kinds(sections)
    _fill_egress_namespaces(sections)
    return FilledFile(sections, list(_derived_arguments(sections)))


def _fill_storage(sections: dict[str, Any]) -> None:
    """Switch on the cluster's add-ons for storage, and fill in network and zones."""
    _default(sections, "storage", {})
    cluster = _section(sections, "cluster")
    storage = _section(sections, "storage")
    if not is_existing(cluster):
        for add_on in ("filestore", "lustre"):
            if storage.get(add_on) is not None:
                _default(cluster, add_on, True)
        network = _section(cluster, "network").get("network")
        _default(storage, "network", network or cluster.get("name"))
    zones: set[str] = set()
    for _, pool in _entries(sections, "nodePools"):
        zones.update(_zones(pool, cluster))
    if len(zones) == 1 and isinstance(storage.get("filestore"), dict):
        _default(storage["filestore"], "zones", [*zones])


def _fill_operator(sections: dict[str, Any]) -> None:
    """Fill in the GPU Operator's mode and quota, and what other sections derive from them."""
    operator = _section(sections, "gpuOperator")
    gpu_pools = _gpu_pools(sections)
    modes = {mode_for(pool.get("driver"), pool.get("image")) for pool in gpu_pools}
    # If pools need different modes, each pool that the default mode does not suit is an error.
    if len(modes) == 1:
        _default(operator, "mode", *modes)
    has_operator = sections.get("gpuOperator") is not None
    if has_operator:
        # All pools at their most nodes, and a quarter more: new nodes come while old ones go.
        pods = CRITICAL_PODS_PER_GPU_NODE * sum(map(_most_nodes, gpu_pools))
        pods += sum(_most_nodes(pool) for _, pool in _entries(sections, "nodePools"))
        _default(operator, "criticalPods", CRITICAL_PODS_BESIDE + pods * 5 // 4)
        cluster = _section(sections, "cluster")
        exports_metrics = _section(operator, "dcgmExporter").get("enabled") is not False
        if exports_metrics and not is_existing(cluster):
            # The operator exports the metrics of GPUs.
            _default(cluster, "monitoring", ["SYSTEM_COMPONENTS"])
    by_operator = has_operator and operator.get("mode", "operator") == "operator"
    classes = _section(sections, "deviceClasses")
    _default(classes, "gpuDriverFrom", "operator" if by_operator else "google")


def _fill_compute_classes(sections: Mapping[str, Any]) -> None:
    """Give each node pool that a ComputeClass names the class."""
    pools = dict(_entries(sections, "nodePools"))
    for name, compute_class in _entries(sections, "computeClasses"):
        named = compute_class.get("pools")
        for pool in named if isinstance(named, list) else ():
            _default(pools.get(str(pool), {}), "computeClass", name)


def _fill_checkpoints(sections: Mapping[str, Any]) -> None:
    """Switch on the cluster's checkpoints, and tolerate the taints of the pools that keep them."""
    pools = dict(_entries(sections, "nodePools"))
    cluster = _section(sections, "cluster")
    for _, configuration in _entries(sections, "checkpointConfigurations"):
        if not is_existing(cluster):
            _default(cluster, "multiTierCheckpointing", True)
        name = str(_section(configuration, "nodeSelector").get(labels.GKE_NODE_POOL))
        pool, _ = validated(GpuNodePoolSpec, pools.get(name), by_alias=True, by_name=False)
        if pool is not None:
            with suppress(InvalidArgumentError):
                _default(configuration, "tolerations", pool.tolerations)


def _fill_from_cluster(team: dict[str, Any], cluster: dict[str, Any]) -> None:
    """Fill in locations of caches and load balancers of gateways, of a cluster to be made."""
    for _, cache in _entries(team, "modelCaches"):
        _default(cache, "location", cluster.get("location"))
    for _, gateway in _entries(team, "inferenceGateways"):
        _default(cluster, "gatewayApi", True)
        _default(gateway, "proxyOnlyCidr", cluster.get("proxyOnlyCidr"))


def _fill_workloads(team: dict[str, Any], pools: list[fabrics.GpuPool]) -> None:
    """Fill in files, labels of nodes and buckets.

    The network between GPUs is filled in if all pools that can run a workload have the same.
    """
    volumes = _entries(team, "volumes")
    buckets = [name for name, volume in volumes if volume.get("bucket") is not None]
    for section, spec in SECTIONS.items():
        for _, workload in _entries(team, to_camel(section)):
            _read_files(workload)
            _select_type(workload, team)
            mounts = workload.get("mounts")
            for mount in mounts if isinstance(mounts, list) else []:
                if isinstance(mount, dict) and mount.get("claim") in buckets:
                    _default(mount, "fuse", True)
            fabric = fabrics.shared_fabric(fabrics.possible_pools(workload, pools))
            if "gpu_fabric" in spec.model_fields and fabric is not None:
                arguments = {to_camel(key): value for key, value in fabric.items()}
                _default(workload, "gpuFabric", arguments)


def _gpu_pools(sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [pool for _, pool in _entries(sections, "nodePools") if has_gpus(pool)]


def _fill_egress_namespaces(sections: Mapping[str, Any]) -> None:
    """Allow egress to the servers that list a team as caller. Both ends must allow it."""
    teams = dict(_entries(sections, "teams"))
    for callee, team in teams.items():
        callers: list[str] = []
        for _, server in [*_entries(team, "inferenceServices"), *_entries(team, "shardedSets")]:
            listed = server.get("callers")
            callers += map(str, listed if isinstance(listed, list) else ())
        for caller in callers:
            if caller in teams and caller != callee:
                _default(teams[caller], "egressNamespaces", [])
                namespaces = teams[caller]["egressNamespaces"]
                if isinstance(namespaces, list) and callee not in namespaces:
                    namespaces.append(callee)


def _fill_queued_kinds(sections: dict[str, Any]) -> None:
    """Let Kueue manage the kinds of the workloads that name a queue, and no others."""
    queued: set[str] = set()
    for _, team in _entries(sections, "teams"):
        for section, kind in _QUEUED_KINDS.items():
            for _, workload in _entries(team, section):
                if workload.get("queue") is not None:
                    is_grouped = kind == "Deployment" and workload.get("nodes", 1) != 1
                    queued.add("LeaderWorkerSet" if is_grouped else kind)
    if queued and _section(sections, "trainingQueue").get("install") is not False:
        _default(sections, "trainingQueue", {})
        _default(_section(sections, "trainingQueue"), "kinds", ["Job", "JobSet", *sorted(queued)])


def _derived_arguments(sections: Mapping[str, Any]) -> Iterator[DerivedArguments]:
    project = sections.get("project")
    cluster = _section(sections, "cluster")
    if not is_existing(cluster):
        yield _derived("cluster", cluster, GkeClusterSpec, project=project)
    for name, pool in _entries(sections, "nodePools"):
        location = _region(pool) if is_existing(cluster) else cluster.get("location")
        spec = GpuNodePoolSpec if has_gpus(pool) else CpuNodePoolSpec
        known = {"project": project, "location": location, "pool_name": name}
        # A cross-check compares it with the cluster's, which it names.
        known["multi_networking"] = None
        yield _derived(f"nodePools.{name}", pool, spec, **known)
    for name, compute_class in _entries(sections, "computeClasses"):
        path = f"computeClasses.{name}"
        yield _derived(path, compute_class, ComputeClassSpec, compute_class=name)
    if isinstance(adapter := sections.get("metricsAdapter"), dict):
        yield _derived("metricsAdapter", adapter, MetricsAdapterSpec, project=project)
    for name, configuration in _entries(sections, "checkpointConfigurations"):
        path = f"checkpointConfigurations.{name}"
        known = {"project": project}
        known["configuration_name"] = name
        yield _derived(path, configuration, CheckpointConfigurationSpec, **known)
    for name, monitor in _entries(sections, "gpuMonitors"):
        yield _derived(f"gpuMonitors.{name}", monitor, GpuMonitorSpec, monitor_name=name)
    for team_name, team in _entries(sections, "teams"):
        path = f"teams.{team_name}"
        yield _derived(f"{path}.queue", _section(team, "queue"), TeamQueue, namespace=team_name)
        for section, spec in SECTIONS.items():
            for name, entry in _entries(team, to_camel(section)):
                known = {"namespace": team_name, spec.name_field or "": name}
                arguments = _derived(f"{path}.{to_camel(section)}.{name}", entry, spec, **known)
                if priority_class := _priority_class(entry, team_name, team):
                    arguments.values["priorityClass"] = priority_class
                keys = [*entry]
                errors = list(resolve(entry, spec, team, team_name))
                arguments.values.update(dict.fromkeys(key for key in keys if key not in entry))
                yield arguments._replace(errors=errors)


def _derived(
    path: str, section: dict[str, Any], spec: type[Spec], **known: Any
) -> DerivedArguments:
    values = {to_camel(field): known.get(field, "") for field in DERIVED[spec]}
    return DerivedArguments(path, section, values)


def _section(section: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the section of a key, or a new empty one."""
    value = section.get(key)
    return value if isinstance(value, dict) else {}


def _default(section: dict[str, Any], key: str, value: Any) -> None:
    if section.get(key) is None:
        section[key] = value


def _read_files(entry: Mapping[str, Any]) -> None:
    """Replace paths of files by their texts. The path of a file that cannot be read stays."""
    files = _section(entry, "files")
    for path, text in files.items():
        with suppress(ReadError):
            if is_reference(text):
                files[path] = read_reference(text)


def read_reference(text: str) -> str:
    """Return the text of the file that a text of `files` names.

    Raises:
        ReadError: It is not a regular file below the folder of the stack files.
    """
    return regular_files.read(FOLDER / text.removeprefix("@"), FOLDER)


def is_reference(text: Any) -> bool:
    """Return whether a text of `files` is the path of a file, such as @scripts/train.py."""
    return isinstance(text, str) and text.startswith("@") and "\n" not in text


def _entries(section: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the sections of a key, by name."""
    entries = _section(section, key).items()
    return [(name, entry) for name, entry in entries if isinstance(entry, dict)]


def _most_nodes(pool: Mapping[str, Any]) -> int:
    """Return the most nodes of a pool, or 0 if its numbers are invalid."""
    most = pool.get("maxNodes")
    zones = pool.get("zones")
    times = len(zones) if pool.get("limits") == "zone" and isinstance(zones, list) else 1
    return most * times if isinstance(most, int) else 0


def _zones(pool: Mapping[str, Any], cluster: Mapping[str, Any]) -> list[str]:
    """Return the zones of a pool's nodes: its own, the cluster's, or the fewest of a region."""
    zones = pool.get("zones") or cluster.get("nodeZones")
    location = str(cluster.get("location"))
    if isinstance(zones, list):
        return [str(zone) for zone in cast("list[Any]", zones)]
    return [location] if location.count("-") == 2 else [f"{location}-{letter}" for letter in "abc"]


def _region(pool: Mapping[str, Any]) -> str:
    """Return the region of a pool of an existing cluster, from its zones."""
    zones = pool.get("zones")
    return str(zones[0]).rpartition("-")[0] if isinstance(zones, list) and zones else ""


def mode_for(driver: Any, image: Any) -> Mode:
    """Return the operator's mode for a pool, in which exactly one side installs the driver."""
    if driver == "installer":
        return "ubuntu" if image == "ubuntu" else "cos"
    return "operator" if driver == "operator" else "gke"


def _select_type(workload: dict[str, Any], team: Mapping[str, Any]) -> None:
    """Select nodes by accelerator type if a quota by model needs it."""
    # Several types may have one product label.
    if not _section(_section(team, "quota"), "gpusByModel") or not workload.get("gpus"):
        return
    try:
        gpu = accelerator(str(workload.get("gpu")))
    except ValueError:
        return
    if gpu.name != gpu.product:
        _default(workload, "nodeSelector", {})
        _default(_section(workload, "nodeSelector"), labels.GKE_ACCELERATOR, gpu.types[0])


def _priority_class(
    workload: Mapping[str, Any], team_name: str, team: Mapping[str, Any]
) -> str | None:
    """Return the PriorityClass of a workload's GPU model, if the team has a quota by model."""
    quotas = _section(_section(team, "quota"), "gpusByModel")
    if not quotas or not workload.get("gpus") or workload.get("gpuClaim") is not None:
        return None
    try:
        return priority_class_name(team_name, gpu_key(str(workload.get("gpu"))))
    except ValueError:
        return None
