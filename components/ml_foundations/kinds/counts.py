"""The fields that decide how many pods there are, as the user wrote them."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ml_foundations.kubernetes.words import listed


class Count(NamedTuple):
    """A factor of a number of pods, and the fields that decide it."""

    number: int
    fields: Mapping[str, Any]
    """The values by path. While one is higher, the factor is: the least replicas too."""
    others: int = 0
    """How many pods of the fields' number are of another set, such as a leader."""
    ceilings: tuple[str, ...] = ()
    """The fields with the most replicas that autoscalers may set."""


def deciding_path(counts: Iterable[Count]) -> str:
    """Return the first field with more than one, or the first that is set; nothing if none is."""
    written: list[tuple[bool, str]] = []
    for count in counts:
        for path, value in count.fields.items():
            if isinstance(value, int):
                written.append((value < 2 or value < count.number, path))
    return min(written, key=lambda field: field[0])[1] if written else ""


def lowered(counts: Sequence[Count], most: int) -> str:
    """Return which fields to lower, and to what, for at most so many pods; nothing if none can be.

    Example: of 4 replicas of 2 hosts, with nodes for 5 pods, lower replicas to 2.
    """
    pods = prod(count.number for count in counts)
    for count in counts:
        number = most * count.number // max(pods, 1)
        higher = number + count.others
        paths = [path for path, value in count.fields.items() if value and value > higher]
        if number and paths:
            return f"lower {listed(paths)} to {higher}"
    return ""
