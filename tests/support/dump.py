"""The objects of a running cluster, as a user gives them to ``ml-foundations plan``."""

from ml_foundations.rehearsal.api import Api

from tests.factories import Manifest

UNREAD = {"events", "secrets", "configmaps", "leases", "componentstatuses"}


def dumped(api: Api) -> list[Manifest]:
    """Return the objects of a cluster as kubectl shows them."""
    groups = [each["preferredVersion"]["groupVersion"] for each in api.get("/apis")["groups"]]
    objects: list[Manifest] = []
    for version in ("v1", *groups):
        path = "/api/v1" if version == "v1" else f"/apis/{version}"
        for resource in api.get(path)["resources"]:
            if {"list"} <= {*resource["verbs"]} and resource["name"] not in UNREAD:
                kind = {"apiVersion": version, "kind": resource["kind"]}
                listed = api.get(f"{path}/{resource['name']}")["items"]
                objects += [{**each, **kind} for each in listed]
    return objects
