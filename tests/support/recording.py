"""The programs of stacks and examples, run against Pulumi's mocks: every resource that they register."""

import json
import os
import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch
from warnings import catch_warnings, filterwarnings, simplefilter

import pulumi
import yaml
from google.protobuf import json_format
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockEngine
from pulumi.runtime.proto import engine_pb2

from tests.support.checkout import CHECKOUT
from tests.support.declaring import requests

Resource = dict[str, Any]
STACKS = sorted(path.name.split(".")[1] for path in (CHECKOUT / "stacks").glob("Pulumi.*.yaml"))
EXAMPLES = sorted(path.parent.name for path in (CHECKOUT / "examples").glob("*/__main__.py"))
OPTIONS = (
    *("protect", "retainOnDelete", "deleteBeforeReplace", "ignoreChanges", "replaceOnChanges"),
    *("customTimeouts", "additionalSecretOutputs", "importId", "deletedWith", "replaceWith"),
    "hideDiffs",
)
"""The options that decide what becomes of a resource, by their names in a request."""


@cache
def stack(name: str) -> list[Resource]:
    """What the program of the stacks registers with a stack file, by type and name; it must not warn."""
    with _silent():
        return changed_stack(name, stack_file(name))


def stack_file(name: str) -> dict[str, Any]:
    """The configuration of a stack."""
    return yaml.load((CHECKOUT / "stacks" / f"Pulumi.{name}.yaml").read_text(), yaml.CSafeLoader)[
        "config"
    ]


def changed_stack(name: str, config: Mapping[str, Any]) -> list[Resource]:
    """What the program of the stacks registers with a configuration."""
    return _record("stacks", "ml-foundations", name, config)


def read(name: str) -> set[tuple[str, str]]:
    """The outputs of resources that the program of a stack reads: the type of the resource, the name of the output."""
    found: set[tuple[str, str]] = set()

    def reading(resource: Any, attribute: str) -> Any:
        value = object.__getattribute__(resource, attribute)
        if isinstance(value, pulumi.Output) and attribute not in ("id", "urn"):
            found.add((resource.pulumi_resource_type, attribute))
        return value

    with patch.object(pulumi.CustomResource, "__getattribute__", reading):
        changed_stack(name, stack_file(name))
    return found


@cache
def example(name: str) -> list[Resource]:
    """What an example's program registers; it must not warn."""
    file = CHECKOUT / "examples" / name / "Pulumi.dev.yaml"
    config = yaml.load(file.read_text(), yaml.CSafeLoader)["config"] if file.exists() else {}
    with _silent():
        return _record(f"examples/{name}", name, "dev", config)


@contextmanager
def _silent() -> Iterator[None]:
    with catch_warnings(), patch.object(MockEngine, "Log", _refuse):
        simplefilter("error")
        filterwarnings("ignore", module="pulumi_gcp")
        yield


def _refuse(engine: MockEngine, message: Any) -> None:
    # Whole nodes of H100s train together, and the networks are not set up. Pulumi's mocks call no transforms, so that
    # the proof's second look sees no resource, and has no cost to compare with the budget.
    is_known = (
        "[gpu-network," in message.message
        or "for the cluster's own nodes; other resources cost 0" in message.message
    )
    assert message.severity < engine_pb2.WARNING or is_known, message.message


def as_for_google(name: str, config: Mapping[str, Any]) -> list[Resource]:
    """What the program of the stacks registers outside of a rehearsal."""
    return _record("stacks", "ml-foundations", name, config, rehearsed=False)


def _record(
    folder: str, project: str, name: str, config: Mapping[str, Any], *, rehearsed: bool = True
) -> list[Resource]:
    """The stack files have placeholders, which the proof accepts in a rehearsal only."""
    strings = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()
    }
    pulumi.runtime.set_all_config(strings)
    environ = {key: value for key, value in os.environ.items() if key != "ML_FOUNDATIONS_REHEARSAL"}
    environ |= {"ML_FOUNDATIONS_REHEARSAL": "/nowhere"} if rehearsed else {}
    try:
        with patch.dict(os.environ, environ, clear=True):
            path = str(CHECKOUT / folder)
            made = requests(lambda: runpy.run_path(path, run_name="__main__"), project, name)
    finally:
        pulumi.runtime.set_all_config({})
    parents = {_urn(request, project, name): request.parent for request in made}
    plain = [_plain(request, parents) for request in made]
    return sorted(plain, key=lambda item: (item["type"], item["name"]))


def _urn(request: Any, project: str, stack: str) -> str:
    """As Pulumi's mocks make it."""
    types = f"{request.parent.split('::')[2].split('$')[-1]}${request.type}"
    return f"urn:pulumi:{stack}::{project}::{types}::{request.name}"


def _ancestors(urn: str, parents: Mapping[str, str]) -> list[str]:
    """A resource's parent, that one's parent and so on, without the stack."""
    parent = parents[urn]
    return [parent, *_ancestors(parent, parents)] if parent in parents else []


def _plain(request: Any, parents: Mapping[str, str]) -> Resource:
    """A request as data; what it depends on of another component is summed up in that component's name."""
    given = json_format.MessageToDict(request)
    is_child = request.parent in parents
    own = [request.parent, *_ancestors(request.parent, parents)] if is_child else []
    before = {
        [urn, *(a for a in _ancestors(urn, parents) if a not in own)][-1]
        for urn in request.dependencies
    }
    return {
        "type": request.type,
        "name": request.name,
        "parent": request.parent.rpartition("::")[2],
        "options": {option: given[option] for option in OPTIONS if option in given},
        "after": sorted(urn.rpartition("::")[2] for urn in before),
        "inputs": _whole(rpc.deserialize_properties(request.object)),
    }


def _whole(value: Any) -> Any:
    """Numbers travel as floats; whole ones read better as integers."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
