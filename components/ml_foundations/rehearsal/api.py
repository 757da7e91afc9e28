"""The Kubernetes API in plain JSON.

Not through the official client: its import costs a plugin more than all else that it does to start, it leaves keys of a
kubeconfig in files, and it goes on without credentials where the credential plugin fails.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import urllib3

from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.progress import RehearsalError

Object = dict[str, Any]

_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 60
_WATCH_SECONDS = 300
_LISTED_AT_ONCE = 1000
"""Of a busy machine, a list of ten thousand pods is not had within the minute that the API server gives a request."""
_JSON = "application/json"


class ApiError(RehearsalError):
    """An answer of the API server that is not a success, or none at all (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"{status}: {message}" if status else message)


class Api:
    """Requests to one API server, with the credentials of a kubeconfig. Safe to share between threads."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list: of a long one, a part at a time, all as it was at the first."""
        query |= {"limit": str(_LISTED_AT_ONCE)}
        found = part = self.request("GET", path, query)
        while token := part.get("metadata", {}).pop("continue", None):
            part = self.request("GET", path, query | {"continue": token})
            found["items"] += part["items"]
        return found

    def find(self, path: str) -> Object | None:
        """Read an object or a list; None where there is none of that path."""
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
        """Create an object in a collection, or read the existing one of its name."""
        try:
            return self.create(path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            return self.get(f"{path}/{body['metadata']['name']}")

    def patch(self, path: str, body: Object) -> Object:
        """Change an object by a JSON merge patch."""
        return self.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def delete(self, path: str, **options: str) -> None:
        """Delete an object, with DeleteOptions; one that is already gone is no error."""
        try:
            self.request("DELETE", path, body=options or None)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, **query: str) -> Iterator[Object]:
        """The events of a collection, until the server ends the watch."""
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
        """Send a request, and read the object that is its answer.

        Raises:
            ApiError: the server refuses it, or cannot be reached.
        """
        # What is read as YAML knows no escaped pairs: an emoji stays as it is.
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        answer = self._send(method, path, query, _ANSWER_SECONDS, content_type, body=data)
        if answer.status >= 400:
            raise ApiError(answer.status, _message(answer.data) or answer.reason)
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


def owners(item: Object) -> set[str]:
    """The uids of the objects that made an object."""
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or []}


def condition(item: Object, name: str) -> Object:
    """A condition in the status of an object; empty if it has none of that type."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found["type"] == name), {})


def _message(answer: bytes) -> str:
    """What the server says of a failure: a Status, or plain text of a path that it does not serve."""
    try:
        return json.loads(answer).get("message", "")
    except ValueError:
        return answer.decode(errors="replace").strip()
