"""The DRA drivers of NVIDIA and GKE publish the devices of nodes, for the scheduler to allocate."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_foundations.catalog import operator_nodes as on_nodes
from ml_foundations.catalog.machine_types import Gpu
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.kubernetes.words import listed
from ml_foundations.planning.model.devices import PRODUCT
from ml_foundations.planning.scheduler.placement import refusals_on_node
from ml_foundations.rehearsal.api import Object, owners
from ml_foundations.rehearsal.cloud import autoscaler, dranet, nodes
from ml_foundations.rehearsal.cloud.autoscaler import Plan, Unplaced
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.store import Pool

_DRIVER = labels.GPU_DEVICE_CLASS
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"

_IS_TYPE = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == "
_GPU_CLASSES = {_DRIVER: f"{_IS_TYPE}'gpu'", labels.MIG_DEVICE_CLASS: f"{_IS_TYPE}'mig'"}
"""The conditions of the DeviceClasses of NVIDIA's chart."""

_PROFILE = re.compile(r"""\.profile == ['"]([^'"]+)['"]""")
_MEMORY = re.compile(r"""\.memory\.compareTo\(quantity\(['"]([^'"]+)['"]\)\) >= 0""")
"""Conditions that our components write. The autoscaler assumes that a node meets any other."""


class Driver(NamedTuple):
    """A DRA driver: its name, the pools where it runs, their devices, and its device classes."""

    name: str
    runs_on: Callable[[Pool], bool]
    devices: Callable[[Pool], list[Object]]
    classes: Mapping[str, str]
    """The condition of each device class."""


