"""Nodes of GKE node pools that are only declared: what GKE will make of them, by the catalog."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from ml_foundations.catalog import node_resources, pools
from ml_foundations.catalog.gpu_fabrics import gpu_fabric
from ml_foundations.catalog.machine_types import UnknownNameError
from ml_foundations.catalog.node_resources import LOCAL_SSD_GIB
from ml_foundations.catalog.nodes import advertised_gpus, node_labels, node_taints
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.topology import may_have_topology
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import api_object, section, texts
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, milli, scheduled
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, unknown_paths
from ml_foundations.planning.input.maintenance import node_upgrade
from ml_foundations.planning.input.networks import Networks, advertised
from ml_foundations.planning.model.nodes import BOOT_DISK_GIB, MAX_NODES, MIN_NODES, NodeClass
from ml_foundations.planning.model.refusals import Cause, UnknownFact
from ml_foundations.planning.model.resources import PODS

RANDOM = "-xxxxxxx"
"""Stands at the end of a pool's name for what Pulumi makes up."""


def from_node_pool(
    inputs: Mapping[str, Any],
    cluster: Mapping[str, Any] | None = None,
    operator: Operator | Unknown | None = None,
    networks: Networks | None = None,
) -> NodeClass:
    """Return the nodes that a GKE node pool may have.

    Args:
        inputs: Inputs of a ``gcp:container/nodePool:NodePool``, as the provider names them.
        cluster: Inputs of its cluster; without them, what takes more of a node is assumed.
        operator: The GPU Operator of the cluster, for pools that leave their GPUs to it;
            ``UNKNOWN`` if its values are not known yet.
        networks: The cluster's networks of devices.
    """
    pool = _Pool(inputs, cluster or _FULL_CLUSTER)
    name = str(inputs.get("name")) if inputs.get("name") not in (None, UNKNOWN) else "node pool"
    unknown = tuple(map(UnknownFact, pool.unknown())) or tuple(pool.not_in_catalog())
    if not unknown and isinstance(operator, Unknown) and pool.traits.is_left_to_operator:
        unknown = (UnknownFact("the GPU Operator's values"),)
    if unknown:
        return unknown_nodes(name, unknown)
    known = None if isinstance(operator, Unknown) else operator
    fewest, most = pool.sizes
    of_networks, lacks = advertised(inputs, networks or Networks())
    allocatable = {**pool.allocatable(known), **dict.fromkeys(of_networks, WHOLE)}
    if pool.has_network_driver:
        allocatable |= pool.claimable()
    else:
        lacks |= labels.NETWORK_DEVICE_CLASSES
    zones = pool.zones if len(pool.zones) > 1 else ()
    node = pool.node(known)
    offered = scheduled(allocatable)
    per_zone = pool.most_per_zone
    nodes = NodeClass(name, node, most, fewest, offered, zones, per_zone)
    return replace(
        nodes,
        lacks=lacks,
        shutdown_grace=pool.traits.shutdown_grace,
        surge=pool.surge,
        upgrade=node_upgrade(inputs, cluster) if cluster else None,
        disk_gib=pool.traits.boot_disk_gib,
        local_ssd_gib=pool.local_ssd_gib,
    )


def unknown_nodes(name: str, unknown: tuple[UnknownFact, ...], fewest: int = 1) -> NodeClass:
    """Return the nodes of a pool with deciding fields that are not known yet."""
    metadata = {"name": UNKNOWN, "annotations": {MAX_NODES: "1"}}
    return NodeClass(name, {"kind": "Node", "metadata": metadata}, fewest=fewest, unknown=unknown)


