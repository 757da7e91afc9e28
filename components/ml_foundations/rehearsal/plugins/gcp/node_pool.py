"""The node pool that a program declares, checked as GKE checks it."""

import json
from collections.abc import Mapping
from typing import Any

from ml_foundations.catalog.disks import BOOT_DISKS
from ml_foundations.catalog.machine_types import (
    GPUS,
    MachineType,
    UnknownNameError,
    gpu_model,
    machine_type,
)
from ml_foundations.catalog.pools import TAINT_EFFECTS, PoolGpu, plain_traits, pool_sizes
from ml_foundations.kubernetes import labels
from ml_foundations.planning.api_server.text_formats import LABEL_VALUE, QUALIFIED_NAME
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.plugins.gcp.container import check_name, parent_id
from ml_foundations.rehearsal.plugins.gcp.errors import bad_request
from ml_foundations.rehearsal.plugins.gcp.location import (
    GcpLocation,
    Inputs,
    check_zones,
    default_zones,
    is_zone,
)
from ml_foundations.rehearsal.progress import RehearsalError

_DRIVER_VERSIONS = ("DEFAULT", "LATEST", "INSTALLATION_DISABLED", "GPU_DRIVER_VERSION_UNSPECIFIED")
_SHARING_STRATEGIES = ("TIME_SHARING", "MPS")
_RESERVATION_TYPES = (
    "NO_RESERVATION",
    "ANY_RESERVATION",
    "SPECIFIC_RESERVATION",
    "ANY_RESERVATION_THEN_FAIL",
)


def node_pool(inputs: Inputs, place: GcpLocation, cluster: Inputs) -> Pool:
    """The pool that a program declares in a cluster, checked as GKE checks it."""
    config, scaling = inputs.get("nodeConfig") or {}, inputs.get("autoscaling") or {}
    per_zone = scaling.get("maxNodeCount")
    check_name("Node pool", inputs["name"])
    location = place.location_of(inputs)
    zones = list(
        inputs.get("nodeLocations") or cluster.get("nodeLocations") or default_zones(location)
    )
    if is_zone(location) and not inputs.get("nodeLocations"):
        zones = [location]
    check_zones(zones, location)
    machine = _machine(config.get("machineType") or "e2-medium", config.get("labels") or {})
    low, high, initial, autoscaled = _sizes(inputs, len(zones))
    gpu = _gpu(config, machine)
    disk_type = _boot_disk_type(config, machine)
    traits = plain_traits(inputs, cluster)
    if traits["queued"]:
        _check_queued(inputs)
    return Pool(
        name=inputs["name"],
        cluster=inputs["cluster"].rpartition("/")[2],
        cluster_id=parent_id(inputs, place),
        project=place.project_of(inputs),
        machine_type=machine.name,
        min_nodes=low,
        max_nodes=high,
        initial_nodes=initial,
        autoscaled=autoscaled,
        max_nodes_per_zone=None if per_zone is None else int(per_zone),
        zones=tuple(zones),
        labels=dict(_label("label", *item) for item in (config.get("labels") or {}).items()),
        taints=_taints(config),
        gpu=gpu,
        reservation=_reservation(config),
        location_policy=scaling.get("locationPolicy") or "BALANCED",
        boot_disk_type=disk_type,
        **traits,
    )


def default_pool(cluster: Inputs, place: GcpLocation) -> Pool | None:
    """The pool that GKE creates with a cluster, unless the program removes it."""
    has_none = cluster.get("removeDefaultNodePool") or cluster.get("enableAutopilot")
    if has_none or not cluster.get("initialNodeCount"):
        return None
    where = {
        "location": place.location_of(cluster),
        "project": place.project_of(cluster),
        "cluster": cluster["name"],
    }
    nodes = {
        "nodeCount": cluster["initialNodeCount"],
        "nodeConfig": cluster.get("nodeConfig") or {},
    }
    return node_pool({"name": "default-pool"} | where | nodes, place, cluster)


def _machine(name: str, node_labels: Mapping[str, str]) -> MachineType:
    try:
        found = machine_type(name, node_labels)
    except UnknownNameError as error:
        by_labels = f"by the labels {labels.VCPUS} and {labels.MEMORY_GIB} of its nodes"
        raise RehearsalError(f"nodeConfig.machineType: {error}: {by_labels}") from error
    if found.missing:
        raise RehearsalError(
            f"nodeConfig.machineType: the rehearsal cannot make nodes of {name}: {found.missing}"
        )
    return found


def _sizes(inputs: Inputs, zones: int) -> tuple[int, int, int, bool]:
    """Minimum, maximum and initial number of nodes of the whole pool, and whether it scales."""
    scaling, (low, high) = inputs.get("autoscaling"), pool_sizes(inputs, zones)
    if not scaling:
        return low, high, low, False
    if None not in (scaling.get("totalMaxNodeCount"), scaling.get("maxNodeCount")):
        raise bad_request("total_max_node_count and max_node_count are mutually exclusive")
    initial, _ = pool_sizes({**inputs, "autoscaling": None}, zones)
    if high <= 0 or low > high:
        raise bad_request(f"Autoscaling limits are invalid: minimum {low}, maximum {high} nodes")
    return low, high, max(initial, low), True


