"""The resources of a rehearsal as Pulumi's engine has them: deployed, or only previewed."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.clusters import PROVIDER, Declared, provider_of, sources_of
from ml_foundations.planning.input.program import is_judged, is_kept, named
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.files import read_json, read_text
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.sdk import api_version_and_kind
from ml_foundations.rehearsal.protocol.values import SIGNATURE, UNKNOWN_ON_THE_WIRE


def deployed(rehearsal: Rehearsal) -> list[Declared]:
    """Return the resources of Pulumi's state. Their secrets are unknown."""
    checkpoint = read_json(stack.state_file(rehearsal), {}).get("checkpoint", {})
    states = (checkpoint.get("latest") or {}).get("resources") or []
    return _judged(state for state in states if not state.get("delete"))


def previewed(rehearsal: Rehearsal) -> list[Declared]:
    """Return the resources of the last preview. Their secrets and outputs are unknown."""
    states: dict[str, Mapping[str, Any]] = {}
    for line in read_text(rehearsal.preview_events).splitlines():
        step = json.loads(line).get("resourcePreEvent", {}).get("metadata", {})
        if step.get("new"):  # a replacement has several steps
            is_read = step["op"].startswith("read")
            states[step["urn"]] = {**step["new"], "external": is_read}
    parents = {state.get("parent") for state in states.values()}
    return _judged(_filled_in(state, has_children=urn in parents) for urn, state in states.items())


def _filled_in(state: Mapping[str, Any], *, has_children: bool) -> Mapping[str, Any]:
    """Return a resource of the kubernetes package with the fields that its plugin adds."""
    # The plugin is not asked before the cluster exists. A component without children is not
    # rendered yet, and becomes a chart with unknown objects.
    type_ = state["type"]
    if not type_.startswith("kubernetes:") or type_ == RELEASE or has_children:
        return state
    if not state.get("custom"):
        return {**state, "type": RELEASE}
    api_version, kind = api_version_and_kind(type_)
    inputs = {"apiVersion": api_version, "kind": kind, **_plain(state["inputs"])}
    return {**state, "inputs": named((type_, inputs), state["urn"].rpartition("::")[2])[1]}


def _judged(states: Iterable[Mapping[str, Any]]) -> list[Declared]:
    resources: list[Declared] = []
    for state in states:
        type_ = state["type"]
        urn = state.get("urn", "")
        parent = state.get("parent", "")
        # The events of a preview do not show what an input depends on.
        sources = state.get("propertyDependencies")
        item = Declared(
            (type_, _plain(state.get("inputs", {}))),
            urn,
            urn.rpartition("::")[2],
            provider_of(state.get("provider", "")),
            None if sources is None else sources_of(type_, sources),
            "" if "::pulumi:pulumi:Stack::" in parent else parent,
            is_kept(type_, retained=state.get("retainOnDelete"), protected=state.get("protect")),
            is_created=not (state.get("external") or state.get("importID")),
        )
        if type_ == PROVIDER or is_judged(type_):
            resources.append(item)
    return resources


def _plain(value: Any) -> Any:
    """Return a value with an unknown in place of each secret and output."""
    if isinstance(value, dict):
        if SIGNATURE in value:
            return UNKNOWN
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    return UNKNOWN if value == UNKNOWN_ON_THE_WIRE else value
