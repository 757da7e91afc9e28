"""A pool's machines: their type, their number, and how you buy them."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from typing_extensions import override

from ml_foundations.catalog.compute_classes import LONGEST_FLEX_START
from ml_foundations.catalog.machine_types import MACHINE_TYPES, MachineType, machine_type
from ml_foundations.catalog.pools import RESERVATION
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputText, MachineTypeName, Name
from ml_foundations.kubernetes import labels

_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
"""The label by which a node names its reservation (Compute Engine, "Consume reserved
instances")."""

_ANY = {"any": "ANY_RESERVATION", "any-or-fail": "ANY_RESERVATION_THEN_FAIL"}
"""Ways to take any open reservation, as GKE's API names them (ReservationAffinity)."""

_COMPACT = {
    *("a2", "a3-edgegpu", "a3-highgpu", "a3-megagpu", "a3-ultragpu", "a4-highgpu", "g2", "g4"),
    *("c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "c4n", "h3", "h4d", "n2", "n2d"),
}
"""Families that a compact placement policy takes (GKE, "Define compact placement for GKE nodes";
for those with GPUs also AI Hypercomputer, "Compact placement policy and workload policy
overview")."""
_COMPACT_FLEX_START = ("a3-ultragpu", "a4-highgpu", "h4d")
"""Families that are placed compactly with flex-start (cluster-toolkit, gke-node-pool)."""
_FAMILIES = {machine.family for machine in MACHINE_TYPES.values()}

_REGION_ZONES = 3
"""The number of zones in which GKE creates nodes if the pool names none."""


class GpuShape(Spec):
    """A GPU model that the catalog lacks."""

    accelerator_type: Name
    """Its name in the GKE API. Nodes have it as the label cloud.google.com/gke-accelerator."""
    product: str = Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$", max_length=63)
    """The nodes' label nvidia.com/gpu.product, such as NVIDIA-B200."""
    memory_gib: int = Field(ge=1)
    """The memory of each GPU in GiB."""


class MachineShape(Spec):
    """The shape of a machine type that the catalog lacks."""

    vcpus: int = Field(ge=1)
    """Its vCPUs."""
    memory_gib: float = Field(gt=0)
    """Its memory in GiB."""
    arch: Literal["amd64", "arm64"] = "amd64"
    """The processor's architecture: amd64 or arm64. The default is amd64."""
    gpu: GpuShape | None = None
    """The model of its GPUs, if the catalog lacks the model too. Set their number with gpus of the
    pool."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels of nodes that declare it."""
        sizes = {labels.VCPUS: str(self.vcpus), labels.MEMORY_GIB: f"{self.memory_gib:g}"}
        return {**sizes, labels.DECLARED_ARCH: self.arch}


class CapacitySpec(Spec):
    """Arguments about a node pool's machines.

    They set the machine type, the number of nodes, and how you buy them.
    """

    machine: MachineShape | None = None
    """The shape of a machine type that the catalog lacks. The nodes have it as labels, so that
    proof and rehearsal know it."""
    machine_type: MachineTypeName
    """The machine type, such as n2-standard-8 or g2-standard-8. It implies the type and the number
    of GPUs, except for N1."""
    node_price: float | None = Field(None, gt=0)
    """The price of a node for an hour, in US dollars, which the proof uses. By default, the list
    price of the region."""
    max_nodes: int = Field(ge=1, le=1000)
    """The most nodes of the pool, over all zones."""
    min_nodes: int = Field(0, ge=0, le=1000)
    """The fewest nodes of the pool, over all zones. The default is 0. If it equals max_nodes, the
    size is fixed."""
    limits: Literal["total", "zone"] = "total"
    """What max_nodes and min_nodes count: the whole pool (total) or each zone (zone). The default
    is total."""
    location_policy: Literal["ANY", "BALANCED"] = "BALANCED"
    """How nodes are placed: ANY uses any zone with free machines, BALANCED keeps zones equal. The
    default is BALANCED."""
    zones: list[str] | None = Field(None, min_length=1)
    """The zones of the nodes. By default, those of the cluster. Only some zones of a region have
    GPUs."""
    spot: bool = False
    """Use Spot VMs. The default is false."""
    reservation: InputText | None = None
    """The reservation of the nodes: any, any-or-fail, none, a name, or
    projects/PROJECT/reservations/NAME.

    any uses an open reservation that matches, otherwise machines on demand at list price. This is
    the default. any-or-fail never uses machines on demand. To use a block of a reservation, add
    /reservationBlocks/BLOCK to its name. To use a part of the block, also add
    /reservationSubBlocks/PART.
    """
    flex_start: bool = False
    """Create the nodes by Dynamic Workload Scheduler, in flex-start mode. The default is false."""
    queued_provisioning: bool = False
    """Create nodes only for a ProvisioningRequest, all at once. The default is false."""
    max_run_seconds: int | None = Field(None, ge=600)
    """The seconds after which GKE removes a node. With flex_start, the most and the default are 7
    days."""
    compact_placement: bool = False
    """Place the nodes close to each other, in one zone. The default is false."""
    placement_policy: InputText | None = None
    """Your own resource policy for compact placement."""

    @field_validator("machine_type")
    @classmethod
    def _is_known(cls, name: str, checked: ValidationInfo) -> str:
        """Refuse a machine type whose shape is neither in the catalog nor declared."""
        shape: MachineShape | None = checked.data.get("machine")
        machine = machine_type(name, shape.labels if shape else {})
        if machine.missing:
            raise ValueError(f"{name} does not work with these components: {machine.missing}")
        return name

    @property
    def shape(self) -> MachineType:
        """The machine type, of the catalog or as it is declared."""
        return machine_type(self.machine_type, self.capacity_labels)

    @property
    def is_short_lived(self) -> bool:
        """Return whether GKE removes the nodes by itself: flex-start and queued provisioning."""
        return self.flex_start or self.queued_provisioning

    @property
    def takes_reservation(self) -> bool:
        """Return whether the nodes come from a reservation."""
        return self.reservation not in (None, "none")

    @property
    def capacity_labels(self) -> dict[str, str]:
        """The labels of the nodes that say what their machine is, and what it costs."""
        price = {} if self.node_price is None else {labels.HOURLY_PRICE: f"{self.node_price:g}"}
        return (self.machine.labels if self.machine else {}) | price

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.machine and not self.shape.is_declared:
            yield "machine", f"declares {self.machine_type}, which is in the catalog; leave it out"
        if self.min_nodes > self.max_nodes:
            yield "min_nodes", f"is {self.min_nodes}, above max_nodes ({self.max_nodes})"
        if self.limits == "zone" and self.zones is None:
            yield "zones", "are needed with limits per zone: the size of the pool follows from them"
        machine = self.shape
        if self.spot or self.is_short_lived:
            chosen = "spot" if self.spot else "flex-start"
        else:
            chosen = "reservation" if self.takes_reservation else "on-demand"
        # Most machines are sold as flex-start; the catalog says so only where there is little else.
        unlisted = chosen == "flex-start" and "on-demand" in machine.purchase
        if chosen not in machine.purchase and not unlisted:
            field = "machine_type" if chosen == "on-demand" else _field(chosen)
            ways = " or ".join(map(_field, machine.purchase))
            yield field, f"{machine.name} is not sold as {chosen}; set {ways}"
        yield from self._reservation_errors()
        yield from self._flex_start_errors()
        yield from self._queue_errors()
        yield from self._placement_errors()

    def _reservation_errors(self) -> Iterator[tuple[str, str]]:
        if not self.takes_reservation:
            return
        reservation: Any = self.reservation
        if isinstance(reservation, str) and not RESERVATION.fullmatch(reservation):
            forms = "any, any-or-fail, none, a name, or projects/PROJECT/reservations/NAME"
            block = "for a block, add /reservationBlocks/BLOCK to the name"
            yield "reservation", f'is "{reservation}"; set it to {forms}; {block}'
        if reservation not in _ANY and self.zones is None:
            yield "zones", "are needed with a reservation: it is in one zone"
        for way in ("spot", "flex_start", "queued_provisioning"):
            if getattr(self, way):
                reason = f"is given, but nodes of {way} come from no reservation; leave one out"
                yield "reservation", reason

    def _flex_start_errors(self) -> Iterator[tuple[str, str]]:
        if not self.flex_start:
            return
        if self.max_run_seconds is not None and self.max_run_seconds > LONGEST_FLEX_START:
            reason = f"nodes of flex_start run {LONGEST_FLEX_START} at most"
            yield "max_run_seconds", f"is {self.max_run_seconds}; {reason}"
        if self.spot:
            yield "flex_start", "and spot exclude each other; choose one"
        if self.min_nodes and not self.queued_provisioning:
            reason = "but flex_start creates nodes for waiting pods; set it to 0"
            yield "min_nodes", f"is {self.min_nodes}, {reason}"
        if self.compact_placement and self.shape.family not in _COMPACT_FLEX_START:
            where = f"on {' and '.join(_COMPACT_FLEX_START)} machines only"
            reason = f"is possible with flex_start {where}; leave one of them out"
            yield "compact_placement", reason

    def _queue_errors(self) -> Iterator[tuple[str, str]]:
        if not self.queued_provisioning:
            return
        if self.spot:
            yield "queued_provisioning", "and spot exclude each other; choose one"
        if self.min_nodes:
            reason = f"is {self.min_nodes}, but only a request creates queued nodes; set it to 0"
            yield "min_nodes", reason
        if self.compact_placement:
            reason = "is not for GPUs with queued_provisioning; leave one of them out"
            yield "compact_placement", reason
        if self.location_policy == "BALANCED":
            reason = "but queued nodes are created in any zone that has them; set it to ANY"
            yield "location_policy", f"is BALANCED, {reason}"
        if self.limits == "zone":
            reason = "is zone, but queued_provisioning needs limits of the whole pool; set total"
            yield "limits", reason

    def _placement_errors(self) -> Iterator[tuple[str, str]]:
        if not self.compact_placement:
            if self.placement_policy is not None:
                reason = "names a policy of compact placement; set compact_placement too"
                yield "placement_policy", reason
            return
        if self.shape.family in _FAMILIES - _COMPACT:
            fix = "leave it out, or change machine_type"
            yield "compact_placement", f"is not for {self.machine_type} machines; {fix}"
        if len(self.zones or []) != 1:
            reason = "puts the nodes close together, so in one zone: name it in zones"
            yield "compact_placement", reason


def _field(way: str) -> str:
    """Return the argument for a way to buy machines."""
    return way.replace("flex-start", "flex_start")


def capacity_arguments(spec: CapacitySpec) -> dict[str, Any]:
    """Return the arguments of a pool about the number of nodes and their zones."""
    # GKE counts initial nodes by zone. The autoscaler then keeps the total within its limits.
    if spec.limits == "zone":
        initial = spec.min_nodes
        limits = {"minNodeCount": spec.min_nodes, "maxNodeCount": spec.max_nodes}
    else:
        zones = len(spec.zones or []) or _REGION_ZONES
        initial = min(-(-spec.min_nodes // zones), spec.max_nodes // zones)
        limits = {"totalMinNodeCount": spec.min_nodes, "totalMaxNodeCount": spec.max_nodes}
    policy = "ANY" if spec.queued_provisioning else spec.location_policy
    compact = {"type": "COMPACT", "policyName": spec.placement_policy}
    return {
        "nodeLocations": spec.zones,
        "initialNodeCount": initial,
        "autoscaling": {**limits, "locationPolicy": policy},
        "queuedProvisioning": {"enabled": True} if spec.queued_provisioning else None,
        "placementPolicy": compact if spec.compact_placement else None,
    }


def purchase_arguments(spec: CapacitySpec) -> dict[str, Any]:
    """Return the part of a pool's node_config about the machine and how it is bought."""
    return {
        "machineType": spec.machine_type,
        "spot": spec.spot,
        "flexStart": spec.flex_start or None,
        "maxRunDuration": f"{spec.max_run_seconds}s" if spec.max_run_seconds else None,
        "reservationAffinity": _reservation_affinity(spec),
    }


def _reservation_affinity(spec: CapacitySpec) -> dict[str, Any] | None:
    name = spec.reservation
    if name == "none" or spec.spot or spec.is_short_lived:
        return {"consumeReservationType": "NO_RESERVATION"}
    if name is None:
        return None  # GKE then uses any open reservation that matches.
    if name in _ANY:
        return {"consumeReservationType": _ANY[name]}
    specific = {"key": _RESERVATION_KEY, "values": [name]}
    return {"consumeReservationType": "SPECIFIC_RESERVATION", **specific}
