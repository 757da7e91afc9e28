"""Devices that pods claim (DRA): how many, and whether the nodes of a pool may have them.

Drivers publish devices in ResourceSlices once a node exists, which are read if they are shown.
Before that, only the GPUs of a GKE node pool are known, and only for the class of whole NVIDIA
GPUs. Any other claim is undetermined.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, total
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal

PRODUCT = re.compile(r"""productName\.replace\(['"] ['"], ['"]-['"]\) == ['"]([^'"]+)['"]""")
"""The condition on the product that our components write."""
_CLAIM = ("ResourceClaim", "resourceClaimName", "spec")
_TEMPLATE = ("ResourceClaimTemplate", "resourceClaimTemplateName", "spec", "spec")
"""A kind, the field by which pods name it, and where it has the requests."""
_MOST_DEVICES = 32
"""As many as one claim may have: what a request for all of a node counts as."""


class DeviceClaims:
    """The ResourceClaims and their templates that are declared."""

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        self._specs: dict[tuple[str, str, str], Manifest] = {}
        for kind, field, *path in (_CLAIM, _TEMPLATE):
            for claim in by_kind.get(kind, ()):
                self._specs[field, *key_of(claim)] = section(claim, *path)
        self._published: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The whole GPUs that drivers publish, by node and product."""
        for published in by_kind.get("ResourceSlice", ()):
            spec = section(published, "spec")
            node = spec.get("nodeName")
            if spec.get("driver") == labels.GPU_DEVICE_CLASS and isinstance(node, str):
                self._published[node].update(_whole_gpus(spec))

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

    def refusals(
        self, spec: Manifest, namespace: str, nodes: Sequence[NodeClass]
    ) -> Iterable[Refusal]:
        """Yield the refusal of requests that no node meets, or none that is set up for claims."""
        claimed = self._requests(spec, namespace, "resourceClaimTemplateName", "resourceClaimName")
        for device_request in claimed:
            request = section(device_request, "exactly")  # of alternatives, any may do
            if request.get("deviceClassName") != labels.GPU_DEVICE_CLASS:
                continue  # only its slices show what another driver has
            able = [node for node in nodes if self._may_meet(node, request)]
            count = _count(request)
            product = " and ".join(_products(request)) or ("GPU" if count == 1 else "GPUs")
            wanted = f"{count} {product}"
            if not able:
                message = f"it claims {wanted} of one node, and {self._offer(nodes)}"
                remedy = "Claim what one node has."
                yield Refusal("device-claim", "resourceClaims", message, remedy)
            elif all(map(self._lacks_driver, able)):
                names = ", ".join(dict.fromkeys(node.name for node in able))
                label = f"the label {labels.GKE_DRA_DRIVER} for that"
                message = f"it claims {wanted}, and {names} must have {label}"
                remedy = "Give the pool this label (GpuNodePool: dra), or request counted GPUs."
                is_certain = all(labels.GPU_DEVICE_CLASS in node.lacks for node in able)
                yield Refusal("device-claim", "resourceClaims", message, remedy, is_certain)

    def _offer(self, nodes: Sequence[NodeClass]) -> str:
        """Return the GPUs of nodes in words."""
        offers: list[str] = []
        for node in nodes:
            offers += [f"{node.name} has {count} {product}" for product, count in self._gpus(node)]
        return ", ".join(offers) or "no node has GPUs"

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
        published = self._published.get(name_of(node.manifest), Counter())
        return list(published.items()) or _labelled_gpus(node)

    def _requests(self, spec: Manifest, namespace: str, *fields: str) -> Iterable[Manifest]:
        """Yield the requests for devices of a pod's claims."""
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


def _whole_gpus(spec: Manifest) -> Iterable[str]:
    """Yield the products of the whole GPUs of a slice, as GPU Feature Discovery writes them."""
    for device in items(spec, "devices"):
        attributes = section(device, "attributes") or section(device, "basic", "attributes")
        if section(attributes, "type").get("string", "gpu") == "gpu":
            yield str(section(attributes, "productName").get("string", "")).replace(" ", "-")


def _labelled_gpus(node: NodeClass) -> list[tuple[str, int]]:
    """Return the product and the number of a node's GPUs, by GKE's labels."""
    # Reading the catalog takes a third of the start-up time.
    from ml_foundations.catalog.machine_types import gpu_model

    model = gpu_model(node.labels.get(labels.GKE_ACCELERATOR, ""), node.labels)
    return [(model.product, int(node.labels.get(labels.GKE_ACCELERATOR_COUNT, 0)))] if model else []


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
