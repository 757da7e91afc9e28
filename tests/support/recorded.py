"""Resources that the embedded gcp plugin records, and the outputs that it leaves out."""

from collections.abc import Mapping
from typing import Any

from ml_foundations.rehearsal.plugins.sdk import GCP

NETWORK = {"network": "net"}
MEMBER = {"role": "r", "member": "m"}
VIEWER = {"role": "roles/viewer", "member": "user:a@b.c", "project": "acme"}
SOME_SUBNETWORKS = {"sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS"}
IMAGES = {"repositoryId": "images", "location": "us", "format": "DOCKER"}

RECORDED = {
    "gcp:serviceaccount/account:Account": {"accountId": "trainer"},
    "gcp:compute/network:Network": {"name": "net"},
    "gcp:compute/subnetwork:Subnetwork": NETWORK | {"name": "sub", "ipCidrRange": "10.0.0.0/20"},
    "gcp:compute/router:Router": {"name": "router", "network": "net"},
    "gcp:compute/routerNat:RouterNat": {"name": "nat", "router": "router", **SOME_SUBNETWORKS},
    "gcp:compute/address:Address": {"name": "ip"},
    "gcp:compute/firewall:Firewall": {"name": "fw", "network": "net"},
    "gcp:projects/service:Service": {"service": "container.googleapis.com"},
    "gcp:projects/iAMMember:IAMMember": VIEWER,
    "gcp:serviceaccount/iAMMember:IAMMember": MEMBER | {"serviceAccountId": "sa"},
    "gcp:storage/bucket:Bucket": {"name": "bucket", "location": "US"},
    "gcp:storage/bucketIAMMember:BucketIAMMember": MEMBER | {"bucket": "bucket"},
    "gcp:artifactregistry/repository:Repository": IMAGES,
}
"""Inputs of some recorded types."""


def unmodelled(token: str, state: Mapping[str, Any]) -> set[str]:
    """The outputs that only Google computes and that a state lacks: a program would read None."""
    return set(GCP[token].computed - state.keys())
