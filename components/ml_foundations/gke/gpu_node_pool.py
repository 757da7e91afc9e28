"""A pool of GPU nodes."""

from collections.abc import Iterator
from typing import Literal, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import GPUS, MACHINE_TYPES, UnknownNameError, gpu_by_name, shared_product
from ml_foundations.component.resources import child_options
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.tolerations import TolerationArgs
from ml_foundations.gke import interfaces as _interfaces
from ml_foundations.gke.node_pool import (
    NodePoolArgs,
    NodePoolSettings,
    NodePoolSpec,
    Taint,
    node_arguments,
    node_pool,
    tolerations,
)
from ml_foundations.kubernetes import labels

GPU_TAINT = Taint(key=labels.GPU_TAINT_KEY, value=labels.GPU_TAINT_VALUE, effect="NO_SCHEDULE")

MOST_CLIENTS = 48
"""The most pods that share a GPU (container-engine-accelerators, gpusharing.go)."""


class GpuSharingArgs(TypedDict):
    """How pods share a GPU, or each partition of it."""

    strategy: str
    """TIME_SHARING (pods take turns) or MPS (their kernels run at the same time)."""
    clients: int
    """How many pods share it, 2 to 48."""


class GpuSharing(Spec):
    """A checked GpuSharingArgs."""

    strategy: Literal["TIME_SHARING", "MPS"]
    clients: int = Field(ge=2, le=MOST_CLIENTS)


class NodeNetworkArgs(TypedDict):
    """A network that nodes are in beside the cluster's."""

    network: str
    """The VPC network."""
    subnetwork: str
    """Its subnetwork in the cluster's region."""


class NodeNetwork(Spec):
    """A checked NodeNetworkArgs."""

    network: str = Field(min_length=1)
    subnetwork: str = Field(min_length=1)


class GpuNodePoolArgs(NodePoolArgs):
    """Arguments of a GpuNodePool."""

    gpu: NotRequired[str]
    """The GPU model, by any of its names; needed for N1 only, where GPUs are attached. Otherwise it is checked."""
    gpus: NotRequired[int]
    """GPUs per node; needed for N1 only. Otherwise it is checked."""
    driver: NotRequired[str]
    """Who installs the NVIDIA driver. Default default.

    default or latest: GKE does, and advertises the GPUs. operator: the GPU Operator does, on the image ubuntu.
    installer: Google's installer, which comes with the GpuOperator; the operator advertises the GPUs.
    """
    mig_partition: NotRequired[str]
    """The MIG partition size that every GPU is cut into, such as 1g.10gb; where GKE installs the driver."""
    sharing: NotRequired[GpuSharingArgs]
    """How pods share GPUs, where GKE installs the driver."""
    additional_networks: NotRequired[list[NodeNetworkArgs]]
    """Networks for the traffic between GPUs: 4 for TCPX (A3 High), 8 for TCPXO (A3 Mega) and RDMA (A3 Ultra, A4)."""
    accelerator_networks: NotRequired[bool]
    """Whether GKE makes these networks itself, for claims of them (DRANET); A3, A4 and A4X only. Default false."""
    fast_socket: NotRequired[bool]
    """Whether nodes have NCCL Fast Socket; default false."""
    dra: NotRequired[bool]
    """Whether its GPUs are claimed (DRA), see DeviceClasses, and not advertised; default false."""


class GpuNodePoolSettings(NodePoolSettings):
    """What a stack file says about a pool of GPU nodes."""

    location_policy: Literal["ANY", "BALANCED"] = "ANY"
    node_type: str = "training"
    gpu: str | None = None
    gpus: int | None = Field(None, ge=1)
    driver: Literal["default", "latest", "operator", "installer"] = "default"
    mig_partition: str | None = None
    sharing: GpuSharing | None = None
    additional_networks: list[NodeNetwork] = []
    accelerator_networks: bool = False
    fast_socket: bool = False
    dra: bool = False

    @property
    @override
    def image_name(self) -> str:
        return self.image or ("ubuntu" if self.driver == "operator" else "cos")

    @property
    def accelerator_type(self) -> str:
        """The GPU's name in the GKE API."""
        machine = MACHINE_TYPES[self.machine_type]
        return machine.gpu or gpu_by_name(self.gpu or "").accelerator_type

    @property
    def product(self) -> str:
        """The value of the label nvidia.com/gpu.product on the nodes; it tells partitions and shared GPUs apart."""
        return shared_product(GPUS[self.accelerator_type], self.mig_partition, shared=self.sharing is not None)

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        return MACHINE_TYPES[self.machine_type].gpu_count or self.gpus or 0

    @property
    def gpu_resources_per_node(self) -> int:
        """How many nvidia.com/gpu a node offers: GPUs, or their partitions, times the pods that share each."""
        partitions = GPUS[self.accelerator_type].mig_profiles[self.mig_partition] if self.mig_partition else 1
        return self.gpus_per_node * partitions * (self.sharing.clients if self.sharing else 1)

    @property
    def most_gpus_per_pod(self) -> int:
        """The most nvidia.com/gpu that a pod may request: GKE gives a shared GPU to a pod only one at a time."""
        return 1 if self.sharing else self.gpu_resources_per_node

    @property
    @override
    def all_taints(self) -> list[Taint]:
        return [GPU_TAINT, *super().all_taints]

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        mismatch = list(gpu_errors(self.machine_type, self.gpu, self.gpus))
        yield from mismatch
        yield from super().errors()
        yield from _interfaces.errors(self)
        yield from self._driver_errors()
        if not mismatch:
            yield from self._partition_errors()

    def _driver_errors(self) -> Iterator[tuple[str, str]]:
        if self.driver == "operator" and self.image == "cos":
            yield "image", "is cos, for which the operator has no driver; say ubuntu, or another driver"
        if self.driver == "latest" and self.image == "ubuntu":
            yield "driver", "is latest, which GKE has for the image cos only; say default"
        if self.driver == "operator" and self.secure_boot:
            yield "secure_boot", "is true, but the operator's driver is not signed for it; say another driver"
        if self.dra and self.driver in ("default", "latest"):
            yield (
                "driver",
                f"is {self.driver}, but GKE installs no driver where GPUs are claimed; say operator or installer",
            )
        if labels.GKE_DRA_DRIVER in self.labels and not self.dra:
            yield "labels", f"have {labels.GKE_DRA_DRIVER}, which is for pools whose GPUs are claimed; say dra: true"

    def _partition_errors(self) -> Iterator[tuple[str, str]]:
        managed = self.driver in ("default", "latest")
        for field, instead in (("mig_partition", "mig"), ("sharing", "device_plugin.sharing")):
            if getattr(self, field) is not None and not managed:
                yield (
                    field,
                    f"is for GPUs that GKE advertises, and driver is {self.driver}: set {instead} of GpuOperator",
                )
        profiles = GPUS[self.accelerator_type].mig_profiles
        if self.mig_partition is not None and self.mig_partition not in profiles:
            known = f"it can be cut into {', '.join(profiles)}" if profiles else "it cannot be partitioned"
            yield (
                "mig_partition",
                f"is {self.mig_partition}, but the GPU is {GPUS[self.accelerator_type].product}: {known}",
            )


