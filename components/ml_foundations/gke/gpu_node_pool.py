"""A pool of GPU nodes."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
from pydantic import Field, model_validator

from ml_foundations import labels
from ml_foundations._manifest import child_options
from ml_foundations._spec import check
from ml_foundations.gke._node_pool import NodePoolSpec, Taint, node_arguments, node_pool_arguments, taint_arguments
from ml_foundations.gke.machine_types import GPUS, MACHINE_TYPES, UnknownNameError, gpu_by_name

DRIVERS = ("default", "latest", "operator")
GPU_TAINT = Taint(key=labels.GPU_TAINT_KEY, value=labels.GPU_TAINT_VALUE, effect="NO_SCHEDULE")


class TaintArgs(TypedDict):
    """A taint of every node of a pool."""

    key: str
    """The taint's key."""
    value: NotRequired[str]
    """The taint's value."""
    effect: NotRequired[str]
    """NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE; default NO_SCHEDULE."""


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


class _GpuNodePoolSpec(NodePoolSpec):
    node_type: str = "training"
    gpu: str | None = None
    gpus: int | None = Field(None, ge=1)
    driver: str = Field("default", pattern=f"^({'|'.join(DRIVERS)})$")

    @property
    def accelerator_type(self) -> str:
        machine = MACHINE_TYPES[self.machine_type]
        return machine.gpu or gpu_by_name(self.gpu or "").accelerator_type

    @property
    def gpus_per_node(self) -> int:
        return MACHINE_TYPES[self.machine_type].gpu_count or self.gpus or 0

    @model_validator(mode="after")
    def _machine_has_these_gpus(self) -> "_GpuNodePoolSpec":
        if reason := gpu_mismatch(self.machine_type, self.gpu, self.gpus):
            raise ValueError(reason)
        return self


def gpu_mismatch(machine_type: str, gpu: str | None, gpus: int | None) -> str:
    """Why nodes of a machine type cannot have these GPUs, or nothing. ``None`` leaves it to the machine type."""
    machine = MACHINE_TYPES[machine_type]
    try:
        wanted = gpu_by_name(gpu) if gpu else None
    except UnknownNameError as error:
        return f"gpu: {error}"
    if machine.gpu is None and not (machine.is_n1 and wanted and gpus):
        return (
            f"machine_type: {machine_type} takes attached GPUs: give gpu and gpus"
            if machine.is_n1
            else f"machine_type: {machine_type} has no GPU; take a CpuNodePool, or a machine type with GPUs"
        )
    product = GPUS[machine.gpu].product if machine.gpu else ""
    if wanted and machine.gpu and wanted.product != product:
        return f"gpu: {machine_type} has {product}, not {wanted.product}"
    allowed = machine.gpu_counts(machine.gpu or (wanted.accelerator_type if wanted else ""))
    if gpus is not None and gpus not in allowed:
        return f"gpus: {machine_type} can have {' or '.join(map(str, allowed)) or 'no'} GPUs per node, not {gpus}"
    return ""


class GpuNodePool(pulumi.ComponentResource):
    """A pool of GPU nodes, autoscaled, tainted so that only pods that request GPUs come to it.

    What it publishes is what workloads take, under the same names: ``gpu``, ``gpus_per_node``, ``node_selector``.
    """

    node_pool_name: pulumi.Output[str]
    """The pool's name in GKE."""
    gpu: pulumi.Output[str]
    """The value of the label nvidia.com/gpu.product on its nodes."""
    gpus_per_node: pulumi.Output[int]
    """GPUs on each node."""
    node_selector: pulumi.Output[dict[str, str]]
    """Labels that select the nodes of this pool."""

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
        self.gpu = pulumi.Output.from_input(GPUS[spec.accelerator_type].product)
        self.gpus_per_node = pulumi.Output.from_input(spec.gpus_per_node)
        self.node_selector = pulumi.Output.from_input({labels.GKE_NODE_POOL: spec.pool_name})
        self.register_outputs(
            {
                "node_pool_name": self.node_pool_name,
                "gpu": self.gpu,
                "gpus_per_node": self.gpus_per_node,
                "node_selector": self.node_selector,
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
