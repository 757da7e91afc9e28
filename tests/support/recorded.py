"""Resources that the embedded gcp plugin records, and the outputs that it leaves out."""

from collections.abc import Mapping
from typing import Any

from ml_foundations.rehearsal.plugins.sdk import GCP

RECORDED = {
    "gcp:serviceaccount/account:Account": {"accountId": "trainer"},
    "gcp:compute/network:Network": {"name": "net"},
    "gcp:compute/subnetwork:Subnetwork": {
        "name": "sub",
        "network": "net",
        "ipCidrRange": "10.0.0.0/20",
    },
    "gcp:compute/router:Router": {"name": "router", "network": "net"},
    "gcp:compute/routerNat:RouterNat": {
        "name": "nat",
        "router": "router",
        "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
    },
    "gcp:compute/address:Address": {"name": "ip"},
    "gcp:compute/firewall:Firewall": {"name": "fw", "network": "net"},
    "gcp:projects/service:Service": {"service": "container.googleapis.com"},
    "gcp:projects/iAMMember:IAMMember": {
        "role": "roles/viewer",
        "member": "user:a@b.c",
        "project": "acme",
    },
    "gcp:serviceaccount/iAMMember:IAMMember": {
        "serviceAccountId": "sa",
        "role": "r",
        "member": "m",
    },
    "gcp:storage/bucket:Bucket": {"name": "bucket", "location": "US"},
    "gcp:storage/bucketIAMMember:BucketIAMMember": {"bucket": "bucket", "role": "r", "member": "m"},
    "gcp:artifactregistry/repository:Repository": {
        "repositoryId": "images",
        "location": "us",
        "format": "DOCKER",
    },
}
"""Inputs of some recorded types."""


def unmodelled(token: str, state: Mapping[str, Any]) -> set[str]:
    """The outputs that only Google computes and that a state lacks: a program would read None."""
    return set(GCP[token].computed - state.keys())
