"""Numbers, verbs and lists in the sentences that people read."""

from collections.abc import Iterable

_MOST_NAMES = 3


def number(count: int, what: str) -> str:
    """Return a number of things, such as "1 pod" or "2 pods"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def verb(count: int, one: str, several: str) -> str:
    """Return the form of a verb for a number of things, such as "has" or "have"."""
    return one if count == 1 else several


def listed(values: Iterable[object], conjunction: str = "and") -> str:
    """Return a list in a sentence, such as "a, b and c"; "nothing" if it is empty."""
    *first, last = [*map(str, values)] or ["nothing"]
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def shown(value: object, most: int = 40) -> str:
    """Return a value for a message, cut if it has more characters than ``most``."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def alternatives(values: Iterable[object]) -> str:
    """Return a choice in a sentence, such as "a, b or c"; "nothing" if it is empty."""
    return listed(values, "or")


def as_remedy(*ways: str) -> str:
    """Return ways to fix something as a sentence, such as "Raise a, or lower b."."""
    text = ", or ".join(filter(None, ways))
    return f"{text[0].upper()}{text[1:]}."


def names(values: Iterable[object]) -> str:
    """Return a few names in a sentence, such as "a, b, c and 2 more"."""
    shown = [*map(str, values)]
    more = len(shown) - _MOST_NAMES
    return listed([*shown[:_MOST_NAMES], f"{more} more"] if more > 0 else shown)
