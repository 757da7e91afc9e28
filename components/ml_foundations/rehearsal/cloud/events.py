"""Events, as the parts of a cluster that are played here report them."""

import time

from ml_foundations.kubernetes.manifests import name_of, namespace_of
from ml_foundations.rehearsal.api import Object


def reference(item: Object, kind: str) -> Object:
    """A reference to an object of the core group."""
    return {"kind": kind, "apiVersion": "v1"} | {key: item["metadata"][key] for key in ("name", "namespace", "uid")}


def warning(item: Object, kind: str, reason: str, message: str, component: str) -> Object:
    """A warning about an object, and which component says it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "metadata": {"generateName": f"{name_of(item)}.", "namespace": namespace_of(item)},
        "involvedObject": reference(item, kind),
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
