"""Values that follow from the place of a section in a stack file, or from other sections."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from ml_foundations.catalog.machine_types import MACHINE_TYPES, accelerator
from ml_foundations.catalog.operator_nodes import CRITICAL_PODS_BESIDE, CRITICAL_PODS_PER_GPU_NODE
from ml_foundations.component.spec import Spec
from ml_foundations.gke.cluster import GkeClusterSpec
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.gpu.operator import Mode
from ml_foundations.kubernetes import labels
from ml_foundations.tenancy.quota import gpu_key, priority_class_name
from ml_foundations.tenancy.training_queue import TeamQueue
from pydantic.alias_generators import to_camel
from team import SECTIONS

ONLY_GPU = {
    to_camel(name)
    for name in GpuNodePoolSpec.model_fields
    if name not in CpuNodePoolSpec.model_fields
}
"""Keys that only a pool of GPU nodes has."""

FOLDER = Path(__file__).parent
"""Where stack files are; a text of `files` that is @ and a path is that of a file from here on."""

_QUEUED_KINDS = {"tasks": "Pod", "inferenceServices": "Deployment", "shardedSets": "StatefulSet"}
"""Sections of a team whose workloads are of kinds that Kueue manages only if one of them names a
queue."""

_SERVERS = ("inferenceServices", "shardedSets")
"""Sections of a team whose workloads have callers."""

_OF_POOLS = ("project", "location", "cluster_name", "node_service_account", "pool_name")
FOLLOWS: Mapping[type[Spec], tuple[str, ...]] = {
    GkeClusterSpec: ("project",),
    CpuNodePoolSpec: _OF_POOLS,
    GpuNodePoolSpec: _OF_POOLS,
    GpuMonitorSpec: ("monitor_name",),
    TeamQueue: ("namespace",),
    **{spec: ("namespace", spec.name_field or "") for spec in SECTIONS.values()},
}
"""The arguments that follow from a section's place: a stack file does not have them."""


class Place(NamedTuple):
    """A section of the file that is a component's, or a part of one's arguments."""

    path: str
    section: dict[str, Any]
    follows: dict[str, Any]
    """The arguments that follow from its place, by their keys."""


def is_existing(cluster: Any) -> bool:
    """Return whether a cluster section describes a cluster that exists."""
    return isinstance(cluster, dict) and bool(cluster.keys() & {"kubeconfig", "context"})


def has_gpus(pool: Any) -> bool:
    """Return whether a node pool's section has GPUs, by its machine type or its keys."""
    if not isinstance(pool, dict):
        return False
    machine = MACHINE_TYPES.get(str(pool.get("machineType")))
    return bool(ONLY_GPU & pool.keys()) or (machine is not None and machine.gpu is not None)


