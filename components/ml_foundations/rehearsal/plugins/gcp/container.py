"""GKE's clusters and node pools: their ids, and the outputs that Google computes."""

import base64
import hashlib
import re

from ml_foundations.catalog.locations import is_zone, region_of
from ml_foundations.catalog.pools import CLUSTER, NODE_POOL
from ml_foundations.rehearsal.cloud.nodes import KUBERNETES_VERSION
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.control_plane.configuration import Credentials
from ml_foundations.rehearsal.plugins.gcp import location as locations
from ml_foundations.rehearsal.plugins.gcp.errors import bad_request
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation, Inputs
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.protocol.values import Properties

_GKE_VERSION = KUBERNETES_VERSION.removeprefix("v")
_COMPUTE_API = "https://www.googleapis.com/compute/v1/"
_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
SHORT_LIVED = {"strategy": "SHORT_LIVED", "maxSurge": 0, "maxUnavailable": 0}
"""The upgrade of flex-start and queued nodes in any case (GKE, "Node upgrade strategies")."""


def cluster_id(inputs: Inputs, location: GcpLocation) -> str:
    """Return the id of a cluster, as the provider forms it."""
    return parent_id({**inputs, "cluster": inputs["name"]}, location)


def parent_id(inputs: Inputs, location: GcpLocation) -> str:
    """Return the id of the cluster of a node pool."""
    project = location.project_of(inputs)
    cluster = inputs["cluster"].rpartition("/")[2]
    return f"projects/{project}/locations/{location.location_of(inputs)}/clusters/{cluster}"


def check_cluster(inputs: Inputs, location: GcpLocation) -> None:
    """Refuse a cluster that GKE would refuse."""
    check_name("Cluster", inputs["name"])
    if inputs.get("enableAutopilot") and is_zone(location.location_of(inputs)):
        raise bad_request("Autopilot clusters must be regional clusters")
    if not any(inputs.get(key) for key in ("enableAutopilot", "nodePools", "initialNodeCount")):
        raise bad_request("Cluster.initial_node_count must be greater than zero")
    locations.check_zones(list(inputs.get("nodeLocations") or []), location.location_of(inputs))


def check_name(what: str, name: str) -> None:
    """Refuse a name that GKE does not accept."""
    if not _NAME.fullmatch(name):
        raise bad_request(
            f'Invalid value for field "name": "{name}". {what} names have up to 40 lower-case '
            "letters, digits and hyphens, begin with a letter and end with a letter or digit"
        )


def cluster_outputs(inputs: Inputs, location: GcpLocation, api_server: Credentials) -> Properties:
    """Return the outputs of a cluster: its inputs and what Google computes."""
    # The replica's API server has one address, for which every kind of endpoint stands.
    address = api_server.server.removeprefix("https://")
    endpoints = {"privateEndpoint": address, "publicEndpoint": address}
    project = location.project_of(inputs)
    place = location.location_of(inputs)
    name = inputs["name"]
    identity = cluster_id(inputs, location)
    labels = {**(inputs.get("resourceLabels") or {}), "goog-pulumi-provisioned": "true"}
    zones = inputs.get("nodeLocations") or locations.default_zones(place)
    kind = "zones" if is_zone(place) else "locations"
    region = region_of(place)
    cluster_path = f"projects/{project}/{kind}/{place}/clusters/{name}"
    endpoints_config = inputs.get("controlPlaneEndpointsConfig") or {}
    dns_config = endpoints_config.get("dnsEndpointConfig") or {}
    defaults = {
        **GCP[CLUSTER].constants,
        **dict.fromkeys(("effectiveLabels", "pulumiLabels"), labels),
        "endpoint": address,
        "labelFingerprint": _digest(identity, str(sorted(labels.items()))),
        "location": place,
        **dict.fromkeys(("masterVersion", "nodeVersion"), _GKE_VERSION),
        "name": name,
        "project": project,
        "selfLink": f"https://container.googleapis.com/v1/{cluster_path}",
        "subnetwork": f"projects/{project}/regions/{region}/subnetworks/default",
    }
    network = (inputs.get("network") or "default").removeprefix(_COMPUTE_API)
    computed = {
        "controlPlaneEndpointsConfig": {
            **endpoints_config,
            "dnsEndpointConfig": {"allowExternalTraffic": False, **dns_config, "endpoint": address},
            "ipEndpointsConfig": endpoints,
        },
        "masterAuth": {
            "clientCertificate": "",
            "clientCertificateConfig": {"issueClientCertificate": False},
            "clientKey": "",
            "clusterCaCertificate": base64.b64encode(api_server.ca.read_bytes()).decode(),
        },
        "network": network if "/" in network else f"projects/{project}/global/networks/{network}",
        "nodeLocations": [zone for zone in zones if zone != place],
        "privateClusterConfig": {
            **(inputs.get("privateClusterConfig") or {}),
            "peeringName": "",
            **endpoints,
        },
    }
    return {**defaults, **inputs, **computed}


def inputs_at_refresh(inputs: Inputs, pool: Pool) -> Properties:
    """Return the inputs of a pool as a refresh finds them: GKE upgrades some in its own way."""
    if (pool.flex_start or pool.queued) and "upgradeSettings" in inputs:
        return {**inputs, "upgradeSettings": SHORT_LIVED}
    return dict(inputs)


def pool_outputs(inputs: Inputs, location: GcpLocation, pool: Pool) -> Properties:
    """Return the outputs of a node pool: its inputs and what Google computes."""
    project = location.project_of(inputs)
    groups: list[str] = []
    for zone in pool.zones:
        digest = _digest(pool.cluster, pool.name, zone)
        group = f"instanceGroupManagers/gke-{pool.cluster}-{pool.name}-{digest}-grp"
        groups.append(f"{_COMPUTE_API}projects/{project}/zones/{zone}/{group}")
    # Both counts of nodes are per zone, and a pool has as many in each.
    per_zone = pool.initial_nodes // len(pool.zones)
    return {
        **GCP[NODE_POOL].constants,
        **dict.fromkeys(("initialNodeCount", "nodeCount"), per_zone),
        "location": location.location_of(inputs),
        "maxPodsPerNode": pool.max_pods,
        "project": project,
        "version": _GKE_VERSION,
        **inputs,
        "instanceGroupUrls": groups,
        "managedInstanceGroupUrls": [url.replace("Managers", "s") for url in groups],
        "nodeLocations": list(pool.zones),
    }


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]
