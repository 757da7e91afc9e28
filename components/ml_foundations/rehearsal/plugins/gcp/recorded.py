"""The resources that a rehearsal only records, and those that a project has from its start.

Sources of the latter: Google Cloud, "Auto mode VPC network" (the network ``default``, its range
10.128.0.0/9, and a subnetwork in each region) and "Service accounts" (Compute Engine's own).
"""

import base64
import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation, Inputs
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.protocol.values import Secret

ACCOUNT = "gcp:serviceaccount/account:Account"
_IAM = re.compile(r":\w*(IAM|Iam)(Member|Binding|Policy|AuditConfig)$")
_GRANTED = {"members", "policyData", "auditLogConfigs"}
"""The inputs of IAM resources that change in place."""
_LOCATION = {"project", "region", "zone", "location"}
_NODE_ACCOUNT = re.compile(r"\d+-compute")
"""The account of a project's nodes, which Google creates."""
_FIELD = re.compile(r"\{([^{}]+)\}")
_REGION = re.compile(r"(?:^|/)regions/([^/]+)/")
_RANGES = list(ipaddress.ip_network("10.128.0.0/9").subnets(new_prefix=20))


@dataclass(frozen=True)
class _Facts:
    """The facts from which the computed outputs of one resource are derived."""

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

    def self_link(self) -> str:
        if self.token == "gcp:storage/bucket:Bucket":
            return f"https://www.googleapis.com/storage/v1/b/{self.id}"
        return f"https://www.googleapis.com/compute/v1/{self.id}"

    def name(self) -> str:
        return self.id if self.token == ACCOUNT else self.id.rpartition("/")[2]

    def address(self) -> str:
        return f"203.0.113.{int(self.digest(), 16) % 254 + 1}"

    def first_host(self) -> str:
        return str(next(ipaddress.ip_network(self.values["ipCidrRange"]).hosts()))

    def registry_uri(self) -> str:
        host = f"{self.values['location']}-docker.pkg.dev"
        return f"{host}/{self.values['project']}/{self.name()}"


CREATED = ("createTime", "creationTimestamp", "timeCreated")
"""Outputs that an update keeps."""

_PRIVATE_KEY = base64.b64encode(b'{"type": "service_account"}').decode()
_COMPUTED: Mapping[str, Callable[[_Facts], Any]] = {
    **dict.fromkeys((*CREATED, "updateTime", "updated"), lambda facts: facts.now),
    **dict.fromkeys(("effectiveLabels", "pulumiLabels"), _Facts.labels),
    **dict.fromkeys(("etag", "fingerprint", "labelFingerprint"), lambda facts: facts.digest(12)),
    **dict.fromkeys(("gatewayIpv4", "ipv6CidrRange", "ipv6GceEndpoint"), lambda facts: ""),
    **dict.fromkeys(("addressId", "subnetworkId"), lambda facts: int(facts.number(16))),
    **dict.fromkeys(("networkId", "numericId"), lambda facts: facts.number(19)),
    **dict.fromkeys(("firstIpAddress", "host", "ipAddress"), _Facts.address),
    **dict.fromkeys(("privateIpAddress", "publicIpAddress"), _Facts.address),
    "connectionName": lambda facts: "{project}:{region}:".format_map(facts.values) + facts.name(),
    "email": lambda facts: facts.values["email"],
    "gatewayAddress": _Facts.first_host,
    "ipAddresses": lambda facts: [{"ipAddress": facts.address(), "type": "PRIMARY"}],
    "member": lambda facts: f"serviceAccount:{facts.values['email']}",
    "name": _Facts.name,
    "privateKey": lambda facts: Secret(_PRIVATE_KEY),
    "projectNumber": lambda facts: int(project_number(facts.values["project"])),
    "registryUri": _Facts.registry_uri,
    "selfLink": _Facts.self_link,
    "state": lambda facts: "READY",
    "uniqueId": lambda facts: facts.number(21),
    "url": lambda facts: f"gs://{facts.id}",
    "users": lambda facts: [],
}
"""The outputs that only Google computes, by name. A test finds those that are missing here."""


def project_number(project: str) -> str:
    """Return the number of a project."""
    return str(int(hashlib.sha256(project.encode()).hexdigest(), 16))[:12]


def replaced_for(token: str) -> tuple[str, ...]:
    """Return the properties whose change replaces a resource, by its data or by its id."""
    kind = GCP[token]
    of_id = (_id_inputs(token) | _LOCATION | {"namePrefix"}) & kind.inputs
    return kind.replaced_for or tuple(sorted(of_id))


