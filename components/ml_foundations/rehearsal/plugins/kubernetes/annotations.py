"""Pulumi's annotations: how an object is named, applied, awaited and deleted."""

import json
import re
from typing import Any

from ml_foundations.kubernetes.objects import annotations_of
from ml_foundations.rehearsal.api import Object, condition
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.property_paths import value_at

AUTONAMED = "pulumi.com/autonamed"
FORCE = "pulumi.com/patchForce"
MANAGER = "pulumi.com/patchFieldManager"
REPLACE_UNREADY = "pulumi.com/replaceUnready"
SKIP = "pulumi.com/skipAwait"
_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
_TIMEOUT = "pulumi.com/timeoutSeconds"
_WAIT_FOR = "pulumi.com/waitFor"

_GOES_UNAWAITED = {
    *(
        "DaemonSet.apps",
        "Deployment.apps",
        "Job.batch",
        "Namespace",
        "Pod",
        "ReplicationController",
    ),
    "StatefulSet.apps",
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
    """An annotation of an object; empty if it is absent, not known yet or not text."""
    value = annotations_of(obj).get(name)
    return value if isinstance(value, str) else ""


def is_set(obj: Object, name: str) -> bool:
    """Whether an annotation is "true"."""
    return annotation(obj, name) == "true"


def is_skipped(obj: Object) -> bool:
    """Whether the user asks not to wait."""
    return is_set(obj, SKIP)


def is_deletion_skipped(obj: Object) -> bool:
    """Whether nothing waits until it is gone: the annotation counts for these kinds only."""
    return is_skipped(obj) and group_kind(obj) in _GOES_UNAWAITED


def propagation_policy(obj: Object) -> str:
    """What is deleted along with an object, and when."""
    return {"orphan": "Orphan", "background": "Background"}.get(
        annotation(obj, _PROPAGATION), "Foreground"
    )


def timeout(obj: Object) -> float:
    """The seconds to wait; 0 if not given or invalid, which the official plugin ignores too."""
    value = annotation(obj, _TIMEOUT)
    return float(value) if _WHOLE_NUMBER.fullmatch(value) else 0


def check(obj: Object) -> None:
    """Raise a ValueError if it could not be told what to wait for."""
    if (value := annotation(obj, _WAIT_FOR)) and not is_skipped(obj):
        _conditions(value)


def waits_for(live: Object) -> list[str] | None:
    """The user's own conditions that a live object does not meet; None if the user gave none."""
    value = annotation(live, _WAIT_FOR)
    return (
        [wanted.string for wanted in _conditions(value) if not _meets(live, wanted)]
        if value
        else None
    )


def _conditions(text: str) -> list[re.Match[str]]:
    """The waitFor annotation: ``condition=Type[=Status]``, ``jsonpath={.path}[=value]``, or a JSON list of these."""
    try:
        given = json.loads(text)
    except ValueError:
        given = text
    wanted = given if isinstance(given, list) else [text]
    found = [
        _CONDITION.fullmatch(item) or _JSONPATH.fullmatch(item)
        for item in wanted
        if isinstance(item, str)
    ]
    read = [match for match in found if match]
    if not read or len(read) < len(wanted):
        raise ValueError(
            f"the annotation {_WAIT_FOR} must be condition=Type[=Status] or jsonpath={{.path}}[=value], "
            f"or a JSON list of these; a rehearsal reads no wildcards in paths (got {text!r})"
        )
    return read


def _meets(live: Object, wanted: re.Match[str]) -> bool:
    path, value = wanted["path"], wanted["value"]
    if wanted.re is _CONDITION:
        return condition(live, path).get("status") == (value or "True")
    actual: Any = live
    for step in _STEP.finditer(path):
        if key := step["key"]:
            actual = next(
                (item for item in actual or () if value_at(item, key) == step["item"]), None
            )
        else:
            actual = value_at(actual, step[0].replace("'", '"'))
    if value is None or actual is None:
        return actual is not None
    return (actual if isinstance(actual, str) else json.dumps(actual)) == value
