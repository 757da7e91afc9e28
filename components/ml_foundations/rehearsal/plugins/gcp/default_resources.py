"""The resources that a project has from its start: network, subnetworks, account of nodes.

Sources: Google Cloud, "Auto mode VPC network" (the network ``default``, its range 10.128.0.0/9, and
a subnetwork in each region) and "Service accounts" (Compute Engine's default one).
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


def of_type(token: str, location: GcpLocation, region: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield the default resources of a type, as the provider reads them, in one region."""
    region = region or location.region_of({})
    if not location.project or (token == SUBNETWORK and not region):
        return
    inputs: dict[str, Any]
    facts: dict[str, Any]
    if token == recorded.ACCOUNT:
        number = recorded.project_number(location.project)
        inputs = {"accountId": f"{number}-compute"}
        facts = {"displayName": "Compute Engine default service account", "disabled": False}
    elif token == NETWORK:
        inputs = {"name": "default"}
        facts = {"autoCreateSubnetworks": True, "routingMode": "REGIONAL"}
    elif token == SUBNETWORK:
        network = f"projects/{location.project}/global/networks/default"
        inputs = {"name": "default", "network": network, "region": region}
        # Google has a table of the ranges. Here, any separate range is enough.
        number = int(hashlib.sha256(region.encode()).hexdigest(), 16)
        subnet = str(_RANGES[number % len(_RANGES)])
        facts = {"ipCidrRange": subnet, "privateIpGoogleAccess": False}
    else:
        return
    identity = recorded.identity(token, inputs, location, "")
    outputs = recorded.outputs(token, inputs | facts, location, identity)
    yield {"type": token, "id": identity, "inputs": inputs, "outputs": outputs}


def region_in(identity: str) -> str:
    """Return the region that an id names; empty if it names none."""
    match = _REGION.search(identity)
    return match[1] if match else ""
