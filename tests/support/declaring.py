"""Declare components against Pulumi's mocks, and see every request for a resource that they make."""

import asyncio
import importlib.util
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pulumi
from google.protobuf import json_format
from pulumi.runtime import resource
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.settings import SETTINGS, set_root_resource
from pulumi.runtime.stack import run_pulumi_func

from tests.support.checkout import CHECKOUT

CLUSTER: dict[str, Any] = {
    "endpoint": "203.0.113.1",
    "masterAuth": {"clusterCaCertificate": "Q0E="},
    "privateClusterConfig": {"privateEndpoint": "172.16.0.2"},
    "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.example"}},
}
"""What GKE computes for a cluster."""


class _Answers(pulumi.runtime.Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        computed: dict[str, Any] = {"selfLink": f"link/{args.name}"}
        if args.typ == "gcp:container/cluster:Cluster":
            computed = CLUSTER
        elif args.typ == "gcp:serviceaccount/account:Account":
            computed = {
                "email": f"{args.name}@example",
                "member": f"serviceAccount:{args.name}@example",
            }
        elif args.typ == "gcp:container/nodePool:NodePool":
            computed = {"name": args.inputs.get("name") or f"{args.name}-1a2b3c4"}
        elif args.typ.startswith("kubernetes:") and "kind" in args.inputs:
            computed = {
                "metadata": {"name": f"{args.name}-1a2b3c4d", **(args.inputs.get("metadata") or {})}
            }
        return f"{args.name}-id", {**args.inputs, **computed}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"a provider function is called: {args.token}")


class _Recorder(MockMonitor):
    def __init__(self, answers: _Answers) -> None:
        super().__init__(answers)
        self.requests: list[Any] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the protocol's name)
        self.requests.append(request)
        return super().RegisterResource(request)


def requests(program: Callable[[], Any], project: str = "p", stack: str = "s") -> list[Any]:
    """The request of each resource that a program registers, in the order in which they come."""
    recorder = _Recorder(_Answers())
    run(program, recorder, project, stack)
    return [request for request in recorder.requests if request.type != "pulumi:pulumi:Stack"]


def run(
    program: Callable[[], Any],
    monitor: MockMonitor,
    project: str = "p",
    stack: str = "s",
    *,
    preview: bool = False,
) -> None:
    """Run a program against a monitor in place of Pulumi's engine."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # Each program has a stack of its own, without the transformations of another and what a refused one waited for.
    set_root_resource(None)
    SETTINGS.outputs.clear()
    SETTINGS.rpc_manager.clear()
    pulumi.runtime.set_mocks(
        monitor.mocks, project=project, stack=stack, preview=preview, monitor=monitor
    )

    async def until_registered() -> None:
        await run_pulumi_func(program)

    with _without_callers():
        loop.run_until_complete(until_registered())


@contextmanager
def _without_callers() -> Iterator[None]:
    """Pulumi describes all callers of each resource and of each refused one: a third of the time, and nobody reads it."""
    with (
        patch.object(resource, "_get_stack_trace", source_pb2.StackTrace),
        patch.object(traceback, "format_exc", str),
    ):
        yield


def declared(program: Callable[[], Any]) -> dict[str, Any]:
    """The request of each resource that a program registers, by name."""
    return {request.name: request for request in requests(program)}


def inputs(request: Any) -> dict[str, Any]:
    """The inputs of a request as plain data."""
    return json_format.MessageToDict(request.object)


def component_host() -> Any:
    """The module that hosts the components as a Pulumi plugin."""
    spec = importlib.util.spec_from_file_location(
        "component_host", CHECKOUT / "components" / "__main__.py"
    )
    assert spec and spec.loader
    host = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(host)
    return host
