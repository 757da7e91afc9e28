"""The resource types that a rehearsal only records: inputs echoed, stable ids and the usual computed outputs."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ml_foundations.rehearsal.plugins.gcp.place import Place
from ml_foundations.rehearsal.plugins.sdk import GCP

Inputs = Mapping[str, Any]

ACCOUNT = "gcp:serviceaccount/account:Account"

_ID_FORMATS = {
    ACCOUNT: "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
    "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager": (
        "projects/{project}/regions/{region}/instanceGroupManagers/{name}"
    ),
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:dns/recordSet:RecordSet": "projects/{project}/managedZones/{managedZone}/rrsets/{name}/{type}",
    "gcp:organizations/iAMCustomRole:IAMCustomRole": "organizations/{orgId}/roles/{roleId}",
    "gcp:projects/iAMCustomRole:IAMCustomRole": "projects/{project}/roles/{roleId}",
    "gcp:storage/bucket:Bucket": "{name}",
    "gcp:storage/bucketObject:BucketObject": "{bucket}-{name}",
    "gcp:workflows/workflow:Workflow": "projects/{project}/locations/{region}/workflows/{name}",
}
"""Ids as the provider forms them, where the SDK's documentation does not say it, or says it otherwise."""

_SERVICE = "gcp:projects/service:Service"
_IAM = re.compile(r":\w*(IAM|Iam)(Member|Binding|Policy|AuditConfig)$")
_GRANTED = {"members", "policyData", "auditLogConfigs"}
"""What IAM resources change in place."""
_PLACE = {"project", "region", "zone", "location"}
_FIELD = re.compile(r"\{([^{}]+)\}")


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
    """The properties whose change replaces a resource: those that make its id, and its place."""
    return tuple(sorted((_id_inputs(token) | _PLACE | {"namePrefix"}) & GCP[token].inputs))


def is_shared(token: str) -> bool:
    """Whether two resources may be the same to Google: granting or enabling again is not an error."""
    return token == _SERVICE or _is_iam(token)


def identity(token: str, inputs: Inputs, place: Place, urn: str) -> str:
    """The id of a resource, as the provider forms it; made of its urn where Google itself would choose one."""
    values = _values(token, inputs, place)
    if _is_iam(token):
        condition = (inputs.get("condition") or {}).get("title")
        holder = (values.get(key) for key in sorted(_id_inputs(token) - {"condition", "role", "member"}))
        return "/".join(str(part) for part in (*holder, values.get("role"), values.get("member"), condition) if part)
    fields = _id_fields(token)
    if fields and values.keys() >= fields:
        return _id_format(token).format_map(values)
    collection = token.split(":")[1].rpartition("/")[2]
    chosen = hashlib.sha256(repr([urn, *(values.get(key) for key in forces_new(token))]).encode()).hexdigest()[:12]
    return f"projects/{values['project']}/{collection}s/{chosen}"


def outputs(token: str, inputs: Inputs, place: Place, identity: str) -> dict[str, Any]:
    """The outputs of a resource: its inputs, the provider's defaults and what Google computes."""
    values = _values(token, inputs, place)
    facts = _Facts(
        token=token,
        inputs=inputs,
        id=identity,
        project=values["project"],
        values=values,
        now=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    kind = GCP[token]
    computed = {name: make(facts) for name, make in _COMPUTED.items() if name in kind.computed}
    defaults = {key: values[key] for key in sorted(_PLACE & kind.outputs) if values.get(key)}
    if token.endswith(":Address"):
        defaults["address"] = f"203.0.113.{int(facts.digest(), 16) % 254 + 1}"
    return {**defaults, **inputs, **computed}


def _values(token: str, inputs: Inputs, place: Place) -> dict[str, Any]:
    project = place.project_of(inputs)
    defaults = {"region": place.region_of(inputs), "zone": place.zone, "location": place.region or place.zone}
    values = {"project": project, **defaults, **inputs}
    if token == ACCOUNT:
        values["email"] = f"{inputs['accountId']}@{project}.iam.gserviceaccount.com"
    return values


def _is_iam(token: str) -> bool:
    return _IAM.search(token) is not None


def _id_format(token: str) -> str:
    return _ID_FORMATS.get(token) or GCP[token].id_format


def _id_fields(token: str) -> set[str]:
    return set(_FIELD.findall(_id_format(token)))


def _id_inputs(token: str) -> set[str]:
    """The inputs that make an id."""
    kind, fields = GCP[token], _id_fields(token)
    if _is_iam(token):
        return ({*kind.required, *_PLACE, "name", "condition"} & kind.inputs) - _GRANTED
    if fields and fields <= kind.inputs | _PLACE:
        return fields & kind.inputs
    # Google chooses a part of the id; the name, where there is one, stands for it.
    return {*(fields or kind.required), "name"} & kind.inputs
