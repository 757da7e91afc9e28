"""A declared node pool, checked as GKE checks it."""

import json
from collections.abc import Mapping
from typing import Any

from ml_foundations.catalog import machine_types
from ml_foundations.catalog.disks import BOOT_DISKS
from ml_foundations.catalog.locations import is_zone
from ml_foundations.catalog.machine_types import MachineType
from ml_foundations.catalog.pools import TAINT_EFFECTS, PoolGpu, pool_sizes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.text_formats import LABEL_VALUE, QUALIFIED_NAME
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.plugins.gcp import location as locations
from ml_foundations.rehearsal.plugins.gcp.container import check_name, parent_id
from ml_foundations.rehearsal.plugins.gcp.errors import bad_request
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation, Inputs
from ml_foundations.rehearsal.progress import RehearsalError

_DRIVER_VERSIONS = ("DEFAULT", "LATEST", "INSTALLATION_DISABLED", "GPU_DRIVER_VERSION_UNSPECIFIED")
_RESERVATION_TYPES = (
    *("NO_RESERVATION", "ANY_RESERVATION", "SPECIFIC_RESERVATION", "ANY_RESERVATION_THEN_FAIL"),
)
_FORM = 'up to 63 letters, digits, "-", "_" and ".", that begin and end with a letter or digit'


def node_pool(inputs: Inputs, location: GcpLocation, cluster: Inputs) -> Pool:
    """Return the pool that a program declares; raise an error if GKE would refuse it."""
    config = inputs.get("nodeConfig") or {}
    scaling = inputs.get("autoscaling") or {}
    per_zone = scaling.get("maxNodeCount")
    check_name("Node pool", inputs["name"])
    # A pool has its own zones, that of its location if it is a zone, or those of the cluster.
    place = location.location_of(inputs)
    zones: list[str] | None = inputs.get("nodeLocations")
    if not zones and not is_zone(place):
        zones = cluster.get("nodeLocations")
    # The provider has a set of zones: a zone that is named twice counts once.
    zones = [*dict.fromkeys(zones or locations.default_zones(place))]
    locations.check_zones(zones, place)
    node_labels = config.get("labels") or {}
    machine = _machine(config.get("machineType") or "e2-medium", node_labels)
    minimum, maximum, initial = _sizes(inputs, len(zones))
    _check_gpu(config, machine)
    _check_boot_disk(config, machine)
    _check_queued(inputs)
    node_labels = dict(_label("label", key, value) for key, value in node_labels.items())
    taints = _taints(config)
    _check_reservation(config)
    return Pool.declared(
        inputs,
        cluster,
        cluster=inputs["cluster"].rpartition("/")[2],
        cluster_id=parent_id(inputs, location),
        project=location.project_of(inputs),
        min_nodes=minimum,
        max_nodes=maximum,
        initial_nodes=initial,
        autoscaled=bool(scaling),
        max_nodes_per_zone=None if per_zone is None else int(per_zone),
        zones=tuple(zones),
        labels=node_labels,
        taints=taints,
        location_policy=scaling.get("locationPolicy") or "BALANCED",
    )


def default_pool(cluster: Inputs, location: GcpLocation) -> Pool | None:
    """Return the pool that GKE creates with a cluster; None if the program removes it."""
    is_removed = cluster.get("removeDefaultNodePool") or cluster.get("enableAutopilot")
    if is_removed or not cluster.get("initialNodeCount"):
        return None
    inputs = {
        "name": "default-pool",
        "location": location.location_of(cluster),
        "project": location.project_of(cluster),
        "cluster": cluster["name"],
        "nodeCount": cluster["initialNodeCount"],
        "nodeConfig": cluster.get("nodeConfig") or {},
    }
    return node_pool(inputs, location, cluster)


def _machine(name: str, node_labels: Mapping[str, str]) -> MachineType:
    try:
        machine = machine_types.machine_type(name, node_labels)
    except machine_types.UnknownNameError as error:
        by_labels = f"by the labels {labels.VCPUS} and {labels.MEMORY_GIB} of its nodes"
        raise RehearsalError(f"nodeConfig.machineType: {error}: {by_labels}") from error
    if machine.missing:
        failure = f"the rehearsal cannot make nodes of {name}"
        raise RehearsalError(f"nodeConfig.machineType: {failure}: {machine.missing}")
    return machine


def _sizes(inputs: Inputs, zones: int) -> tuple[int, int, int]:
    """Return the minimum, maximum and initial number of nodes of the whole pool."""
    scaling = inputs.get("autoscaling")
    minimum, maximum = pool_sizes(inputs, zones)
    if not scaling:
        return minimum, maximum, minimum
    if None not in (scaling.get("totalMaxNodeCount"), scaling.get("maxNodeCount")):
        raise bad_request("total_max_node_count and max_node_count are mutually exclusive")
    initial, _ = pool_sizes({**inputs, "autoscaling": None}, zones)
    if maximum <= 0 or minimum > maximum:
        limits = f"minimum {minimum}, maximum {maximum} nodes"
        raise bad_request(f"Autoscaling limits are invalid: {limits}")
    return minimum, maximum, max(initial, minimum)