def is_shared(token: str) -> bool:
    """Return whether Google allows two equal resources, as to grant or enable something twice."""
    return token == "gcp:projects/service:Service" or _is_iam(token)


def identity(token: str, inputs: Inputs, location: GcpLocation, urn: str) -> str:
    """Return the id of a resource; derived from its urn if Google would choose one."""
    values = _values(token, inputs, location)
    if _is_iam(token):
        keys = sorted(_id_inputs(token) - {"condition", "role", "member"})
        parts = [values.get(key) for key in (*keys, "role", "member")]
        parts.append((inputs.get("condition") or {}).get("title"))
        return "/".join(map(str, filter(None, parts)))
    fields = _id_fields(token)
    if fields and values.keys() >= fields:
        return GCP[token].id_format.format_map(values)
    collection = token.split(":")[1].rpartition("/")[2]
    # Google chooses such an id. A replacement, which has the same urn, must get another one.
    source = repr([urn, *map(values.get, replaced_for(token))])
    chosen = hashlib.sha256(source.encode()).hexdigest()[:12]
    return f"projects/{values['project']}/{collection}s/{chosen}"


def outputs(token: str, inputs: Inputs, location: GcpLocation, identity: str) -> dict[str, Any]:
    """Return the outputs of a resource: its inputs, defaults, and what Google computes."""
    values = _values(token, inputs, location)
    kind = GCP[token]
    facts = _Facts(token, identity, values)
    properties = {key: values[key] for key in sorted(_LOCATION & kind.outputs) if values.get(key)}
    if token.endswith((":Address", ":GlobalAddress")):
        properties["address"] = facts.address()
    names = [name for name in _COMPUTED if name in kind.computed]
    return {**properties, **inputs, **{name: _COMPUTED[name](facts) for name in names}}


def defaults_of(token: str, location: GcpLocation, region: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield the resources of a type that a project has from its start, in one region."""
    region = region or location.region_of({})
    if not location.project or (token == SUBNETWORK and not region):
        return
    declared: dict[str, Any] = {"name": "default"}
    facts: dict[str, Any]
    if token == ACCOUNT:
        declared = {"accountId": f"{project_number(location.project)}-compute"}
        facts = {"displayName": "Compute Engine default service account", "disabled": False}
    elif token == NETWORK:
        facts = {"autoCreateSubnetworks": True, "routingMode": "REGIONAL"}
    elif token == SUBNETWORK:
        network = f"projects/{location.project}/global/networks/default"
        declared |= {"network": network, "region": region}
        # Google has a table of the ranges. Here, any separate range is enough.
        number = int(hashlib.sha256(region.encode()).hexdigest(), 16)
        subnet = str(_RANGES[number % len(_RANGES)])
        facts = {"ipCidrRange": subnet, "privateIpGoogleAccess": False}
    else:
        return
    new_id = identity(token, declared, location, "")
    computed = outputs(token, declared | facts, location, new_id)
    yield {"type": token, "id": new_id, "inputs": declared, "outputs": computed}


def region_in(identity: str) -> str:
    """Return the region that an id names; empty if it names none."""
    match = _REGION.search(identity)
    return match[1] if match else ""


def _values(token: str, inputs: Inputs, location: GcpLocation) -> dict[str, Any]:
    """Return the inputs of a resource, over the provider's defaults."""
    project = location.project_of(inputs)
    values = {
        "project": project,
        "region": location.region_of(inputs),
        "zone": location.zone,
        "location": location.region or location.zone,
        **inputs,
    }
    if token == ACCOUNT:
        account = inputs["accountId"]
        domain = "developer" if _NODE_ACCOUNT.fullmatch(account) else f"{project}.iam"
        values["email"] = f"{account}@{domain}.gserviceaccount.com"
    return values


def _is_iam(token: str) -> bool:
    return _IAM.search(token) is not None


def _id_fields(token: str) -> set[str]:
    return set(_FIELD.findall(GCP[token].id_format))


def _id_inputs(token: str) -> set[str]:
    kind = GCP[token]
    fields = _id_fields(token)
    if _is_iam(token):
        return ({*kind.required, *_LOCATION, "name", "condition"} & kind.inputs) - _GRANTED
    if fields and fields <= kind.inputs | _LOCATION:
        return fields & kind.inputs
    # Google chooses a part of the id. A name, if the type has one, takes its place.
    return {*(fields or kind.required), "name"} & kind.inputs