def fill(given: dict[str, Any]) -> list[Place]:
    """Fill in values that follow from other sections, and return the places of such values."""
    _default(given, "storage", {})
    cluster, storage = _section(given, "cluster"), _section(given, "storage")
    if not is_existing(cluster):
        for add_on in ("filestore", "lustre"):
            if storage.get(add_on) is not None:
                _default(cluster, add_on, True)
        _default(
            storage, "network", _section(cluster, "network").get("network") or cluster.get("name")
        )
    pool_zones = {
        zone for _, pool in _entries(given, "nodePools") for zone in _zones(pool, cluster)
    }
    if len(pool_zones) == 1 and isinstance(storage.get("filestore"), dict):
        _default(storage["filestore"], "zones", [*pool_zones])
    operator = _section(given, "gpuOperator")
    pools = [pool for _, pool in _entries(given, "nodePools") if has_gpus(pool)]
    modes = {mode_for(pool.get("driver"), pool.get("image")) for pool in pools}
    if (
        len(modes) == 1
    ):  # where pools want different modes, each that the default leaves out is an error
        _default(operator, "mode", *modes)
    if given.get("gpuOperator") is not None:
        # All pools at their most nodes, and a quarter more: new nodes come while old ones go.
        with_gpus = CRITICAL_PODS_PER_GPU_NODE * sum(map(_most_nodes, pools))
        everywhere = sum(_most_nodes(pool) for _, pool in _entries(given, "nodePools"))
        _default(operator, "criticalPods", CRITICAL_PODS_BESIDE + (with_gpus + everywhere) * 5 // 4)
        if (
            not is_existing(cluster)
            and _section(operator, "dcgmExporter").get("enabled") is not False
        ):
            _default(
                cluster, "monitoring", ["SYSTEM_COMPONENTS"]
            )  # the operator exports the metrics of GPUs
    for pool in pools:
        _default(pool, "deletionProtection", cluster.get("deletionProtection"))
    by_operator = (
        given.get("gpuOperator") is not None and operator.get("mode", "operator") == "operator"
    )
    _default(
        _section(given, "deviceClasses"), "gpuDriverFrom", "operator" if by_operator else "google"
    )
    for _, monitor in _entries(given, "gpuMonitors"):
        _read_files(monitor)
    for _, team in _entries(given, "teams"):
        buckets = [
            name for name, volume in _entries(team, "volumes") if volume.get("bucket") is not None
        ]
        for workload in (
            entry for section in SECTIONS for _, entry in _entries(team, to_camel(section))
        ):
            _read_files(workload)
            _select_type(workload, team)
            mounts = workload.get("mounts")
            for mount in mounts if isinstance(mounts, list) else []:
                if isinstance(mount, dict) and mount.get("claim") in buckets:
                    _default(mount, "fuse", True)
        _default(
            _section(team, "serviceAccount"), "workloadPool", f"{given.get('project')}.svc.id.goog"
        )
    _fill_queued_kinds(given)
    _fill_egress_namespaces(given)
    return list(_places(given))


def _fill_egress_namespaces(given: Mapping[str, Any]) -> None:
    """Let teams out to the servers that list them as callers: both ends have to open the way."""
    teams = dict(_entries(given, "teams"))
    for caller, callee in _calls(given):
        if caller in teams and caller != callee:
            _default(teams[caller], "egressNamespaces", [])
            namespaces = teams[caller]["egressNamespaces"]
            if isinstance(namespaces, list) and callee not in namespaces:
                namespaces.append(callee)


def _calls(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each caller that a team's servers list, with the team."""
    for name, team in _entries(given, "teams"):
        servers = [server for section in _SERVERS for _, server in _entries(team, section)]
        for server in servers:
            callers = server.get("callers")
            yield from (
                (str(caller), name) for caller in (callers if isinstance(callers, list) else ())
            )


def _fill_queued_kinds(given: dict[str, Any]) -> None:
    """Let Kueue manage the kinds of the workloads that name a queue, and no others."""
    queued = {
        kind
        for _, team in _entries(given, "teams")
        for section, kind in _QUEUED_KINDS.items()
        for _, workload in _entries(team, section)
        if workload.get("queue") is not None
    }
    if queued and _section(given, "trainingQueue").get("install") is not False:
        _default(given, "trainingQueue", {})
        _default(_section(given, "trainingQueue"), "kinds", ["Job", "JobSet", *sorted(queued)])


def _places(given: Mapping[str, Any]) -> Iterator[Place]:
    project, cluster = given.get("project"), _section(given, "cluster")
    if not is_existing(cluster):
        yield _place("cluster", cluster, GkeClusterSpec, project=project)
    for name, pool in _entries(given, "nodePools"):
        location = _region(pool) if is_existing(cluster) else cluster.get("location")
        spec = GpuNodePoolSpec if has_gpus(pool) else CpuNodePoolSpec
        yield _place(
            f"nodePools.{name}", pool, spec, project=project, location=location, pool_name=name
        )
    for name, monitor in _entries(given, "gpuMonitors"):
        yield _place(f"gpuMonitors.{name}", monitor, GpuMonitorSpec, monitor_name=name)
    for team_name, team in _entries(given, "teams"):
        yield _place(
            f"teams.{team_name}.queue", _section(team, "queue"), TeamQueue, namespace=team_name
        )
        for section, spec in SECTIONS.items():
            for name, entry in _entries(team, to_camel(section)):
                path, named = (
                    f"teams.{team_name}.{to_camel(section)}.{name}",
                    {spec.name_field or "": name},
                )
                place = _place(path, entry, spec, namespace=team_name, **named)
                counted = _priority_class(entry, team_name, team)
                yield (
                    place._replace(follows=place.follows | {"priorityClass": counted})
                    if counted
                    else place
                )


def _place(path: str, section: dict[str, Any], spec: type[Spec], **known: Any) -> Place:
    """Return a place, without the values that only the program will know."""
    return Place(path, section, {to_camel(field): known.get(field, "") for field in FOLLOWS[spec]})


def _section(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the section of a key, or a new empty one."""
    found = given.get(key)
    return found if isinstance(found, dict) else {}


def _default(section: dict[str, Any], key: str, value: Any) -> None:
    if section.get(key) is None:
        section[key] = value


def _read_files(entry: Mapping[str, Any]) -> None:
    """Replace references to files by their texts; that of a file that is not there stays."""
    found = _section(entry, "files")
    for path, text in found.items():
        if is_reference(text) and (file := FOLDER / text.removeprefix("@")).is_file():
            found[path] = file.read_text()


def is_reference(text: Any) -> bool:
    """Return whether a text of `files` stands for that of a file."""
    return isinstance(text, str) and text.startswith("@") and "\n" not in text


def _entries(given: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the sections of a key, by name."""
    return [
        (name, entry) for name, entry in _section(given, key).items() if isinstance(entry, dict)
    ]


def _most_nodes(pool: Mapping[str, Any]) -> int:
    """Return the most nodes of a pool, or 0 if its numbers are invalid."""
    most, zones = pool.get("maxNodes"), pool.get("zones")
    times = len(zones) if pool.get("limits") == "zone" and isinstance(zones, list) else 1
    return most * times if isinstance(most, int) else 0


def _zones(pool: Mapping[str, Any], cluster: Mapping[str, Any]) -> list[str]:
    """Return the zones of a pool's nodes: its own, the cluster's, or the fewest of a region."""
    zones, location = pool.get("zones") or cluster.get("nodeZones"), str(cluster.get("location"))
    if isinstance(zones, list):
        return [str(zone) for zone in cast("list[Any]", zones)]
    return [location] if location.count("-") == 2 else [f"{location}-{letter}" for letter in "abc"]


def _region(pool: Mapping[str, Any]) -> str:
    """Return the region of a pool of an existing cluster, from its zones."""
    zones = pool.get("zones")
    return str(zones[0]).rpartition("-")[0] if isinstance(zones, list) and zones else ""


def mode_for(driver: Any, image: Any) -> Mode:
    """Return the operator's mode for a pool.

    Exactly one side, GKE or the operator, then installs the driver and advertises GPUs.
    """
    if driver == "installer":
        return "ubuntu" if image == "ubuntu" else "cos"
    return "operator" if driver == "operator" else "gke"


def _select_type(workload: dict[str, Any], team: Mapping[str, Any]) -> None:
    """Select nodes by accelerator type if a quota by model needs it.

    Several types may have one product label.
    """
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
    counted = _section(_section(team, "quota"), "gpusByModel")
    if not counted or not workload.get("gpus") or workload.get("gpuClaim") is not None:
        return None
    try:
        return priority_class_name(team_name, gpu_key(str(workload.get("gpu"))))
    except ValueError:
        return None
