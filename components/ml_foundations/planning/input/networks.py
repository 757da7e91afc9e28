"""Networks that nodes of GKE are in besides the cluster's, by the objects that name them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths

GROUP = "networking.gke.io/"
_OF_NODES = "additionalNodeNetworkConfigs"
_OTHERS = ("acceleratorNetworkProfile", "additionalPodNetworkConfigs")
"""The fields for networks whose names GKE generates, or that pods share."""


@dataclass(frozen=True)
class Networks:
    """The Networks in which each pod gets a whole device of its node."""

    names: Mapping[tuple[str, str], list[str]] = field(default_factory=dict[Any, list[str]])
    """Their names by VPC network and subnetwork."""
    is_complete: bool = False
    """Whether there are no others."""


def device_networks(documents: Iterable[Manifest], *, are_all: bool = False) -> Networks:
    """Return the Networks of devices. With ``are_all``, there are no documents besides these.

    GKE compares the last parts of names (kubernetes/cloud-provider-gcp,
    multinetwork_cloud_cidr_allocator.go).
    """
    networks: list[Manifest] = []
    parameters: dict[str, Manifest] = {}
    for document in documents:
        if str(document.get("apiVersion")).startswith(GROUP):
            are_all &= not any(unknown_paths(document))
            if document["kind"] == "GKENetworkParamSet":
                parameters[name_of(document)] = section(document, "spec")
            elif document["kind"] == "Network" and name_of(document) is not UNKNOWN:
                networks.append(document)
    names: dict[tuple[str, str], list[str]] = {}
    for network in networks:
        spec = section(network, "spec")
        vpc = parameters.get(str(section(spec, "parametersRef").get("name")), {})
        key = last_part(vpc.get("vpc")), last_part(vpc.get("vpcSubnet"))
        if spec.get("type") == "Device" and all(key):
            names.setdefault(key, []).append(name_of(network))
    return Networks(names, are_all)


def last_part(name: Any) -> str:
    """Return the name of a network at the end of its path or address."""
    return name.rpartition("/")[2] if isinstance(name, str) else ""


def advertised(pool: Manifest, networks: Networks) -> tuple[list[str], frozenset[str]]:
    """Return the resources that nodes of a pool advertise for networks.

    If these are certainly all, return also what the nodes lack.
    """
    config = section(pool, "networkConfig")
    are_all = pool.get("networkConfig") is not UNKNOWN and not any(map(config.get, _OTHERS))
    are_all &= config.get(_OF_NODES) is not UNKNOWN
    names: list[str] = []
    for additional in items(config, _OF_NODES):  # empty if it is not known
        key = last_part(additional.get("network")), last_part(additional.get("subnetwork"))
        are_all &= key in networks.names or (networks.is_complete and all(key))
        names += networks.names.get(key, ())
    resources = [f"{labels.GKE_NETWORKS}{name}" for name in names]
    resources += [f"{resource}.IP" for resource in resources]
    return resources, frozenset([labels.GKE_NETWORKS] if are_all else [])
