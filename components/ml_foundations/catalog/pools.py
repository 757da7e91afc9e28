"""Properties of a node pool that show on its nodes, in the words of the GKE API."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from ml_foundations.catalog import machine_types
from ml_foundations.catalog.machine_types import MAX_PODS, Gpu, MachineType
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, mappings, section, text_of, texts
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.text_formats import DNS_LABEL_1035, LABEL_VALUE, QUALIFIED_NAME
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.kubernetes.words import shown

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
"""Pulumi's types of GKE's clusters and node pools."""

TAINT_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}
"""The effects of taints, as the GKE API and as Kubernetes spell them."""

MOST_CLIENTS = 48
"""The most pods that share a GPU (container-engine-accelerators, gpusharing.go)."""

INSTALLATION_DISABLED = "INSTALLATION_DISABLED"
"""The driver version with which GKE installs no driver (GKE API, GPUDriverInstallationConfig)."""

SPOT_GRACE_SECONDS = 15
_CRITICAL_GRACE_SECONDS = 15
"""Seconds that pods have when Google takes a Spot node back, and then critical pods (GKE, "Spot
VMs")."""

_OF_KUBERNETES = re.compile(
    r"(?!(node|kubelet|node-restriction)\.)([^/]+\.)?(kubernetes|k8s)\.io/.*"
)
_BILLED = re.compile(r"[-\w]{0,63}")

RESERVATION = re.compile(
    r"(projects/[^/]+/reservations/)?[a-z][-a-z0-9]*(/reservationBlocks/[-a-z0-9]+(/reservationSubBlocks/[-a-z0-9]+)?)?"
)
"""The name of a reservation, with a block and a part of the block, if it has them."""

SHUTDOWN_GRACE = "shutdownGracePeriodSeconds"
CRITICAL_GRACE = "shutdownGracePeriodCriticalPodsSeconds"
"""The kubelet's settings for a node that shuts down: the whole time, and the end of it for critical
pods."""

_HUGEPAGES = {
    "hugepageSize2m": ("hugepages-2Mi", 2**11),
    "hugepageSize1g": ("hugepages-1Gi", 2**20),
}
"""Sizes of huge pages: the resource of each, and the KiB of a page."""


@dataclass(frozen=True)
class PoolGpu:
    """The GPUs of a node pool's nodes, with GKE's settings for them."""

    type: str
    count: int
    driver_version: str | None = None
    """DEFAULT, LATEST, INSTALLATION_DISABLED, or None, which GKE takes for DEFAULT."""
    partition_size: str | None = None
    sharing_strategy: str | None = None
    clients: int = 1
    """The number of pods that share a GPU, or each partition of it."""

    @classmethod
    def of(cls, accelerator: Mapping[str, Any]) -> Self:
        """Return the GPUs that an entry of ``guestAccelerators`` declares."""
        version = text_of(section(accelerator, "gpuDriverInstallationConfig"), "gpuDriverVersion")
        sharing = section(accelerator, "gpuSharingConfig")
        return cls(
            type=text_of(accelerator, "type"),
            count=whole_number(accelerator.get("count")),
            driver_version=None if version == "GPU_DRIVER_VERSION_UNSPECIFIED" else version or None,
            partition_size=text_of(accelerator, "gpuPartitionSize") or None,
            sharing_strategy=sharing.get("gpuSharingStrategy") or None,
            clients=whole_number(sharing.get("maxSharedClientsPerGpu")) or 1,
        )

    @property
    def devices(self) -> int:
        """The nvidia.com/gpu resources that GKE's device plugin advertises for a node's GPUs."""
        partitions = 1
        if self.partition_size:
            partitions = machine_types.GPUS[self.type].mig_profiles[self.partition_size]
        return self.count * partitions * self.clients


@dataclass(frozen=True)
class PoolTraits:
    """The properties of a node pool that show on its nodes."""

    name: str
    machine_type: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Mapping[str, str], ...] = ()
    gpu: PoolGpu | None = None
    automatic_gpu_taint: bool = False
    """Whether GKE added its own GPU taint: a pool without GPUs existed when this one was made."""
    spot: bool = False
    flex_start: bool = False
    queued: bool = False
    """Whether nodes come for a ProvisioningRequest only."""
    reservation: str = ""
    """The specific reservation that the nodes come from."""
    image_type: str = "COS_CONTAINERD"
    boot_disk_type: str = "pd-balanced"
    boot_disk_gib: int = 100
    ephemeral_local_ssds: int = 0
    max_pods: int = MAX_PODS
    workload_identity: bool = False
    one_thread: bool = False
    """Whether a core runs one thread in place of two, and so the nodes have half the CPUs of their
    machine type."""
    hugepages: Mapping[str, int] = field(default_factory=dict[str, int])
    """What is set aside for huge pages, in KiB by their resource."""
    shutdown_grace: int = SPOT_GRACE_SECONDS
    """Seconds that pods have to end when Google takes a Spot node back."""
    max_run_seconds: int = 0
    """Seconds after which a node ends. 0 if it does not."""

    @classmethod
    def declared(
        cls, inputs: Mapping[str, Any], cluster: Mapping[str, Any], /, **fields: Any
    ) -> Self:
        """Return the traits of a pool, by its inputs and its cluster's, with GKE's defaults.

        ``fields`` are those that do not follow from these. Without the machine type in the
        catalog, it raises an UnknownNameError.
        """
        config = section(inputs, "nodeConfig")
        node_labels = section(config, "labels")
        machine_type = text_of(config, "machineType") or "e2-medium"
        machine = machine_types.machine_type(machine_type, node_labels)
        # Some machine types, such as a2-highgpu-1g, always have GPUs.
        always = {"type": machine.gpu, "count": machine.gpu_count} if machine.gpu else {}
        accelerator = next(iter(mappings(config, "guestAccelerators")), always)
        boot_disk = section(config, "bootDisk")
        disk_type = config.get("diskType") or boot_disk.get("diskType")
        has_no_pd = machine.attaches("pd-balanced") is False
        usual_disk = "hyperdisk-balanced" if has_no_pd else "pd-balanced"
        disk_gib = config.get("diskSizeGb") or boot_disk.get("sizeGb") or 100
        reservations = section(config, "reservationAffinity")
        max_pods = inputs.get("maxPodsPerNode") or cluster.get("defaultMaxPodsPerNode") or MAX_PODS
        metadata_server = section(config, "workloadMetadataConfig").get("mode", "GKE_METADATA")
        serves_identities = metadata_server in ("GKE_METADATA", UNKNOWN)
        local_ssds = section(config, "ephemeralStorageLocalSsdConfig").get("localSsdCount") or 0
        pages = section(config, "linuxNodeConfig", "hugepagesConfig")
        threads = section(config, "advancedMachineFeatures").get("threadsPerCore")
        traits: dict[str, Any] = {
            "name": str(inputs.get("name")),
            "machine_type": machine.name,
            "labels": node_labels,
            "taints": tuple(map(_taint, items(config, "taints"))),
            "gpu": PoolGpu.of(accelerator) if accelerator else None,
            "reservation": next(iter(texts(reservations, "values")), ""),
            "boot_disk_type": str(disk_type or usual_disk),
            "spot": bool(config.get("spot") or config.get("preemptible")),
            "flex_start": bool(config.get("flexStart")),
            "queued": bool(section(inputs, "queuedProvisioning").get("enabled")),
            "image_type": text_of(config, "imageType") or cls.image_type,
            "max_pods": whole_number(max_pods, MAX_PODS),
            "workload_identity": bool(cluster.get("workloadIdentityConfig")) and serves_identities,
            "one_thread": threads in (1, "1"),
            "boot_disk_gib": whole_number(disk_gib, 100),
            "ephemeral_local_ssds": whole_number(local_ssds),
            "hugepages": {
                name: whole_number(pages[key]) * kib
                for key, (name, kib) in _HUGEPAGES.items()
                if pages.get(key)
            },
            "shutdown_grace": _shutdown_grace(section(config, "kubeletConfig")),
            "max_run_seconds": _seconds(config.get("maxRunDuration")),
        }
        if any(unknown_paths(reservations.get("values"))):
            traits["reservation"] = ""
        return cls(**{**traits, **fields})

    @property
    def machine(self) -> MachineType:
        """The machine type of the nodes, with the CPUs that they have."""
        machine = machine_types.machine_type(self.machine_type, self.labels)
        # A vCPU is a thread (Compute Engine, "Set the number of threads").
        return replace(machine, vcpus=machine.vcpus // 2) if self.one_thread else machine

    @property
    def gpu_model(self) -> Gpu | None:
        """The model of the nodes' GPUs; None if they have none."""
        return machine_types.gpu_model(self.gpu.type, self.labels) if self.gpu else None

    @property
    def image_os(self) -> str:
        """The operating system of the nodes, as their label says it."""
        return "ubuntu" if "UBUNTU" in self.image_type else "cos"

    @property
    def is_opted_out(self) -> bool:
        """Return whether the pool declines GKE's device plugin."""
        return self.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"

    @property
    def is_gke_managed(self) -> bool:
        """Return whether GKE installs the driver and runs the device plugin on the nodes."""
        has_driver = self.gpu is not None and self.gpu.driver_version != INSTALLATION_DISABLED
        return has_driver and not self.is_opted_out

    @property
    def is_left_to_operator(self) -> bool:
        """Return whether the pool leaves driver and device plugin to the GPU Operator."""
        has_driver = self.gpu is not None and self.gpu.driver_version == INSTALLATION_DISABLED
        return has_driver and self.is_opted_out


def refused_inputs(inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the inputs that GKE's API rejects, for a node pool or a cluster: path and reason.

    Sources: hashicorp/terraform-provider-google issue 6003; GKE, "Requirements for cluster labels",
    "About flex-start".
    """
    config = section(inputs, "nodeConfig")
    machine = machine_types.MACHINE_TYPES.get(str(config.get("machineType")))
    tags = config.get("tags")
    has_gpus = config.get("guestAccelerators") or (machine and machine.gpu)
    is_sold = has_gpus or not machine or machine.family == "h4d"
    if config.get("flexStart") is True and not is_sold:
        yield "nodeConfig.flexStart", "is for machines with GPUs and for H4D, and this is neither"
    yield from _refused_purchases(inputs, config)
    for tag in cast("list[Any]", tags) if isinstance(tags, list) else ():
        if isinstance(tag, str) and not DNS_LABEL_1035.matches(tag):
            form = "up to 63 lower case letters, digits and dashes, from a letter on"
            yield "nodeConfig.tags", f'have "{tag}": {form}'
    for key in filter(_OF_KUBERNETES.fullmatch, section(config, "labels")):
        reason = "is Kubernetes' own, which GKE does not let you set; choose a different name"
        yield f"nodeConfig.labels.{key}", reason
    for path, key, value in _labels_and_taints(config):
        if isinstance(key, str) and not QUALIFIED_NAME.matches(key):
            yield path, f"has the key {shown(key)}, which is not a name of a label in Kubernetes"
        if isinstance(value, str) and not LABEL_VALUE.matches(value):
            form = "up to 63 letters, digits, -, _ and ."
            yield path, f"has the value {shown(value)}; Kubernetes accepts {form}"
    for *path, last in (("nodeConfig", "resourceLabels"), ("resourceLabels",)):
        for key, value in section(inputs, *path, last).items():
            words = [word for word in (key, value) if isinstance(word, str)]
            is_valid = all(word == word.lower() and _BILLED.fullmatch(word) for word in words)
            if not key[:1].isalpha() or not is_valid:
                reason = "is invalid. Google Cloud accepts 63 lower case letters, digits, - and _"
                yield ".".join([*path, last, key]), reason


def _labels_and_taints(config: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the field, the key and the value of the labels and taints of nodes."""
    for key, value in section(config, "labels").items():
        yield f"nodeConfig.labels.{key}", key, value
    for index, taint in enumerate(items(config, "taints")):
        yield f"nodeConfig.taints[{index}]", taint.get("key", ""), taint.get("value")


def _refused_purchases(
    inputs: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield ways to buy nodes that exclude each other.

    Source: cluster-toolkit, preconditions of modules/compute/gke-node-pool.
    """
    is_flex_start = config.get("flexStart") is True
    is_queued = section(inputs, "queuedProvisioning").get("enabled") is True
    is_compact = section(inputs, "placementPolicy").get("type") == "COMPACT"
    if (is_flex_start or is_queued) and config.get("spot") is True:
        yield "nodeConfig.spot", "excludes flexStart and queuedProvisioning"
    if is_flex_start and section(inputs, "management").get("autoRepair") is True:
        yield "management.autoRepair", "is true, but nodes of flexStart are not repaired"
    if is_flex_start and inputs.get("nodeCount"):
        yield "nodeCount", "is fixed, but flexStart creates nodes for waiting pods: use autoscaling"
    if is_queued and is_compact:
        yield "placementPolicy", "is COMPACT, which queuedProvisioning excludes"
    if is_compact and section(inputs, "upgradeSettings").get("strategy") == "BLUE_GREEN":
        yield "upgradeSettings.strategy", "is BLUE_GREEN, which COMPACT placement excludes"
    for name in texts(section(config, "reservationAffinity"), "values"):
        if not RESERVATION.fullmatch(name):
            form = "NAME or projects/PROJECT/reservations/NAME, then /reservationBlocks/BLOCK"
            yield "nodeConfig.reservationAffinity.values", f'have "{name}", and not {form}'


def _taint(taint: Mapping[str, Any]) -> dict[str, str]:
    effect = str(taint.get("effect"))  # as GKE's API or as Kubernetes spells it
    effect = TAINT_EFFECTS.get(effect, effect)
    return {"key": text_of(taint, "key"), "value": taint.get("value") or "", "effect": effect}


def _seconds(duration: Any) -> int:
    """Return the seconds of a duration in Google's format, such as ``3600s``; 0 if not known."""
    match = re.match(r"[0-9]{1,18}", str(duration))
    return int(match[0]) if match else 0


def _shutdown_grace(kubelet: Mapping[str, Any]) -> int:
    """Return the seconds that the kubelet leaves to pods that are not critical."""
    whole = kubelet.get(SHUTDOWN_GRACE)
    critical = kubelet.get(CRITICAL_GRACE, _CRITICAL_GRACE_SECONDS)
    if whole is None or UNKNOWN in (whole, critical):
        return SPOT_GRACE_SECONDS
    return max(0, whole_number(whole) - whole_number(critical))


def pool_sizes(inputs: Mapping[str, Any], zones: int) -> tuple[int, int]:
    """Return the fewest and the most nodes of a pool over all its zones."""
    scaling = section(inputs, "autoscaling")
    # GKE counts by zone, except for the total numbers.
    if not scaling:
        declared = inputs.get("nodeCount")
        count = whole_number(inputs.get("initialNodeCount") if declared is None else declared)
        return count * zones, count * zones
    if scaling.get("totalMaxNodeCount") is not None:
        keys = ("totalMinNodeCount", "totalMaxNodeCount")
        zones = 1
    else:
        keys = ("minNodeCount", "maxNodeCount")
    fewest, most = (whole_number(scaling.get(key)) for key in keys)
    return fewest * zones, most * zones
