"""The resource types that a rehearsal only records: inputs echoed, stable ids and the usual computed outputs."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rehearsal.plugins.gcp import sdk
from rehearsal.plugins.gcp.place import Place

Inputs = Mapping[str, Any]

ACCOUNT = "gcp:serviceaccount/account:Account"

_ID_FORMATS = {
    ACCOUNT: "projects/{project}/serviceAccounts/{email}",
    "gcp:artifactregistry/repository:Repository": "projects/{project}/locations/{location}/repositories/{repositoryId}",
    "gcp:compute/address:Address": "projects/{project}/regions/{region}/addresses/{name}",
    "gcp:compute/firewall:Firewall": "projects/{project}/global/firewalls/{name}",
    "gcp:compute/globalAddress:GlobalAddress": "projects/{project}/global/addresses/{name}",
    "gcp:compute/network:Network": "projects/{project}/global/networks/{name}",
    "gcp:compute/resourcePolicy:ResourcePolicy": "projects/{project}/regions/{region}/resourcePolicies/{name}",
    "gcp:compute/router:Router": "projects/{project}/regions/{region}/routers/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:compute/subnetwork:Subnetwork": "projects/{project}/regions/{region}/subnetworks/{name}",
    "gcp:filestore/instance:Instance": "projects/{project}/locations/{location}/instances/{name}",
    "gcp:projects/service:Service": "{project}/{service}",
    "gcp:storage/bucket:Bucket": "{name}",
}
"""Ids as the provider forms them, of the types that foundations use."""

_FORCES_NEW = (
    "name",
    "accountId",
    "location",
    "project",
    "region",
    "zone",
    "repositoryId",
    "service",
    "role",
    "member",
)


@dataclass(frozen=True)
class _Facts:
    """What the computed outputs of one resource are made of."""

    token: str
    inputs: Inputs
    id: str
    project: str
    values: Mapping[str, Any]
    now: str

    def digest(self, length: int = 8) -> str:
        return hashlib.sha256(f"{self.token}/{self.id}".encode()).hexdigest()[:length]

    def number(self, digits: int) -> str:
        return str(int(self.digest(32), 16))[:digits]

    def labels(self) -> dict[str, str]:
        return {**(self.inputs.get("labels") or {}), "goog-pulumi-provisioned": "true"}


def _self_link(facts: _Facts) -> str:
    if facts.token == "gcp:storage/bucket:Bucket":
        return f"https://www.googleapis.com/storage/v1/b/{facts.id}"
    return f"https://www.googleapis.com/compute/v1/{facts.id}"


def _gateway(facts: _Facts) -> str:
    return str(next(ipaddress.ip_network(facts.inputs["ipCidrRange"]).hosts()))


def _name(facts: _Facts) -> str:
    return facts.id if facts.token == ACCOUNT else facts.id.rpartition("/")[2]


CREATED = ("createTime", "creationTimestamp", "timeCreated")
"""Outputs that an update keeps."""

_COMPUTED: Mapping[str, Callable[[_Facts], Any]] = {
    "addressId": lambda facts: int(facts.number(16)),
    "createTime": lambda facts: facts.now,
    "creationTimestamp": lambda facts: facts.now,
    "effectiveLabels": _Facts.labels,
    "email": lambda facts: facts.values["email"],
    "etag": lambda facts: facts.digest(12),
    "fingerprint": lambda facts: facts.digest(12),
    "gatewayAddress": _gateway,
    "gatewayIpv4": lambda facts: "",
    "ipv6CidrRange": lambda facts: "",
    "ipv6GceEndpoint": lambda facts: "",
    "labelFingerprint": lambda facts: facts.digest(12),
    "member": lambda facts: f"serviceAccount:{facts.values['email']}",
    "name": _name,
    "networkId": lambda facts: facts.number(19),
    "numericId": lambda facts: facts.number(19),
    "projectNumber": lambda facts: int(str(int(hashlib.sha256(facts.project.encode()).hexdigest(), 16))[:12]),
    "pulumiLabels": _Facts.labels,
    "registryUri": lambda facts: f"{facts.values['location']}-docker.pkg.dev/{facts.project}/{_name(facts)}",
    "selfLink": _self_link,
    "state": lambda facts: "READY",
    "subnetworkId": lambda facts: int(facts.number(16)),
    "timeCreated": lambda facts: facts.now,
    "uniqueId": lambda facts: facts.number(21),
    "updateTime": lambda facts: facts.now,
    "updated": lambda facts: facts.now,
    "url": lambda facts: f"gs://{facts.id}",
    "users": lambda facts: [],
}
"""Outputs that only Google computes, by name. What is not here is missing from a state, and a test says so."""


def forces_new(token: str) -> tuple[str, ...]:
    """The properties whose change replaces a resource."""
    return tuple(key for key in _FORCES_NEW if key in sdk.inputs(token))


def identity(token: str, inputs: Inputs, place: Place) -> str:
    """The id of a resource, as the provider forms it."""
    return _id(token, inputs, _values(token, inputs, place))


def outputs(token: str, inputs: Inputs, place: Place, now: datetime | None = None) -> dict[str, Any]:
    """The outputs of a resource: its inputs, the provider's defaults and what Google computes."""
    values = _values(token, inputs, place)
    facts = _Facts(
        token=token,
        inputs=inputs,
        id=_id(token, inputs, values),
        project=values["project"],
        values=values,
        now=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
    )
    known = sdk.outputs(token)
    computed = {
        name: make(facts) for name, make in _COMPUTED.items() if name in known and name not in sdk.inputs(token)
    }
    defaults = {key: values[key] for key in ("project", "region", "location") if key in known and values.get(key)}
    if token.endswith(":Address"):
        defaults["address"] = f"203.0.113.{int(facts.digest(), 16) % 254 + 1}"
    return {**defaults, **inputs, **computed}


def _values(token: str, inputs: Inputs, place: Place) -> dict[str, Any]:
    project = place.project_of(inputs)
    values = {"project": project, "region": place.region_of(inputs), "location": place.region or place.zone, **inputs}
    if token == ACCOUNT:
        values["email"] = f"{inputs['accountId']}@{project}.iam.gserviceaccount.com"
    return values


def _id(token: str, inputs: Inputs, values: Mapping[str, Any]) -> str:
    if token in _ID_FORMATS:
        return _ID_FORMATS[token].format_map(values)
    if "IAM" in token.rpartition(":")[2]:
        holder = next(
            (inputs[key] for key in ("serviceAccountId", "bucket", "secretId", "service") if key in inputs), ""
        )
        return "/".join(filter(None, (holder or values["project"], inputs.get("role"), inputs.get("member"))))
    collection = token.split(":")[1].rpartition("/")[2]
    return f"projects/{values['project']}/{collection}s/{inputs.get('name') or _unnamed(inputs)}"


def _unnamed(inputs: Inputs) -> str:
    return hashlib.sha256(repr(sorted(inputs.items())).encode()).hexdigest()[:12]