class _GpuNodePoolSpec(GpuNodePoolSettings, NodePoolSpec):
    pass


def gpu_errors(machine_type: str, gpu: str | None, gpus: int | None) -> Iterator[tuple[str, str]]:
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
    Let it depend on a CpuNodePool: GKE's own pods need nodes that are not tainted.
    """

    node_pool_name: pulumi.Output[str]
    """The pool's name in GKE."""
    gpu: str
    """The value of the label nvidia.com/gpu.product on its nodes."""
    gpus_per_node: int
    """GPUs on each node."""
    gpu_resources_per_node: int
    """How many nvidia.com/gpu a node offers: GPUs, or their partitions, times the pods that share each."""
    node_selector: dict[str, str]
    """Labels that select the nodes of this pool."""
    tolerations: list[TolerationArgs]
    """What pods must tolerate to run on its nodes."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the pool."""
        spec = check(_GpuNodePoolSpec, f"GpuNodePool {name}", {"pool_name": name, **args})
        super().__init__("ml-foundations:index:GpuNodePool", name, {}, opts)
        pool = node_pool(
            f"{name}-pool",
            spec,
            node_config(spec),
            child_options(self),
            spare=False,
            network_config=_interfaces.network_arguments(spec),
        )
        self.node_pool_name = pool.name
        self.gpu = spec.product
        self.gpus_per_node = spec.gpus_per_node
        self.gpu_resources_per_node = spec.gpu_resources_per_node
        self.node_selector = {labels.GKE_NODE_POOL: spec.pool_name}
        self.tolerations = tolerations(spec.all_taints)
        self.register_outputs(
            {
                "node_pool_name": self.node_pool_name,
                "gpu": self.gpu,
                "gpus_per_node": self.gpus_per_node,
                "gpu_resources_per_node": self.gpu_resources_per_node,
                "node_selector": self.node_selector,
                "tolerations": self.tolerations,
            }
        )


def node_config(spec: _GpuNodePoolSpec) -> gcp.container.NodePoolNodeConfigArgsDict:
    """What the nodes of a pool are."""
    # The operator's driver is not signed by Google: a node that checks signatures would not load it.
    config = node_arguments(spec, _gpu_labels(spec), [GPU_TAINT, *spec.taints], secure_boot=spec.driver != "operator")
    config["guest_accelerators"] = [_accelerator(spec)]
    config["fast_socket"] = {"enabled": True} if spec.fast_socket else None
    return config


def _gpu_labels(spec: _GpuNodePoolSpec) -> dict[str, str]:
    gpu = GPUS[spec.accelerator_type]
    found = {labels.ACCELERATOR: "nvidia-gpu", labels.GPU_PRODUCT: spec.product}
    if spec.mig_partition is None:
        found[labels.GPU_MEMORY] = str(gpu.memory_label_mib or gpu.memory_gb * 1024)
    if spec.driver in ("operator", "installer"):
        found[labels.GKE_NO_DEVICE_PLUGIN] = "true"
    if spec.accelerator_networks:
        found[labels.GKE_NETWORK_DRA_DRIVER] = "true"
    return found | (labels.DRA_POOL_LABELS if spec.dra else {})


def _accelerator(spec: _GpuNodePoolSpec) -> gcp.container.NodePoolNodeConfigGuestAcceleratorArgsDict:
    managed = spec.driver in ("default", "latest")
    sharing = spec.sharing
    return {
        "type": spec.accelerator_type,
        "count": spec.gpus_per_node,
        "gpu_driver_installation_config": {
            "gpu_driver_version": spec.driver.upper() if managed else "INSTALLATION_DISABLED"
        },
        "gpu_partition_size": spec.mig_partition,
        "gpu_sharing_config": {
            "gpu_sharing_strategy": sharing.strategy,
            "max_shared_clients_per_gpu": sharing.clients,
        }
        if sharing
        else None,
    }
