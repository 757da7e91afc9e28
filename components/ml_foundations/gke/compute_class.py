"""A ComputeClass: the ways to buy nodes that GKE tries in order."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from typing_extensions import override

from ml_foundations.catalog.compute_classes import (
    API_VERSION,
    KIND,
    LONGEST_FLEX_START,
    LONGEST_RUN,
    OWN_PREFIXES,
    SHORTEST_FLEX_START,
    SHORTEST_RUN,
)
from ml_foundations.catalog.machine_types import accelerator, machine_type
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.errors import duplicates
from ml_foundations.component.objects import IN_CLUSTER, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.types import GpuName, MachineTypeName, Name
from ml_foundations.gke.node_pools.capacity import RESERVATION, reservation_error
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import ComputeClassComponent

_AFFINITIES = {"any": "AnyBestEffort", "any-or-fail": "AnyThenFail", "none": "None"}
"""Ways to take reservations, as a ComputeClass names them."""


def _class_name(name: str) -> str:
    if name.startswith(OWN_PREFIXES):
        raise ValueError(f"begins with {' or '.join(OWN_PREFIXES)}, which GKE keeps for itself")
    return name


class Priority(Spec):
    """Node pools of a ComputeClass by their properties.

    A pool matches if every argument that is set here equals the pool's.
    """

    machine_type: MachineTypeName | None = None
    """The machine type, such as a3-megagpu-8g."""
    machine_family: str | None = Field(None, max_length=10)
    """The machine family, such as a3, in place of a machine type."""
    gpu: GpuName | None = None
    """The GPU model, by any of its names."""
    gpus: int | None = Field(None, ge=1)
    """GPUs on each node. It is required with gpu."""
    spot: bool | None = None
    """Use Spot VMs, or use none. By default, both match."""
    flex_start: bool = False
    """Create the nodes in flex-start mode. The default is false."""
    max_run_seconds: int | None = None
    """The seconds after which GKE removes a node: 600 to 604800 with flex_start, otherwise 30 to
    10368000."""
    reservation: str | None = None
    """The reservation of the nodes: any, any-or-fail, none, a name, or
    projects/PROJECT/reservations/NAME, with /reservationBlocks/BLOCK for a block. By default, all
    match."""
    zones: list[str] | None = Field(None, min_length=1)
    """The zones. A pool matches if it has exactly these. By default, all match."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if not self.given():
            yield "machine_type", "is required, or another argument: an empty priority is invalid"
        if self.machine_type and self.machine_family:
            yield "machine_family", "and machine_type exclude each other; leave one out"
        if missing := self.machine_type and machine_type(self.machine_type, {}).missing:
            yield "machine_type", f"{self.machine_type} is not in the catalog: {missing}"
        if self.gpu and self.gpus is None:
            yield "gpus", "is required with gpu; set it to the number on each node"
        if self.gpus and self.gpu is None:
            yield "gpu", "is required with gpus; set it to their model"
        if self.spot and self.flex_start:
            yield "flex_start", "and spot exclude each other; leave one out"
        yield from self._run_errors()
        if self.reservation not in (None, "none"):
            if error := reservation_error(self.reservation):
                yield "reservation", error
            if self.spot or self.flex_start:
                way = "spot" if self.spot else "flex_start"
                reason = f"is {self.reservation}, but nodes of {way} come from no reservation"
                yield "reservation", f"{reason}; leave one out"

    def _run_errors(self) -> Iterator[tuple[str, str]]:
        seconds, least, most = self.max_run_seconds, SHORTEST_RUN, LONGEST_RUN
        if self.flex_start:
            least, most = SHORTEST_FLEX_START, LONGEST_FLEX_START
        if seconds is not None and not least <= seconds <= most:
            kind = "nodes of flex_start" if self.flex_start else "nodes"
            reason = f"is {seconds}, but {kind} run {least} to {most}; set it within these"
            yield "max_run_seconds", reason

    @property
    def manifest(self) -> dict[str, Any]:
        """The priority as GKE writes it."""
        gpu = {"type": accelerator(self.gpu).types[0], "count": self.gpus} if self.gpu else None
        return without_none(
            {
                "machineType": self.machine_type,
                "machineFamily": self.machine_family,
                "gpu": gpu,
                "spot": self.spot,
                "flexStart": {"enabled": True} if self.flex_start else None,
                "maxRunDurationSeconds": self.max_run_seconds,
                "reservations": _reservations(self.reservation),
                "location": {"zones": self.zones} if self.zones else None,
            }
        )