class DraDriver(Controller):
    """Publishes the devices of nodes, and plans nodes for pods that claim devices."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._slices = cluster.watch(SLICES)
        self._claims = cluster.watch(_CLAIMS)
        self._with_classes: set[str] = set()
        """The drivers whose device classes exist."""

    def reconcile(self) -> None:
        """Publish a slice for each node with a driver, and create the driver's classes."""
        for driver in (NVIDIA, INTERFACES):
            pools = [pool for pool in self.cluster.pools.values() if driver in self._drivers(pool)]
            if pools and driver.name not in self._with_classes:
                # GKE or a chart creates them. A rehearsal may only have recorded the chart.
                for name, condition in driver.classes.items():
                    spec = {"selectors": [{"cel": {"expression": condition}}]}
                    self.api.ensure(_CLASSES, {"metadata": {"name": name}, "spec": spec})
                self._with_classes.add(driver.name)
            self._publish(driver, pools)

    def _publish(self, driver: Driver, pools: Iterable[Pool]) -> None:
        """Bring the slices of a driver to the nodes of the pools where it runs."""
        by_pool = self.cluster.nodes_by_pool()
        members: dict[str, tuple[Pool, Object]] = {}
        for pool in pools:
            for node in by_pool[pool.name]:
                members[name_of(node)] = (pool, node)
        slices = self._slices.items()
        of_driver = [item for item in slices if item["spec"].get("driver") == driver.name]
        published: dict[str, Object] = {item["spec"].get("nodeName"): item for item in of_driver}
        for name in members.keys() - published.keys():
            with attempt(f"the devices of node {name}"):
                resource_slice = _resource_slice(driver, *members[name])
                self._slices.put(self.api.ensure(SLICES, resource_slice))
        for name in published.keys() - members.keys():
            # A slice of the user's own stays, and its node gets no second one. Ours have the name
            # and the owner that ``_resource_slice`` sets.
            owner = next(iter(items(published[name]["metadata"], "ownerReferences")), {})
            is_owned = (owner.get("kind"), owner.get("name")) == ("Node", name)
            if is_owned and name_of(published[name]) == f"{name}-{driver.name}":
                with attempt(f"the devices of node {name}"):
                    self.api.delete(f"{SLICES}/{name_of(published[name])}")
                    self._slices.drop(published[name])

    def plan(self, pools: Iterable[Pool]) -> Plan:
        """Plan nodes for pods that claim devices: at most one node for each pool."""
        unschedulable = filter(autoscaler.is_unschedulable, self.cluster.pods)
        waiting = [pod for pod in unschedulable if pod["spec"].get("resourceClaims")]
        if not waiting:
            return Plan()
        with_driver = [pool for pool in pools if self._drivers(pool)]
        with_driver.sort(key=autoscaler.price)
        by_pool = self.cluster.nodes_by_pool()
        busy = autoscaler.busy_by_node(self.cluster.pods)
        idle: set[str] = set()
        growing: set[str] = set()
        for pool in with_driver:
            pool_nodes = by_pool.get(pool.name, [])
            # The devices of an idle node are not what the pod waits for, or are about to come.
            if any(name_of(node) not in busy for node in pool_nodes):
                idle.add(pool.name)
            elif pool.autoscaled and len(pool_nodes) < pool.max_nodes:
                growing.add(pool.name)
        new: dict[str, str] = {}
        unplaced: list[Unplaced] = []
        for pod in waiting:
            suitable = [pool for pool in with_driver if self._may_suit(pod, pool)]
            pool = next((pool for pool in suitable if pool.name in growing), None)
            if pool is not None:
                zones = (labels_of(node).get(labels.ZONE) for node in by_pool.get(pool.name, []))
                sizes = Counter(zones)
                new[pool.name] = min(pool.zones, key=lambda zone: sizes[zone])
            elif not any(pool.name in idle for pool in suitable):
                unplaced.append(Unplaced(pod, self._reason(suitable), is_hopeless=False))
        return Plan(Counter(new.items()), unplaced=tuple(unplaced))

    def _may_suit(self, pod: Object, pool: Pool) -> bool:
        """Return whether a node of a pool may have the devices that a pod claims."""
        if refusals_on_node(pod, nodes.node_template(pool, pool.zones[0], None)):
            return False
        devices = [device for driver in self._drivers(pool) for device in driver.devices(pool)]
        names = {claim.get("resourceClaimName") for claim in items(pod["spec"], "resourceClaims")}
        for claim in self._claims.items():
            is_used = name_of(claim) in names or pod["metadata"]["uid"] in owners(claim)
            if not is_used or namespace_of(claim) != namespace_of(pod):
                continue
            for request in items(claim["spec"]["devices"], "requests"):
                choices = request.get("firstAvailable") or [section(request, "exactly")]
                if not any(_may_have(devices, choice) for choice in choices):
                    return False
        return True

    def _reason(self, suitable: Sequence[Pool]) -> str:
        """Return why no pool gets a new node for a pod that claims devices."""
        if suitable:
            names = listed(f'"{pool.name}"' for pool in suitable)
            limit = autoscaler.why_no_more(suitable)
            return f"a node of {names} may have the devices that it claims, {limit}"
        missing = "" if self.cluster.has_dra else ", and NVIDIA's driver is not installed"
        return (
            f"no node pool with the label {labels.GKE_DRA_DRIVER}: true or "
            f"{labels.GKE_NETWORK_DRA_DRIVER}: true takes it and has the devices that it "
            f"claims{missing}"
        )

    def _drivers(self, pool: Pool) -> list[Driver]:
        """Return the drivers that run on a pool's nodes; NVIDIA's may not be installed."""
        drivers = (NVIDIA, INTERFACES) if self.cluster.has_dra else (INTERFACES,)
        return [driver for driver in drivers if driver.runs_on(pool)]


def _has_driver(pool: Pool) -> bool:
    """Return whether the driver runs on a pool's nodes: it selects them by GKE's label."""
    return pool.gpu is not None and pool.labels.get(labels.GKE_DRA_DRIVER) == "true"


