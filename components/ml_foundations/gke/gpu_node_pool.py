"""A pool of GPU nodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import (
    GPUS,
    Accelerator,
    Gpu,
    MachineType,
    UnknownNameError,
    accelerator,
    declared_gpu,
    gpu_by_name,
)
from ml_foundations.catalog.pools import INSTALLATION_DISABLED, MOST_CLIENTS
from ml_foundations.component.base import Child, Options, has_kubernetes_provider
from ml_foundations.component.children import ChildResource
from ml_foundations.component.objects import ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import Spec
from ml_foundations.gke.cpu_node_pool import CpuNodePool
from ml_foundations.gke.node_pools.gpu_network import GpuNetworkSpec
from ml_foundations.gke.node_pools.network_objects import network_children, network_config
from ml_foundations.gke.node_pools.pool import (
    CLUSTER,
    Taint,
    join_cluster,
    node_arguments,
    pool_child,
)
from ml_foundations.kubernetes import labels
from ml_foundations.typed_args import GpuFabricArgs, GpuNodePoolComponent, TolerationArgs

DRIVERS_OF_GKE = ("default", "latest")
"""The values of driver with which GKE advertises the GPUs."""
_GPU_TAINT = Taint(key=labels.GPU_TAINT_KEY, value=labels.GPU_TAINT_VALUE, effect="NO_SCHEDULE")


class GpuSharing(Spec):
    """Sharing of a GPU, or of each partition of it, by several pods."""

    strategy: Literal["TIME_SHARING", "MPS"]
    """How pods share: TIME_SHARING (one pod at a time) or MPS (their kernels run at the same
    time)."""
    clients: int = Field(ge=2, le=MOST_CLIENTS)
    """The number of pods that share it, 2 to 48."""


class GpuNodePoolSpec(GpuNetworkSpec):
    """Arguments of a GpuNodePool."""

    objects = {
        "cluster": CLUSTER._replace(
            description=f"{CLUSTER.description} It also sets multi_networking. "
            "Its deletion_protection is the default of the pool's.",
            outputs={
                **CLUSTER.outputs,
                "deletion_protection": "deletion_protection",
                "multi_networking": "multi_networking",
            },
            defaults=("deletion_protection",),
        ),
        "gpu_network": ObjectArgument(
            ("GpuNodePool",),
            "A GpuNodePool, to use its networks. It sets gpu_network and network_pool.",
            {"gpu_network": "gpu_network", "network_pool": "network_pool"},
        ),
    }

    location_policy: Literal["ANY", "BALANCED"] = "ANY"
    """How nodes are placed: ANY uses any zone with free machines, BALANCED keeps zones equal. The
    default is ANY."""
    node_type: str = Field("training", min_length=1)
    """The purpose of the nodes, as the label node-type. The default is training."""
    gpu: str | None = None
    """The GPU model, by any of its names. It is required for N1 and for a declared machine.
    Otherwise it is compared with machine_type."""
    gpus: int | None = Field(None, ge=1)
    """GPUs on each node. It is required for N1 and for a declared machine. Otherwise it is compared
    with machine_type."""
    driver: Literal["default", "latest", "operator", "installer"] = "default"
    """Who installs the NVIDIA driver and advertises the GPUs: default, latest, operator or
    installer. The default is default.

    default and latest: GKE does both, with its default or its latest driver. operator: the GPU
    Operator does both, on the image ubuntu. installer: Google's installer, a part of GpuOperator,
    installs the driver, and the operator advertises the GPUs.
    """
    mig_partition: str | None = None
    """The MIG partition size of every GPU, such as 1g.10gb, if GKE installs the driver."""
    sharing: GpuSharing | None = None
    """How pods share GPUs, if GKE installs the driver."""
    fast_socket: bool = False
    """Install NCCL Fast Socket on the nodes. The default is false."""
    deletion_protection: bool = True
    """If true, Pulumi refuses to delete or replace the pool, because its machines may not be
    available again. The default is true."""
    dra: bool = False
    """Let pods claim the GPUs (DRA, see DeviceClasses). The device plugin then does not advertise
    them. The default is false."""

    @property
    @override
    def image_name(self) -> str:
        return self.image or ("ubuntu" if self.driver == "operator" else "cos")

    @property
    def model(self) -> Gpu:
        """The GPU model, of the catalog or as it is declared."""
        declared = self.machine and self.machine.gpu
        if declared:
            memory_mib = declared.memory_gib * 1024
            return declared_gpu(declared.accelerator_type, declared.product, memory_mib)
        return GPUS[self.shape.gpu] if self.shape.gpu else gpu_by_name(self.gpu or "")

    @property
    def product(self) -> str:
        """The label nvidia.com/gpu.product of the nodes. It differs for partitions and sharing."""
        return self.accelerator.product

    @property
    def accelerator(self) -> Accelerator:
        """The GPUs as pods see them: the model, its partition, and whether pods share it."""
        return Accelerator((self.model,), self.mig_partition, shared=self.sharing is not None)

    @property
    @override
    def node_selector(self) -> dict[str, str]:
        of = self.sharing
        shared = {labels.GKE_SHARING_STRATEGY: of.strategy.lower().replace("_", "-")} if of else {}
        return super().node_selector | shared

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        return self.shape.gpu_count or self.gpus or 0

    @property
    def gpu_resources_per_node(self) -> int:
        """The nvidia.com/gpu of a node: its GPUs or partitions, times the pods that share each."""
        partitions = self.model.mig_profiles[self.mig_partition] if self.mig_partition else 1
        return self.gpus_per_node * partitions * (self.sharing.clients if self.sharing else 1)

    @property
    @override
    def declared_taints(self) -> list[Taint]:
        given = super().declared_taints
        return given if _GPU_TAINT in given else [_GPU_TAINT, *given]

    @property
    @override
    def advertised_by_gke(self) -> bool:
        """Return whether GKE installs the driver and advertises the GPUs."""
        return self.driver in DRIVERS_OF_GKE

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        no_such_gpus = list(self._gpu_errors())
        yield from no_such_gpus
        yield from super().errors()
        if self.fast_socket and not self.uses_gvnic:
            yield "fast_socket", "needs gvnic, and so the image cos"
        yield from self._driver_errors()
        if labels.GKE_DRA_DRIVER in self.labels and not self.dra:
            reason = f"have {labels.GKE_DRA_DRIVER}, which is for pools with dra; set dra to true"
            yield "labels", reason
        if no_such_gpus or self.mig_partition in (None, *self.model.mig_profiles):
            return
        profiles = ", ".join(self.model.mig_profiles)
        known = f"it can be cut into {profiles}" if profiles else "it cannot be partitioned"
        reason = f"is {self.mig_partition}, but the GPU is {self.model.product}: {known}"
        yield "mig_partition", reason

    def _gpu_errors(self) -> Iterator[tuple[str, str]]:
        """Yield why nodes of the machine type cannot have these GPUs."""
        machine = self.shape
        gpus = self.gpus
        declared = self.machine and self.machine.gpu
        if declared and (self.gpu or declared.accelerator_type in GPUS):
            kind = declared.accelerator_type
            yield "machine.gpu", f"declares {kind}, but gpu is in the catalog; leave it out"
            return
        try:
            gpu = self.model if declared else gpu_by_name(self.gpu) if self.gpu else None
        except UnknownNameError as error:
            yield "gpu", str(error)
            return
        if machine.gpu is None and not machine.takes_gpus:
            reason = "has no GPU; use a CpuNodePool, or choose a machine type with GPUs"
            yield "machine_type", f"{machine.name} {reason}"
            return
        if machine.takes_gpus and not (gpu and gpus):
            yield "machine_type", f"{machine.name} accepts attached GPUs; set gpu and gpus"
            return
        if self.gpu and (wrong := self._name_error(accelerator(self.gpu), machine)):
            yield "gpu", wrong
        allowed = machine.gpu_counts(machine.gpu or (gpu.accelerator_type if gpu else ""))
        if gpus is not None and gpus not in allowed:
            counts = " or ".join(map(str, allowed)) or "no"
            yield "gpus", f"{machine.name} can have {counts} GPUs per node, not {gpus}"

    def _name_error(self, named: Accelerator, machine: MachineType) -> str | None:
        """Return why nodes of a machine type do not have the named GPUs."""
        alike = accelerator(named.product) if named.is_plain else named
        if machine.gpu and machine.gpu not in alike.types:
            return f"{machine.name} has {machine.gpu}, not {named.types[0]}"
        if named.partition not in (None, self.mig_partition):
            return f"names the partition {named.partition}; set mig_partition"
        if named.shared and self.sharing is None:
            return "names GPUs that pods share; set sharing"
        return None

    def _driver_errors(self) -> Iterator[tuple[str, str]]:
        if self.driver == "operator" and self.image == "cos":
            reason = (
                "is cos, for which the operator has no driver; set it to ubuntu, or change driver"
            )
            yield "image", reason
        if self.driver == "latest" and self.image == "ubuntu":
            yield "driver", "is latest, which GKE has for the image cos only; set it to default"
        if self.driver == "operator" and self.secure_boot:
            reason = "is true, but the operator's driver is not signed for it; change driver"
            yield "secure_boot", reason
        if self.dra and self.advertised_by_gke:
            reason = (
                "but GKE installs no driver if GPUs are claimed; set it to operator or installer"
            )
            yield "driver", f"is {self.driver}, {reason}"
        reason = f"is for GPUs that GKE advertises, and driver is {self.driver}: set"
        if self.mig_partition and not self.advertised_by_gke:
            yield "mig_partition", f"{reason} mig of GpuOperator"
        if self.sharing and not self.advertised_by_gke:
            yield "sharing", f"{reason} device_plugin.sharing of GpuOperator"

    @override
    def children(self) -> Iterator[ChildResource]:
        # A node that checks signatures would not load the operator's driver.
        nodes = node_arguments(self, _gpu_labels(self), secure_boot=self.driver != "operator")
        version = self.driver.upper() if self.advertised_by_gke else INSTALLATION_DISABLED
        gpus: dict[str, Any] = {
            "type": self.model.accelerator_type,
            "count": self.gpus_per_node,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": version},
            "gpuPartitionSize": self.mig_partition,
        }
        if of := self.sharing:
            sharing = {"gpuSharingStrategy": of.strategy, "maxSharedClientsPerGpu": of.clients}
            gpus["gpuSharingConfig"] = sharing
        socket = {"enabled": True} if self.fast_socket else None
        nodes |= {"guestAccelerators": [gpus], "fastSocket": socket}
        networks = list(network_children(self))
        yield from networks
        yield pool_child(
            self,
            nodes,
            spare=False,
            network_config=network_config(self),
            protect=self.deletion_protection,
            # GKE offers the interfaces of a new node only if its networks have their objects.
            depends_on=[child.suffix for child in networks],
        )


class GpuNodePool(GpuNodePoolComponent[GpuNodePoolSpec]):
    """A pool of GPU nodes with autoscaling and a taint. Only pods that request GPUs run on it.

    Workloads accept its outputs ``gpu``, ``node_selector`` and ``tolerations`` under the same
    names. With ``cluster=``, it waits for the cluster's CPU pools. Without it, set ``depends_on``
    to a CPU pool, because GKE's own pods need nodes without taints.
    """

    node_pool_name: KnownOutput[str]
    """The pool's name in GKE."""
    gpu: KnownOutput[str]
    """The name by which workloads and queues find its GPUs. It is the label nvidia.com/gpu.product.
    If machines with another accelerator type have the same label, as A3 High and A3 Mega do, it is
    a name of the type."""
    gpus_per_node: KnownOutput[int]
    """GPUs on each node."""
    gpu_resources_per_node: KnownOutput[int]
    """The number of nvidia.com/gpu that a node offers: its GPUs or partitions, times the pods that
    share each."""
    node_selector: KnownOutput[dict[str, str]]
    """Labels that select the nodes of this pool."""
    tolerations: KnownOutput[list[TolerationArgs]]
    """The tolerations that pods need to run on its nodes."""
    gpu_network: KnownOutput[str]
    """The networks for the traffic between GPUs: none, auto, multi-network or managed. Another pool
    accepts it to use the same networks."""
    network_pool: KnownOutput[str]
    """The pool that creates these networks. It is this pool, unless network_pool is set."""
    gpu_fabric: KnownOutput[GpuFabricArgs]
    """What pods need to use the network between the GPUs. None if gpu_network is none."""
    queued_provisioning: KnownOutput[bool]
    """If true, nodes are created only for a ProvisioningRequest. A TrainingQueue creates these
    requests."""
    node_pool = Child("pool")
    """The gcp.container.NodePool."""

    @override
    def joined(self, objects: Mapping[str, pulumi.ComponentResource]) -> Sequence[pulumi.Resource]:
        """Return the cluster's CPU pools, because GKE's own pods need nodes without GPU taints."""
        return [pool for pool in join_cluster(self, objects) if isinstance(pool, CpuNodePool)]

    @override
    def given_provider(
        self, spec: GpuNodePoolSpec, objects: Mapping[str, pulumi.ComponentResource]
    ) -> pulumi.ProviderResource | None:
        """Return a provider of the cluster for the objects of the networks, if there are any."""
        cluster: Any = objects.get("cluster")
        return cluster.node_pool_provider if cluster and spec.fabric else None

    @classmethod
    @override
    def provider_errors(
        cls,
        opts: Options,
        args: Mapping[str, Any],
        objects: Mapping[str, pulumi.ComponentResource],
    ) -> Iterator[tuple[str, str]]:
        """Yield that there is no provider for the objects of the networks."""
        is_used = args.get("gpu_network") not in (None, "none")
        if is_used and "cluster" not in objects and not has_kubernetes_provider(opts):
            fix = "set cluster, or add its Kubernetes provider to the option providers"
            yield "gpu_network", f"creates objects in the cluster; {fix}"

    @override
    def outputs(self, spec: GpuNodePoolSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "node_pool_name": spec.pool_name,
            "gpu": spec.accelerator.name,
            "network_pool": spec.network_owner,
        }


def _gpu_labels(spec: GpuNodePoolSpec) -> dict[str, str]:
    gpu = spec.model
    gpu_labels = {labels.ACCELERATOR: "nvidia-gpu", labels.GPU_PRODUCT: spec.product}
    if spec.mig_partition is None:
        gpu_labels[labels.GPU_MEMORY] = str(gpu.memory_label_mib or gpu.memory_gb * 1024)
    if not spec.advertised_by_gke:
        gpu_labels[labels.GKE_NO_DEVICE_PLUGIN] = "true"
    if spec.is_network_managed:
        gpu_labels[labels.GKE_NETWORK_DRA_DRIVER] = "true"
    return gpu_labels | (labels.DRA_POOL_LABELS if spec.dra else {})
