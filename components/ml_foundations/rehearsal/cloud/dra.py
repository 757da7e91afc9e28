"""NVIDIA's DRA driver: it publishes the devices of nodes, for the scheduler to allocate."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog import operator_nodes as on_nodes
from ml_foundations.catalog.machine_types import Gpu
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.kubernetes.words import listed
from ml_foundations.planning.model.devices import PRODUCT
from ml_foundations.planning.scheduler.placement import refusals_on_node
from ml_foundations.rehearsal.api import Api, Object, owners
from ml_foundations.rehearsal.cloud import autoscaler, nodes
from ml_foundations.rehearsal.cloud.autoscaler import Plan, Unplaced
from ml_foundations.rehearsal.cloud.informer import Informer, attempt
from ml_foundations.rehearsal.cloud.store import Pool

CHART = "dra-driver-nvidia-gpu"
_DRIVER = labels.GPU_DEVICE_CLASS
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"

_TYPES = {_DRIVER: "gpu", labels.MIG_DEVICE_CLASS: "mig"}
"""The DeviceClasses of the driver's chart, and the type of their devices."""

_PROFILE = re.compile(r"""\.profile == ['"]([^'"]+)['"]""")
_MEMORY = re.compile(r"""\.memory\.compareTo\(quantity\(['"]([^'"]+)['"]\)\) >= 0""")
"""Conditions that our components write. The autoscaler assumes that a node meets any other."""


class DraDriver:
    """Publishes the devices of nodes, and plans nodes for pods that claim devices."""

    def __init__(self, api: Api, slices: Informer, claims: Informer) -> None:
        self._api, self._slices, self._claims = api, slices, claims
        self._has_classes = False

    def reconcile(
        self, installed: bool, pools: Mapping[str, Pool], by_pool: Mapping[str, list[Object]]
    ) -> None:
        """Publish a slice for each node with the driver, and create the driver's classes."""
        wanted: dict[str, tuple[Pool, Object]] = {}
        for name, pool in pools.items():
            if installed and _has_driver(pool):
                for node in by_pool.get(name, []):
                    wanted[name_of(node)] = (pool, node)
        published: dict[str, Object] = {}
        for item in self._slices.items():
            if item["spec"].get("driver") == _DRIVER:
                published[item["spec"].get("nodeName")] = item
        if wanted and not self._has_classes:
            for name, kind in _TYPES.items():
                self._api.ensure(_CLASSES, _device_class(name, kind))
            self._has_classes = True
        for name in wanted.keys() - published.keys():
            with attempt(f"the devices of node {name}"):
                self._slices.put(self._api.ensure(SLICES, _resource_slice(*wanted[name])))
        for name in published.keys() - wanted.keys():
            # A slice of the user's own stays, and its node gets no second one.
            if _is_from_here(published[name]):
                with attempt(f"the devices of node {name}"):
                    self._api.delete(f"{SLICES}/{name_of(published[name])}")
                    self._slices.drop(published[name])

    def plan(
        self,
        installed: bool,
        pods: list[Object],
        pools: Iterable[Pool],
        by_pool: Mapping[str, list[Object]],
    ) -> Plan:
        """Plan nodes for pods that claim devices: at most one node for each pool."""
        unschedulable = filter(autoscaler.is_unschedulable, pods)
        waiting = [pod for pod in unschedulable if pod["spec"].get("resourceClaims")]
        if not waiting:
            return Plan()
        with_driver = list(filter(_has_driver, pools)) if installed else []
        with_driver.sort(key=autoscaler.price)
        busy = autoscaler.busy_by_node(pods)
        idle, growing = set[str](), set[str]()
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
                unplaced.append(Unplaced(pod, _reason(installed, suitable), is_hopeless=False))
        return Plan(Counter(new.items()), unplaced=tuple(unplaced))

    def _may_suit(self, pod: Object, pool: Pool) -> bool:
        """Return whether a node of a pool may have the devices that a pod claims."""
        if refusals_on_node(pod, nodes.node_template(pool, pool.zones[0], None)):
            return False
        devices = _devices(pool)
        for claim in self._claims_of(pod):
            for request in items(claim["spec"]["devices"], "requests"):
                choices = request.get("firstAvailable") or [section(request, "exactly")]
                if not any(_may_have(devices, choice) for choice in choices):
                    return False
        return True

    def _claims_of(self, pod: Object) -> list[Object]:
        names = {claim.get("resourceClaimName") for claim in items(pod["spec"], "resourceClaims")}
        claims: list[Object] = []
        for claim in self._claims.items():
            is_used = name_of(claim) in names or pod["metadata"]["uid"] in owners(claim)
            if is_used and namespace_of(claim) == namespace_of(pod):
                claims.append(claim)
        return claims


