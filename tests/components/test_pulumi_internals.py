"""Each private part of Pulumi's SDK that components use: an upgrade that changes one fails here."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
from ml_foundations.component import _pulumi_internals as internals
from pulumi.runtime import _callbacks
from pulumi.runtime.settings import SETTINGS
from pulumi_kubernetes.core.v1 import ContainerArgs, Pod, PodSpecArgs

from tests.support.declaring import declared


def test_argument_classes_are_told_from_resources() -> None:
    assert internals.is_input_type(PodSpecArgs)
    assert not internals.is_input_type(Pod)
    assert not internals.is_input_type(dict)


def test_argument_classes_name_their_fields_as_on_the_wire() -> None:
    fields = internals.input_types(PodSpecArgs)
    assert "restartPolicy" in fields
    assert "restart_policy" not in fields


def test_a_result_is_read_without_waiting() -> None:
    async def ready() -> int:
        return 1

    assert internals.result_if_ready(ready()) == 1


def test_a_future_that_must_wait_can_be_awaited_later() -> None:
    async def wait_for_later() -> int:
        future = asyncio.get_running_loop().create_future()
        assert internals.result_if_ready(future) is None
        asyncio.get_running_loop().call_soon(future.set_result, 2)
        return await future

    assert asyncio.run(wait_for_later()) == 2


def test_inputs_are_serialized_at_once() -> None:
    container = ContainerArgs(name="main", image_pull_policy="Always")
    assert internals.serialized({"containers": [container]}, PodSpecArgs) == {
        "containers": [{"name": "main", "imagePullPolicy": "Always"}]
    }


def test_pending_registrations_and_outputs_are_forgotten() -> None:
    def program() -> None:
        settings: Any = SETTINGS
        pulumi.ComponentResource("test:index:Some", "some")
        pulumi.Output.from_input("a").apply(lambda text: text)
        assert settings.rpc_manager.rpcs
        internals.forget_pending_work()
        assert not settings.rpc_manager.rpcs
        assert not settings.outputs

    declared(program)


def test_the_last_stack_transformation_is_registered_last() -> None:
    def first(args: pulumi.ResourceTransformationArgs) -> None: ...

    def last(args: pulumi.ResourceTransformationArgs) -> None: ...

    def program() -> None:
        for transformation in (first, last):
            pulumi.runtime.register_stack_transformation(transformation)
        assert internals.last_stack_transformation() is last

    declared(program)


@pytest.fixture
def no_servicers() -> Iterator[None]:
    servicers = _callbacks._CallbackServicer._servicers
    kept = [*servicers]
    servicers.clear()
    yield
    servicers[:] = kept


@pytest.mark.usefixtures("no_servicers")
def test_transforms_of_this_event_loop_are_listed() -> None:
    def transform(args: pulumi.ResourceTransformArgs) -> None: ...

    async def register() -> None:
        servicer = _callbacks._CallbackServicer(monitor=None)  # type: ignore[arg-type]
        servicer.register_transform(transform)
        assert internals.resource_transforms() == {transform}

    async def look() -> set[Any]:
        return internals.resource_transforms()

    asyncio.run(register())
    assert asyncio.run(look()) == set(), "those of another event loop are not"


def test_a_remote_component_is_recognized() -> None:
    def program() -> None:
        local = pulumi.ComponentResource("test:index:Local", "local")
        remote = pulumi.ComponentResource("test:index:Remote", "remote", {}, remote=True)
        assert not internals.is_remote(local)
        assert internals.is_remote(remote)

    declared(program)
