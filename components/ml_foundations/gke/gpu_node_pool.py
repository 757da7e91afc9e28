"""A pool of GPU nodes."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
from pydantic import Field
from typing_extensions import override

from ml_foundations import labels
from ml_foundations._manifest import child_options
from ml_foundations._spec import check
from ml_foundations._tolerations import TolerationArgs
from ml_foundations.gke._node_pool import (
    NodePoolSettings,
    NodePoolSpec,
    Taint,
    TaintArgs,
    node_arguments,
    node_pool_arguments,
    taint_arguments,
    tolerations,
)
from ml_foundations.gke.machine_types import GPUS, MACHINE_TYPES, UnknownNameError, gpu_by_name

GPU_TAINT = Taint(key=labels.GPU_TAINT_KEY, value=labels.GPU_TAINT_VALUE, effect="NO_SCHEDULE")


class GpuNodePoolArgs(TypedDict):
    """Arguments of a GpuNodePool."""

    project: str
    """The Google Cloud project."""
    location: str
    """The cluster's region."""
    cluster_name: pulumi.Input[str]
    """The cluster, as GkeCluster.cluster_name gives it."""
    node_service_account: pulumi.Input[str]
    """The nodes' identity, as GkeCluster.node_service_account gives it."""
    machine_type: str
    """The machine type; it implies GPU type and count, but for N1."""
    max_nodes: int
    """The most nodes of the pool, over all zones."""
    min_nodes: NotRequired[int]
    """The fewest nodes of the pool, over all zones; default 0."""
    gpu: NotRequired[str]
    """The GPU model, by any of its names; needed for N1 only, where GPUs are attached. Otherwise it is checked."""
    gpus: NotRequired[int]
    """GPUs per node; needed for N1 only. Otherwise it is checked."""
    driver: NotRequired[str]
    """Who installs the NVIDIA driver: default or latest (GKE does), or operator (the GPU Operator does)."""
    node_type: NotRequired[str]
    """What the nodes are for, as the label node-type; default training."""
    pool_name: NotRequired[str]
    """The pool's name in GKE; default is the component's."""
    zones: NotRequired[list[str]]
    """The zones of the nodes; GPUs are in few zones of a region."""
    disk_size_gb: NotRequired[int]
    """Size of the boot disk in GB; default 100."""
    disk_type: NotRequired[str]
    """Type of the boot disk; by default GKE's own choice for the machine type."""
    spot: NotRequired[bool]
    """Whether the nodes are Spot VMs; default false."""
    labels: NotRequired[dict[str, str]]
    """More labels of the nodes."""
    taints: NotRequired[list[TaintArgs]]
    """More taints of the nodes; the GPU taint is always there."""


class GpuNodePoolSettings(NodePoolSettings):
    """What a stack file says about a pool of GPU nodes."""

    node_type: str = "training"
    gpu: str | None = None
    gpus: int | None = Field(None, ge=1)
    driver: Literal["default", "latest", "operator"] = "default"

    @property
    def accelerator_type(self) -> str:
        """The GPU's name in the GKE API."""
        machine = MACHINE_TYPES[self.machine_type]
        return machine.gpu or gpu_by_name(self.gpu or "").accelerator_type

    @property
    def product(self) -> str:
        """The value of the label nvidia.com/gpu.product on the nodes."""
        return GPUS[self.accelerator_type].product

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        return MACHINE_TYPES[self.machine_type].gpu_count or self.gpus or 0

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super().contradictions()
        yield from gpu_mismatch(self.machine_type, self.gpu, self.gpus)


class _GpuNodePoolSpec(GpuNodePoolSettings, NodePoolSpec):
    pass