class ComputeClassSpec(ComponentSpec):
    """Arguments of a ComputeClass."""

    objects = {
        "cluster": IN_CLUSTER,
        "pools": ObjectArgument(
            ("GpuNodePool", "CpuNodePool"),
            "Each is a name, or the GpuNodePool or CpuNodePool itself.",
            item="node_pool_name",
        ),
    }

    name_field = "compute_class"

    compute_class: Annotated[Name, AfterValidator(_class_name)]
    """The name of the class. It may not begin with gke or autopilot. By default, the name of the
    component."""
    pools: list[Name] = []
    """The node pools that GKE tries in this order, by name. Each of them has the compute_class."""
    priorities: list[Priority] = []
    """More node pools, by their properties. GKE tries them in this order after the pools."""
    auto_creation: bool = False
    """Let GKE create node pools for the priorities. The default is false."""
    when_unsatisfiable: Literal["DoNotScaleUp", "ScaleUpAnyway"] = "DoNotScaleUp"
    """What GKE does if no priority has nodes: DoNotScaleUp lets pods wait, ScaleUpAnyway adds other
    nodes. The default is DoNotScaleUp."""
    active_migration: bool = False
    """Move pods to nodes of an earlier priority as soon as it has some. This stops running pods.
    The default is false."""
    consolidation_delay_minutes: int | None = Field(None, ge=1, le=1440)
    """Minutes that a node is idle before GKE removes it. By default, GKE decides."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created object, by kind (ComputeClass). They are merged over the component's:
    maps are merged, lists are replaced, and null removes a field."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if not self.pools and not self.priorities:
            yield "pools", "are required, or priorities: without both, the class has no nodes"
        yield from duplicates("pools[{}]", self.pools)
        if self.auto_creation and not self.priorities:
            yield "auto_creation", "is true, but GKE creates pools for priorities only; add some"

    @override
    def children(self) -> Iterator[ChildResource]:
        named = [{"nodepools": [name]} for name in self.pools]
        delay = {"consolidationDelayMinutes": self.consolidation_delay_minutes}
        spec = {
            "priorities": [*named, *(priority.manifest for priority in self.priorities)],
            "whenUnsatisfiable": self.when_unsatisfiable,
            "nodePoolAutoCreation": {"enabled": True} if self.auto_creation else None,
            "activeMigration": {"optimizeRulePriority": True} if self.active_migration else None,
            "autoscalingPolicy": delay if self.consolidation_delay_minutes else None,
        }
        metadata = {"name": self.compute_class}
        yield ChildResource(
            "class", api_object(API_VERSION, KIND, metadata, spec=without_none(spec))
        )


class ComputeClass(ComputeClassComponent[ComputeClassSpec]):
    """Ways to buy nodes, in order: GKE adds nodes of the first node pool that has some.

    For example, it tries a reservation, then flex-start, then Spot VMs, then machines on demand.
    Declare the pools first, each with ``compute_class``. Workloads accept the output
    ``compute_class`` under the same name.
    """

    compute_class: KnownOutput[str]
    """The name of the class."""
    object = Child("class")
    """The ComputeClass."""


def _reservations(reservation: str | None) -> dict[str, Any] | None:
    if reservation is None:
        return None
    if reservation in _AFFINITIES:
        return {"affinity": _AFFINITIES[reservation]}
    found = RESERVATION.fullmatch(reservation)
    if found is None:
        return None
    part = {"name": found["part"]} if found["part"] else None
    block = {"name": found["block"], "reservationSubBlock": part} if found["block"] else None
    named = {"name": found["name"], "project": found["project"], "reservationBlock": block}
    return {"affinity": "Specific", "specific": [without_none(named)]}
