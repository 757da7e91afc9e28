"""What is known of inputs without waiting, and how a resource's registration will name them."""

import copy
import inspect
import sys
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import pulumi
from pulumi import _types as types  # pyright: ignore[reportPrivateUsage]
from pulumi.runtime import rpc

from ml_foundations.kubernetes.trees import UNKNOWN, mapped


def done(result: Awaitable[Any]) -> Any:
    """The result of what need not wait any more; otherwise None."""
    steps = result.__await__()
    try:
        awaited = next(steps)
    except StopIteration as end:
        return end.value
    # Nothing awaits it: without this, asyncio would refuse the next one that does.
    awaited._asyncio_future_blocking = False
    return None


def inputs_as_sent(kind: type[pulumi.Resource], props: Mapping[str, Any]) -> dict[str, Any]:
    """What a resource's registration will send, in the provider's names, with ``UNKNOWN`` for what must wait.

    Args:
        kind: The resource's class.
        props: Its inputs, in Python's names where the class is typed.

    Raises:
        ValueError: The registration will fail too: a value has a type that no input can have.
        AssertionError: Likewise: the value is no list where there must be one.
    """
    sent = done(rpc.serialize_properties(known(dict(props)), {}, typ=arguments_class(kind)))
    return mapped(rpc.deserialize_properties(sent, keep_unknowns=True), as_plain)


def as_plain(value: Any) -> Any:
    """A value from the wire, which knows no integers; ``UNKNOWN`` for what Pulumi does not know."""
    if isinstance(value, pulumi.output.Unknown | pulumi.Output):
        return UNKNOWN
    return int(value) if isinstance(value, float) and value.is_integer() else value


def arguments_class(kind: type | None) -> type | None:
    """The class with the names of a resource's arguments, beside it in its SDK; None where there is none."""
    for base in kind.__mro__ if kind else ():
        beside = vars(sys.modules[base.__module__])
        # Kubernetes' kinds have FooInitArgs, since FooArgs is the object inside of others.
        for name in (f"{base.__name__}InitArgs", f"{base.__name__}Args"):
            if isinstance(found := beside.get(name), type) and types.is_input_type(found):
                return found
    return None


def known(value: Any, *, secrets: bool = False) -> Any:
    """A tree of inputs with nothing in it that must wait, and no secret unless they are asked for."""
    if isinstance(value, pulumi.Output):
        output = cast("pulumi.Output[Any]", value)
        is_open = done(output.is_known()) and (secrets or not done(output.is_secret()))
        return known(done(output.future()), secrets=secrets) if is_open else pulumi.output.Unknown()
    if isinstance(value, pulumi.Resource) or inspect.isawaitable(value):
        return pulumi.output.Unknown()
    if isinstance(value, Mapping):
        return {key: known(item, secrets=secrets) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [known(item, secrets=secrets) for item in cast("list[Any]", value)]
    if types.is_input_type(cast("Any", type(value))):
        value = copy.copy(value)
        value.__dict__ = known(vars(value), secrets=secrets)
    return value
