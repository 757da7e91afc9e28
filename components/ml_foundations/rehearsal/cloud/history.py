"""Where finished pods ran: kept after pods and nodes are gone, for as long as their Job is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from typing import Any

from ml_foundations.rehearsal.cloud.store import Store

_MOST = 5_000


class History:
    """The record of finished pods, bounded to the latest. Safe to add to from several threads."""

    def __init__(self, store: Store, pool_of: Callable[[str], str]) -> None:
        """Read the record that is there.

        Args:
            store: Where the record is kept.
            pool_of: Gives the node pool of a node's name.
        """
        self._store = store
        self._pool_of = pool_of
        self._entries = {entry["uid"]: entry for entry in store.history()}
        self._lock = threading.Lock()
        self._dirty = False

    def add(self, pod: Mapping[str, Any]) -> None:
        """Remember a pod if it has finished on a node."""
        node, phase = pod["spec"].get("nodeName"), pod["status"].get("phase")
        meta = pod["metadata"]
        if not node or phase not in ("Succeeded", "Failed") or meta["uid"] in self._entries:
            return
        owner = next(iter(meta.get("ownerReferences") or []), {"kind": "Pod", "name": meta["name"], "uid": meta["uid"]})
        entry = {
            "uid": meta["uid"],
            "namespace": meta["namespace"],
            "pod": meta["name"],
            "owner_kind": owner["kind"],
            "owner_name": owner["name"],
            "owner_uid": owner["uid"],
            "node": node,
            "pool": self._pool_of(node),
            "phase": phase,
        }
        with self._lock:
            self._entries[meta["uid"]] = entry
            self._dirty = True

    def flush(self, jobs: Set[str]) -> None:
        """Forget the pods of Jobs that are gone and write the record, if it changed.

        Args:
            jobs: The uids of the Jobs that exist.
        """
        with self._lock:
            kept = {
                uid: entry
                for uid, entry in self._entries.items()
                if entry["owner_kind"] != "Job" or entry["owner_uid"] in jobs
            }
            kept = dict(list(kept.items())[-_MOST:])
            if not self._dirty and len(kept) == len(self._entries):
                return
            self._entries, self._dirty = kept, False
            entries = list(kept.values())
        self._store.save_history(entries)
