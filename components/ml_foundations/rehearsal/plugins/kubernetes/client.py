"""The Kubernetes API as this plugin needs it: by kind and name, with discovery."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import reduce
from urllib.parse import quote

from ml_foundations.kubernetes.merging import merged
from ml_foundations.rehearsal.api import Api, ApiError, Object

FIELD_MANAGER = "pulumi-kubernetes"
"""Who owns the fields of what a program declares."""
_CREATION = (FIELD_MANAGER, "Update")
_TAKEN_OVER = (
    _CREATION,
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
)
"""Whose fields an update takes over: fixCSAFieldManagers of pulumi-kubernetes, provider/pkg/await/await.go."""


class UnknownKindError(ApiError):
    """The API server serves no such kind: its CRD may be missing."""


class Client:
    """Requests to one cluster. Safe to share between threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}
        self._lock = threading.Lock()

    def get(self, obj: Object) -> Object | None:
        """The live object of that kind, namespace and name, or None."""
        with suppress(UnknownKindError):
            return self._api.find(self.path(obj))

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object that must not be there, with strict validation of the fields."""
        metadata = {key: value for key, value in obj["metadata"].items() if key != "name"}
        return self._api.request(
            "POST", self.path(obj | {"metadata": metadata}), _query(dry_run), obj
        )

    def apply(
        self, obj: Object, manager: str, *, dry_run: bool = False, force: bool = False
    ) -> Object:
        """Server-side apply, with strict validation of the fields."""
        query = _query(dry_run) | {"force": "true" if force else "false", "fieldManager": manager}
        return self._api.request(
            "PATCH", self.path(obj), query, obj, "application/apply-patch+yaml"
        )

    def replace(self, obj: Object, live: Object, *, dry_run: bool = False) -> Object:
        """Put an object in the place of the live one."""
        version = {"resourceVersion": live["metadata"]["resourceVersion"]}
        return self._api.request(
            "PUT", self.path(live), _query(dry_run), obj | {"metadata": obj["metadata"] | version}
        )

    def is_as_created(self, live: Object) -> bool:
        """Whether an object of this plugin was never applied."""
        return any(
            _is_entry(entry, _CREATION) for entry in live["metadata"].get("managedFields", [])
        )

    def merge(self, patch: Object, live: Object, *, dry_run: bool = False) -> Object:
        """Change an object by a merge patch."""
        return self._api.request(
            "PATCH", self.path(live), _query(dry_run), patch, "application/merge-patch+json"
        )

    def give_up(self, obj: Object, manager: str) -> None:
        """Let go of all fields that a manager owns: those that nobody else owns are removed."""
        live = self.get(obj)
        if live and any(
            entry["manager"] == manager for entry in live["metadata"].get("managedFields", [])
        ):
            metadata = {
                key: live["metadata"][key]
                for key in ("name", "namespace")
                if key in live["metadata"]
            }
            self.apply(
                {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata},
                manager,
            )

    def own(self, live: Object, manager: str) -> Object:
        """Let server-side apply own what a creation or kubectl owns, so that it changes and removes it."""
        fields = live["metadata"].get("managedFields", [])
        taken = [entry for entry in fields if any(_is_entry(entry, other) for other in _TAKEN_OVER)]
        if not taken:
            return live
        ours = [
            entry
            for entry in fields
            if (entry["manager"], entry["operation"]) == (manager, "Apply")
        ]
        applied = reduce(merged, (entry["fieldsV1"] for entry in (*taken, *ours)))
        entry = (ours or taken)[0] | {"manager": manager, "operation": "Apply", "fieldsV1": applied}
        others = [other for other in fields if other not in (*taken, *ours)]
        return self._api.patch(self.path(live), {"metadata": {"managedFields": [*others, entry]}})

    def delete(self, obj: Object, propagation: str) -> None:
        """Request the deletion of an object; one that is already gone is not an error."""
        with suppress(UnknownKindError):
            self._api.delete(self.path(obj), propagationPolicy=propagation)

    def list(self, api_version: str, kind: str, namespace: str, **query: str) -> list[Object]:
        """The objects of a kind in a namespace."""
        path = self.path(
            {"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace}}
        )
        return self._api.get(path, **query)["items"]

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Whether objects of a kind live in a namespace."""
        return self._resource(api_version, kind)[1]

    def versions(self) -> list[str]:
        """The group versions, and kinds of them, that definitions have added to Kubernetes' own."""
        definitions = self._api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")[
            "items"
        ]
        served = [
            (each["spec"], version["name"])
            for each in definitions
            for version in each["spec"]["versions"]
        ]
        versions = {
            (f"{spec['group']}/{version}", spec["names"]["kind"]) for spec, version in served
        }
        return sorted({version for version, _ in versions} | set(map("/".join, versions)))

    def path(self, obj: Object) -> str:
        """The URL path of an object, or of its collection if it has no name."""
        api_version, metadata = obj["apiVersion"], obj.get("metadata", {})
        plural, namespaced = self._resource(api_version, obj["kind"])
        parts = [_root(api_version)]
        if namespaced:
            parts += ["namespaces", quote(metadata.get("namespace") or "default")]
        return "/".join(
            [*parts, plural, *([quote(metadata["name"])] if metadata.get("name") else [])]
        )

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        """The plural name of a kind and whether it is namespaced, by discovery; a new CRD is looked up again."""
        with self._lock:
            if kind not in self._kinds.get(api_version, {}):
                self._kinds[api_version] = self._discover(api_version)
            if kind not in self._kinds[api_version]:
                raise UnknownKindError(404, f"the cluster serves no {kind} of {api_version}")
            return self._kinds[api_version][kind]

    def _discover(self, api_version: str) -> dict[str, tuple[str, bool]]:
        listed = self._api.find(_root(api_version)) or {"resources": []}
        kinds = (item for item in listed["resources"] if "/" not in item["name"])
        return {item["kind"]: (item["name"], item["namespaced"]) for item in kinds}


def _query(dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    return query | {"dryRun": "All"} if dry_run else query


def _is_entry(entry: Object, other: tuple[str, str]) -> bool:
    """Whether an entry of managedFields is of an operation, and of a manager whose name begins so."""
    manager, operation = other
    by_it = entry["manager"].startswith(manager) and entry["operation"] == operation
    return by_it and not entry.get("subresource")


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