def _check_queued(inputs: Inputs) -> None:
    """Refuse nodes at the start of a pool with queued provisioning."""
    if not (inputs.get("queuedProvisioning") or {}).get("enabled"):
        return
    # GKE adds its nodes only for a ProvisioningRequest.
    scaling = inputs.get("autoscaling") or {}
    counts = ("totalMinNodeCount", "minNodeCount")
    if inputs.get("initialNodeCount") or any(scaling.get(count) for count in counts):
        pool = "a node pool that starts with 0 nodes and whose minimum is 0"
        raise bad_request(f"Queued provisioning needs {pool}")


def _check_reservation(config: Inputs) -> None:
    """Refuse a reservation that nodes cannot consume."""
    affinity = config.get("reservationAffinity") or {}
    kind = affinity.get("consumeReservationType")
    names = affinity.get("values") or []
    _check_choice("consume_reservation_type", kind, _RESERVATION_TYPES)
    is_temporary = config.get("spot") or config.get("flexStart")
    if is_temporary and kind in ("ANY_RESERVATION", "SPECIFIC_RESERVATION"):
        raise bad_request("Spot and flex-start nodes cannot consume a reservation")
    if (kind == "SPECIFIC_RESERVATION") != (len(names) == 1):
        rule = "and no other kind of affinity, names exactly one reservation"
        raise bad_request(f"A specific reservation, {rule}")


def _check_gpu(config: Inputs, machine: MachineType) -> None:
    """Refuse GPUs that nodes of a machine type cannot have."""
    accelerators = config.get("guestAccelerators") or []
    if not accelerators:
        return
    if len(accelerators) > 1:
        raise bad_request("A node pool can have one type of accelerator")
    accelerator = accelerators[0]
    kind = accelerator["type"]
    count = int(accelerator["count"])
    model = machine_types.gpu_model(kind, config.get("labels") or {})
    if model is None:
        by_labels = f"by the labels {labels.GPU_PRODUCT} and {labels.GPU_MEMORY} (MiB) of its nodes"
        fix = f"declare it {by_labels}. It has {', '.join(sorted(machine_types.GPUS))}"
        raise RehearsalError(f'Accelerator type "{kind}" is not in the catalog: {fix}')
    allowed = machine.gpu_counts(kind)
    if count not in allowed:
        has = f"{machine.gpu_count} x {machine.gpu}" if machine.gpu else "no GPU of this type"
        if allowed:
            has = f"{' or '.join(map(str, allowed))} of this type"
        raise bad_request(
            f"Machine type {machine.name} cannot have {count} accelerators of type {kind}: it has "
            f"{has}"
        )
    gpu = PoolGpu.of(accelerator)
    _check_choice("gpu_driver_version", gpu.driver_version, _DRIVER_VERSIONS)
    _check_choice("gpu_sharing_strategy", gpu.sharing_strategy, ("TIME_SHARING", "MPS"))
    size = gpu.partition_size
    if size and size not in model.mig_profiles:
        profiles = ", ".join(model.mig_profiles) or "none: it cannot be partitioned"
        raise bad_request(f'GPU partition size "{size}" is not one of {kind}: {profiles}')


def _check_choice(field: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value and value not in allowed:
        raise RehearsalError(f"expected {field} to be one of {list(allowed)}, got {value}")


def _taints(config: Inputs) -> tuple[dict[str, str], ...]:
    taints: dict[tuple[str, str], dict[str, str]] = {}
    for taint in config.get("taints") or ():
        effect = taint.get("effect")
        _check_choice("effect", effect, tuple(TAINT_EFFECTS))
        if not effect:
            raise bad_request(f"Taint {taint.get('key')} has no effect")
        key, value = _label("taint", str(taint.get("key") or ""), taint.get("value") or "")
        if (key, effect) in taints:
            raise bad_request("Two node taints have the same key and effect")
        taints[key, effect] = {"key": key, "value": value, "effect": TAINT_EFFECTS[effect]}
    return tuple(taints.values())


def _label(what: str, key: str, value: Any) -> tuple[str, str]:
    """Return the key and value of a label or taint; raise an error for an invalid one."""
    # Programs may give numbers and booleans; the provider makes text of them.
    text = value if isinstance(value, str) else json.dumps(value)
    if not QUALIFIED_NAME.matches(key):
        form = f'an optional DNS subdomain with "/", then {_FORM}'
        raise bad_request(f'Invalid node {what} key "{key}": {form}')
    if not LABEL_VALUE.matches(text):
        raise bad_request(f'Invalid value "{text}" of node {what} "{key}": {_FORM}, or nothing')
    return key, text


def _check_boot_disk(config: Inputs, machine: MachineType) -> None:
    declared = config.get("diskType") or (config.get("bootDisk") or {}).get("diskType")
    # None means that the catalog does not know.
    allowed = [disk for disk in BOOT_DISKS if machine.attaches(disk) is not False]
    if declared and declared not in allowed:
        fix = f"Allowed: {', '.join(allowed)}"
        raise bad_request(f"Disk type {declared} cannot be used by {machine.name}. {fix}")
