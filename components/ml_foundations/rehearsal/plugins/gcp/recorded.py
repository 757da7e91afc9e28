"""The resource types that a rehearsal only records: inputs echoed, stable ids and the usual computed outputs."""

import base64
import hashlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation, Inputs
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.protocol.values import Secret

ACCOUNT = "gcp:serviceaccount/account:Account"

_SERVICE = "gcp:projects/service:Service"
_IAM = re.compile(r":\w*(IAM|Iam)(Member|Binding|Policy|AuditConfig)$")
_GRANTED = {"members", "policyData", "auditLogConfigs"}
"""What IAM resources change in place."""
_PLACE = {"project", "region", "zone", "location"}
_OF_NODES = re.compile(r"\d+-compute")
"""The account of a project's nodes, which Google makes."""
_FIELD = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class _Facts:
    """What the computed outputs of one resource are derived from."""

    token: str
    id: str
    values: Mapping[str, Any]
    """The inputs, over the provider's defaults."""
    now: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def digest(self, length: int = 8) -> str:
        return hashlib.sha256(f"{self.token}/{self.id}".encode()).hexdigest()[:length]

    def number(self, digits: int) -> str:
        return str(int(self.digest(32), 16))[:digits]

    def labels(self) -> dict[str, str]:
        return {**(self.values.get("labels") or {}), "goog-pulumi-provisioned": "true"}


def _self_link(facts: _Facts) -> str:
    if facts.token == "gcp:storage/bucket:Bucket":
        return f"https://www.googleapis.com/storage/v1/b/{facts.id}"
    return f"https://www.googleapis.com/compute/v1/{facts.id}"


def _name(facts: _Facts) -> str:
    return facts.id if facts.token == ACCOUNT else facts.id.rpartition("/")[2]


def _address(facts: _Facts) -> str:
    return f"203.0.113.{int(facts.digest(), 16) % 254 + 1}"


CREATED = ("createTime", "creationTimestamp", "timeCreated")
"""Outputs that an update keeps."""

_COMPUTED: Mapping[str, Callable[[_Facts], Any]] = {
    **dict.fromkeys((*CREATED, "updateTime", "updated"), lambda facts: facts.now),
    **dict.fromkeys(("effectiveLabels", "pulumiLabels"), _Facts.labels),
    **dict.fromkeys(("etag", "fingerprint", "labelFingerprint"), lambda facts: facts.digest(12)),
    **dict.fromkeys(("gatewayIpv4", "ipv6CidrRange", "ipv6GceEndpoint"), lambda facts: ""),
    **dict.fromkeys(("addressId", "subnetworkId"), lambda facts: int(facts.number(16))),
    **dict.fromkeys(("networkId", "numericId"), lambda facts: facts.number(19)),
    **dict.fromkeys(
        ("firstIpAddress", "host", "ipAddress", "privateIpAddress", "publicIpAddress"), _address
    ),
    "connectionName": lambda facts: "{project}:{region}:".format_map(facts.values) + _name(facts),
    "email": lambda facts: facts.values["email"],
    "gatewayAddress": lambda facts: str(
        next(ipaddress.ip_network(facts.values["ipCidrRange"]).hosts())
    ),
    "ipAddresses": lambda facts: [{"ipAddress": _address(facts), "type": "PRIMARY"}],
    "member": lambda facts: f"serviceAccount:{facts.values['email']}",
    "name": _name,
    "privateKey": lambda facts: Secret(base64.b64encode(b'{"type": "service_account"}').decode()),
    "projectNumber": lambda facts: int(project_number(facts.values["project"])),
    "registryUri": lambda facts: (
        "{location}-docker.pkg.dev/{project}/".format_map(facts.values) + _name(facts)
    ),
    "selfLink": _self_link,
    "state": lambda facts: "READY",
    "uniqueId": lambda facts: facts.number(21),
    "url": lambda facts: f"gs://{facts.id}",
    "users": lambda facts: [],
}
"""Outputs that only Google computes, by name. A test finds those that are missing here."""


def project_number(project: str) -> str:
    """The number of a project."""
    return str(int(hashlib.sha256(project.encode()).hexdigest(), 16))[:12]


def replaced_for(token: str) -> tuple[str, ...]:
    """The properties whose change replaces a resource: those of its data, or those that make its id, and its place."""
    kind = GCP[token]
    return kind.replaced_for or tuple(
        sorted((_id_inputs(token) | _PLACE | {"namePrefix"}) & kind.inputs)
    )


def is_shared(token: str) -> bool:
    """Whether two resources may be the same to Google: granting or enabling again is not an error."""
    return token == _SERVICE or _is_iam(token)


def identity(token: str, inputs: Inputs, place: GcpLocation, urn: str) -> str:
    """The id of a resource, as the provider forms it; made of its urn where Google itself would choose one."""
    values = _values(token, inputs, place)
    if _is_iam(token):
        condition = (inputs.get("condition") or {}).get("title")
        holder = (
            values.get(key) for key in sorted(_id_inputs(token) - {"condition", "role", "member"})
        )
        return "/".join(
            str(part)
            for part in (*holder, values.get("role"), values.get("member"), condition)
            if part
        )
    fields = _id_fields(token)
    if fields and values.keys() >= fields:
        return GCP[token].id_format.format_map(values)
    collection = token.split(":")[1].rpartition("/")[2]
    chosen = hashlib.sha256(
        repr([urn, *(values.get(key) for key in replaced_for(token))]).encode()
    ).hexdigest()[:12]
    return f"projects/{values['project']}/{collection}s/{chosen}"


def outputs(token: str, inputs: Inputs, place: GcpLocation, identity: str) -> dict[str, Any]:
    """The outputs of a resource: its inputs, the provider's defaults and what Google computes."""
    values = _values(token, inputs, place)
    facts, kind = _Facts(token, identity, values), GCP[token]
    computed = {name: make(facts) for name, make in _COMPUTED.items() if name in kind.computed}
    defaults = {key: values[key] for key in sorted(_PLACE & kind.outputs) if values.get(key)}
    if token.endswith((":Address", ":GlobalAddress")):
        defaults["address"] = _address(facts)
    return {**defaults, **inputs, **computed}


def _values(token: str, inputs: Inputs, place: GcpLocation) -> dict[str, Any]:
    project = place.project_of(inputs)
    defaults = {
        "region": place.region_of(inputs),
        "zone": place.zone,
        "location": place.region or place.zone,
    }
    values = {"project": project, **defaults, **inputs}
    if token == ACCOUNT:
        domain = "developer" if _OF_NODES.fullmatch(inputs["accountId"]) else f"{project}.iam"
        values["email"] = f"{inputs['accountId']}@{domain}.gserviceaccount.com"
    return values


def _is_iam(token: str) -> bool:
    return _IAM.search(token) is not None


def _id_fields(token: str) -> set[str]:
    return set(_FIELD.findall(GCP[token].id_format))


def _id_inputs(token: str) -> set[str]:
    """The inputs that an id consists of."""
    kind, fields = GCP[token], _id_fields(token)
    if _is_iam(token):
        return ({*kind.required, *_PLACE, "name", "condition"} & kind.inputs) - _GRANTED
    if fields and fields <= kind.inputs | _PLACE:
        return fields & kind.inputs
    # Google chooses a part of the id; the name, where there is one, stands for it.
    return {*(fields or kind.required), "name"} & kind.inputs