def gpu_mismatch(machine_type: str, gpu: str | None, gpus: int | None) -> Iterator[tuple[str, str]]:
    """Why nodes of a machine type cannot have these GPUs. ``None`` leaves it to the machine type."""
    machine = MACHINE_TYPES[machine_type]
    try:
        wanted = gpu_by_name(gpu) if gpu else None
    except UnknownNameError as error:
        yield "gpu", str(error)
        return
    if machine.gpu is None and not machine.is_n1:
        yield "machine_type", f"{machine_type} has no GPU; take a CpuNodePool, or a machine type with GPUs"
        return
    if machine.is_n1 and not (wanted and gpus):
        yield "machine_type", f"{machine_type} takes attached GPUs: give gpu and gpus"
        return
    product = GPUS[machine.gpu].product if machine.gpu else ""
    if wanted and machine.gpu and wanted.product != product:
        yield "gpu", f"{machine_type} has {product}, not {wanted.product}"
    allowed = machine.gpu_counts(machine.gpu or (wanted.accelerator_type if wanted else ""))
    if gpus is not None and gpus not in allowed:
        yield "gpus", f"{machine_type} can have {' or '.join(map(str, allowed)) or 'no'} GPUs per node, not {gpus}"


class GpuNodePool(pulumi.ComponentResource):
    """A pool of GPU nodes, autoscaled, tainted so that only pods that request GPUs come to it.

    What it publishes is what workloads take, under the same names: ``gpu``, ``node_selector`` and ``tolerations``.
    """

    node_pool_name: pulumi.Output[str]
    """The pool's name in GKE."""
    gpu: str
    """The value of the label nvidia.com/gpu.product on its nodes."""
    gpus_per_node: int
    """GPUs on each node."""
    node_selector: dict[str, str]
    """Labels that select the nodes of this pool."""
    tolerations: list[TolerationArgs]
    """What pods must tolerate to run on its nodes."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the pool."""
        spec = check(_GpuNodePoolSpec, f"GpuNodePool {name}", {"pool_name": name, **args})
        super().__init__("ml-foundations:index:GpuNodePool", name, {}, opts)
        pool = gcp.container.NodePool(
            f"{name}-pool",
            **node_pool_arguments(spec),
            node_config=_node_config(spec),
            # GKE reports the number of nodes that the autoscaler has made.
            opts=child_options(self, ignore_changes=["initialNodeCount"]),
        )
        self.node_pool_name = pool.name
        self.gpu = spec.product
        self.gpus_per_node = spec.gpus_per_node
        self.node_selector = {labels.GKE_NODE_POOL: spec.pool_name}
        self.tolerations = tolerations([GPU_TAINT, *spec.taints])
        self.register_outputs(
            {
                "node_pool_name": self.node_pool_name,
                "gpu": self.gpu,
                "gpus_per_node": self.gpus_per_node,
                "node_selector": self.node_selector,
                "tolerations": self.tolerations,
            }
        )


def _node_config(spec: _GpuNodePoolSpec) -> Any:
    gpu = GPUS[spec.accelerator_type]
    operator = spec.driver == "operator"
    gpu_labels = {labels.ACCELERATOR: "nvidia-gpu", labels.GPU_PRODUCT: gpu.product}
    gpu_labels |= {labels.GPU_MEMORY: str(gpu.memory_label_mib or gpu.memory_gb * 1024)}
    gpu_labels |= {labels.GKE_NO_DEVICE_PLUGIN: "true"} if operator else {}
    version = "INSTALLATION_DISABLED" if operator else spec.driver.upper()
    config = node_arguments(spec, gpu_labels, "UBUNTU_CONTAINERD" if operator else "COS_CONTAINERD")
    # The operator's driver is not signed by Google: a node that checks signatures would not load it.
    config["shielded_instance_config"]["enable_secure_boot"] = not operator
    return config | {
        "gvnic": {"enabled": True},
        "guest_accelerators": [
            {
                "type": spec.accelerator_type,
                "count": spec.gpus_per_node,
                "gpu_driver_installation_config": {"gpu_driver_version": version},
            }
        ],
        "taints": taint_arguments([GPU_TAINT, *spec.taints]),
    }
