"""Components with invalid arguments: a program goes on without them, and ends with all errors.

In a running program, nothing is registered before the end of its code. The errors of one component
can therefore wait for those of all later components.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, cast
from weakref import WeakKeyDictionary

import pulumi
from pulumi.runtime.settings import get_root_resource
from typing_extensions import override

_errors: WeakKeyDictionary[pulumi.Resource, list[pulumi.RunError]] = WeakKeyDictionary()
"""The errors of each running program, by its stack."""


class MissingOutput(pulumi.Output[Any]):
    """An Output of a component with invalid arguments. It never causes a second error."""

    def __init__(self) -> None:
        unknown = asyncio.get_event_loop().create_future()
        unknown.set_result(None)
        is_known = asyncio.get_event_loop().create_future()
        is_known.set_result(False)
        super().__init__(set(), unknown, is_known)

    @override
    def apply(self, func: Any, run_with_unknowns: bool = False) -> "MissingOutput":
        return self

    @override
    def __str__(self) -> str:
        return "missing"

    @override
    def __iter__(self) -> Iterator[Any]:
        return iter(())

    @override
    def __getitem__(self, key: Any) -> "MissingOutput":
        return self

    def keys(self) -> Iterable[str]:
        """Return no keys."""
        return ()


def note(error: pulumi.RunError) -> bool:
    """Keep an error for the end of the program. Return whether a program runs, which can go on."""
    stack = get_root_resource()
    if stack is None or not _is_running():
        return False
    if stack not in _errors:
        _errors[stack] = []
        # An Output is awaited at the end of the program, and what it raises ends the program.
        pulumi.Output.from_input(_fail())
    _errors[stack].append(error)
    return True


def refusal() -> pulumi.RunError | None:
    """Return the errors of all components of the running program, or None."""
    stack = get_root_resource()
    errors = _errors.get(stack, []) if stack else []
    if len(errors) > 1:
        return pulumi.RunError("\n".join(map(str, errors)))
    return errors[0] if errors else None


async def _fail() -> None:
    if error := refusal():
        raise error


def never() -> pulumi.Resource:
    """Return what a component waits for that must not be registered: it raises the errors."""
    return cast("pulumi.Resource", pulumi.Output.from_input(_fail()))


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
