"""Outputs whose values are known without waiting, and how a resource's registration will name its inputs."""

import asyncio
import copy
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast, overload

import pulumi
from pulumi import _types as types  # pyright: ignore[reportPrivateUsage]
from pulumi.runtime import rpc
from typing_extensions import override

from ml_foundations.kubernetes.trees import UNKNOWN, leaves, mapped

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class KnownOutput(pulumi.Output[T_co]):
    """An Output of a component whose value is known before any resource is created.

    Other resources that use it wait for the component's children, as with any Output. Arguments that must be known at
    preview accept it, and the proof sees its value. Text, lists, mappings and truth values can be used as if they were
    plain: ``f"{team.namespace}"``, ``[*pool.tolerations, more]``, ``{**pool.node_selector, **more}``. Of a number, use
    ``value`` or ``apply``.
    """

    def __init__(self, value: T_co, sources: Iterable[pulumi.Resource]) -> None:
        """Publish a value.

        Args:
            value: The value.
            sources: The resources to wait for.
        """
        self.value = value
        """The value."""
        self.sources = frozenset(sources)
        """The resources to wait for: a component's children."""
        super().__init__(set(self.sources), _resolved(value), _resolved(True))

    @overload
    def apply(  # pyright: ignore[reportOverlappingOverload]
        self, func: Callable[[T_co], pulumi.Output[U]], run_with_unknowns: bool = False
    ) -> pulumi.Output[U]: ...

    @overload
    def apply(
        self, func: Callable[[T_co], Awaitable[U]], run_with_unknowns: bool = False
    ) -> pulumi.Output[U]: ...

    @overload
    def apply(
        self, func: Callable[[T_co], U], run_with_unknowns: bool = False
    ) -> "KnownOutput[U]": ...

    @override
    def apply(
        self, func: Callable[[T_co], Any], run_with_unknowns: bool = False
    ) -> pulumi.Output[Any]:
        """Run ``func`` at once; the result is known, too, unless it is an Output or must be awaited."""
        result: Any = func(self.value)
        if isinstance(result, pulumi.Output) or inspect.isawaitable(result):
            return super().apply(lambda _: cast("Any", result))
        return KnownOutput(result, self.sources)

    @override
    def __str__(self) -> str:
        return str(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    @override
    def __iter__(self) -> Iterator[Any]:
        items: Iterable[Any] = cast("Any", self.value)
        return iter([KnownOutput(item, self.sources) for item in items])

    @override
    def __getitem__(self, key: Any) -> "KnownOutput[Any]":
        return KnownOutput(cast("Any", self.value)[key], self.sources)

    def keys(self) -> Iterable[str]:
        """Return the keys of a mapping."""
        return cast("Mapping[str, Any]", self.value).keys()


def _resolved(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_event_loop().create_future()
    future.set_result(value)
    return future


def published(value: Any, children: Iterable[pulumi.Resource]) -> pulumi.Output[Any]:
    """Return a value of a component as an Output that depends on the component's children.

    Args:
        value: A plain value, or one that is or contains Outputs.
        children: The children. The component itself would also stand for what others parent to it, which may wait for
            the Output.
    """
    sources = set(children)
    if not _contains_output(value):
        return KnownOutput(value, sources)
    output = pulumi.Output.from_input(value)

    async def resources() -> set[pulumi.Resource]:
        return {*await output.resources(), *sources}

    return pulumi.Output(
        resources(), output.future(with_unknowns=True), output.is_known(), output.is_secret()
    )


def _contains_output(value: Any) -> bool:
    return any(isinstance(leaf, pulumi.Output) for _, leaf in leaves(value))


def unwrapped(args: Any) -> tuple[Any, list[pulumi.Resource]]:
    """Return arguments with known Outputs replaced by their values, and the resources that these values come from."""
    sources: dict[pulumi.Resource, None] = {}

    def plain(value: Any) -> Any:
        if not isinstance(value, KnownOutput):
            return value
        known_output = cast("KnownOutput[Any]", value)
        sources.update(dict.fromkeys(known_output.sources))
        return known_output.value

    return mapped(args, plain), list(sources)


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
    if isinstance(value, KnownOutput):
        return known(cast("KnownOutput[Any]", value).value, secrets=secrets)
    if isinstance(value, pulumi.Output):
        output = cast("pulumi.Output[Any]", value)
        is_open = done(output.is_known()) and (secrets or not done(output.is_secret()))
        return known(done(output.future()), secrets=secrets) if is_open else pulumi.output.Unknown()
    if isinstance(value, pulumi.Resource) or inspect.isawaitable(value):
        return pulumi.output.Unknown()
    if isinstance(value, Mapping):
        return {
            key: known(item, secrets=secrets)
            for key, item in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [known(item, secrets=secrets) for item in cast("list[Any]", value)]
    if types.is_input_type(cast("Any", type(value))):
        value = copy.copy(value)
        value.__dict__ = known(vars(value), secrets=secrets)
    return value