def _check_queued(inputs: Inputs) -> None:
    """Nodes that come for a ProvisioningRequest only: Google asks for a pool that starts with none."""
    scaling = inputs.get("autoscaling") or {}
    if (
        scaling.get("totalMinNodeCount")
        or scaling.get("minNodeCount")
        or inputs.get("initialNodeCount")
    ):
        raise bad_request(
            "Queued provisioning needs a node pool that starts with 0 nodes and whose minimum is 0"
        )


def _reservation(config: Inputs) -> str:
    """The specific reservation of a pool, checked against the other ways to buy its machines."""
    affinity = config.get("reservationAffinity") or {}
    kind, names = affinity.get("consumeReservationType"), affinity.get("values") or []
    _one_of("consume_reservation_type", kind, _RESERVATION_TYPES)
    if kind in ("ANY_RESERVATION", "SPECIFIC_RESERVATION") and (
        config.get("spot") or config.get("flexStart")
    ):
        raise bad_request("Spot and flex-start nodes cannot consume a reservation")
    if (kind == "SPECIFIC_RESERVATION") != (len(names) == 1):
        raise bad_request(
            "A specific reservation, and no other kind of affinity, names exactly one reservation"
        )
    return names[0] if names else ""


def _gpu(config: Inputs, machine: MachineType) -> PoolGpu | None:
    accelerators = config.get("guestAccelerators") or []
    if not accelerators:
        return PoolGpu(machine.gpu, machine.gpu_count) if machine.gpu else None
    if len(accelerators) > 1:
        raise bad_request("A node pool can have one type of accelerator")
    accelerator = accelerators[0]
    kind, count = accelerator["type"], int(accelerator["count"])
    model = gpu_model(kind, config.get("labels") or {})
    if model is None:
        by_labels = f"declare it by the labels {labels.GPU_PRODUCT} and {labels.GPU_MEMORY} (MiB) of its nodes"
        known = ", ".join(sorted(GPUS))
        raise RehearsalError(
            f'Accelerator type "{kind}" is not in the catalog: {by_labels}. It has {known}'
        )
    allowed = machine.gpu_counts(kind)
    if count not in allowed:
        offers = f"{machine.gpu_count} x {machine.gpu}" if machine.gpu else "no GPU of this type"
        has = f"{' or '.join(map(str, allowed))} of this type" if allowed else offers
        raise bad_request(
            f"Machine type {machine.name} cannot have {count} accelerators of type {kind}: it has {has}"
        )
    gpu = PoolGpu.of(accelerator)
    _one_of("gpu_driver_version", gpu.driver_version, _DRIVER_VERSIONS)
    _one_of("gpu_sharing_strategy", gpu.sharing_strategy, _SHARING_STRATEGIES)
    if gpu.partition_size and gpu.partition_size not in model.mig_profiles:
        known = ", ".join(model.mig_profiles) or "none: it cannot be partitioned"
        raise bad_request(
            f'GPU partition size "{gpu.partition_size}" is not one of {kind}: {known}'
        )
    return gpu


def _one_of(field: str, value: str | None, allowed: tuple[str, ...]) -> str | None:
    if value and value not in allowed:
        raise RehearsalError(f"expected {field} to be one of {list(allowed)}, got {value}")
    return value or None


def _taints(config: Inputs) -> tuple[dict[str, str], ...]:
    taints = tuple(map(_taint, config.get("taints") or []))
    if len({(taint["key"], taint["effect"]) for taint in taints}) < len(taints):
        raise bad_request("Two node taints have the same key and effect")
    return taints


def _taint(taint: Inputs) -> dict[str, str]:
    effect = _one_of("effect", taint.get("effect"), tuple(TAINT_EFFECTS))
    if effect is None:
        raise bad_request(f"Taint {taint.get('key')} has no effect")
    key, value = _label("taint", str(taint.get("key") or ""), taint.get("value") or "")
    return {"key": key, "value": value, "effect": TAINT_EFFECTS[effect]}


def _label(what: str, key: str, value: Any) -> tuple[str, str]:
    """A label or taint of nodes, checked as Kubernetes checks it."""
    # Programs may give numbers and booleans; the provider makes text of them.
    text = value if isinstance(value, str) else json.dumps(value)
    if not QUALIFIED_NAME.matches(key):
        raise bad_request(
            f'Invalid node {what} key "{key}": an optional DNS subdomain with "/", then up to 63 letters, digits, '
            '"-", "_" and ".", that begin and end with a letter or digit'
        )
    if not LABEL_VALUE.matches(text):
        raise bad_request(
            f'Invalid value "{text}" of node {what} "{key}": up to 63 letters, digits, "-", "_" and ".", '
            "that begin and end with a letter or digit, or nothing"
        )
    return key, text


def _boot_disk_type(config: Inputs, machine: MachineType) -> str:
    declared = config.get("diskType") or (config.get("bootDisk") or {}).get("diskType")
    default = "hyperdisk-balanced" if machine.attaches("pd-balanced") is False else "pd-balanced"
    fitting = [each for each in BOOT_DISKS if machine.attaches(each) is not False]
    if declared and declared not in fitting:
        raise bad_request(
            f"Disk type {declared} cannot be used by {machine.name}: it takes {', '.join(fitting)}"
        )
    return declared or default


def is_gpu_pool(pool: Pool) -> bool:
    """Whether a pool's nodes have GPUs."""
    return pool.gpu is not None or labels.GKE_ACCELERATOR in pool.labels
