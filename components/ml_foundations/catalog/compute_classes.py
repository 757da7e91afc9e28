"""ComputeClasses of GKE, and which node pools their priorities match.

Node pools are inputs of the gcp provider, whose ``nodeLocations`` the caller completes. A value
that is not known yet equals every other value.

Source: GoogleCloudPlatform/cluster-autoscaler (GKE's autoscaler, 2026-08-21), pkg/computeclass, and
GoogleCloudPlatform/compute-class-api.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_foundations.catalog.pools import INSTALLATION_DISABLED
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section, texts
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths

API_VERSION = "cloud.google.com/v1"
KIND = "ComputeClass"
SINCE = "1.30.3-gke.1451000"
"""The version of GKE that has the kind (GKE, "About custom compute classes")."""

OWN_PREFIXES = ("gke", "autopilot")
"""How the names of GKE's own classes begin (same source)."""

SHORTEST_FLEX_START = 600
LONGEST_FLEX_START = 604800
_RUN_SECONDS = (30, 10368000)
"""Seconds that nodes of flex-start and other nodes may run (rules/max_run_duration.go; GKE, "About
flex-start provisioning")."""

SCALE_UP_ANYWAY = "ScaleUpAnyway"
_AFFINITIES = {
    "AnyBestEffort": "ANY_RESERVATION",
    "AnyThenFail": "ANY_RESERVATION_THEN_FAIL",
    "None": "NO_RESERVATION",
    "Specific": "SPECIFIC_RESERVATION",
}
"""Ways to take reservations, as a ComputeClass and as a node pool name them."""


class Condition(NamedTuple):
    """A fault of a ComputeClass, as GKE's autoscaler reports it in the status."""

    type: str
    reason: str
    message: str


def priorities(compute_class: Manifest) -> Sequence[Manifest]:
    """Return the priorities of a class, with its defaults for their zones."""
    spec = section(compute_class, "spec")
    location = section(spec, "priorityDefaults").get("location")
    located: list[Manifest] = []
    for priority in items(spec, "priorities"):
        has_default = location and "nodepools" not in priority and "location" not in priority
        located.append({**priority, "location": location} if has_default else priority)
    return located


def scales_up_anyway(compute_class: Manifest) -> bool:
    """Return whether a class adds nodes that no priority matches."""
    return section(compute_class, "spec").get("whenUnsatisfiable") == SCALE_UP_ANYWAY


def creates_pools(compute_class: Manifest) -> bool:
    """Return whether GKE creates node pools for a class, or may."""
    return bool(section(compute_class, "spec", "nodePoolAutoCreation").get("enabled"))


