"""The Kubernetes API as this plugin needs it: by kind and name, with discovery."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import reduce
from urllib.parse import quote

from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.rehearsal.api import Api, ApiError, Object

FIELD_MANAGER = "pulumi-kubernetes"
"""The manager of the fields that a program declares."""
_CREATION = (FIELD_MANAGER, "Update")
_KUBECTL = (("kubectl", "Apply"), ("kubectl", "Update"), ("before-first-apply", "Update"))
_REPLACED_MANAGERS = (_CREATION, *_KUBECTL)
"""Managers whose fields an update takes (pulumi-kubernetes, await.go, fixCSAFieldManagers)."""


class UnknownKindError(ApiError):
    """A kind that the API server does not serve: its CRD may be missing."""


class Client:
    """Requests to one cluster. Safe to share between threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}
        self._lock = threading.Lock()

    def get(self, obj: Object) -> Object | None:
        """Return the live object of that kind, namespace and name, or None."""
        with suppress(UnknownKindError):
            return self._api.find(self.path(obj))

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object that does not exist yet, with strict validation of the fields."""
        unnamed = {key: value for key, value in obj["metadata"].items() if key != "name"}
        collection = self.path(obj | {"metadata": unnamed})
        return self._api.request("POST", collection, _query(dry_run), obj)

    def apply(
        self, obj: Object, manager: str, *, dry_run: bool = False, force: bool = False
    ) -> Object:
        """Apply an object on the server side, with strict validation of the fields."""
        query = _query(dry_run) | {"force": "true" if force else "false", "fieldManager": manager}
        content_type = "application/apply-patch+yaml"
        return self._api.request("PATCH", self.path(obj), query, obj, content_type)

    def replace(self, obj: Object, live: Object, *, dry_run: bool = False) -> Object:
        """Replace the live object."""
        # The API server refuses a replacement without the version that it replaces.
        version = {"resourceVersion": live["metadata"]["resourceVersion"]}
        body = obj | {"metadata": obj["metadata"] | version}
        return self._api.request("PUT", self.path(live), _query(dry_run), body)

    def is_as_created(self, live: Object) -> bool:
        """Return whether this plugin created an object and never applied it."""
        return any(_is_by(entry, *_CREATION) for entry in _managed_fields(live))

    def merge(self, patch: Object, live: Object, *, dry_run: bool = False) -> Object:
        """Change an object by a merge patch."""
        content_type = "application/merge-patch+json"
        return self._api.request("PATCH", self.path(live), _query(dry_run), patch, content_type)

    def release_fields(self, obj: Object, manager: str) -> None:
        """Give up all fields that a manager owns: those that no other manager owns are removed."""
        live = self.get(obj)
        if live is None or all(entry["manager"] != manager for entry in _managed_fields(live)):
            return
        # An applied object without fields owns none.
        identity = live["metadata"].keys() & {"name", "namespace"}
        metadata = {key: live["metadata"][key] for key in identity}
        self.apply(api_object(obj["apiVersion"], obj["kind"], metadata), manager)

    def take_fields(self, live: Object, manager: str) -> Object:
        """Let server-side apply own, and so remove, the fields of a creation or of kubectl."""
        taken = list[Object]()
        applied = list[Object]()
        other_entries = list[Object]()
        for entry in _managed_fields(live):
            if any(_is_by(entry, *identity) for identity in _REPLACED_MANAGERS):
                taken.append(entry)
            elif (entry["manager"], entry["operation"]) == (manager, "Apply"):
                applied.append(entry)
            else:
                other_entries.append(entry)
        if not taken:
            return live
        fields = reduce(merged, [entry["fieldsV1"] for entry in (*taken, *applied)])
        operation = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
        entries = [*other_entries, (applied or taken)[0] | operation]
        return self._api.patch(self.path(live), {"metadata": {"managedFields": entries}})

    def delete(self, obj: Object, propagation: str) -> None:
        """Request the deletion of an object; one that is already gone is not an error."""
        with suppress(UnknownKindError):
            self._api.delete(self.path(obj), propagationPolicy=propagation)

    def list(self, api_version: str, kind: str, namespace: str, **query: str) -> list[Object]:
        """Return the objects of a kind in a namespace."""
        collection = api_object(api_version, kind, {"namespace": namespace})
        return self._api.get(self.path(collection), **query)["items"]

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Return whether objects of a kind are in a namespace."""
        return self._resource(api_version, kind)[1]

    def custom_versions(self) -> list[str]:
        """Return the versions and kinds of all CRDs, as ``group/v1`` and ``group/v1/Kind``."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        versions: set[str] = set()
        for definition in self._api.get(path)["items"]:
            spec = definition["spec"]
            for version in spec["versions"]:
                group_version = f"{spec['group']}/{version['name']}"
                versions |= {group_version, f"{group_version}/{spec['names']['kind']}"}
        return sorted(versions)

    def path(self, obj: Object) -> str:
        """Return the URL path of an object, or of its collection if it has no name."""
        metadata = obj.get("metadata", {})
        plural, is_namespaced = self._resource(obj["apiVersion"], obj["kind"])
        path = _root(obj["apiVersion"])
        if is_namespaced:
            path += f"/namespaces/{quote(metadata.get('namespace') or 'default')}"
        path += f"/{plural}"
        return f"{path}/{quote(metadata['name'])}" if metadata.get("name") else path

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        """Return the plural of a kind and whether it is namespaced; look up a new kind again."""
        with self._lock:
            if kind not in self._kinds.get(api_version, {}):
                served = self._api.find(_root(api_version)) or {"resources": []}
                # The name of a subresource, such as pods/log, has a slash.
                self._kinds[api_version] = {
                    resource["kind"]: (resource["name"], resource["namespaced"])
                    for resource in served["resources"]
                    if "/" not in resource["name"]
                }
            if kind not in self._kinds[api_version]:
                raise UnknownKindError(404, f"the cluster serves no {kind} of {api_version}")
            return self._kinds[api_version][kind]


def _query(dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    return query | {"dryRun": "All"} if dry_run else query


def _managed_fields(live: Object) -> list[Object]:
    return live["metadata"].get("managedFields", [])


def _is_by(entry: Object, manager: str, operation: str) -> bool:
    """Return whether an entry of managedFields has a manager that begins so, and an operation."""
    is_by_manager = entry["manager"].startswith(manager) and entry["operation"] == operation
    return is_by_manager and not entry.get("subresource")


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
