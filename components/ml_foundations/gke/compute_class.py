"""A ComputeClass: the ways to buy nodes that GKE tries in order."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from typing_extensions import override

from ml_foundations.catalog.compute_classes import API_VERSION, KIND, OWN_PREFIXES
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.errors import duplicates
from ml_foundations.component.objects import IN_CLUSTER, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import ComputeClassComponent


def _class_name(name: str) -> str:
    if name.startswith(OWN_PREFIXES):
        raise ValueError(f"begins with {' or '.join(OWN_PREFIXES)}, which GKE keeps for itself")
    return name


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
    pools: list[Name] = Field(min_length=1)
    """The node pools that GKE tries in this order, by name. Each of them has the compute_class."""
    when_unsatisfiable: Literal["DoNotScaleUp", "ScaleUpAnyway"] = "DoNotScaleUp"
    """What GKE does if no priority has nodes: DoNotScaleUp lets pods wait, ScaleUpAnyway adds other
    nodes. The default is DoNotScaleUp."""
    active_migration: bool = False
    """Move pods to nodes of an earlier priority as soon as it has some. This stops running pods.
    The default is false."""
    consolidation_delay_minutes: int | None = Field(None, ge=1, le=1440)
    """Minutes that a node is idle before GKE removes it. By default, GKE decides."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created object, by kind (ComputeClass), such as priorities by machine type.
    They are merged over the component's: maps are merged, lists are replaced, and null removes a
    field."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from duplicates("pools[{}]", self.pools)

    @override
    def children(self) -> Iterator[ChildResource]:
        delay = {"consolidationDelayMinutes": self.consolidation_delay_minutes}
        spec = {
            "priorities": [{"nodepools": [name]} for name in self.pools],
            "whenUnsatisfiable": self.when_unsatisfiable,
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
