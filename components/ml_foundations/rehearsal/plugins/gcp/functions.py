"""The look-ups of the gcp package, answered from the rehearsal's place and what it recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_foundations.rehearsal.cloud.nodes import KUBERNETES_VERSION
from ml_foundations.rehearsal.plugins.gcp import existing, recorded
from ml_foundations.rehearsal.plugins.gcp.errors import not_found
from ml_foundations.rehearsal.plugins.gcp.place import Place, zones_of
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.progress import RehearsalError

Inputs = Mapping[str, Any]
Entries = Callable[[str, str], Iterable[Inputs]]
"""Gives the resources of a type, with what the project has from its start; that in a region, if one is named."""

_GETTER = re.compile(r"gcp:(\w+)/get(\w+):get\w+")
_CHANNELS = ("RAPID", "REGULAR", "STABLE", "EXTENDED")
_REGIONS = {"asia-northeast1", "asia-southeast1", "europe-west1", "europe-west4", "us-central1", "us-east1", "us-west1"}
"""Some that have GPUs; a program's own is added."""


def answer(function: str, arguments: Inputs, place: Place, entries: Entries) -> dict[str, Any]:
    """What a function returns.

    Raises:
        RehearsalError: a rehearsal does not answer it, or finds nothing.
    """
    found = _GETTER.fullmatch(function)
    if found and (answered := _ANSWERED.get(f"{found[1]}/{found[2]}")):
        return {"id": function, **arguments, **answered(arguments, place)}
    kind = f"gcp:{found[1]}/{_lowered(found[2])}:{found[2]}" if found else ""
    if kind not in GCP:
        raise RehearsalError(
            f"{function}: a rehearsal does not answer this function of pulumi-gcp. Give the program what it looks up "
            "as configuration, or declare the resource and use its outputs"
        )
    for entry in entries(kind, arguments.get("region", "")):
        if all(_matches(entry, key, value) for key, value in arguments.items()):
            more = {"subnetworksSelfLinks": _subnetworks(entry, entries)} if kind == existing.NETWORK else {}
            return _as_lookup(kind, entry["outputs"]) | more | {"id": entry["id"]}
    wanted = ", ".join(f"{key} {value}" for key, value in arguments.items())
    raise not_found(f"{kind} with {wanted}; a rehearsal finds what the stack declares, and a project's default network")


def _matches(entry: Inputs, key: str, value: Any) -> bool:
    """Whether a resource has what a look-up names: in full, or by the last part of a link."""
    has = entry["outputs"].get(key)
    return value in (has, entry["id"]) or str(has).rpartition("/")[2] == str(value).rpartition("/")[2]


def _subnetworks(network: Inputs, entries: Entries) -> list[str]:
    found = entries(existing.SUBNETWORK, "")
    return [one["outputs"]["selfLink"] for one in found if _matches(network, "selfLink", one["outputs"]["network"])]


def _as_lookup(block: str, outputs: Inputs) -> dict[str, Any]:
    """Outputs as a look-up has them: what a resource has as a single block is a list of one there."""
    blocks = (GCP[block] if block in GCP else GCP.block(block)).blocks
    found = dict(outputs)
    for name, below in blocks.items():
        value = found.get(name)
        if isinstance(value, Mapping):
            found[_plural(name)] = [_as_lookup(below, value)]
        elif isinstance(value, list):
            found[name] = [_as_lookup(below, item) for item in value]
    return found


def _plural(name: str) -> str:
    return name if name.endswith("s") else f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _lowered(name: str) -> str:
    return name[0].lower() + name[1:]


def _client_config(arguments: Inputs, place: Place) -> dict[str, Any]:
    own = {"project": place.project, "region": place.region_of({}), "zone": place.zone}
    identity = f"projects/{own['project']}/regions/{own['region']}/zones/{own['zone']}"
    return {**own, "id": identity, "accessToken": "rehearsal", "defaultLabels": {}}


def _project(arguments: Inputs, place: Place) -> dict[str, Any]:
    project = arguments.get("projectId") or place.project_of({})
    return {
        **dict.fromkeys(("billingAccount", "folderId", "orgId"), ""),
        **{key: {} for key in ("labels", "effectiveLabels", "pulumiLabels", "tags")},
        "id": f"projects/{project}",
        "projectId": project,
        "name": project,
        "number": recorded.project_number(project),
        "autoCreateNetwork": True,
        "deletionPolicy": "DELETE",
    }


def _projects(arguments: Inputs, place: Place) -> dict[str, Any]:
    """Whatever the filter asks for: the project of the rehearsal is the only one."""
    own = _project({}, place)
    return {"projects": [{key: own[key] for key in ("projectId", "name", "number", "labels")}]}


def _zones(arguments: Inputs, place: Place) -> dict[str, Any]:
    region = arguments.get("region") or place.region_of({})
    if not region:
        raise RehearsalError("region: required field is not set. Give it, or set gcp:region")
    return {"project": place.project_of(arguments), "region": region, "names": zones_of(region)}


def _regions(arguments: Inputs, place: Place) -> dict[str, Any]:
    return {"project": place.project_of(arguments), "names": sorted(_REGIONS | {place.region_of({})} - {""})}


def _engine_versions(arguments: Inputs, place: Place) -> dict[str, Any]:
    version = KUBERNETES_VERSION.removeprefix("v")
    valid = [version] if version.startswith(arguments.get("versionPrefix") or "") else []
    latest = valid[0] if valid else ""
    channels = dict.fromkeys(_CHANNELS, version)
    return {
        "defaultClusterVersion": version,
        **dict.fromkeys(("latestMasterVersion", "latestNodeVersion"), latest),
        **dict.fromkeys(("validMasterVersions", "validNodeVersions"), valid),
        **dict.fromkeys(("releaseChannelDefaultVersion", "releaseChannelLatestVersion"), channels),
        "releaseChannelUpgradeTargetVersion": channels,
        "location": place.location_of(arguments),
        "project": place.project_of(arguments),
    }


def _registry(arguments: Inputs, place: Place) -> dict[str, Any]:
    host = f"{arguments['region']}.gcr.io" if arguments.get("region") else "gcr.io"
    project = place.project_of(arguments)
    return {"project": project, "repositoryUrl": f"{host}/{project.replace(':', '/')}"}


def _registry_image(arguments: Inputs, place: Place) -> dict[str, Any]:
    registry = _registry(arguments, place)
    tag = f":{arguments['tag']}" if arguments.get("tag") else ""
    digest = f"@{arguments['digest']}" if arguments.get("digest") else ""
    return {"project": registry["project"], "imageUrl": f"{registry['repositoryUrl']}/{arguments['name']}{tag}{digest}"}


def _nodes_account(arguments: Inputs, place: Place) -> dict[str, Any]:
    [account] = existing.of_type(recorded.ACCOUNT, Place(place.project_of(arguments)))
    return account["outputs"] | {"id": account["id"]}


def _policy(arguments: Inputs, place: Place) -> dict[str, Any]:
    return {"policyData": json.dumps({key: value for key, value in arguments.items() if value})}


_ANSWERED: Mapping[str, Callable[[Inputs, Place], dict[str, Any]]] = {
    "compute/DefaultServiceAccount": _nodes_account,
    "compute/Regions": _regions,
    "compute/Zones": _zones,
    "container/EngineVersions": _engine_versions,
    "container/RegistryImage": _registry_image,
    "container/RegistryRepository": _registry,
    "organizations/ClientConfig": _client_config,
    "organizations/IAMPolicy": _policy,
    "organizations/Project": _project,
    "projects/Project": _projects,
}
