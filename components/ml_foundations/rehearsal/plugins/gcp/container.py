"""GKE's clusters and node pools: their ids, and the outputs that Google computes."""

import base64
import hashlib
import re
from typing import Any

from ml_foundations.catalog.pools import CLUSTER, NODE_POOL
from ml_foundations.rehearsal.cloud.nodes import KUBERNETES_VERSION
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.control_plane.configuration import Credentials
from ml_foundations.rehearsal.plugins.gcp.errors import bad_request
from ml_foundations.rehearsal.plugins.gcp.location import (
    GcpLocation,
    Inputs,
    check_zones,
    default_zones,
    is_zone,
    region_of,
)
from ml_foundations.rehearsal.plugins.sdk import GCP

_GKE_VERSION = KUBERNETES_VERSION.removeprefix("v")

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")


def cluster_id(inputs: Inputs, place: GcpLocation) -> str:
    """The id of a cluster, as the provider forms it."""
    return parent_id({**inputs, "cluster": inputs["name"]}, place)


def pool_id(inputs: Inputs, place: GcpLocation) -> str:
    """The id of a node pool, as the provider forms it."""
    return f"{parent_id(inputs, place)}/nodePools/{inputs['name']}"


def parent_id(inputs: Inputs, place: GcpLocation) -> str:
    """The id of the cluster of a node pool."""
    cluster = inputs["cluster"].rpartition("/")[2]
    return f"projects/{place.project_of(inputs)}/locations/{place.location_of(inputs)}/clusters/{cluster}"


def check_cluster(inputs: Inputs, place: GcpLocation) -> None:
    """Refuse what GKE would refuse of a cluster."""
    check_name("Cluster", inputs["name"])
    if inputs.get("enableAutopilot") and is_zone(place.location_of(inputs)):
        raise bad_request("Autopilot clusters must be regional clusters")
    if not any(inputs.get(key) for key in ("enableAutopilot", "nodePools", "initialNodeCount")):
        raise bad_request("Cluster.initial_node_count must be greater than zero")
    check_zones(list(inputs.get("nodeLocations") or []), place.location_of(inputs))


def check_name(what: str, name: str) -> None:
    """Refuse a name that GKE does not take."""
    if not _NAME.fullmatch(name):
        raise bad_request(
            f'Invalid value for field "name": "{name}". {what} names have up to 40 lower-case letters, digits '
            "and hyphens, begin with a letter and end with a letter or digit"
        )


def cluster_outputs(inputs: Inputs, place: GcpLocation, api_server: Credentials) -> dict[str, Any]:
    """The outputs of a cluster: its inputs and what Google computes."""
    address = api_server.server.removeprefix("https://")
    endpoints = {"privateEndpoint": address, "publicEndpoint": address}
    identity = cluster_id(inputs, place)
    project, location, name = place.project_of(inputs), place.location_of(inputs), inputs["name"]
    kind = "zones" if is_zone(location) else "locations"
    managed = dict(inputs.get("resourceLabels") or {}) | {"goog-pulumi-provisioned": "true"}
    dns = ((inputs.get("controlPlaneEndpointsConfig") or {}).get("dnsEndpointConfig")) or {}
    zones = [
        zone for zone in inputs.get("nodeLocations") or default_zones(location) if zone != location
    ]
    return {
        **GCP[CLUSTER].constants,
        "controlPlaneEndpointsConfig": {
            **(inputs.get("controlPlaneEndpointsConfig") or {}),
            "dnsEndpointConfig": {"allowExternalTraffic": False, **dns, "endpoint": address},
            "ipEndpointsConfig": endpoints,
        },
        **dict.fromkeys(("effectiveLabels", "pulumiLabels"), managed),
        "endpoint": address,
        "labelFingerprint": _digest(identity, str(sorted(managed.items()))),
        "location": location,
        **dict.fromkeys(("masterVersion", "nodeVersion"), _GKE_VERSION),
        "name": name,
        "project": project,
        "selfLink": f"https://container.googleapis.com/v1/projects/{project}/{kind}/{location}/clusters/{name}",
        "subnetwork": f"projects/{project}/regions/{region_of(location)}/subnetworks/default",
        **{
            key: value
            for key, value in inputs.items()
            if key not in ("controlPlaneEndpointsConfig", "nodeLocations")
        },
        "masterAuth": {
            "clientCertificate": "",
            "clientCertificateConfig": {"issueClientCertificate": False},
            "clientKey": "",
            "clusterCaCertificate": base64.b64encode(api_server.ca.read_bytes()).decode(),
        },
        "network": _network(inputs.get("network") or "default", project),
        "nodeLocations": zones,
        "privateClusterConfig": {
            **(inputs.get("privateClusterConfig") or {}),
            "peeringName": "",
            **endpoints,
        },
    }


SHORT_LIVED = {"strategy": "SHORT_LIVED", "maxSurge": 0, "maxUnavailable": 0}
"""How GKE upgrades flex-start and queued nodes, whatever a program asks for (GKE, "Node upgrade strategies")."""


def as_gke_has_it(inputs: Inputs, pool: Pool) -> dict[str, Any]:
    """The inputs of a node pool as a refresh finds them: GKE upgrades some pools its own way."""
    forced = {"upgradeSettings": SHORT_LIVED} if pool.flex_start or pool.queued else {}
    return {**inputs, **{key: value for key, value in forced.items() if key in inputs}}


def pool_outputs(inputs: Inputs, place: GcpLocation, pool: Pool) -> dict[str, Any]:
    """The outputs of a node pool: its inputs and what Google computes."""
    project, location = place.project_of(inputs), place.location_of(inputs)
    groups = [
        f"https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}/"
        f"instanceGroupManagers/gke-{pool.cluster}-{pool.name}-{_digest(pool.cluster, pool.name, zone)}-grp"
        for zone in pool.zones
    ]
    per_zone = pool.initial_nodes // len(pool.zones)
    return {
        **GCP[NODE_POOL].constants,
        **dict.fromkeys(("initialNodeCount", "nodeCount"), per_zone),
        "location": location,
        "maxPodsPerNode": pool.max_pods,
        "project": project,
        "version": _GKE_VERSION,
        **inputs,
        "instanceGroupUrls": groups,
        "managedInstanceGroupUrls": [url.replace("Managers", "s") for url in groups],
        "nodeLocations": list(pool.zones),
    }


def _network(network: str, project: str) -> str:
    short = network.removeprefix("https://www.googleapis.com/compute/v1/")
    return short if "/" in short else f"projects/{project}/global/networks/{short}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]
