"""NVIDIA's DRA driver, as far as it shows: the devices of each node, which the real scheduler allocates to claims."""

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
from ml_foundations.rehearsal.cloud import nodes
from ml_foundations.rehearsal.cloud.autoscaler import (
    Plan,
    Unplaced,
    busy_by_node,
    is_unschedulable,
    price,
)
from ml_foundations.rehearsal.cloud.informer import Informer, attempt
from ml_foundations.rehearsal.cloud.store import Pool

CHART = "dra-driver-nvidia-gpu"
_DRIVER = labels.GPU_DEVICE_CLASS
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"

_TYPES = {_DRIVER: "gpu", labels.MIG_DEVICE_CLASS: "mig"}
"""The classes that the driver's chart brings, and the type of their devices."""

_PROFILE = re.compile(r"""\.profile == ['"]([^'"]+)['"]""")
_MEMORY = re.compile(r"""\.memory\.compareTo\(quantity\(['"]([^'"]+)['"]\)\) >= 0""")
"""Conditions that our components write. Of any other, the autoscaler cannot tell before there is a node."""


class Driver:
    """Publishes the devices of nodes whose pool has the driver, and grows such pools for pods that claim devices."""

    def __init__(self, api: Api, slices: Informer, claims: Informer) -> None:
        self._api, self._slices, self._claims = api, slices, claims
        self._has_classes = False

    def reconcile(
        self, installed: bool, pools: Mapping[str, Pool], by_pool: Mapping[str, list[Object]]
    ) -> None:
        """One round: a slice for each node that should have one; classes with the driver.

        Slices that were not made here stay, and a node that has one gets no second.
        """
        served = [(name, pool) for name, pool in pools.items() if installed and _has_driver(pool)]
        wanted = {
            name_of(node): (pool, node) for name, pool in served for node in by_pool.get(name, [])
        }
        ours = (item for item in self._slices.items() if item["spec"].get("driver") == _DRIVER)
        published = {item["spec"].get("nodeName"): item for item in ours}
        if wanted and not self._has_classes:
            for name, kind in _TYPES.items():
                self._api.ensure(_CLASSES, _device_class(name, kind))
            self._has_classes = True
        for name in wanted.keys() - published.keys():
            with attempt(f"the devices of node {name}"):
                self._slices.put(self._api.ensure(SLICES, _resource_slice(*wanted[name])))
        for name in filter(
            lambda each: _is_made_here(published[each]), published.keys() - wanted.keys()
        ):
            with attempt(f"the devices of node {name}"):
                self._api.delete(f"{SLICES}/{name_of(published[name])}")
                self._slices.drop(published[name])

    def growth(
        self,
        installed: bool,
        pods: list[Object],
        pools: Iterable[Pool],
        by_pool: Mapping[str, list[Object]],
    ) -> Plan:
        """Nodes to add for pods that claim devices: one at a time for each pool; and the pods for which none may come.

        A pool with a node on which nothing runs gains none: the devices that the pod waits for are not of its kind.
        """
        waiting = [
            pod for pod in pods if is_unschedulable(pod) and pod["spec"].get("resourceClaims")
        ]
        if not waiting:
            return Plan()
        served = sorted((pool for pool in pools if installed and _has_driver(pool)), key=price)
        busy, existing = (
            busy_by_node(pods),
            {pool.name: by_pool.get(pool.name, []) for pool in served},
        )
        idle = {
            name
            for name, group in existing.items()
            if any(name_of(node) not in busy for node in group)
        }
        growing = [
            each for each in served if each.autoscaled and len(existing[each.name]) < each.max_nodes
        ]
        new: dict[str, str] = {}
        unplaced: list[Unplaced] = []
        for pod in waiting:
            suitable = [pool for pool in served if self._may_suit(pod, pool)]
            pool = next(
                (each for each in suitable if each in growing and each.name not in idle), None
            )
            if pool is not None:
                in_zone = Counter(labels_of(node).get(labels.ZONE) for node in existing[pool.name])
                new[pool.name] = min(pool.zones, key=lambda zone: in_zone[zone])
            elif not any(each.name in idle for each in suitable):
                unplaced.append(Unplaced(pod, _reason(installed, suitable), is_hopeless=False))
        return Plan(Counter(new.items()), unplaced=tuple(unplaced))

    def _may_suit(self, pod: Object, pool: Pool) -> bool:
        if refusals_on_node(pod, nodes.node_template(pool, pool.zones[0], None)):
            return False
        found = _devices(pool)
        return all(
            any(
                _may_have(found, choice)
                for choice in request.get("firstAvailable") or [section(request, "exactly")]
            )
            for claim in self._claims_of(pod)
            for request in items(claim["spec"]["devices"], "requests")
        )

    def _claims_of(self, pod: Object) -> list[Object]:
        named = {claim.get("resourceClaimName") for claim in items(pod["spec"], "resourceClaims")}
        beside = [
            claim for claim in self._claims.items() if namespace_of(claim) == namespace_of(pod)
        ]
        return [
            claim
            for claim in beside
            if name_of(claim) in named or pod["metadata"]["uid"] in owners(claim)
        ]


