"""The look-ups of the gcp package, answered from the rehearsal's place and what it recorded."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_foundations.rehearsal.cloud.nodes import KUBERNETES_VERSION
from ml_foundations.rehearsal.plugins.gcp import default_resources, recorded
from ml_foundations.rehearsal.plugins.gcp.errors import not_found
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation, Inputs, zones_of
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.progress import RehearsalError

Entries = Callable[[str, str], Iterable[Inputs]]
"""Gives the resources of a type, with what the project has from its start; that in a region, if one is named."""

_GETTER = re.compile(r"gcp:(\w+)/get(\w)(\w+):get\w+")
_REGIONS = {
    "asia-northeast1",
    "asia-southeast1",
    "europe-west1",
    "europe-west4",
    "us-central1",
    "us-east1",
    "us-west1",
}
"""Some that have GPUs; a program's own is added."""

_RETYPED: Mapping[str, Callable[[Any], Any]] = {"networkId": int, "users": ",".join}
"""Outputs that a look-up has in another type than the resource."""


def answer(
    function: str, given: Inputs, place: GcpLocation, entries: Entries, token: str
) -> dict[str, Any]:
    """What a function returns; the token is the program's for Google's APIs.

    Raises:
        RehearsalError: a rehearsal does not answer it, or finds nothing.
    """
    service, first, rest = (
        found.groups() if (found := _GETTER.fullmatch(function)) else ("", "", "")
    )
    if (answered := _answered(f"{service}/{first}{rest}", given, place, token)) is not None:
        return {"id": function, **given, **answered}
    kind = f"gcp:{service}/{first.lower()}{rest}:{first}{rest}"
    if kind not in GCP:
        raise RehearsalError(
            f"{function}: a rehearsal does not answer this function of pulumi-gcp. Give the program what it looks up "
            "as configuration, or declare the resource and use its outputs"
        )
    for entry in entries(kind, given.get("region", "")):
        if all(_matches(entry, key, value) for key, value in given.items()):
            outputs = _as_lookup(kind, entry["outputs"] | _subnetworks(entry, entries))
            retyped = {
                key: make(outputs[key])
                for key, make in _RETYPED.items()
                if outputs.get(key) is not None
            }
            return outputs | retyped | {"id": entry["id"]}
    wanted = ", ".join(f"{key} {value}" for key, value in given.items())
    raise not_found(
        f"{kind} with {wanted}; a rehearsal finds what the stack declares, and a project's default network"
    )


def _matches(entry: Inputs, key: str, value: Any) -> bool:
    """Whether a resource has what a look-up names: in full, or by the last part of a link."""
    has = entry["outputs"].get(key)
    return (
        value in (has, entry["id"]) or str(has).rpartition("/")[2] == str(value).rpartition("/")[2]
    )


def _subnetworks(network: Inputs, entries: Entries) -> dict[str, Any]:
    if network["type"] != default_resources.NETWORK:
        return {}
    found = (one["outputs"] for one in entries(default_resources.SUBNETWORK, ""))
    return {
        "subnetworksSelfLinks": [
            one["selfLink"] for one in found if _matches(network, "selfLink", one["network"])
        ]
    }


def _as_lookup(block: str, outputs: Inputs) -> dict[str, Any]:
    """Outputs as a look-up has them: what a resource has as a single block is a list of one there."""
    found = dict(outputs)
    for name, below in (GCP[block] if block in GCP else GCP.block(block)).blocks.items():
        if isinstance(value := found.get(name), Mapping):
            plural = (
                name
                if name.endswith("s")
                else f"{name.removesuffix('y')}{'ies' if name.endswith('y') else 's'}"
            )
            found[plural] = [_as_lookup(below, value)]
        elif isinstance(value, list):
            found[name] = [_as_lookup(below, item) for item in value]
    return found


def _answered(name: str, given: Inputs, place: GcpLocation, token: str) -> dict[str, Any] | None:
    """The answers that need no resource; None for another look-up."""
    region = given.get("region") or place.region_of({})
    match name:
        case "compute/DefaultServiceAccount":
            [account] = default_resources.of_type(
                recorded.ACCOUNT, GcpLocation(place.project_of(given))
            )
            return account["outputs"] | {"id": account["id"]}
        case "compute/Regions":
            return {"project": place.project_of(given), "names": sorted(_REGIONS | {region} - {""})}
        case "compute/Zones" if region:
            return {"project": place.project_of(given), "region": region, "names": zones_of(region)}
        case "container/EngineVersions":
            return _engine_versions(given, place)
        case "container/RegistryImage" | "container/RegistryRepository":
            project = place.project_of(given)
            host = f"{given['region']}.gcr.io" if given.get("region") else "gcr.io"
            url = f"{host}/{project.replace(':', '/')}"
            version = (
                f":{given['tag']}"
                if given.get("tag")
                else f"@{given['digest']}"
                if given.get("digest")
                else ""
            )
            return {
                "project": project,
                "repositoryUrl": url,
                "imageUrl": f"{url}/{given.get('name')}{version}",
            }
        case "organizations/ClientConfig":
            identity = f"projects/{place.project}/regions/{region}/zones/{place.zone}"
            own = {"id": identity, "accessToken": token, "defaultLabels": {}}
            return own | {"project": place.project, "region": region, "zone": place.zone}
        case "organizations/IAMPolicy":
            return {"policyData": json.dumps({key: value for key, value in given.items() if value})}
        case "organizations/Project":
            return _project(given.get("projectId") or place.project_of({}))
        case "projects/Project":
            # Whatever the filter asks for: the project of the rehearsal is the only one.
            return {"projects": [_project(place.project_of({}))]}
        case _:
            return None


def _project(project: str) -> dict[str, Any]:
    return {
        **dict.fromkeys(("billingAccount", "folderId", "orgId"), ""),
        **{key: {} for key in ("labels", "effectiveLabels", "pulumiLabels", "tags")},
        "id": f"projects/{project}",
        **dict.fromkeys(("projectId", "name"), project),
        "number": recorded.project_number(project),
        "autoCreateNetwork": True,
    }


def _engine_versions(given: Inputs, place: GcpLocation) -> dict[str, Any]:
    version = KUBERNETES_VERSION.removeprefix("v")
    valid = [version] if version.startswith(given.get("versionPrefix") or "") else []
    channels = dict.fromkeys(("RAPID", "REGULAR", "STABLE", "EXTENDED"), version)
    return {
        "defaultClusterVersion": version,
        **dict.fromkeys(("latestMasterVersion", "latestNodeVersion"), "".join(valid)),
        **dict.fromkeys(("validMasterVersions", "validNodeVersions"), valid),
        **dict.fromkeys(
            (f"releaseChannel{what}Version" for what in ("Default", "Latest", "UpgradeTarget")),
            channels,
        ),
        "location": place.location_of(given),
        "project": place.project_of(given),
    }
