"""Pulumi's annotations: how an object is named, applied, awaited and deleted."""

import json
import re
from typing import Any

from ml_foundations.kubernetes.objects import annotations_of
from ml_foundations.kubernetes.reading import ReadError, embedded_json
from ml_foundations.rehearsal.api import Object, condition
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.property_paths import value_at

AUTONAMED = "pulumi.com/autonamed"
FORCE = "pulumi.com/patchForce"
MANAGER = "pulumi.com/patchFieldManager"
REPLACE_UNREADY = "pulumi.com/replaceUnready"
SKIP = "pulumi.com/skipAwait"
_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
_PROPAGATION_POLICIES = {"orphan": "Orphan", "background": "Background"}
_TIMEOUT = "pulumi.com/timeoutSeconds"
_WAIT_FOR = "pulumi.com/waitFor"

_MAY_SKIP_DELETION_WAIT = {
    *("DaemonSet.apps", "Deployment.apps", "Job.batch", "StatefulSet.apps"),
    *("Namespace", "Pod", "ReplicationController"),
}
"""allowsSkipAwaitWithDelete of pulumi-kubernetes, provider/pkg/metadata/overrides.go."""
_WHOLE_NUMBER = re.compile(r"[1-9]\d*", re.ASCII)
_CONDITION = re.compile(r"condition=(?P<path>[^=]+)(?:=(?P<value>.*))?")
_STEP = re.compile(
    r"""\.[A-Za-z_]\w*|\[\d+\]|\['[^']+'\]|\["[^"]+"\]"""
    r"""|\[\?\(?\s*@\.(?P<key>\w+)\s*==\s*(?P<quote>['"])(?P<item>.*?)(?P=quote)\s*\)?\]"""
)
"""A step of a path: a key, an index, or the item of a list that has a value at a key."""
_JSONPATH = re.compile(
    rf"jsonpath=\{{\s*\$?(?P<path>(?:{_STEP.pattern})+)\s*\}}(?:=(?P<value>[^=]+))?"
)


def annotation(obj: Object, name: str) -> str:
    """Return an annotation of an object; empty if it is absent, unknown or not a string."""
    value = annotations_of(obj).get(name)
    return value if isinstance(value, str) else ""


def is_set(obj: Object, name: str) -> bool:
    """Return whether an annotation is "true"."""
    return annotation(obj, name) == "true"


def is_deletion_skipped(obj: Object) -> bool:
    """Return whether a deletion is not awaited: the annotation counts for some kinds only."""
    return is_set(obj, SKIP) and group_kind(obj) in _MAY_SKIP_DELETION_WAIT


def propagation_policy(obj: Object) -> str:
    """Return Kubernetes' propagation policy for the deletion of an object."""
    return _PROPAGATION_POLICIES.get(annotation(obj, _PROPAGATION), "Foreground")


def timeout(obj: Object) -> float:
    """Return the seconds to wait; 0 if not set, or invalid, as the official plugin has it."""
    value = annotation(obj, _TIMEOUT)
    return float(value) if _WHOLE_NUMBER.fullmatch(value) else 0


def check(obj: Object) -> None:
    """Raise a ValueError if the waitFor annotation is invalid and would be used."""
    if (value := annotation(obj, _WAIT_FOR)) and not is_set(obj, SKIP):
        _conditions(value)


def unmet_conditions(live: Object) -> list[str] | None:
    """Return the waitFor conditions that a live object does not meet; None without annotation."""
    value = annotation(live, _WAIT_FOR)
    if not value:
        return None
    return [expected.string for expected in _conditions(value) if not _is_met(live, expected)]


def _conditions(text: str) -> list[re.Match[str]]:
    """Return the conditions in a waitFor annotation, as matches of one of the two patterns."""
    try:
        value = embedded_json(text)
    except ReadError:
        value = text
    items = value if isinstance(value, list) else [text]
    texts = [item for item in items if isinstance(item, str)]
    matches = [_CONDITION.fullmatch(item) or _JSONPATH.fullmatch(item) for item in texts]
    conditions = list(filter(None, matches))
    if not conditions or len(conditions) < len(items):
        forms = "condition=Type[=Status] or jsonpath={.path}[=value], or a JSON list of these"
        limits = f"a rehearsal reads no wildcards in paths (got {text!r})"
        raise ValueError(f"the annotation {_WAIT_FOR} must be {forms}; {limits}")
    return conditions


def _is_met(live: Object, expected: re.Match[str]) -> bool:
    path = expected["path"]
    value = expected["value"]
    if expected.re is _CONDITION:
        return condition(live, path).get("status") == (value or "True")
    actual: Any = live
    for step in _STEP.finditer(path):
        if key := step["key"]:
            items = [item for item in actual or () if value_at(item, key) == step["item"]]
            actual = items[0] if items else None
        else:
            actual = value_at(actual, step[0].replace("'", '"'))
    if value is None or actual is None:
        return actual is not None
    return (actual if isinstance(actual, str) else json.dumps(actual)) == value
