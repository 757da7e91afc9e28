"""The functions of the gcp package, answered from the resources of the rehearsal."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.rehearsal.cloud.nodes import KUBERNETES_VERSION
from ml_foundations.rehearsal.plugins.gcp import recorded
from ml_foundations.rehearsal.plugins.gcp.errors import not_found
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation, Inputs, zones_of
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.progress import RehearsalError

ListResources = Callable[[str, str], Iterable[Inputs]]
"""Returns the declared and the default resources of a type, in a region if it is not empty."""

_GETTER = re.compile(r"gcp:(\w+)/get(\w)(\w+):get\w+")
_REGIONS = {"asia-northeast1", "asia-southeast1", "europe-west1", "europe-west4"}
_REGIONS |= {"us-central1", "us-east1", "us-west1"}
"""Some regions that have GPUs; the program's own is added."""


def invoke(
    function: str,
    arguments: Inputs,
    location: GcpLocation,
    list_resources: ListResources,
    token: str,
) -> dict[str, Any]:
    """Return the result of a function; ``token`` is the access token for Google's APIs."""
    getter = _GETTER.fullmatch(function)
    service, first, rest = getter.groups() if getter else ("", "", "")
    result = _project_facts(f"{service}/{first}{rest}", arguments, location, token)
    if result is not None:
        return {"id": function, **arguments, **result}
    kind = f"gcp:{service}/{first.lower()}{rest}:{first}{rest}"
    if kind not in GCP:
        failure = f"{function}: a rehearsal does not answer this function of pulumi-gcp"
        declare = "or declare the resource and use its outputs"
        fix = f"Pass the value to the program as configuration, {declare}"
        raise RehearsalError(f"{failure}. {fix}")
    for resource in list_resources(kind, arguments.get("region", "")):
        if all(_has(resource, key, value) for key, value in arguments.items()):
            outputs = dict(resource["outputs"])
            if kind == NETWORK:
                subnetworks = [item["outputs"] for item in list_resources(SUBNETWORK, "")]
                outputs["subnetworksSelfLinks"] = [
                    subnetwork["selfLink"]
                    for subnetwork in subnetworks
                    if _has(resource, "selfLink", subnetwork["network"])
                ]
            result = _as_result(kind, outputs) | {"id": resource["id"]}
            # These two have other types in functions than in resources.
            if result.get("networkId") is not None:
                result["networkId"] = int(result["networkId"])
            if result.get("users") is not None:
                result["users"] = ",".join(result["users"])
            return result
    criteria = ", ".join(f"{key} {value}" for key, value in arguments.items())
    scope = "a rehearsal finds what the stack declares, and a project's default network"
    raise not_found(f"{kind} with {criteria}; {scope}")


def _has(resource: Inputs, key: str, value: Any) -> bool:
    """Return whether a resource has an argument's value: in full, or as the end of a link."""
    actual = resource["outputs"].get(key)
    if value in (actual, resource["id"]):
        return True
    return str(actual).rpartition("/")[2] == str(value).rpartition("/")[2]


def _as_result(block: str, outputs: Inputs) -> dict[str, Any]:
    """Return outputs as a function returns them: a single block is a list of one block."""
    result = dict(outputs)
    kind = GCP[block] if block in GCP else GCP.block(block)
    for name, nested in kind.blocks.items():
        value = result.get(name)
        if isinstance(value, Mapping):
            plural = name if name.endswith("s") else re.sub("y$", "ie", name) + "s"
            result[plural] = [_as_result(nested, value)]
        elif isinstance(value, list):
            result[name] = [_as_result(nested, item) for item in value]
    return result


def _project_facts(
    name: str, arguments: Inputs, location: GcpLocation, token: str
) -> dict[str, Any] | None:
    """Return the result of a function that reads no declared resource; None for another."""
    region = arguments.get("region") or location.region_of({})
    match name:
        case "compute/DefaultServiceAccount":
            project = GcpLocation(location.project_of(arguments))
            [account] = recorded.defaults_of(recorded.ACCOUNT, project)
            return account["outputs"] | {"id": account["id"]}
        case "compute/Regions":
            names = sorted(_REGIONS | {region} - {""})
            return {"project": location.project_of(arguments), "names": names}
        case "compute/Zones" if region:
            project = location.project_of(arguments)
            return {"project": project, "region": region, "names": zones_of(region)}
        case "container/EngineVersions":
            version = KUBERNETES_VERSION.removeprefix("v")
            is_valid = version.startswith(arguments.get("versionPrefix") or "")
            latest, valid = (version, [version]) if is_valid else ("", [])
            channels = dict.fromkeys(("RAPID", "REGULAR", "STABLE", "EXTENDED"), version)
            return {
                "defaultClusterVersion": version,
                **dict.fromkeys(("latestMasterVersion", "latestNodeVersion"), latest),
                **dict.fromkeys(("validMasterVersions", "validNodeVersions"), valid),
                "releaseChannelDefaultVersion": channels,
                "releaseChannelLatestVersion": channels,
                "releaseChannelUpgradeTargetVersion": channels,
                "location": location.location_of(arguments),
                "project": location.project_of(arguments),
            }
        case "container/RegistryImage" | "container/RegistryRepository":
            host = f"{arguments['region']}.gcr.io" if arguments.get("region") else "gcr.io"
            project = location.project_of(arguments)
            repository = f"{host}/{project.replace(':', '/')}"
            image = f"{repository}/{arguments.get('name')}"
            if arguments.get("tag"):
                image += f":{arguments['tag']}"
            elif arguments.get("digest"):
                image += f"@{arguments['digest']}"
            return {"project": project, "repositoryUrl": repository, "imageUrl": image}
        case "organizations/ClientConfig":
            config = {"project": location.project, "region": region, "zone": location.zone}
            identity = "projects/{project}/regions/{region}/zones/{zone}".format_map(config)
            return {"id": identity, "accessToken": token, "defaultLabels": {}} | config
        case "organizations/IAMPolicy":
            policy = {key: value for key, value in arguments.items() if value}
            return {"policyData": json.dumps(policy)}
        case "organizations/Project":
            return _project(arguments.get("projectId") or location.project_of({}))
        case "projects/Project":
            # A rehearsal has one project, so the filter does not matter.
            return {"projects": [_project(location.project_of({}))]}
        case _:
            return None


def _project(project: str) -> dict[str, Any]:
    return {
        **dict.fromkeys(("billingAccount", "folderId", "orgId"), ""),
        "labels": {},
        "effectiveLabels": {},
        "pulumiLabels": {},
        "tags": {},
        "id": f"projects/{project}",
        "projectId": project,
        "name": project,
        "number": recorded.project_number(project),
        "autoCreateNetwork": True,
    }
