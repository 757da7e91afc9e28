"""Devices that pods claim (DRA): how many, and whether the nodes of a pool may have them.

Drivers publish devices in ResourceSlices once a node exists, which are read if they are shown.
Before that, only the GPUs of a GKE node pool are known, and only for the class of whole NVIDIA
GPUs, and its interfaces for the traffic between GPUs (DRANET). Any other claim is undetermined.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    name_of,
    namespace_of,
    section,
    text_of,
)
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, total, whole_number
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.published_devices import PublishedDevices
from ml_foundations.planning.model.refusals import Refusal

PRODUCT = re.compile(r"""productName\.replace\(['"] ['"], ['"]-['"]\) == ['"]([^'"]+)['"]""")
"""The condition on the product that our components write."""
_CLAIM = ("ResourceClaim", "resourceClaimName", "spec")
_TEMPLATE = ("ResourceClaimTemplate", "resourceClaimTemplateName", "spec", "spec")
"""A kind, the field by which pods name it, and where it has the requests."""
_COUNTED = frozenset({"deviceClassName", "allocationMode", "count"})
"""The fields of a request for a number of devices. Others choose among them."""
_MOST_DEVICES = 32
"""As many as one claim may have: what a request for all of a node counts as."""


class DeviceClaims:
    """The ResourceClaims and their templates that are declared."""

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        self._specs: dict[tuple[str, str, str], Manifest] = {}
        for kind, field, *path in (_CLAIM, _TEMPLATE):
            for claim in by_kind.get(kind, ()):
                self._specs[field, *key_of(claim)] = section(claim, *path)
        self._domains: dict[tuple[str, str], str] = {}
        """The ComputeDomains by the templates of claims that their controller makes."""
        for domain in by_kind.get("ComputeDomain", ()):
            template = section(domain, "spec", "channel", "resourceClaimTemplate")
            key = (namespace_of(domain), text_of(template, "name"))
            self._domains[key] = name_of(domain)
        self._has_slices = bool(by_kind.get("ResourceSlice"))
        self._published: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The whole GPUs that drivers publish, by node and product."""
        for published in by_kind.get("ResourceSlice", ()):
            spec = section(published, "spec")
            node = spec.get("nodeName")
            if spec.get("driver") == labels.GPU_DEVICE_CLASS and isinstance(node, str):
                self._published[node].update(_whole_gpus(spec))
        self._classes = {*map(name_of, by_kind.get("DeviceClass", ()))}
        # Slices of GKE's interfaces come with their pools (interfaces).
        self._slices = PublishedDevices(by_kind, self._exact_requests())

    def _exact_requests(self) -> Iterable[Manifest]:
        """Yield the requests of all templates of claims, except those for interfaces."""
        for (field, *_), spec in self._specs.items():
            devices = section(spec, "devices")
            for request in items(devices, "requests") if field == _TEMPLATE[1] else ():
                exact = section(request, "exactly")
                if exact.get("deviceClassName") not in labels.NETWORK_DEVICE_CLASSES:
                    yield {} if devices.get("constraints") else exact

    @property
    def not_followed(self) -> str:
        """The part of shown claims that planning does not follow, in words."""
        return self._slices.not_followed

    def with_published(self, node: NodeClass) -> NodeClass:
        """Return a node with its free devices, as its drivers publish them."""
        free = {} if node.is_template else self._slices.on(name_of(node.manifest))
        return replace(node, allocatable={**node.allocatable, **free}) if free else node

    def charge(self, spec: Manifest, namespace: str) -> Amounts:
        """Return the charge of the claims that are made for each pod, by the names of quotas."""
        return total(map(_charge, self._requests(spec, namespace, "resourceClaimTemplateName")))

    def classes(self, spec: Manifest, namespace: str) -> str:
        """Return the names of the device classes that a pod claims, for messages."""
        claimed = self._requests(spec, namespace, "resourceClaimTemplateName", "resourceClaimName")
        named: dict[str, None] = {}
        for request in claimed:
            for choice in items(request, "firstAvailable") or [section(request, "exactly")]:
                if "deviceClassName" in choice:
                    named[str(choice["deviceClassName"])] = None
        return ", ".join(named) or "classes that are not shown"

    def domains(self, spec: Manifest, namespace: str) -> list[str]:
        """Return the ComputeDomains of NVIDIA whose channels a pod claims."""
        claimed = [text_of(claim, _TEMPLATE[1]) for claim in items(spec, "resourceClaims")]
        keys = [(namespace, name) for name in claimed]
        return [self._domains[key] for key in keys if key in self._domains]

    def missing(self, spec: Manifest, namespace: str) -> list[str]:
        """Return the templates and classes that a pod needs and that are not shown."""
        field = _TEMPLATE[1]
        kind = _TEMPLATE[0]
        missing: list[str] = []
        for name in (text_of(claim, field) for claim in items(spec, "resourceClaims")):
            is_made = (namespace, name) in self._domains
            if name and not is_made and (field, namespace, name) not in self._specs:
                missing.append(f"{kind} {name}")
        # Without slices, the drivers come later, and their classes with them.
        for request in self._requests(spec, namespace, field) if self._has_slices else ():
            name = text_of(section(request, "exactly"), "deviceClassName")
            if name and name not in self._classes:
                missing.append(f"DeviceClass {name}")
        return [*dict.fromkeys(missing)]

    def sources(self, spec: Manifest, namespace: str) -> dict[str, str]:
        """Return the requests of templates of claims for each resource that a pod claims."""
        sources: dict[str, str] = {}
        for claim in items(spec, "resourceClaims"):
            name = text_of(claim, _TEMPLATE[1])
            template = self._specs.get((_TEMPLATE[1], namespace, name), {})
            for index, request in enumerate(items(section(template, "devices"), "requests")):
                if resource := self._slices.resource(section(request, "exactly")):
                    path = f"spec.spec.devices.requests[{index}].exactly"
                    sources[resource] = f"{path} of {_TEMPLATE[0]} {name}"
        return sources

    def interfaces(
        self, spec: Manifest, namespace: str, nodes: Sequence[NodeClass]
    ) -> Amounts | None:
        """Return the devices that a pod claims of its node, by the resources of their classes.

        These are interfaces, and devices that drivers publish. Return None if it claims anything
        else, or if some node that may accept the pod may have devices that are not known.

        ``allocationMode: All`` claims as many as the nodes have.
        """
        claimed: Amounts = {}
        for claim in items(spec, "resourceClaims"):
            name = str(claim.get("resourceClaimTemplateName"))
            devices = section(self._specs.get((_TEMPLATE[1], namespace, name), {}), "devices")
            if not devices.get("requests") or devices.get("constraints"):
                return None
            for request in items(devices, "requests"):
                exact = section(request, "exactly")
                name = exact.get("deviceClassName")
                is_interface = name in labels.NETWORK_DEVICE_CLASSES
                resource = f"{labels.DEVICES_OF_CLASS}{name}"
                if not is_interface:
                    resource = self._slices.resource(exact)
                followed = _COUNTED if is_interface else _COUNTED | {"selectors"}
                is_followed = resource and not exact.keys() - followed
                count = _interfaces(exact, resource, nodes) if is_followed else None
                if count is None:
                    return None
                claimed[resource] = claimed.get(resource, 0) + count
        return claimed

    def refusals(
        self, spec: Manifest, namespace: str, nodes: Sequence[NodeClass]
    ) -> Iterable[Refusal]:
        """Yield the refusal of requests that no node meets, or none that is set up for claims."""
        claimed = self._requests(spec, namespace, "resourceClaimTemplateName", "resourceClaimName")
        for device_request in claimed:
            request = section(device_request, "exactly")  # of alternatives, any may do
            if request.get("deviceClassName") in labels.NETWORK_DEVICE_CLASSES:
                yield from _refused_interfaces(request, nodes)
            if request.get("deviceClassName") != labels.GPU_DEVICE_CLASS:
                continue  # only its slices show what another driver has
            able = [node for node in nodes if self._may_meet(node, request)]
            count = _count(request)
            product = " and ".join(_products(request)) or ("GPU" if count == 1 else "GPUs")
            requested = f"{count} {product}"
            if not able:
                offers: list[str] = []
                for node in nodes:
                    offers += [f"{node.name} has {n} {gpu}" for gpu, n in self._gpus(node)]
                remedy = "Claim what one node has."
                if not offers:
                    offers = ["no node that takes its pods has GPUs"]
                    remedy = "Declare nodes with GPUs that its pods select and tolerate."
                message = f"it claims {requested} of one node, and {', '.join(offers)}"
                yield Refusal("device-claim", "resourceClaims", message, remedy)
            elif all(map(self._lacks_driver, able)):
                names = ", ".join(dict.fromkeys(node.name for node in able))
                label = f"the label {labels.GKE_DRA_DRIVER} for that"
                message = f"it claims {requested}, and {names} must have {label}"
                remedy = "Give the pool this label (GpuNodePool: dra), or request counted GPUs."
                is_certain = all(labels.GPU_DEVICE_CLASS in node.lacks for node in able)
                yield Refusal("device-claim", "resourceClaims", message, remedy, is_certain)

    def _lacks_driver(self, node: NodeClass) -> bool:
        is_of_gke = labels.GKE_NODE_POOL in node.labels and labels.GKE_DRA_DRIVER not in node.labels
        return is_of_gke and name_of(node.manifest) not in self._published

    def _may_meet(self, node: NodeClass, request: Manifest) -> bool:
        """Return whether a node may have the GPUs that are requested."""
        if labels.GPU_RESOURCE in node.lacks:
            return False
        is_open = not {labels.GKE_NODE_POOL, labels.GKE_ACCELERATOR_COUNT} <= node.labels.keys()
        is_published = name_of(node.manifest) in self._published
        if not is_published and is_open and labels.GKE_ACCELERATOR in node.labels:
            return True  # how many there are is not known
        if not is_published and labels.GKE_NODE_POOL not in node.labels:
            return True
        for product, count in self._gpus(node):
            is_wanted = product == "" or set(_products(request)) <= {product}
            if is_wanted and _count(request) <= count:
                return True
        return False

    def _gpus(self, node: NodeClass) -> list[tuple[str, int]]:
        """Return a node's GPUs by product, as its driver publishes them, or by GKE's labels."""
        if published := self._published.get(name_of(node.manifest)):
            return list(published.items())
        # Reading the catalog takes a third of the start-up time.
        from ml_foundations.catalog.machine_types import gpu_model

        model = gpu_model(node.labels.get(labels.GKE_ACCELERATOR, ""), node.labels)
        count = whole_number(node.labels.get(labels.GKE_ACCELERATOR_COUNT))
        return [(model.product, count)] if model else []

    def _requests(self, spec: Manifest, namespace: str, *fields: str) -> Iterable[Manifest]:
        for claim in items(spec, "resourceClaims"):
            for field in fields:
                claimed = self._specs.get((field, namespace, claim.get(field, "")), {})
                yield from items(section(claimed, "devices"), "requests")


def _charge(request: Manifest) -> Amounts:
    """Return the charge of a request: of alternatives, the most of each device class."""
    # Source: pkg/quota/v1/evaluator/core.
    charge: Amounts = {}
    for choice in items(request, "firstAvailable") or [section(request, "exactly")]:
        name = f"{choice.get('deviceClassName')}.deviceclass.resource.k8s.io/devices"
        count = _MOST_DEVICES if choice.get("allocationMode") == "All" else _count(choice)
        charge[name] = max(charge.get(name, 0), count * WHOLE)
    return charge


def _interfaces(request: Manifest, resource: str, nodes: Sequence[NodeClass]) -> int | None:
    """Return the interfaces that a request is for, in thousandths; None if that is not certain."""
    name = request.get("deviceClassName")
    counts = set[int]()
    for node in nodes:
        if node.unknown or not (resource in node.allocatable or name in node.lacks):
            return None
        counts.add(node.allocatable.get(resource, 0))
    if request.get("allocationMode") != "All":
        return _count(request) * WHOLE
    # A node without any device does not meet it.
    present = counts - {0}
    return max(present, default=WHOLE) if len(present) < 2 else None


def _refused_interfaces(request: Manifest, nodes: Sequence[NodeClass]) -> Iterable[Refusal]:
    """Yield why no node has the interfaces of a request."""
    name = str(request.get("deviceClassName"))
    resource = f"{labels.DEVICES_OF_CLASS}{name}"
    count = _count(request)
    most = 0
    for node in nodes:
        if node.unknown or not (resource in node.allocatable or name in node.lacks):
            return
        most = max(most, node.allocatable.get(resource, 0) // WHOLE)
    requested = "all" if request.get("allocationMode") == "All" else str(count)
    message = f"it claims {requested} of {name} of one node"
    if nodes and all(name in node.lacks for node in nodes):
        label = f"the label {labels.GKE_NETWORK_DRA_DRIVER}: true"
        message = f"{message}, and no node pool for it has {label}, without which there are none"
        remedy = "Let GKE make the networks of the pool (GpuNodePool: gpu_network managed)."
        yield Refusal("device-claim", "resourceClaims", message, remedy)
    elif nodes and most < count:
        message = f"{message}, and no node for it has more than {most}"
        yield Refusal("device-claim", "resourceClaims", message, "Claim what one node has.")


def _whole_gpus(spec: Manifest) -> Iterable[str]:
    """Yield the products of the whole GPUs of a slice, as GPU Feature Discovery writes them."""
    for device in items(spec, "devices"):
        attributes = section(device, "attributes") or section(device, "basic", "attributes")
        if section(attributes, "type").get("string", "gpu") == "gpu":
            yield str(section(attributes, "productName").get("string", "")).replace(" ", "-")


def _count(request: Manifest) -> int:
    """Return the number that is requested, as far as it is known."""
    count = request.get("count")
    is_exact = request.get("allocationMode", "ExactCount") == "ExactCount"
    return count if isinstance(count, int) and is_exact else 1


def _products(request: Manifest) -> list[str]:
    products: list[str] = []
    for selector in items(request, "selectors"):
        expression = str(section(selector, "cel").get("expression"))
        if match := PRODUCT.search(expression):
            products.append(match[1])
    return products