def _reason(installed: bool, suitable: Sequence[Pool]) -> str:
    """Return why no pool gets a new node for a pod that claims devices."""
    if not installed:
        return (
            "it claims devices, and nodes come for these only if NVIDIA's DRA driver is installed"
        )
    if suitable:
        names = listed(f'"{pool.name}"' for pool in suitable)
        return f"a node of {names} may have the devices that it claims, and no more nodes may come there for it"
    return f"no node pool with the label {labels.GKE_DRA_DRIVER}: true takes it and has the devices that it claims"


def _has_driver(pool: Pool) -> bool:
    """Whether NVIDIA's DRA driver runs on a pool's nodes: it selects them by the label that GKE asks for."""
    return pool.gpu is not None and pool.labels.get(labels.GKE_DRA_DRIVER) == "true"


def _device_class(name: str, kind: str) -> Object:
    """A class that the driver's chart brings; a chart that was only recorded brings none."""
    expression = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == '{kind}'"
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _resource_slice(pool: Pool, node: Object) -> Object:
    """The devices of a node. The slice is deleted with the node, as a kubelet's is."""
    meta = node["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "metadata": {"name": f"{meta['name']}-{_DRIVER}", "ownerReferences": [owner]},
        "spec": {
            "driver": _DRIVER,
            "nodeName": meta["name"],
            "pool": {"name": meta["name"], "generation": 1, "resourceSliceCount": 1},
            "devices": _devices(pool),
        },
    }


def _is_made_here(published: Object) -> bool:
    """Return whether a slice is one of ``_resource_slice``: by its name, and the node that owns it."""
    node = published["spec"].get("nodeName")
    owner = next(iter(published["metadata"].get("ownerReferences") or []), {})
    return name_of(published) == f"{node}-{_DRIVER}" and (owner.get("kind"), owner.get("name")) == (
        "Node",
        node,
    )


def _devices(pool: Pool) -> list[Object]:
    """The devices of a node of a pool: its GPUs, or the parts into which they are partitioned.

    Names, attributes and capacity are those of kubernetes-sigs/dra-driver-nvidia-gpu, "ResourceSlice attributes".
    """
    model = pool.gpu_model
    if pool.gpu is None or model is None:
        return []
    profile, count = pool.gpu.partition_size, pool.gpu.count
    if profile is None:
        return [_gpu(model, minor) for minor in range(count)]
    parts = range(model.mig_profiles[profile])
    return [_mig(model, profile, minor, part) for minor in range(count) for part in parts]


def _gpu(model: Gpu, minor: int) -> Object:
    mib = model.memory_label_mib or model.memory_gb * 1024
    attributes = _attributes(model, "gpu") | {"uuid": {"string": f"GPU-{minor:08d}"}}
    return {
        "name": f"gpu-{minor}",
        "attributes": attributes,
        "capacity": {"memory": {"value": f"{mib}Mi"}},
    }


def _mig(model: Gpu, profile: str, minor: int, part: int) -> Object:
    gigabytes = int(profile.partition("gb")[0].rpartition(".")[2])
    name = f"gpu-{minor}-mig-{profile.replace('.', '-').replace('+', '-')}-{part}"
    uuids = {
        "uuid": {"string": f"MIG-{minor:08d}-{part}"},
        "parentUUID": {"string": f"GPU-{minor:08d}"},
    }
    attributes = _attributes(model, "mig") | uuids | {"profile": {"string": profile}}
    # What a part really offers is a little less than its name says; how much is not published.
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": f"{gigabytes}Gi"}},
    }


def _attributes(model: Gpu, kind: str) -> dict[str, Object]:
    driver, cuda, capability = on_nodes.DRIVER, on_nodes.CUDA, model.compute_capability
    return {
        "type": {"string": kind},
        # The label's dashes for spaces cannot be told from the name's own; our selectors compare by dashes.
        "productName": {"string": model.product.replace("NVIDIA-", "NVIDIA ", 1)},
        "brand": {"string": "Nvidia"},
        **({"architecture": {"string": model.architecture.title()}} if model.architecture else {}),
        **(
            {"cudaComputeCapability": {"version": "{}.{}.0".format(*capability)}}
            if capability
            else {}
        ),
        "driverVersion": {"version": ".".join(str(int(part)) for part in driver)},
        "cudaDriverVersion": {"version": f"{cuda[0]}.{cuda[1]}.0"},
    }


def _may_have(found: Iterable[Object], request: Mapping[str, Any]) -> bool:
    """Whether enough devices may meet a request, by the conditions that are understood here."""
    conditions = [
        item["cel"]["expression"] for item in items(request, "selectors") if "cel" in item
    ]
    kind = _TYPES.get(request.get("deviceClassName", ""))
    of_kind = [device for device in found if kind in (None, device["attributes"]["type"]["string"])]
    suitable = [device for device in of_kind if all(_may_meet(device, c) for c in conditions)]
    return len(suitable) >= request.get("count", 1)


def _may_meet(device: Object, condition: str) -> bool:
    attributes = device["attributes"]
    if found := PRODUCT.search(condition):
        return attributes["productName"]["string"].replace(" ", "-") == found[1]
    if found := _PROFILE.search(condition):
        return attributes.get("profile", {}).get("string") == found[1]
    if found := _MEMORY.search(condition):
        return parse_quantity(device["capacity"]["memory"]["value"]) >= parse_quantity(found[1])
    return True
