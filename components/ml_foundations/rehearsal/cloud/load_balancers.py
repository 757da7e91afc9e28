"""GKE's load balancers, as far as users see them: an address for each Service of that type and each served Ingress."""

import hashlib
from collections.abc import Container, Iterable
from ipaddress import ip_network

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, name_of, namespace_of, section
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud.informer import Informer, attempt

SERVICES = "/api/v1/services"
INGRESSES = "/apis/networking.k8s.io/v1/ingresses"
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
ADDRESSES = [str(address) for address in ip_network("198.51.100.0/24").hosts()]
"""Addresses for documentation (RFC 5737, TEST-NET-2): nothing on the internet has one, and no recorded Address."""

_GKE_CLASSES = "networking.gke.io/"
"""Prefix of the classes of load balancers that GKE makes itself."""
_GKE_INGRESSES = ("", "gce", labels.INTERNAL_INGRESS)
"""The annotation of an Ingress that GKE's own controller serves (GKE, Ingress for Application Load Balancers)."""


class LoadBalancers:
    """Writes an address into the status of each object that has none; it stays."""

    def __init__(
        self, api: Api, services: Informer, ingresses: Informer, classes: Informer
    ) -> None:
        self._api, self._services, self._ingresses, self._classes = (
            api,
            services,
            ingresses,
            classes,
        )

    def reconcile(self) -> None:
        """One round: an address for each object that has none."""
        found = [(SERVICES, item) for item in self._services.items() if _is_for_gke(item)]
        # Whoever declares a class runs its controller in pods, which do not run here: its addresses come from here.
        classes = set(map(name_of, self._classes.items()))
        found += [(INGRESSES, item) for item in self._ingresses.items() if is_served(item, classes)]
        taken = {address for _, item in found for address in _addresses(item)}
        for path, item in found:
            if not _addresses(item):
                given = item["spec"].get("loadBalancerIP") or address(
                    item["metadata"]["uid"], taken
                )
                taken.add(given)
                version, _, kind = path.rpartition("/")
                status = f"{version}/namespaces/{namespace_of(item)}/{kind}/{name_of(item)}/status"
                with attempt(f"the address of {name_of(item)}"):
                    self._api.patch(
                        status, {"status": {"loadBalancer": {"ingress": [{"ip": given}]}}}
                    )


def address(uid: str, taken: Container[str]) -> str:
    """An address that follows from an object's uid, or the next one that is free; shared where none is."""
    start = int.from_bytes(hashlib.sha256(uid.encode()).digest()) % len(ADDRESSES)
    in_order = ADDRESSES[start:] + ADDRESSES[:start]
    return next((one for one in in_order if one not in taken), in_order[0])


def is_served(ingress: Object, classes: Container[str]) -> bool:
    """Whether GKE or a controller of the cluster gives an Ingress its address; GKE does not read ingressClassName."""
    chosen, noted = (
        ingress["spec"].get("ingressClassName"),
        annotations_of(ingress).get(labels.INGRESS_CLASS, ""),
    )
    return chosen in classes if chosen else noted in _GKE_INGRESSES or noted in classes


def _is_for_gke(service: Object) -> bool:
    spec = service["spec"]
    return spec.get("type") == "LoadBalancer" and spec.get(
        "loadBalancerClass", _GKE_CLASSES
    ).startswith(_GKE_CLASSES)


def _addresses(item: Object) -> Iterable[str]:
    return [
        entry["ip"]
        for entry in items(section(item, "status", "loadBalancer"), "ingress")
        if "ip" in entry
    ]
