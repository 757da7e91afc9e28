"""Nodes of GKE node pools that are only declared: what GKE will make of them, by the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ml_foundations import labels
from ml_foundations.gke import machine_types
from ml_foundations.gke.machine_types import MachineType
from ml_foundations.planning.manifests import UNKNOWN, Manifest, items, section, unknown_paths
from ml_foundations.planning.nodes import ACCELERATOR_COUNT, MAX_NODES, MIN_NODES, ZONE_LABELS, NodeClass
from ml_foundations.planning.quantity import millis
from ml_foundations.planning.resources import PODS, WHOLE, Amounts, in_scheduler_units


def from_node_pool(
    inputs: Mapping[str, Any], cluster: Mapping[str, Any] | None = None, *, gpu_operator: bool = True
) -> NodeClass:
    """The nodes that a GKE node pool may have.

    Args:
        inputs: Inputs of a ``gcp:container/nodePool:NodePool``, as the provider names them.
        cluster: Inputs of its cluster; without them, what takes more of a node is assumed.
        gpu_operator: Whether the GPU Operator runs in the cluster, for pools that leave their GPUs to it.

    Raises:
        UnknownNameError: The catalog does not have the machine type or the GPU.
    """
    pool = _Pool(inputs, cluster or _FULL_CLUSTER)
    name = inputs.get("name")
    if pool.unknown:
        nameless = {"kind": "Node", "metadata": {"name": UNKNOWN, "annotations": {MAX_NODES: "1"}}}
        return NodeClass(name if isinstance(name, str) else "node pool", nameless, unknown=pool.unknown)
    fewest, most = pool.sizes
    manifest = pool.node(gpu_operator)
    allocatable = {name: in_scheduler_units(name, amount) for name, amount in pool.allocatable(gpu_operator).items()}
    return NodeClass(str(name), manifest, most, fewest, allocatable, pool.zones if len(pool.zones) > 1 else ())


_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_DECIDING_FIELDS = (
    "nodeConfig.machineType",
    "nodeConfig.guestAccelerators",
    "nodeConfig.labels",
    "nodeConfig.taints",
    "nodeConfig.diskSizeGb",
    "nodeConfig.spot",
    "nodeConfig.ephemeralStorageLocalSsdConfig",
    "autoscaling",
    "maxPodsPerNode",
    "nodeCount",
    "nodeLocations",
)
_FULL_CLUSTER: Mapping[str, Any] = {
    "datapathProvider": "ADVANCED_DATAPATH",
    "workloadIdentityConfig": {"workloadPool": ""},
    "addonsConfig": {"dnsCacheConfig": {"enabled": True}},
}
"""A cluster with every feature that takes part of the nodes."""


class _Pool:
    """A node pool, read from its inputs."""

    def __init__(self, inputs: Mapping[str, Any], cluster: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._cluster = cluster
        self._config: Manifest = {} if inputs.get("nodeConfig") is UNKNOWN else section(inputs, "nodeConfig")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields that decide and are not known yet."""
        if self._inputs.get("nodeConfig") is UNKNOWN:
            return ("nodeConfig",)
        fields = (section(self._inputs, *path.split(".")[:-1]).get(path.split(".")[-1]) for path in _DECIDING_FIELDS)
        return tuple(
            found for path, value in zip(_DECIDING_FIELDS, fields, strict=True) for found in unknown_paths(value, path)
        )

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones that are declared; those of a region are GKE's choice."""
        declared = self._inputs.get("nodeLocations") or self._cluster.get("nodeLocations") or ()
        location = self._inputs.get("location") or ""
        is_zone = isinstance(location, str) and location.count("-") == 2
        if declared and declared is not UNKNOWN:
            return tuple(declared)
        return (location,) if is_zone else tuple(f"{location}-{letter}" for letter in "abc")

    @property
    def sizes(self) -> tuple[int, int]:
        """The fewest and the most nodes over all zones; GKE counts per zone, but for the total numbers."""
        zones, scaling = len(self.zones), section(self._inputs, "autoscaling")
        if not scaling:
            declared = self._inputs.get("nodeCount")
            count = int(self._inputs.get("initialNodeCount") or 0 if declared is None else declared) * zones
            return count, count
        if scaling.get("totalMaxNodeCount") is not None:
            return int(scaling.get("totalMinNodeCount") or 0), int(scaling["totalMaxNodeCount"])
        return int(scaling.get("minNodeCount") or 0) * zones, int(scaling.get("maxNodeCount") or 0) * zones

    @cached_property
    def machine(self) -> MachineType:
        return machine_types.machine_type(self._config.get("machineType") or "e2-medium")

    @cached_property
    def _accelerator(self) -> Mapping[str, Any]:
        for declared in items(self._config, "guestAccelerators"):
            return declared
        return {"type": self.machine.gpu, "count": self.machine.gpu_count} if self.machine.gpu else {}

    @property
    def _is_opted_out(self) -> bool:
        return self._declared_labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"

    @property
    def _has_googles_driver(self) -> bool:
        version = section(self._accelerator, "gpuDriverInstallationConfig").get("gpuDriverVersion")
        return version != "INSTALLATION_DISABLED"

    @property
    def _declared_labels(self) -> Mapping[str, str]:
        return section(self._config, "labels")

    def _devices(self, gpu_operator: bool) -> int:
        """The GPUs that a node advertises: by GKE's device plugin, or by the GPU Operator's."""
        accelerator = self._accelerator
        if not accelerator:
            return 0
        count = int(accelerator["count"])
        if self._is_opted_out or not self._has_googles_driver:
            return count if gpu_operator and self._is_opted_out and not self._has_googles_driver else 0
        size = accelerator.get("gpuPartitionSize")
        instances = machine_types.GPUS[accelerator["type"]].mig_profiles[size] if size else 1
        return count * instances * int(section(accelerator, "gpuSharingConfig").get("maxSharedClientsPerGpu") or 1)

    def node(self, gpu_operator: bool) -> dict[str, Any]:
        """A node of the pool, as a template."""
        taints = [
            {"key": taint["key"], "value": taint.get("value") or "", "effect": _EFFECTS.get(effect, effect)}
            for taint in items(self._config, "taints")
            for effect in [taint["effect"]]
        ]
        if self._accelerator and not any(taint["key"] == labels.GPU_TAINT_KEY for taint in taints):
            gpu_taint = {"value": labels.GPU_TAINT_VALUE, "effect": labels.GPU_TAINT_EFFECT}
            taints.append({"key": labels.GPU_TAINT_KEY, **gpu_taint})
        if section(self._inputs, "queuedProvisioning").get("enabled"):
            taints.append({"key": labels.GKE_QUEUED, "value": "true", "effect": "NoSchedule"})
        if self.machine.arch == "arm64":
            taints.append({"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"})
        fewest, most = self.sizes
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": UNKNOWN,
                "labels": {**self._labels(gpu_operator), **self._declared_labels, labels.HOSTNAME: UNKNOWN},
                "annotations": {MAX_NODES: str(most), MIN_NODES: str(fewest)},
            },
            "spec": {"taints": taints},
        }

    def _labels(self, gpu_operator: bool) -> dict[str, Any]:
        machine, zones = self.machine, self.zones
        zone = zones[0] if len(zones) == 1 else UNKNOWN
        region = zones[0].rpartition("-")[0]
        found: dict[str, Any] = {
            "kubernetes.io/arch": machine.arch,
            "kubernetes.io/os": "linux",
            "cloud.google.com/machine-family": machine.name.partition("-")[0],
            labels.GKE_NODE_POOL: self._inputs.get("name"),
            labels.INSTANCE_TYPE: machine.name,
            labels.REGION: region,
            **{key: zone for key in ZONE_LABELS},
        }
        spot = self._config.get("spot") or self._config.get("preemptible")
        found["cloud.google.com/gke-provisioning"] = "spot" if spot else "standard"
        if spot:
            found[labels.GKE_SPOT] = "true"
        if self._config.get("flexStart"):
            found[labels.GKE_FLEX_START] = "true"
        found[labels.GKE_OS_DISTRIBUTION] = "ubuntu" if "UBUNTU" in str(self._config.get("imageType")) else "cos"
        if self._accelerator:
            found |= self._gke_gpu_labels()
            found[labels.GKE_ACCELERATOR] = self._accelerator["type"]
            found[ACCELERATOR_COUNT] = str(int(self._accelerator["count"]))
            if gpu_operator:
                product = machine_types.GPUS[self._accelerator["type"]].product
                found |= {labels.GPU_PRODUCT: product, labels.GPU_PRESENT: "true"}
                found[labels.GPU_COUNT] = str(int(self._accelerator["count"]))
        return found

    def _gke_gpu_labels(self) -> dict[str, str]:
        """What GKE says on a node of the driver, the partitions and the sharing that it takes care of itself."""
        if self._is_opted_out or not self._has_googles_driver:
            return {}
        version = section(self._accelerator, "gpuDriverInstallationConfig").get("gpuDriverVersion") or "DEFAULT"
        found = {labels.GKE_GPU_DRIVER_VERSION: str(version).lower()}
        if size := self._accelerator.get("gpuPartitionSize"):
            found[labels.GKE_PARTITION_SIZE] = str(size)
        if sharing := section(self._accelerator, "gpuSharingConfig"):
            strategy = str(sharing.get("gpuSharingStrategy") or "TIME_SHARING").lower().replace("_", "-")
            found |= {labels.GKE_SHARING_STRATEGY: strategy}
            found[labels.GKE_SHARED_CLIENTS] = str(int(sharing.get("maxSharedClientsPerGpu") or 1))
        return found

    def allocatable(self, gpu_operator: bool) -> Amounts:
        """What a node offers once GKE has reserved its part and its own DaemonSets run, in thousandths."""
        max_pods = self._inputs.get("maxPodsPerNode") or self._cluster.get("defaultMaxPodsPerNode")
        free = machine_types.allocatable(self.machine, int(max_pods or machine_types.MAX_PODS))
        disk = self._config.get("diskSizeGb") or section(self._config, "bootDisk").get("sizeGb") or 100
        ssds = section(self._config, "ephemeralStorageLocalSsdConfig").get("localSsdCount") or 0
        _, storage = machine_types.ephemeral_storage_gib(int(disk), int(ssds))
        offered: Amounts = {
            "cpu": free.cpu_millis,
            "memory": free.memory_kib * machine_types.KIB * WHOLE,
            "ephemeral-storage": int(storage * machine_types.GIB) * WHOLE,
            PODS: free.pods * WHOLE,
        }
        if devices := self._devices(gpu_operator):
            offered[labels.GPU_RESOURCE] = devices * WHOLE
        for daemon in machine_types.system_daemonsets():
            if daemon.runs_where in self._features:
                taken = {"cpu": daemon.cpu, "memory": daemon.memory}
                for name, amount in millis({key: value for key, value in taken.items() if value}).items():
                    offered[name] -= amount
                offered[PODS] -= WHOLE
        return offered

    @cached_property
    def _features(self) -> frozenset[str]:
        """What of GKE runs on the pool's nodes, in the words of the catalog of its DaemonSets."""
        dataplane_v2 = self._cluster.get("datapathProvider") == "ADVANCED_DATAPATH"
        features = {"always", "dataplane-v2" if dataplane_v2 else "kube-proxy"}
        if self._cluster.get("workloadIdentityConfig"):
            features.add("workload-identity")
        if section(self._cluster, "addonsConfig", "dnsCacheConfig").get("enabled"):
            features.add("node-local-dns")
        if self._accelerator and not self._is_opted_out:
            features.add("managed-gpu")
        return frozenset(features)