def _reason(installed: bool, suitable: Sequence[Pool]) -> str:
    """Return why no pool gets a new node for a pod that claims devices."""
    if not installed:
        condition = "nodes come for these only if NVIDIA's DRA driver is installed"
        return f"it claims devices, and {condition}"
    if suitable:
        names = listed(f'"{pool.name}"' for pool in suitable)
        limit = "and no more nodes may come there for it"
        return f"a node of {names} may have the devices that it claims, {limit}"
    pool = f"no node pool with the label {labels.GKE_DRA_DRIVER}: true"
    return f"{pool} takes it and has the devices that it claims"


def _has_driver(pool: Pool) -> bool:
    """Return whether the driver runs on a pool's nodes: it selects them by GKE's label."""
    return pool.gpu is not None and pool.labels.get(labels.GKE_DRA_DRIVER) == "true"


def _device_class(name: str, kind: str) -> Object:
    """Return a class of the driver's chart, which a rehearsal may only have recorded."""
    expression = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == '{kind}'"
    selector = {"cel": {"expression": expression}}
    return {"metadata": {"name": name}, "spec": {"selectors": [selector]}}


def _resource_slice(pool: Pool, node: Object) -> Object:
    """Return the devices of a node. Kubernetes deletes the slice with the node that owns it."""
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    whole = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": name, "pool": whole, "devices": _devices(pool)}
    metadata = {"name": f"{name}-{_DRIVER}", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": spec}


def _is_from_here(resource_slice: Object) -> bool:
    """Return whether a slice has the name and the owner that ``_resource_slice`` sets."""
    node = resource_slice["spec"].get("nodeName")
    owner = next(iter(items(resource_slice["metadata"], "ownerReferences")), {})
    is_owned = (owner.get("kind"), owner.get("name")) == ("Node", node)
    return is_owned and name_of(resource_slice) == f"{node}-{_DRIVER}"


def _devices(pool: Pool) -> list[Object]:
    """Return the devices of a node of a pool: its GPUs or their MIG partitions."""
    # As in "ResourceSlice attributes" of kubernetes-sigs/dra-driver-nvidia-gpu.
    model = pool.gpu_model
    if pool.gpu is None or model is None:
        return []
    profile = pool.gpu.partition_size
    devices: list[Object] = []
    for index in range(pool.gpu.count):
        if profile is None:
            devices.append(_gpu(model, index))
        else:
            partitions = range(model.mig_profiles[profile])
            devices += [_partition(model, profile, index, partition) for partition in partitions]
    return devices


def _gpu(model: Gpu, index: int) -> Object:
    mib = model.memory_label_mib or model.memory_gb * 1024
    attributes = _attributes(model, "gpu") | {"uuid": {"string": f"GPU-{index:08d}"}}
    capacity = {"memory": {"value": f"{mib}Mi"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": capacity}


def _partition(model: Gpu, profile: str, index: int, partition: int) -> Object:
    gigabytes = int(profile.partition("gb")[0].rpartition(".")[2])
    name = f"gpu-{index}-mig-{profile.replace('.', '-').replace('+', '-')}-{partition}"
    attributes = _attributes(model, "mig") | {
        "uuid": {"string": f"MIG-{index:08d}-{partition}"},
        "parentUUID": {"string": f"GPU-{index:08d}"},
        "profile": {"string": profile},
    }
    # A partition has a little less memory than its name says. How much is not published.
    capacity = {"memory": {"value": f"{gigabytes}Gi"}}
    return {"name": name, "attributes": attributes, "capacity": capacity}


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
    kind = _TYPES.get(request.get("deviceClassName", ""))
    able = [item for item in devices if kind in (None, item["attributes"]["type"]["string"])]
    for selector in items(request, "selectors"):
        expression = section(selector, "cel").get("expression", "")
        able = [device for device in able if _may_meet(device, expression)]
    return len(able) >= request.get("count", 1)


def _may_meet(device: Object, expression: str) -> bool:
    attributes = device["attributes"]
    if match := PRODUCT.search(expression):
        return attributes["productName"]["string"].replace(" ", "-") == match[1]
    if match := _PROFILE.search(expression):
        return attributes.get("profile", {}).get("string") == match[1]
    if match := _MEMORY.search(expression):
        return parse_quantity(device["capacity"]["memory"]["value"]) >= parse_quantity(match[1])
    return True
