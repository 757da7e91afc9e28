"""Everything that relies on private parts of Pulumi's SDK, each in one small function.

An upgrade of Pulumi that changes one of them fails in tests/components/test_pulumi_internals.py.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import pulumi
from pulumi import _types  # pyright: ignore[reportPrivateUsage]
from pulumi.runtime import _callbacks, rpc
from pulumi.runtime.settings import SETTINGS, get_root_resource


def is_input_type(kind: Any) -> bool:
    """Return whether a class is one of an SDK's argument classes, such as ``PodSpecArgs``.

    Relies on ``pulumi._types.is_input_type``.
    """
    return _types.is_input_type(kind)


def input_types(kind: type) -> Mapping[str, Any]:
    """Return the fields of an argument class, by their names on the wire, and the type of each.

    Relies on ``pulumi._types.input_type_types``.
    """
    return _types.input_type_types(kind)


def result_if_ready(awaitable: Awaitable[Any]) -> Any:
    """Return the result of an awaitable that need not wait, and None for one that must wait.

    Relies on ``asyncio.Future._asyncio_future_blocking``, which marks a future that a task awaits.
    Nothing awaits this one any more, and asyncio would refuse the next task that does.
    """
    steps = awaitable.__await__()
    try:
        future = next(steps)
    except StopIteration as end:
        return end.value
    future._asyncio_future_blocking = False
    return None


def serialized(inputs: Mapping[str, Any], arguments: type | None) -> dict[str, Any]:
    """Return inputs as their registration will send them and the provider will read them.

    The inputs have their names in Python if there is an argument class. Nothing in them must wait.

    Relies on ``pulumi.runtime.rpc``: its two functions do not wait if no input must be awaited.
    """
    sent = result_if_ready(rpc.serialize_properties(inputs, {}, typ=arguments))
    return rpc.deserialize_properties(sent, keep_unknowns=True)


def forget_pending_work() -> None:
    """Make the end of the program wait for no registration and no Output.

    Relies on ``SETTINGS.rpc_manager`` and ``SETTINGS.outputs``, for which ``run_in_stack`` waits.
    """
    settings = cast("Any", SETTINGS)
    settings.rpc_manager.clear()
    settings.outputs.clear()


def last_stack_transformation() -> Any:
    """Return the stack transformation that runs after all others.

    Relies on ``Resource._transformations`` of the stack, in the order of registration.
    """
    return cast("Any", get_root_resource())._transformations[-1]


def resource_transforms() -> set[Any]:
    """Return the transforms of all resources of the program that runs in this event loop.

    Relies on ``_CallbackServicer._servicers``, and on ``_loop`` and ``_transforms`` of each.
    """
    transforms: set[Any] = set()
    for servicer in cast("Any", _callbacks)._CallbackServicer._servicers:
        if servicer._loop is asyncio.get_running_loop():
            transforms.update(servicer._transforms)
    return transforms


def is_remote(component: pulumi.Resource) -> bool:
    """Return whether another process constructs a component, and declares its children.

    Relies on ``ComponentResource._remote``.
    """
    return getattr(component, "_remote", False)