def refused_fields(priority: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the fields of a priority that GKE refuses, with the reason."""
    is_flex_start = section(priority, "flexStart").get("enabled")
    if is_flex_start and priority.get("spot"):
        yield "flexStart", "excludes spot"
    seconds: Any = priority.get("maxRunDurationSeconds")
    limits = (SHORTEST_FLEX_START, LONGEST_FLEX_START) if is_flex_start else _RUN_SECONDS
    if isinstance(seconds, int) and not limits[0] <= seconds <= limits[1]:
        reason = f"is {seconds}, and such nodes run {limits[0]} to {limits[1]} seconds"
        yield "maxRunDurationSeconds", reason


def class_of(pool: Manifest) -> Any:
    """Return the class that the label of a node pool names, or None."""
    return section(pool, "nodeConfig", "labels").get(labels.COMPUTE_CLASS)


def matched(compute_class: Manifest, pool: Manifest) -> int | None:
    """Return the index of the first priority that a node pool matches, or None."""
    for index, priority in enumerate(priorities(compute_class)):
        if not differences(priority, pool):
            return index
    return None


def differences(priority: Manifest, pool: Manifest) -> list[str]:
    """Return the fields of a priority that a node pool does not equal."""
    if "nodepools" in priority:
        return [] if pool.get("name") in texts(priority, "nodepools") else ["nodepools"]
    config = section(pool, "nodeConfig")
    machine = config.get("machineType")
    seconds = priority.get("maxRunDurationSeconds")
    family = UNKNOWN if machine is UNKNOWN else str(machine).partition("-")[0]
    policies = (section(priority, "placement"), section(pool, "placementPolicy"))
    wanted_policy, policy = (item.get("policyName") for item in policies)
    # A rule without flex-start also matches nodes of flex-start (rules/flex_start.go).
    is_flex_start = True if section(priority, "flexStart").get("enabled") else None
    fields: dict[str, tuple[Any, Any]] = {
        "machineType": (priority.get("machineType"), machine),
        "machineFamily": (priority.get("machineFamily"), family),
        "spot": (priority.get("spot"), config.get("spot") or False),
        "flexStart": (is_flex_start, config.get("flexStart") or False),
        "maxRunDurationSeconds": (seconds and f"{seconds}s", config.get("maxRunDuration")),
        "placement.policyName": (wanted_policy, policy),
    }
    unequal = [name for name, values in fields.items() if not _equal(*values)]
    others = {
        "gpu": _has_gpu(section(priority, "gpu"), config),
        "location.zones": _has_zones(section(priority, "location").get("zones"), pool),
        "reservations": _has_reservation(section(priority, "reservations"), pool),
    }
    return [*unequal, *(name for name, is_equal in others.items() if not is_equal)]


def _equal(required: Any, value: Any) -> bool:
    return required is None or UNKNOWN in (required, value) or required == value


def _has_gpu(required: Manifest, config: Manifest) -> bool:
    accelerators = items(config, "guestAccelerators")
    # GKE itself fills in the GPUs that a machine type always has.
    if not required or not accelerators or any(unknown_paths(accelerators)):
        return True
    gpu = accelerators[0]
    version = section(gpu, "gpuDriverInstallationConfig").get("gpuDriverVersion")
    names = {INSTALLATION_DISABLED: "autoinstall-disabled"}
    driver = names.get(str(version), str(version).lower()) if version else None
    is_driver = driver in (None, required.get("driverVersion") or "default")
    is_model = _equal(required.get("type") or None, gpu.get("type"))
    return is_driver and is_model and _equal(required.get("count") or None, int(gpu["count"]))


def _has_zones(required: Any, pool: Manifest) -> bool:
    zones = pool.get("nodeLocations")
    if not required or not zones or any(unknown_paths([required, zones])):
        return True
    return set(required) == set(zones)


def _has_reservation(reservation: Manifest, pool: Manifest) -> bool:
    affinity = section(pool, "nodeConfig").get("reservationAffinity")
    if not reservation or affinity is UNKNOWN:
        return True
    consumed: Mapping[str, Any] = affinity or {}
    if _AFFINITIES.get(str(reservation.get("affinity"))) != consumed.get("consumeReservationType"):
        return False
    specific = items(reservation, "specific")
    values = consumed.get("values")
    if not specific or any(unknown_paths([reservation.get("specific"), values])):
        return True
    project = pool.get("project")
    return any([_path(item, project)] == values and _within(item, pool) for item in specific)


def _within(reservation: Manifest, pool: Manifest) -> bool:
    """Return whether a node pool is in the zones of a reservation, if these are named."""
    zones = reservation.get("zones")
    locations = pool.get("nodeLocations")
    return not zones or not locations or locations is UNKNOWN or set(locations) <= set(zones)


def _path(reservation: Manifest, own_project: Any) -> str:
    """Return a reservation as a node pool names it: without the pool's own project."""
    project = reservation.get("project")
    block = section(reservation, "reservationBlock")
    part = section(block, "reservationSubBlock")
    is_own = project in (None, own_project)
    path = (
        reservation["name"] if is_own else f"projects/{project}/reservations/{reservation['name']}"
    )
    for kind, named in (("reservationBlocks", block), ("reservationSubBlocks", part)):
        path += f"/{kind}/{named['name']}" if named else ""
    return path


def conditions(compute_class: Manifest, pools: Iterable[Manifest]) -> Iterator[Condition]:
    """Yield the faults of a class that GKE's autoscaler reports, given all node pools."""
    name = name_of(compute_class)
    known = {pool.get("name"): pool for pool in pools}
    for priority in priorities(compute_class):
        for pool in texts(priority, "nodepools"):
            if not section(known.get(pool, {}), "autoscaling"):
                message = f"the node pool {pool} does not exist, or has no autoscaling"
                yield Condition("CrdMisconfigured", "NodePoolNotExist", message)
            elif not _equal(name, class_of(known[pool])):
                message = f"the node pool {pool} lacks the label {labels.COMPUTE_CLASS}={name}"
                yield Condition("NodepoolMisconfigured", "CrdLabelNotMatching", message)
    members = [pool for pool in known.values() if class_of(pool) == name]
    for pool in members:
        yield from _taint_conditions(name, pool)
        if matched(compute_class, pool) is None and not scales_up_anyway(compute_class):
            message = f"the node pool {pool['name']} matches no priority, so it never grows"
            yield Condition("NodepoolMisconfigured", "NodepoolWillNeverScaleUp", message)
    is_met = any(matched(compute_class, pool) is not None for pool in members)
    is_met |= creates_pools(compute_class) or bool(members and scales_up_anyway(compute_class))
    if not is_met:
        message = "no node pool has its label and matches one of its priorities"
        yield Condition("CrdMisconfigured", "NapDisabledAndNoMatchingNodegroups", message)


def _taint_conditions(name: str, pool: Manifest) -> Iterator[Condition]:
    taints = section(pool, "nodeConfig").get("taints") or ()
    if any(unknown_paths(list(taints))):
        return
    values = [taint.get("value") for taint in taints if taint.get("key") == labels.COMPUTE_CLASS]
    taint = f"the taint {labels.COMPUTE_CLASS}={name}:NoSchedule"
    if not values:
        message = f"the node pool {pool['name']} lacks {taint}"
        yield Condition("NodepoolMisconfigured", "TaintMissing", message)
    elif values[0] != name:
        message = f"the node pool {pool['name']} has the value {values[0]} in place of {taint}"
        yield Condition("NodepoolMisconfigured", "TaintValueNotMatching", message)
