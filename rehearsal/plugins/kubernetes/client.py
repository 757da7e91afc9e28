"""The Kubernetes API as this plugin needs it: plain JSON, server-side apply, discovery."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

from rehearsal.access import Access

Object = dict[str, Any]

FIELD_MANAGER = "pulumi-kubernetes"
SECONDS = urllib3.Timeout(connect=5, read=60)


class ApiError(Exception):
    """An answer of the API server that is not a success, or none at all (status 0)."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason


class UnknownKindError(ApiError):
    """The API server serves no such kind: its CRD may be missing."""


class Client:
    """Requests to one cluster. Safe to share between threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}
        self._lock = threading.Lock()

    def get(self, obj: Object) -> Object | None:
        """The live object of that kind, namespace and name, or None."""
        try:
            return self._request("GET", self.path(obj))
        except UnknownKindError:
            return None
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def apply(self, obj: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        """Server-side apply, with strict validation of the fields."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        return self._request("PATCH", self.path(obj), query, obj, "application/apply-patch+yaml")

    def delete(self, obj: Object, propagation: str) -> None:
        """Ask for the deletion of an object; that it is gone already is no error."""
        try:
            self._request("DELETE", self.path(obj), body={"propagationPolicy": propagation})
        except ApiError as error:
            if error.status != 404:
                raise

    def list(self, api_version: str, kind: str, namespace: str, **query: str) -> list[Object]:
        """The objects of a kind in a namespace."""
        path = self.path({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace}})
        return self._request("GET", path, query)["items"]

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Whether objects of a kind live in a namespace."""
        return self._resource(api_version, kind)[1]

    def path(self, obj: Object) -> str:
        """The URL path of an object, or of its collection where it has no name."""
        api_version, metadata = obj["apiVersion"], obj.get("metadata", {})
        plural, namespaced = self._resource(api_version, obj["kind"])
        parts = [_root(api_version)]
        if namespaced:
            parts += ["namespaces", quote(metadata.get("namespace") or "default")]
        return "/".join([*parts, plural, *([quote(metadata["name"])] if metadata.get("name") else [])])

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        """The plural name of a kind and whether it is namespaced, by discovery; a new CRD is looked up again."""
        with self._lock:
            if kind not in self._kinds.get(api_version, {}):
                self._kinds[api_version] = self._discover(api_version)
            if kind not in self._kinds[api_version]:
                raise UnknownKindError(404, f"the cluster serves no {kind} of {api_version}")
            return self._kinds[api_version][kind]

    def _discover(self, api_version: str) -> dict[str, tuple[str, bool]]:
        try:
            listed = self._request("GET", _root(api_version))["resources"]
        except ApiError as error:
            if error.status != 404:
                raise
            listed = []
        return {item["kind"]: (item["name"], item["namespaced"]) for item in listed if "/" not in item["name"]}

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        kind: str = "application/json",
    ) -> Object:
        try:
            answer = self._access.pool.request(
                method,
                f"{self._access.server}{path}{'?' + urlencode(query) if query else ''}",
                body=None if body is None else json.dumps(body),
                headers=self._access.headers | {"Accept": "application/json", "Content-Type": kind},
                timeout=SECONDS,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"the API server at {self._access.server} cannot be reached: {error}") from None
        try:
            data: Object = json.loads(answer.data or b"{}")
        except ValueError:
            raise ApiError(answer.status, f"the API server answered no JSON: {answer.data[:200]!r}") from None
        if answer.status >= 400:
            raise ApiError(answer.status, data.get("message") or str(answer.reason), data.get("reason", ""))
        return data


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
