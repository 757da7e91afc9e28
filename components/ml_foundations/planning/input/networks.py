"""Networks that nodes of GKE are in besides the cluster's, by the objects that name them."""

from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.trees import UNKNOWN

Networks = Mapping[tuple[str, str], list[str]]
"""The names of Networks by VPC network and subnetwork."""
_GROUP, _OF_NODES = "networking.gke.io/", "additionalNodeNetworkConfigs"
_OTHERS = ("acceleratorNetworkProfile", "additionalPodNetworkConfigs")
"""The fields for networks whose names GKE generates, or that pods share."""


def device_networks(documents: Iterable[Manifest]) -> Networks:
    """Return the Networks in which each pod gets a whole device of its node.

    GKE compares the last parts of names (kubernetes/cloud-provider-gcp,
    multinetwork_cloud_cidr_allocator.go).
    """
    of_gke = [each for each in documents if str(each.get("apiVersion")).startswith(_GROUP)]
    parameters = {
        name_of(each): section(each, "spec")
        for each in of_gke
        if each["kind"] == "GKENetworkParamSet"
    }
    found: dict[tuple[str, str], list[str]] = {}
    for network in of_gke:
        spec = section(network, "spec")
        of = parameters.get(str(section(spec, "parametersRef").get("name")), {})
        if (
            network["kind"] == "Network"
            and spec.get("type") == "Device"
            and name_of(network) is not UNKNOWN
        ):
            found.setdefault((_last(of.get("vpc")), _last(of.get("vpcSubnet"))), []).append(
                name_of(network)
            )
    return {key: names for key, names in found.items() if all(key)}


def _last(name: Any) -> str:
    return name.rpartition("/")[2] if isinstance(name, str) else ""


def advertised(pool: Manifest, networks: Networks) -> tuple[list[str], frozenset[str]]:
    """Return the resources that nodes of a pool advertise for networks.

    If these are certainly all, return also what the nodes lack.
    """
    config = section(pool, "networkConfig")
    keys = [
        (_last(each.get("network")), _last(each.get("subnetwork"))) for each in _additional(config)
    ]
    names = [f"{labels.GKE_NETWORKS}{name}" for key in keys for name in networks.get(key, ())]
    others = (
        pool.get("networkConfig") is UNKNOWN,
        *map(config.get, _OTHERS),
        not all(key in networks for key in keys),
    )
    return [*names, *(f"{name}.IP" for name in names)], frozenset(
        () if any(others) else [labels.GKE_NETWORKS]
    )


def _additional(config: Manifest) -> list[Manifest]:
    if config.get(_OF_NODES) is UNKNOWN:
        return [{}]
    return [{} if each is UNKNOWN else each for each in items(config, _OF_NODES)]
