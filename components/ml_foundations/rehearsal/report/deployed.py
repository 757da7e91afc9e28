"""The resources of a rehearsal as the engine has them: deployed, or only previewed."""

import json
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Any

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import Resource, is_judged, is_kept, named
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.files import read_json, read_text
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.sdk import api_version_and_kind
from ml_foundations.rehearsal.protocol.values import SIGNATURE, UNKNOWN_ON_THE_WIRE

Found = tuple[list[Resource], list[Resource]]
"""The resources that matter to the proof, and those of them that Pulumi leaves."""


def deployed(rehearsal: Rehearsal) -> Found:
    """Return the resources of the state; a secret is not known."""
    latest = read_json(stack.state_file(rehearsal), {}).get("checkpoint", {}).get("latest") or {}
    return _found(each for each in latest.get("resources") or [] if not each.get("delete"))


def previewed(rehearsal: Rehearsal) -> Found:
    """Return the resources that the program declared in its last preview; outputs are not known, either."""
    events = map(json.loads, read_text(rehearsal.preview_events).splitlines())
    steps = (
        event["resourcePreEvent"]["metadata"] for event in events if "resourcePreEvent" in event
    )
    states = {
        step["urn"]: step["new"] for step in steps if step.get("new")
    }  # a replacement takes several steps
    parents = {state.get("parent") for state in states.values()}
    return _found(_filled_in(state, has_children=urn in parents) for urn, state in states.items())


def _filled_in(state: Mapping[str, Any], *, has_children: bool) -> Mapping[str, Any]:
    """Return a resource of the kubernetes package as its plugin makes it, which is not asked before the cluster exists.

    A component that is not rendered yet becomes a chart that is not shown.
    """
    type_ = state["type"]
    if not type_.startswith("kubernetes:") or type_ == RELEASE or has_children:
        return state
    if not state.get("custom"):
        return {**state, "type": RELEASE}
    api_version, kind = api_version_and_kind(type_)
    inputs = {"apiVersion": api_version, "kind": kind, **_plain(state["inputs"])}
    return {**state, "inputs": named((type_, inputs), state["urn"].rpartition("::")[2])[1]}


def _found(states: Iterable[Mapping[str, Any]]) -> Found:
    resources = [each for each in states if is_judged(each["type"])]
    found = [(each["type"], _plain(each.get("inputs", {}))) for each in resources]
    kept = (
        is_kept(each["type"], retained=each.get("retainOnDelete"), protected=each.get("protect"))
        for each in resources
    )
    return found, [*compress(found, kept)]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return UNKNOWN if SIGNATURE in value else {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    return UNKNOWN if value == UNKNOWN_ON_THE_WIRE else value
