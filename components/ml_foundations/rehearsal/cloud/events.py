"""Events of the simulated components of a cluster."""

import logging
import time

from ml_foundations.kubernetes.objects import Manifest, name_of, namespace_of
from ml_foundations.rehearsal.api import Api, Object

_log = logging.getLogger(__name__)


def reference(item: Manifest, kind: str) -> Object:
    """Return a reference to an object; in lists, those of the core group name no API version."""
    identity = {key: item["metadata"][key] for key in ("name", "namespace", "uid")}
    return {"kind": kind, "apiVersion": item.get("apiVersion", "v1")} | identity


def now() -> str:
    """Return the time in the format of Kubernetes."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Recorder:
    """Creates the events of a component. It reports each message about an object once."""

    def __init__(self, api: Api, component: str) -> None:
        self._api = api
        self._component = component
        self._reported: set[tuple[str, str]] = set()

    def warn(self, item: Manifest, kind: str, reason: str, message: str) -> None:
        """Create a warning about an object of the core group."""
        self.report(item, kind, reason, message, "Warning")

    def report(
        self, item: Manifest, kind: str, reason: str, message: str, severity: str = "Normal"
    ) -> None:
        """Create an event about an object of the core group."""
        key = (item["metadata"]["uid"], message)
        if key in self._reported:
            return
        _log.info("%s %s: %s", kind, name_of(item), message)
        event = {
            "metadata": {"generateName": f"{name_of(item)}.", "namespace": namespace_of(item)},
            "involvedObject": reference(item, kind),
            "type": severity,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            **dict.fromkeys(("firstTimestamp", "lastTimestamp"), now()),
            "count": 1,
        }
        self._api.create(f"/api/v1/namespaces/{namespace_of(item)}/events", event)
        self._reported.add(key)
