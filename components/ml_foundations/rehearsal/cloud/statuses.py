"""The statuses that controllers write, with the time at which a condition changed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_foundations.rehearsal.api import Api, Object, path_in
from ml_foundations.rehearsal.cloud.events import now


class Fault(NamedTuple):
    """The reason why a condition is False."""

    reason: str
    message: str


def new_condition(
    type_: str, reason: str = "", message: str = "", *, is_true: bool = True
) -> Object:
    """Return a condition without its time. Its reason is its type by default."""
    status = "True" if is_true else "False"
    return {"type": type_, "status": status, "reason": reason or type_, "message": message}


def set_status(api: Api, collection: str, item: Object, status: Mapping[str, Any]) -> None:
    """Patch the status of an object, such as one of ``/api/v1/nodes``, if more than times differ.

    Each of its conditions gets the time.
    """
    if not _timed(status, "").items() <= _timed(item.get("status") or {}, "").items():
        api.patch(f"{path_in(collection, item)}/status", {"status": _timed(status, now())})


def _timed(tree: Any, time: str) -> Any:
    """Return a status in which all conditions have a time."""
    if isinstance(tree, list):
        return [_timed(item, time) for item in tree]
    if not isinstance(tree, Mapping):
        return tree
    timed = {key: _timed(value, time) for key, value in tree.items()}
    return timed | ({"lastTransitionTime": time} if "reason" in tree else {})