def _resource_slice(driver: Driver, pool: Pool, node: Object) -> Object:
    """Return the devices of a node. Kubernetes deletes the slice with the node that owns it."""
    name = name_of(node)
    owner: Object = {"apiVersion": "v1", "kind": "Node", "name": name, "controller": True}
    owner["uid"] = node["metadata"]["uid"]
    whole = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = driver.devices(pool)
    spec = {"driver": driver.name, "nodeName": name, "pool": whole, "devices": devices}
    metadata = {"name": f"{name}-{driver.name}", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": spec}


def _devices(pool: Pool) -> list[Object]:
    """Return the devices of a node of a pool: its GPUs or their MIG partitions."""
    # As in "ResourceSlice attributes" of kubernetes-sigs/dra-driver-nvidia-gpu.
    model = pool.gpu_model
    if pool.gpu is None or model is None:
        return []
    profile = pool.gpu.partition_size
    mib = model.memory_label_mib or model.memory_gb * 1024
    devices: list[Object] = []
    for index in range(pool.gpu.count):
        uuid = {"string": f"GPU-{index:08d}"}
        if profile is None:
            attributes = _attributes(model, "gpu") | {"uuid": uuid}
            device = {"name": f"gpu-{index}", "attributes": attributes}
            devices.append(device | {"capacity": {"memory": {"value": f"{mib}Mi"}}})
            continue
        for partition in range(model.mig_profiles[profile]):
            slug = profile.replace(".", "-").replace("+", "-")
            attributes = _attributes(model, "mig") | {
                "uuid": {"string": f"MIG-{index:08d}-{partition}"},
                "parentUUID": uuid,
                "profile": {"string": profile},
            }
            device = {"name": f"gpu-{index}-mig-{slug}-{partition}", "attributes": attributes}
            # A partition has a little less memory than its name says. How much is not published.
            gigabytes = int(profile.partition("gb")[0].rpartition(".")[2])
            devices.append(device | {"capacity": {"memory": {"value": f"{gigabytes}Gi"}}})
    return devices


def _attributes(model: Gpu, kind: str) -> dict[str, Object]:
    major, minor = on_nodes.CUDA[:2]
    attributes: dict[str, Object] = {
        # An attribute has one of the keys string, version, int and bool (resource.k8s.io/v1).
        "type": {"string": kind},
        # The label has dashes for spaces, too. Our selectors compare with dashes.
        "productName": {"string": model.product.replace("NVIDIA-", "NVIDIA ", 1)},
        "brand": {"string": "Nvidia"},
        # A semantic version has no leading zeros: 595.91.07 is 595.91.7.
        "driverVersion": {"version": ".".join(str(int(part)) for part in on_nodes.DRIVER)},
        "cudaDriverVersion": {"version": f"{major}.{minor}.0"},
    }
    if model.architecture:
        attributes["architecture"] = {"string": model.architecture.title()}
    if model.compute_capability:
        version = "{}.{}.0".format(*model.compute_capability)
        attributes["cudaComputeCapability"] = {"version": version}
    return attributes


def _may_have(devices: Iterable[Object], request: Mapping[str, Any]) -> bool:
    """Return whether enough devices may meet a request. Unknown conditions count as met."""
    name = request.get("deviceClassName", "")
    is_known = name in {**NVIDIA.classes, **INTERFACES.classes}
    able = [device for device in devices if not is_known or _class_of(device) == name]
    for selector in items(request, "selectors"):
        expression = section(selector, "cel").get("expression", "")
        able = [device for device in able if _may_meet(device, expression)]
    return len(able) >= request.get("count", 1)


def _class_of(device: Object) -> str:
    """Return the class of a device of one of the drivers."""
    attributes = device["attributes"]
    if "rdma" in attributes:
        is_rdma = attributes["rdma"]["bool"]
        return labels.RDMA_DEVICE_CLASS if is_rdma else labels.NETDEV_DEVICE_CLASS
    is_gpu = attributes["type"]["string"] == "gpu"
    return labels.GPU_DEVICE_CLASS if is_gpu else labels.MIG_DEVICE_CLASS


def _may_meet(device: Object, expression: str) -> bool:
    attributes = device["attributes"]
    if match := PRODUCT.search(expression):
        product = attributes.get("productName", {}).get("string", "")
        return product.replace(" ", "-") == match[1]
    if match := _PROFILE.search(expression):
        return attributes.get("profile", {}).get("string") == match[1]
    if match := _MEMORY.search(expression):
        return parse_quantity(device["capacity"]["memory"]["value"]) >= parse_quantity(match[1])
    return True


NVIDIA = Driver(_DRIVER, _has_driver, _devices, _GPU_CLASSES)
INTERFACES = Driver(labels.NETWORK_DRIVER, dranet.has_driver, dranet.interfaces, dranet.CLASSES)