_OF_NODES = (
    *("machineType", "guestAccelerators", "advancedMachineFeatures", "imageType"),
    *("bootDisk", "diskSizeGb", "ephemeralStorageLocalSsdConfig"),
    *("labels", "taints", "spot", "preemptible", "flexStart"),
    *("reservationAffinity", "linuxNodeConfig"),
)
_OF_POOL = (
    *("autoscaling", "initialNodeCount", "maxPodsPerNode", "nodeCount", "nodeLocations"),
    "queuedProvisioning",
)
_DECIDING_FIELDS = (*(f"nodeConfig.{field}" for field in _OF_NODES), *_OF_POOL)
_RESERVATION = "nodeConfig.reservationAffinity.values"
"""The name of a reservation, which decides nothing but a label."""
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
        self._config = section(inputs, "nodeConfig")

    def unknown(self) -> Iterable[str]:
        """Yield fields that decide and are not known yet."""
        if self._inputs.get("nodeConfig") is UNKNOWN:
            yield "nodeConfig"
            return
        for path in _DECIDING_FIELDS:
            *parents, field = path.split(".")
            for unknown in unknown_paths(section(self._inputs, *parents).get(field), path):
                if not unknown.startswith(_RESERVATION):
                    yield unknown
        most_pods = self._cluster.get("defaultMaxPodsPerNode")
        yield from unknown_paths(most_pods, "cluster.defaultMaxPodsPerNode")

    def not_in_catalog(self) -> Iterable[UnknownFact]:
        """Yield fields with names that the catalog lacks, and those whose taints are not known."""
        for key in ("sandboxConfig", "windowsNodeConfig"):
            if key in self._config:
                yield UnknownFact(f"nodeConfig.{key}, for which GKE adds a taint,")
        try:
            traits = self.traits
        except UnknownNameError:
            machine_type = self._config.get("machineType")
            yield UnknownFact(
                f'nodeConfig.machineType "{machine_type}", which is not in the catalog,',
                Cause.NOT_IN_CATALOG,
            )
        else:
            name = traits.machine_type
            if missing := traits.machine.missing:
                yield UnknownFact(f'nodeConfig.machineType "{name}", which lacks here {missing},')
            gpu = traits.gpu
            model = traits.gpu_model
            if gpu and gpu.type and model is None:
                yield UnknownFact(f'nodeConfig.guestAccelerators[0].type "{gpu.type}"')
            elif gpu and gpu.partition_size not in (None, *(model.mig_profiles if model else ())):
                path = "nodeConfig.guestAccelerators[0].gpuPartitionSize"
                yield UnknownFact(f'{path} "{gpu.partition_size}"')

    @property
    def zones(self) -> tuple[str, ...]:
        """Return the declared zones; those of a region are GKE's choice."""
        location = self._inputs.get("location") or ""
        is_zone = isinstance(location, str) and location.count("-") == 2
        for holder in (self._inputs, self._cluster):
            if declared := texts(holder, "nodeLocations"):
                # The provider has a set of zones: a zone that is named twice counts once.
                return tuple(dict.fromkeys(declared))
        if not location or is_zone:
            # The description of a pool that exists may leave its location out.
            return (location,)
        return tuple(f"{location}-{letter}" for letter in "abc")

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the fewest and the most nodes over all zones."""
        return pools.pool_sizes(self._inputs, len(self.zones))

    @property
    def surge(self) -> int:
        """Return the most nodes that an upgrade adds (GKE, "Node upgrade strategies")."""
        upgrade = section(self._inputs, "upgradeSettings")
        most = self.sizes[1]
        surge = most if upgrade.get("strategy") == "BLUE_GREEN" else upgrade.get("maxSurge")
        is_brief = self.traits.flex_start or self.traits.queued  # and has no upgrades of this kind
        return 0 if is_brief else min(int(surge) if isinstance(surge, (int, float)) else 1, most)

    @property
    def local_ssd_gib(self) -> int:
        """Return the size of a node's local SSDs: 375 GiB each, or as the machine type has them."""
        machine = self.traits.machine
        if machine.local_ssd == "attached":
            return machine.local_ssd_gib or 0
        size = 0
        for use in ((), ("ephemeralStorageLocalSsdConfig",), ("localNvmeSsdBlockConfig",)):
            count = section(self._config, *use).get("localSsdCount")
            size += int(count) * LOCAL_SSD_GIB if isinstance(count, (int, float)) else 0
        return size

    @property
    def most_per_zone(self) -> int:
        """Return the most nodes in one zone: with a total limit only, GKE may use one zone."""
        most = self.sizes[1]
        has_total = section(self._inputs, "autoscaling").get("totalMaxNodeCount") is not None
        return most if has_total else most // len(self.zones)

    @cached_property
    def traits(self) -> pools.PoolTraits:
        """Return the properties of the pool that its nodes show."""
        traits = pools.PoolTraits.declared(self._inputs, self._cluster)
        # GKE adds its taint if the cluster has a pool without GPUs by then.
        return replace(traits, automatic_gpu_taint=traits.gpu is not None)

    def node(self, operator: Operator | None) -> dict[str, Any]:
        """Return a node of the pool, as a template."""
        fewest, most = self.sizes
        unknown: dict[str, Any] = {labels.HOSTNAME: UNKNOWN}
        zone, *others = self.zones
        if others or not zone:
            unknown |= dict.fromkeys(labels.ZONES, UNKNOWN)
        if not zone:
            unknown |= dict.fromkeys(labels.REGIONS, UNKNOWN)
        if self._inputs.get("name") in (None, UNKNOWN) or self.traits.name.endswith(RANDOM):
            unknown[labels.GKE_NODE_POOL] = UNKNOWN
        if any(unknown_paths(section(self._config, "reservationAffinity").get("values"))):
            unknown[labels.GKE_RESERVATION] = UNKNOWN
        if may_have_topology(self.traits):
            unknown |= dict.fromkeys(labels.GKE_TOPOLOGY, UNKNOWN)
        sizes = {MAX_NODES: most, MIN_NODES: fewest, BOOT_DISK_GIB: self.traits.boot_disk_gib}
        metadata = {
            "name": UNKNOWN,
            "labels": {**node_labels(self.traits, zone, operator), **unknown},
            "annotations": {key: str(size) for key, size in sizes.items()},
        }
        return api_object("v1", "Node", metadata, spec={"taints": node_taints(self.traits)})

    def allocatable(self, operator: Operator | None) -> Amounts:
        """Return what a node offers besides GKE's reservation and DaemonSets, in thousandths."""
        traits = self.traits
        huge = self.traits.hugepages
        free = node_resources.allocatable(traits.machine, traits.max_pods, sum(huge.values()))
        _, storage = node_resources.ephemeral_storage_gib(
            traits.boot_disk_gib, traits.ephemeral_local_ssds
        )
        offered: Amounts = {
            "cpu": free.cpu_millis,
            "memory": free.memory_kib * node_resources.KIB * WHOLE,
            "ephemeral-storage": int(storage * node_resources.GIB) * WHOLE,
            PODS: self.traits.max_pods * WHOLE,
            **{name: kib * node_resources.KIB * WHOLE for name, kib in huge.items()},
        }
        if devices := advertised_gpus(self.traits, operator):
            offered[labels.GPU_RESOURCE] = devices * WHOLE
        # In the words of ``SystemDaemonSet``.
        features = node_resources.cluster_features(self._cluster)
        if traits.gpu and not traits.is_opted_out:
            features.add("managed-gpu")
        if not traits.workload_identity:
            features.discard("workload-identity")
        for daemon in node_resources.system_daemonsets():
            if daemon.runs_where in features:
                offered["cpu"] -= milli(daemon.cpu)
                offered["memory"] -= milli(daemon.memory)
                offered[PODS] -= WHOLE
        return offered

    @property
    def has_network_driver(self) -> bool:
        """Return whether GKE runs its DRA driver for interfaces on the nodes (DRANET)."""
        return self.traits.labels.get(labels.GKE_NETWORK_DRA_DRIVER) == "true"

    def claimable(self) -> Amounts:
        """Return the interfaces that pods can claim, by the resources of their classes."""
        fabric = gpu_fabric(self.traits.machine)
        by_class = fabric.claimable if fabric else {}
        return {f"{labels.DEVICES_OF_CLASS}{name}": by_class[name] * WHOLE for name in by_class}
