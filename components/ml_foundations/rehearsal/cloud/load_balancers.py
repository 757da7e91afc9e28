"""GKE's load balancers: they give an address to each Service of that type and each Ingress."""

import hashlib
from collections.abc import Container
from ipaddress import ip_network

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, name_of, section
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.project_objects import follow
from ml_foundations.rehearsal.cloud.statuses import set_status

SERVICES = "/api/v1/services"
INGRESSES = "/apis/networking.k8s.io/v1/ingresses"
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
ADDRESSES = list(map(str, ip_network("198.51.100.0/24").hosts()))
"""Addresses for documentation (RFC 5737, TEST-NET-2). Nothing on the internet has one."""

_GKE_CLASSES = "networking.gke.io/"
"""The prefix of the classes of GKE's own load balancers."""
_GKE_INGRESSES = ("", "gce", labels.INTERNAL_INGRESS)
"""Classes that GKE's controller serves (GKE, Ingress for Application Load Balancers)."""


class LoadBalancerController(Controller):
    """Writes an address into the status of each object that has none."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._services = cluster.watch(SERVICES)
        self._ingresses = cluster.watch(INGRESSES)
        self._classes = cluster.watch(CLASSES)

    def reconcile(self) -> None:
        """Give an address to each object that has none, and make what it needs in the project."""
        of_gke: list[tuple[str, Object, bool]] = []
        for item in self._services.items():
            balancer_class = item["spec"].get("loadBalancerClass", _GKE_CLASSES)
            is_balancer = item["spec"].get("type") == "LoadBalancer"
            of_gke.append((SERVICES, item, is_balancer and balancer_class.startswith(_GKE_CLASSES)))
        of_gke += [(INGRESSES, item, is_served(item, ())) for item in self._ingresses.items()]
        objects: list[tuple[str, Object]] = []
        # The controller of a class that the program declares is in pods, which do not run here.
        classes = set(map(name_of, self._classes.items()))
        for collection, item, is_of_gke in of_gke:
            with attempt(f"what {name_of(item)} needs in the project"):
                follow(self.cluster, collection, item, is_served=is_of_gke)
            if is_of_gke or (collection == INGRESSES and is_served(item, classes)):
                objects.append((collection, item))
        taken = set[str]().union(*(_addresses(item) for _, item in objects))
        for collection, item in objects:
            if _addresses(item):
                continue
            ip = item["spec"].get("loadBalancerIP") or address(item["metadata"]["uid"], taken)
            taken.add(ip)
            with attempt(f"the address of {name_of(item)}"):
                status = {"loadBalancer": {"ingress": [{"ip": ip}]}}
                set_status(self.api, collection, item, status)


def address(uid: str, taken: Container[str]) -> str:
    """Return an address for an object's uid, or the next free one; shared if none is free."""
    start = int.from_bytes(hashlib.sha256(uid.encode()).digest()) % len(ADDRESSES)
    candidates = ADDRESSES[start:] + ADDRESSES[:start]
    return next((ip for ip in candidates if ip not in taken), candidates[0])


def is_served(ingress: Object, classes: Container[str]) -> bool:
    """Return whether an Ingress gets an address from GKE or from a controller of the cluster."""
    # GKE's controller reads the annotation, but not this field.
    if class_name := ingress["spec"].get("ingressClassName"):
        return class_name in classes
    annotation = annotations_of(ingress).get(labels.INGRESS_CLASS, "")
    return annotation in _GKE_INGRESSES or annotation in classes


def _addresses(item: Object) -> list[str]:
    entries = items(section(item, "status", "loadBalancer"), "ingress")
    return [entry["ip"] for entry in entries if "ip" in entry]
