"""The Kubernetes API in plain JSON.

The official client is not used, for three reasons. Importing it takes a plugin longer than the rest
of its start. It leaves the keys of a kubeconfig in files. If a credential plugin fails, it goes on
without credentials.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

import urllib3

from ml_foundations.kubernetes.objects import Manifest, api_object, name_of, namespace_of, section
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.progress import RehearsalError

Object = dict[str, Any]

NODES = "/api/v1/nodes"
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 60
_WATCH_SECONDS = 300
_PAGE_SIZE = 1000
"""On a busy machine, ten thousand pods in one page take longer than the API server allows, 60 s."""
_JSON = "application/json"
DISRUPTION_BUDGET = "DisruptionBudget"
FIELD_CONFLICT = "FieldManagerConflict"
"""The reasons of causes of errors: a PodDisruptionBudget, and fields of another manager."""
_OBJECT = re.compile(r"(?<=value: )[^\s\"]*[{\[].*[}\]]", re.DOTALL)
"""A whole object in the message of an error, such as a template of pods with secrets in env."""


class ApiError(RehearsalError):
    """A failed request. Its status is 0 if the API server did not answer.

    Attributes:
        kind: The resource that it is about, such as "namespaces"; empty if the answer has none.
        causes: The reasons of its causes, such as "DisruptionBudget" (policy/v1, types.go).
    """

    def __init__(
        self, status: int, message: str, *, kind: str = "", causes: Iterable[str] = ()
    ) -> None:
        self.status = status
        self.message = message
        self.kind = kind
        self.causes = frozenset(causes)
        super().__init__(f"{status}: {message}" if status else message)


class Api:
    """A client of one API server. Threads may share it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list. A long list is read in pages, all of the same version."""
        query |= {"limit": str(_PAGE_SIZE)}
        result = page = self.request("GET", path, query)
        while token := page.get("metadata", {}).pop("continue", None):
            page = self.request("GET", path, query | {"continue": token})
            result["items"] += page["items"]
        return result

    def find(self, path: str) -> Object | None:
        """Read an object or a list, or return None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection."""
        return self.request("POST", path, body=body)

    def ensure(self, path: str, body: Object) -> Object:
        """Create an object in a collection, or read the existing one with its name."""
        try:
            return self.create(path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            return self.get(f"{path}/{body['metadata']['name']}")

    def patch(self, path: str, body: Object) -> Object:
        """Change an object by a JSON merge patch."""
        return self.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def set_condition(self, path: str, type_: str, status: str, **details: str) -> None:
        """Set one condition in an object's status."""
        self.set_status(path, {"conditions": [{"type": type_, "status": status, **details}]})

    def set_status(self, path: str, status: Object) -> None:
        """Set fields of an object's status. A strategic merge changes no other condition."""
        content_type = "application/strategic-merge-patch+json"
        self.request("PATCH", f"{path}/status", body={"status": status}, content_type=content_type)

    def delete(self, path: str, **options: str) -> None:
        """Delete an object, with DeleteOptions. A missing object is not an error."""
        try:
            self.request("DELETE", path, body=options or None)
        except ApiError as error:
            if error.status != 404:
                raise

    def evict(self, pod: Manifest) -> None:
        """Delete a pod, unless a PodDisruptionBudget forbids it. A missing pod is not an error."""
        metadata = {"name": name_of(pod), "namespace": namespace_of(pod)}
        try:
            self.create(f"{pod_path(pod)}/eviction", api_object("policy/v1", "Eviction", metadata))
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, **query: str) -> Iterator[Object]:
        """Yield the events of a collection until the server ends the watch."""
        query |= {"watch": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        answer = self._send(
            "GET", path, query, _WATCH_SECONDS + _ANSWER_SECONDS, preload_content=False
        )
        rest = b""
        try:
            for chunk in answer.stream(None):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(json.loads, filter(None, lines))
        finally:
            answer.close()
            answer.release_conn()

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = _JSON,
    ) -> Object:
        """Send a request and return the object in its answer.

        Raises:
            ApiError: the server rejects it, or cannot be reached.
        """
        # Not escaped: a YAML parser in the cluster would not join the surrogate pair of an emoji.
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        answer = self._send(method, path, query, _ANSWER_SECONDS, content_type, body=data)
        if answer.status >= 400:
            raise _error(answer.status, answer.data, answer.reason)
        return json.loads(answer.data or b"{}")

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None,
        seconds: float,
        content: str = _JSON,
        **options: Any,
    ) -> Any:
        try:
            return self._access.pool.request(
                method,
                f"{self._access.server}{path}{'?' if query else ''}{urlencode(query or {})}",
                headers=self._access.headers | {"Accept": _JSON, "Content-Type": content},
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds),
                **options,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(
                0, f"the API server at {self._access.server} cannot be reached: {error}"
            ) from None


def existing(api: Api, path: str) -> list[Object]:
    """Return the objects of a collection; none if the cluster lacks their kind."""
    return (api.find(path) or {"items": []})["items"]


def path_in(collection: str, item: Manifest) -> str:
    """Return the path of an object of a collection, such as ``/api/v1/pods``."""
    version, _, resource = collection.rpartition("/")
    namespace = section(item, "metadata").get("namespace")
    within = f"{version}/namespaces/{namespace}" if namespace else version
    return f"{within}/{resource}/{name_of(item)}"


def pod_path(pod: Manifest) -> str:
    """Return the path of a pod."""
    return path_in("/api/v1/pods", pod)


def by_name(objects: Iterable[Object]) -> dict[str, Object]:
    """Return objects by their names."""
    return {name_of(item): item for item in objects}


def owners(item: Object) -> set[str]:
    """Return the uids of the owners of an object."""
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or []}


def condition(item: Manifest, name: str) -> Object:
    """Return the condition of a type in the status of an object; empty if it has none."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == name), {})


def _error(code: int, answer: bytes, phrase: str) -> ApiError:
    """Return the error in a Status, or in plain text if the path is not served.

    The message about an eviction does not name the PodDisruptionBudget. The causes do.
    """
    try:
        status = json.loads(answer)
    except ValueError:
        return ApiError(code, answer.decode(errors="replace").strip() or phrase)
    details = status.get("details") or {}
    causes = details.get("causes") or []
    texts = [_OBJECT.sub("…", status.get("message", ""))]
    texts += [cause["message"] for cause in causes if cause.get("reason") == DISRUPTION_BUDGET]
    reasons = [cause.get("reason", "") for cause in causes]
    return ApiError(code, " ".join(texts) or phrase, kind=details.get("kind", ""), causes=reasons)


def is_about(involved: Object, workload: Object) -> bool:
    """Return whether an event is about a workload, or about the ReplicaSet of a Deployment."""
    if involved.get("uid") == workload["metadata"]["uid"]:
        return True
    deployment = (involved.get("namespace"), involved["name"].rpartition("-")[0])
    is_of_workload = deployment == (namespace_of(workload), name_of(workload))
    return involved["kind"] == "ReplicaSet" and is_of_workload
