"""Components with invalid arguments: a program goes on without them, and ends with all errors.

In a running program, nothing is registered before the end of its code. The errors of one component
can therefore wait for those of all later components.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pulumi
from typing_extensions import override

from ml_foundations.component.program import ProgramNotes
from ml_foundations.kubernetes import printable


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
    errors = _errors.of_program() if _is_running() else None
    if errors is None:
        return False
    errors.append(error)
    return True


def refusal() -> pulumi.RunError | None:
    """Return the errors of all components of the running program, or None."""
    return _joined(_errors.existing() or [])


def failing_dependency() -> pulumi.Resource:
    """Return a dependency that raises the errors, for a component that must not be registered."""
    return cast("pulumi.Resource", pulumi.Output.from_input(_fail()))


async def _fail() -> None:
    if error := refusal():
        raise error


def _joined(errors: list[pulumi.RunError]) -> pulumi.RunError | None:
    if len(errors) > 1:
        return pulumi.RunError(printable.text("\n".join(map(str, errors))))
    return errors[0] if errors else None


def _raise(errors: list[pulumi.RunError]) -> None:
    if error := _joined(errors):
        raise error


_errors = ProgramNotes(list[pulumi.RunError], _raise)
"""The errors of components."""


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
