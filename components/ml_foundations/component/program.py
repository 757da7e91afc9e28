"""What the components of a running program note, to be reported at the end of its code."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import pulumi
from pulumi.runtime.settings import get_root_resource

T = TypeVar("T")


class ProgramNotes(Generic[T]):
    """Notes of each running program, such as a list of errors."""

    def __init__(self, empty: Callable[[], T], report: Callable[[T], None]) -> None:
        """Report notes, which are ``empty`` at first, when the code of their program has ended."""
        self._empty = empty
        self._report = report
        self._by_stack: WeakKeyDictionary[pulumi.Resource, T] = WeakKeyDictionary()

    def existing(self) -> T | None:
        """Return the notes of the running program, or None if it has none."""
        stack = get_root_resource()
        return self._by_stack.get(stack) if stack else None

    def of_program(self) -> T | None:
        """Return the notes of the running program, or None outside a program."""
        stack = get_root_resource()
        if stack is None:
            return None
        if stack not in self._by_stack:
            self._by_stack[stack] = self._empty()
            # An Output is awaited at the end of the program, and what it raises ends the program.
            pulumi.Output.from_input(self._at_end(self._by_stack[stack]))
        return self._by_stack[stack]

    async def _at_end(self, notes: T) -> None:
        self._report(notes)
