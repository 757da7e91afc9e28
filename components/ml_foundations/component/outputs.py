"""Outputs whose values are known without waiting, and inputs as a registration sends them."""

import asyncio
import copy
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast, overload

import pulumi
from typing_extensions import override

from ml_foundations.component import refused
from ml_foundations.component._pulumi_internals import is_input_type, result_if_ready, serialized
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.kubernetes.trees import UNKNOWN, leaves, map_leaves

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class KnownOutput(pulumi.Output[T_co]):
    """An Output of a component whose value is known before any resource is created.

    Other resources that use it wait for the component's children, as with any Output. Arguments
    that must be known at preview accept it, and the proof sees its value. Text, lists, mappings and
    truth values can be used as if they were plain: ``f"{team.namespace}"``, ``[*pool.tolerations,
    more]``, ``{**pool.node_selector, **more}``. Of a number, use ``value`` or ``apply``.
    """

    def __init__(self, value: T_co, sources: Iterable[pulumi.Resource], title: str = "") -> None:
        """Publish a value with a title for messages. What uses it waits for the ``sources``."""
        self.value = value
        """The value."""
        self._title = title
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
        """Run ``func`` at once. The result is known, unless it is an Output or must be awaited."""
        result: Any = func(self.value)
        if isinstance(result, pulumi.Output) or inspect.isawaitable(result):
            return super().apply(lambda _: cast("Any", result))
        return KnownOutput(result, self.sources, self._title)

    @override
    def __str__(self) -> str:
        return str(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    @override
    def __iter__(self) -> Iterator[Any]:
        items: Iterable[Any] = cast("Any", self.value)
        return iter([KnownOutput(item, self.sources, self._title) for item in items])

    @override
    def __getitem__(self, key: Any) -> "KnownOutput[Any]":
        value = cast("Any", self.value)
        if isinstance(value, dict) and key not in value:
            reason = not_among(key, "key", cast("dict[str, Any]", value))
            page = f"docs/components/{self._title.partition(' ')[0]}.md"
            error = pulumi.RunError(printable.text(f"{self._title}: {reason}. See {page}"))
            if not refused.note(error):
                raise error
            return cast("KnownOutput[Any]", refused.MissingOutput())
        return KnownOutput(cast("Any", value)[key], self.sources, self._title)

    def keys(self) -> Iterable[str]:
        """Return the keys of a mapping."""
        return cast("Mapping[str, Any]", self.value).keys()


def _resolved(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_event_loop().create_future()
    future.set_result(value)
    return future


def published(value: Any, children: Iterable[pulumi.Resource], title: str) -> pulumi.Output[Any]:
    """Return a value of a component as an Output that depends on the component's children."""
    # The component itself would include what others parent to it, which may wait for the Output.
    sources = set(children)
    if not any(isinstance(leaf, pulumi.Output) for _, leaf in leaves(value)):
        return KnownOutput(value, sources, title)
    output = pulumi.Output.from_input(value)

    async def resources() -> set[pulumi.Resource]:
        return {*await output.resources(), *sources}

    return pulumi.Output(
        resources(), output.future(with_unknowns=True), output.is_known(), output.is_secret()
    )


def unwrapped(args: Any) -> tuple[Any, list[pulumi.Resource]]:
    """Return arguments with known Outputs as plain values, and the resources they come from."""
    sources: dict[pulumi.Resource, None] = {}

    def plain(value: Any) -> Any:
        if not isinstance(value, KnownOutput):
            return value
        known_output = cast("KnownOutput[Any]", value)
        sources.update(dict.fromkeys(known_output.sources))
        return known_output.value

    return map_leaves(args, plain), list(sources)


def inputs_as_sent(kind: type[pulumi.Resource], props: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs as a registration sends them, with ``UNKNOWN`` for values that must wait.

    ``props`` have their names in Python if the resource's class has an argument class.

    Raises:
        ValueError: A value has a type that no input can have. The registration will fail too.
        AssertionError: A value must be a list and is not. The registration will fail too.
    """
    inputs = serialized(resolve_known(dict(props)), arguments_class(kind))
    return map_leaves(inputs, as_plain)


def as_plain(value: Any) -> Any:
    """Return a value from the wire as Python writes it: whole numbers as int, else ``UNKNOWN``."""
    if isinstance(value, pulumi.output.Unknown | pulumi.Output):
        return UNKNOWN
    return int(value) if isinstance(value, float) and value.is_integer() else value


def arguments_class(kind: type | None) -> type | None:
    """Return the SDK class that names a resource's arguments, or None."""
    for base in kind.__mro__ if kind else ():
        module = vars(sys.modules[base.__module__])
        # Kubernetes' kinds have FooInitArgs, since FooArgs is the object inside of others.
        for name in (f"{base.__name__}InitArgs", f"{base.__name__}Args"):
            if isinstance(arguments := module.get(name), type) and is_input_type(arguments):
                return arguments
    return None


def resolve_known(value: Any, *, secrets: bool = False) -> Any:
    """Return inputs in which each value that must wait, or is secret, is Pulumi's ``Unknown``.

    With ``secrets``, values of secrets are returned too.
    """
    if isinstance(value, KnownOutput):
        return resolve_known(cast("KnownOutput[Any]", value).value, secrets=secrets)
    if isinstance(value, pulumi.Output):
        output = cast("pulumi.Output[Any]", value)
        is_hidden = not secrets and result_if_ready(output.is_secret())
        if is_hidden or not result_if_ready(output.is_known()):
            return pulumi.output.Unknown()
        return resolve_known(result_if_ready(output.future()), secrets=secrets)
    if isinstance(value, pulumi.Resource) or inspect.isawaitable(value):
        return pulumi.output.Unknown()
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value).items()
        return {key: resolve_known(item, secrets=secrets) for key, item in fields}
    if isinstance(value, list | tuple):
        return [resolve_known(item, secrets=secrets) for item in cast("list[Any]", value)]
    if is_input_type(cast("Any", type(value))):
        value = copy.copy(value)
        value.__dict__ = resolve_known(vars(value), secrets=secrets)
    return value
