"""How the simulated cloud follows the Kubernetes API, and goes on where a request fails."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ml_foundations.rehearsal.api import Api, ApiError, Object

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Log a failure of what is named and go on: what comes behind has its turn, and the next round tries again."""
    try:
        yield
    except (ApiError, OSError, ValueError, KeyError) as error:
        # A lost race or an absent server is not the end.
        _log.warning("%s: will try again: %s: %s", what, type(error).__name__, error)
    except Exception:
        _log.exception("%s: will try again", what)


class Informer(threading.Thread):
    """A live copy of one collection, kept by list and watch in a thread of its own, through any outage."""

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
        """Follow a collection, such as ``/api/v1/nodes``, or what a label selects of it; ``start`` begins.

        ``changed`` is set whenever an object came, went or changed; ``read`` makes of an object what is kept;
        ``removed`` is told of one that went away, as it last was.
        """
        super().__init__(name=path, daemon=True)
        self._api, self._path, self._changed = api, path, changed
        self._query = {"labelSelector": selector} if selector else {}
        self._read, self._removed = read, removed
        self._objects: dict[str, Object] = {}
        self._created: dict[str, Object] = {}
        self._deleted: set[str] = set()
        """What was created and deleted here, as long as its event is still to come."""
        self._version = 0
        self._lock = threading.Lock()
        self.synced = threading.Event()

    def items(self) -> list[Object]:
        """The objects as they are now. They are shared: change none of them."""
        with self._lock:
            return [
                item
                for uid, item in (self._objects | self._created).items()
                if uid not in self._deleted
            ]

    def put(self, item: Object) -> None:
        """Take an object in that was just created, ahead of its event."""
        with self._lock:
            if _version_of(item) > self._version:
                self._created[_uid(item)] = item

    def drop(self, item: Object) -> None:
        """Leave an object out that was just deleted, ahead of its event."""
        with self._lock:
            self._created.pop(_uid(item), None)
            self._deleted.add(_uid(item))

    def run(self) -> None:
        """List, and watch from there on; start over where the server is away, or keeps no events of that time."""
        while True:
            try:
                version = self._list()
                while True:
                    version = self._follow(version)
            except Exception as error:  # whatever it was
                self.synced.clear()
                _log.debug("%s: %s", self._path, error)
                threading.Event().wait(_RETRY_SECONDS)

    def _list(self) -> str:
        body = self._api.get(self._path, **self._query)
        found = {_uid(item): self._kept(item) for item in body["items"]}
        with self._lock:
            gone = [item for uid, item in self._objects.items() if uid not in found]
            self._objects, self._version = found, _version_of(body)
            self._created = {
                uid: item
                for uid, item in self._created.items()
                if _version_of(item) > self._version
            }
        for item in gone:
            self._removed(item)
        self.synced.set()
        self._changed.set()
        return body["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> str:
        """Take the events since a version; returns that of the last one, when the server ends the watch."""
        query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        for event in self._api.watch(self._path, **query, **self._query):
            found = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(found.get("code", 0), found.get("message", "the watch ended"))
            version = found["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            uid, item = _uid(found), self._kept(found)
            with self._lock:
                self._version = _version_of(found)
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
    """The version of an object or a list: of one collection they can be compared (KEP-5504)."""
    return int(item["metadata"]["resourceVersion"])
