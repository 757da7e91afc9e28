"""What a project has from its start: its network ``default``, with a subnetwork in each region, and its nodes' account.

Sources: Google Cloud, "Auto mode VPC network" (the network, its range 10.128.0.0/9) and "Service accounts" (Compute
Engine's default one).
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.rehearsal.plugins.gcp import recorded
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation

NETWORK, SUBNETWORK = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
_REGION = re.compile(r"(?:^|/)regions/([^/]+)/")
_RANGES = list(ipaddress.ip_network("10.128.0.0/9").subnets(new_prefix=20))


def of_type(token: str, place: GcpLocation, region: str = "") -> Iterator[Mapping[str, Any]]:
    """The resources of a type that nobody declared, as the provider reads them; a subnetwork of one region."""
    region = region or place.region_of({})
    if not place.project or (token == SUBNETWORK and not region):
        return
    network = f"projects/{place.project}/global/networks/default"
    number = int(
        hashlib.sha256(region.encode()).hexdigest(), 16
    )  # Google has a table of the ranges.
    known: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
        NETWORK: ({"name": "default"}, {"autoCreateSubnetworks": True, "routingMode": "REGIONAL"}),
        SUBNETWORK: (
            {"name": "default", "network": network, "region": region},
            {"ipCidrRange": str(_RANGES[number % len(_RANGES)]), "privateIpGoogleAccess": False},
        ),
        recorded.ACCOUNT: (
            {"accountId": f"{recorded.project_number(place.project)}-compute"},
            {"displayName": "Compute Engine default service account", "disabled": False},
        ),
    }
    if token not in known:
        return
    given, more = known[token]
    identity = recorded.identity(token, given, place, "")
    outputs = recorded.outputs(token, given | more, place, identity)
    yield {"type": token, "id": identity, "inputs": given, "outputs": outputs}


def region_in(identity: str) -> str:
    """The region that an id names, or nothing."""
    found = _REGION.search(identity)
    return found[1] if found else ""
