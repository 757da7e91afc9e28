"""Previews of updates in place: what Google computed stays known, at any depth."""

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.rehearsal.control_plane.configuration import Credentials
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp import container, node_pool, recorded
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation
from ml_foundations.rehearsal.plugins.gcp.provider import GcpProvider, changed, replaced
from ml_foundations.rehearsal.plugins.provider import Resource, State

from tests.support import recording

PLACE = GcpLocation("acme", "us-central1", "")
Steps = tuple[str | int, ...]


# They are run by the tests: that takes too long while tests are collected.
PROGRAMS: list[Any] = [
    *(pytest.param(recording.stack, name, id=f"stack {name}") for name in recording.STACKS),
    *(pytest.param(recording.example, name, id=f"example {name}") for name in recording.EXAMPLES),
]


def outputs_of(token: str, inputs: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    if token == container.CLUSTER:
        authority = tmp_path / "ca.crt"
        authority.write_text("authority")
        api_server = Credentials("https://127.0.0.1:6443", authority, authority, authority)
        return container.cluster_outputs(inputs, PLACE, api_server)
    if token == container.NODE_POOL:
        pool = node_pool.node_pool(inputs, PLACE, {"name": inputs["cluster"]})
        return container.pool_outputs(inputs, PLACE, pool)
    return recorded.outputs(token, inputs, PLACE, "the-id")


def leaves(tree: Any, path: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """The values of a tree that hold no other, with their paths."""
    entries: list[tuple[str | int, Any]] = []
    if isinstance(tree, Mapping):
        entries = list(tree.items())
    elif isinstance(tree, list):
        entries = list(enumerate(tree))
    if not entries:
        yield path, tree
    for key, value in entries:
        yield from leaves(value, (*path, key))


def without(tree: Any, path: Steps) -> Any:
    """A copy of a tree without the entry of a mapping at a path."""
    changed = copy.deepcopy(tree)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return changed


def lost_outputs(resource: Any, tmp_path: Path) -> Iterator[str]:
    """Yield each input of a resource without which a preview loses what Google computed."""
    token, inputs = resource["type"], resource["inputs"]
    provider = GcpProvider(Rehearsal.of("bare", tmp_path))
    provider.configure({"project": "acme", "region": "us-central1"})
    old = State("the-id", inputs, outputs_of(token, inputs, tmp_path))
    given = dict(leaves(inputs))
    computed = {path: value for path, value in leaves(old.outputs) if path not in given}
    for path in given:
        if isinstance(path[-1], int):
            continue
        new = without(inputs, path)
        if replaced(token, changed(inputs, new), inputs, new):
            continue
        preview = dict(leaves(provider.preview(Resource("urn", token, "x"), old, new)))
        missing = {each for each in computed if each not in preview}
        if missing:
            yield f"{token} {resource['name']} without {path}: {missing}"


@pytest.mark.parametrize(("record", "name"), PROGRAMS)
def test_computed_outputs_survive_each_update_in_place(
    record: Callable[[str], list[Any]], name: str, tmp_path: Path
) -> None:
    lost: list[str] = []
    for resource in record(name):
        if resource["type"].startswith("gcp:"):
            lost += lost_outputs(resource, tmp_path)
    assert lost == []


@pytest.mark.parametrize("endpoint", ["dnsEndpointConfig", "ipEndpointsConfig"])
def test_a_block_that_is_added_keeps_what_google_computed_in_it(
    endpoint: str, tmp_path: Path
) -> None:
    inputs = {"name": "ml", "location": "us-central1", "initialNodeCount": 1}
    provider = GcpProvider(Rehearsal.of("bare", tmp_path))
    provider.configure({"project": "acme", "region": "us-central1"})
    old = State("the-id", inputs, outputs_of(container.CLUSTER, inputs, tmp_path))
    added = {"controlPlaneEndpointsConfig": {endpoint: {"allowExternalTraffic": True}}}
    preview = provider.preview(Resource("urn", container.CLUSTER, "x"), old, {**inputs, **added})
    before = old.outputs["controlPlaneEndpointsConfig"]
    after = preview["controlPlaneEndpointsConfig"]
    assert after["dnsEndpointConfig"]["endpoint"] == before["dnsEndpointConfig"]["endpoint"]
    assert after[endpoint]["allowExternalTraffic"] is True
