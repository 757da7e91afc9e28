"""All events of a collection: a state that lasts a moment is in them, and a poll of a busy machine may miss it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import urllib3
from ml_foundations.rehearsal.api import Api, ApiError, Object


@contextmanager
def event_log(api: Api, path: str, **query: str) -> Iterator[list[Object]]:
    """Collect the events of a collection from now on, in their order."""
    events: list[Object] = []
    ended = threading.Event()
    version = api.get(path, **query)["metadata"]["resourceVersion"]

    def collect(since: str) -> None:
        # A replica that is stopped ends the watch. A running one ends it after minutes.
        with suppress(ApiError, urllib3.exceptions.HTTPError):
            while not ended.is_set():
                for event in api.watch(path, **query, resourceVersion=since):
                    events.append(event)
                    since = event["object"]["metadata"]["resourceVersion"]
                    if ended.is_set():
                        return

    threading.Thread(target=collect, args=[version], daemon=True).start()
    try:
        yield events
    finally:
        ended.set()


def most_at_once(events: list[Object], phase: str) -> int:
    """Return the most pods that had a phase at the same time."""
    having: set[str] = set()
    most = 0
    for event in events:
        pod = event["object"]
        is_having = event["type"] != "DELETED" and pod["status"].get("phase") == phase
        (having.add if is_having else having.discard)(pod["metadata"]["uid"])
        most = max(most, len(having))
    return most
