"""The Kubernetes API in plain JSON: typed models are too slow here."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from rehearsal.access import Access

Object = dict[str, Any]

_log = logging.getLogger(__name__)
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 30
_WATCH_SECONDS = 300
_RETRY_SECONDS = 0.5


class ApiError(Exception):
    """An answer of the API server that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message}")


class Api:
    """Requests to one API server, with the credentials of a kubeconfig. Safe to share between threads."""

    def __init__(self, kubeconfig: Path) -> None:
        self._access = Access(str(kubeconfig))

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list."""
        return self._call("GET", path, query)

    def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection."""
        return self._call("POST", path, {}, body)

    def patch(self, path: str, body: Object) -> Object:
        """Change an object by a JSON merge patch."""
        return self._call("PATCH", path, {}, body, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Delete an object; that it is gone already is no error."""
        try:
            self._call("DELETE", path, {})
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, **query: str) -> Iterator[Object]:
        """The events of a collection, until the server ends the watch."""
        query |= {"watch": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        answer = self._send("GET", path, query, timeout=_WATCH_SECONDS + _ANSWER_SECONDS, preload_content=False)
        rest = b""
        try:
            for chunk in answer.stream(None):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(json.loads, filter(None, lines))
        finally:
            answer.close()
            answer.release_conn()

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        answer = self._send(method, path, query, None if body is None else json.dumps(body), kind)
        if answer.status >= 400:
            raise ApiError(answer.status, _message(answer.data) or answer.reason)
        return json.loads(answer.data or b"{}")

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: str | None = None,
        kind: str = "application/json",
        timeout: float = _ANSWER_SECONDS,
        **options: Any,
    ) -> Any:
        return self._access.pool.request(
            method,
            f"{self._access.server}{path}{'?' if query else ''}{urlencode(query)}",
            body=body,
            headers=self._access.headers | {"Accept": "application/json", "Content-Type": kind},
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=timeout),
            retries=False,
            **options,
        )


class Informer(threading.Thread):
    """A live copy of one collection, kept by list and watch in a thread of its own, through any outage."""

    def __init__(
        self,
        api: Api,
        path: str,
        changed: threading.Event,
        *,
        selector: str = "",
        trim: Callable[[Object], Object] = lambda item: item,
        removed: Callable[[Object], None] = lambda item: None,
    ) -> None:
        """Follow a collection; ``start`` begins.

        Args:
            api: The API server.
            path: The collection's path, such as ``/api/v1/nodes``.
            changed: Set whenever an object came, went or changed.
            selector: A label selector.
            trim: Reduces an object to what is worth keeping.
            removed: Told of an object as it last was when it went away.
        """
        super().__init__(name=path, daemon=True)
        self._api, self._path, self._changed = api, path, changed
        self._query = {"labelSelector": selector} if selector else {}
        self._trim, self._removed = trim, removed
        self._objects: dict[str, Object] = {}
        self._lock = threading.Lock()
        self.synced = threading.Event()

    def items(self) -> list[Object]:
        """The objects as they are now. They are shared: change none of them."""
        with self._lock:
            return list(self._objects.values())

    def put(self, item: Object) -> None:
        """Take an object in that was just created, ahead of its event."""
        with self._lock:
            self._objects.setdefault(item["metadata"]["uid"], self._trim(item))

    def drop(self, uid: str) -> None:
        """Leave an object out that was just deleted, ahead of its event."""
        with self._lock:
            self._objects.pop(uid, None)

    def run(self) -> None:
        """List, watch, and start over whenever the watch ends."""
        while True:
            try:
                self._follow(self._list())
            except Exception as error:  # whatever it was: the server is away, or the watch was too old
                self.synced.clear()
                _log.debug("%s: %s", self._path, error)
                threading.Event().wait(_RETRY_SECONDS)

    def _list(self) -> str:
        body = self._api.get(self._path, **self._query)
        found = {item["metadata"]["uid"]: self._trim(item) for item in body["items"]}
        with self._lock:
            gone = [item for uid, item in self._objects.items() if uid not in found]
            self._objects = found
        for item in gone:
            self._removed(item)
        self.synced.set()
        self._changed.set()
        return body["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> None:
        for event in self._api.watch(self._path, resourceVersion=version, **self._query):
            if event["type"] == "ERROR":
                raise ApiError(event["object"].get("code", 0), event["object"].get("message", "the watch ended"))
            item = self._trim(event["object"])
            with self._lock:
                if event["type"] == "DELETED":
                    self._objects.pop(event["object"]["metadata"]["uid"], None)
                else:
                    self._objects[event["object"]["metadata"]["uid"]] = item
            if event["type"] == "DELETED":
                self._removed(item)
            self._changed.set()


def owners(item: Object) -> set[str]:
    """The uids of the objects that made an object."""
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or []}


def _message(answer: bytes) -> str:
    """What the server says of a failure: a Status, or plain text of a path that it does not serve."""
    try:
        return json.loads(answer).get("message", "")
    except ValueError:
        return answer.decode(errors="replace").strip()
