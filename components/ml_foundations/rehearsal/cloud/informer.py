"""Informers: live copies of the collections of the Kubernetes API, as client-go has them."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ml_foundations.rehearsal.api import Api, ApiError, Object

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5


@contextmanager
def attempt(action: str) -> Iterator[None]:
    """Log a failure of the block, and go on: the next round tries again."""
    try:
        yield
    except (ApiError, OSError, ValueError, KeyError) as error:
        # Expected failures, such as a conflict with another client or a stopped server.
        _log.warning("%s: will try again: %s: %s", action, type(error).__name__, error)
    except Exception:
        _log.exception("%s: will try again", action)


class Informer(threading.Thread):
    """A live copy of one collection. A separate thread lists and watches it, through any outage."""

    def __init__(
        self,
        api: Api,
        path: str,
        changed: threading.Event,
        *,
        selector: str = "",
        read: Callable[[Object], Object] = lambda item: item,
        removed: Callable[[Object], None] = lambda item: None,
    ) -> None:
        """Prepare to follow a collection, such as ``/api/v1/nodes``; ``start`` begins.

        ``changed`` is set when an object is added, changed or removed. ``read`` returns the part of
        an object to keep. ``removed`` is called with the last state of each removed object.
        """
        super().__init__(name=path, daemon=True)
        self._api = api
        self._path = path
        self._changed = changed
        self._query = {"labelSelector": selector} if selector else {}
        self._read = read
        self._removed = removed
        self._objects: dict[str, Object] = {}
        self._created: dict[str, Object] = {}
        self._deleted: set[str] = set()
        """Objects that this process created or deleted, until the watch reports it."""
        self._version = 0
        self._lock = threading.Lock()
        self.synced = threading.Event()

    def items(self) -> list[Object]:
        """Return the objects as they are now. They are shared: do not change them."""
        with self._lock:
            objects = self._objects | self._created
            return [item for uid, item in objects.items() if uid not in self._deleted]

    def put(self, item: Object) -> None:
        """Add an object that this process has just created, before the watch reports it."""
        with self._lock:
            if _version_of(item) > self._version:
                self._created[_uid(item)] = item

    def drop(self, item: Object) -> None:
        """Remove an object that this process has just deleted, before the watch reports it."""
        with self._lock:
            self._created.pop(_uid(item), None)
            self._deleted.add(_uid(item))

    def run(self) -> None:
        """List, then watch. Start over if the server is down or no longer has the events."""
        while True:
            try:
                version = self._list()
                while True:
                    version = self._follow(version)
            except Exception as error:
                self.synced.clear()
                _log.debug("%s: %s", self._path, error)
                threading.Event().wait(_RETRY_SECONDS)

    def _list(self) -> str:
        """Replace the copy by a list, and return the version of the list."""
        body = self._api.get(self._path, **self._query)
        listed = {_uid(item): self._kept(item) for item in body["items"]}
        with self._lock:
            removed = [item for uid, item in self._objects.items() if uid not in listed]
            self._objects = listed
            self._version = _version_of(body)
            # The list has what this process created before it; later objects come by the watch.
            for uid, item in list(self._created.items()):
                if _version_of(item) <= self._version:
                    del self._created[uid]
        for item in removed:
            self._removed(item)
        self.synced.set()
        self._changed.set()
        return body["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> str:
        """Apply the events since a version until the watch ends. Return the last version."""
        query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        for event in self._api.watch(self._path, **query, **self._query):
            item = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(item.get("code", 0), item.get("message", "the watch ended"))
            version = item["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            uid = _uid(item)
            item = self._kept(item)
            with self._lock:
                self._version = int(version)
                self._created.pop(uid, None)
                if event["type"] == "DELETED":
                    self._objects.pop(uid, None)
                    self._deleted.discard(uid)
                else:
                    self._objects[uid] = item
            if event["type"] == "DELETED":
                self._removed(item)
            self._changed.set()
        return version

    def _kept(self, item: Object) -> Object:
        item["metadata"].pop("managedFields", None)
        return self._read(item)


def _uid(item: Object) -> str:
    return item["metadata"]["uid"]


def _version_of(item: Object) -> int:
    """Return the version of an object or list. Versions of a collection are ordered (KEP-5504)."""
    return int(item["metadata"]["resourceVersion"])
