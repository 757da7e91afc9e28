"""GKE's load balancers, as far as they show: each Service of that type and each Ingress has an address."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable
from ipaddress import ip_network

from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud.attempts import attempt
from ml_foundations.rehearsal.cloud.informer import Informer

SERVICES = "/api/v1/services"
INGRESSES = "/apis/networking.k8s.io/v1/ingresses"
ADDRESSES = [str(address) for address in ip_network("198.51.100.0/24").hosts()]
"""Addresses for documentation (RFC 5737, TEST-NET-2): nothing on the internet has one, and no recorded Address."""

_GKE_CLASSES = "networking.gke.io/"
"""Prefix of the classes of load balancers that GKE makes itself."""


class LoadBalancers:
    """Gives addresses out, in the status of what waits for one. Who has one keeps it."""

    def __init__(self, api: Api, services: Informer, ingresses: Informer) -> None:
        self._api, self._services, self._ingresses = api, services, ingresses

    def reconcile(self) -> None:
        """One round: an address for each object that has none."""
        services = [item for item in self._services.items() if _is_for_gke(item)]
        # Whatever the class of an Ingress: a controller that a cluster runs in pods for it does not run here.
        found = [(SERVICES, item) for item in services]
        found += [(INGRESSES, item) for item in self._ingresses.items()]
        taken = {address for _, item in found for address in _addresses(item)}
        for path, item in found:
            if not _addresses(item):
                given = item["spec"].get("loadBalancerIP") or address(item["metadata"]["uid"], taken)
                taken.add(given)
                with attempt(f"the address of {item['metadata']['name']}"):
                    self._api.patch(
                        f"{_of_namespace(path, item)}/status",
                        {"status": {"loadBalancer": {"ingress": [{"ip": given}]}}},
                    )


def address(uid: str, taken: Container[str]) -> str:
    """An address that follows from an object's uid, or the next one that is free; shared where none is."""
    start = int.from_bytes(hashlib.sha256(uid.encode()).digest()) % len(ADDRESSES)
    in_order = ADDRESSES[start:] + ADDRESSES[:start]
    return next((one for one in in_order if one not in taken), in_order[0])


def _is_for_gke(service: Object) -> bool:
    spec = service["spec"]
    return spec.get("type") == "LoadBalancer" and spec.get("loadBalancerClass", _GKE_CLASSES).startswith(_GKE_CLASSES)


def _addresses(item: Object) -> Iterable[str]:
    return [entry["ip"] for entry in (item["status"].get("loadBalancer") or {}).get("ingress") or [] if "ip" in entry]


def _of_namespace(path: str, item: Object) -> str:
    """The path of an object, from that of its kind in all namespaces."""
    version, _, kind = path.rpartition("/")
    return f"{version}/namespaces/{item['metadata']['namespace']}/{kind}/{item['metadata']['name']}"
