"""Kubernetes quantities, parsed exactly."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ml_foundations.kubernetes.words import shown

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,99}(?:\.\d{0,99})?|\.\d{1,99}))"
    r"(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?",
    re.ASCII,
)
"""Bounded: to compute with 1e999999999 would never end."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


_LONGEST = 7
"""As many characters of an exact amount read well."""

Amounts = dict[str, int]
"""Thousandths of each resource by name."""
WHOLE = 1000
"""One, in thousandths."""


def whole_number(value: Any, default: int = 0) -> int:
    """Return a whole number below a billion that a label or another text has; or the default."""
    text = str(value)
    return int(float(text)) if re.fullmatch(r"[0-9]{1,9}(\.0)?", text) else default


def decimal_number(text: str) -> int | None:
    """Return the number below a billion whose digits a text is, else None."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def parse_quantity(value: str | int | float) -> Fraction:
    """Return the exact amount of a quantity in a manifest, such as ``"1500m"``, ``"16Gi"`` or 2.

    Raises:
        ValueError: It is not a quantity.
    """
    return _parsed(str(value).strip(" "))


@lru_cache(maxsize=65536)
def _parsed(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        hint = ", such as 500m, 2 or 16Gi"
        if written := re.fullmatch(r"([0-9.]+) ?([KMGTPE])i?B", text, re.IGNORECASE):
            hint = f". Did you mean {written[1]}{written[2].upper()}i?"
        raise ValueError(f"{shown(text, 100)} is not a Kubernetes quantity{hint}")
    number = Fraction(match["number"])
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        return number * 1024 ** _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number * Fraction(10) ** exponent


@lru_cache(maxsize=65536)
def milli(value: str | int | float | None) -> int:
    """Return a quantity in thousandths, rounded up as the API server does; 0 for null."""
    return 0 if value is None else math.ceil(parse_quantity(value) * 1000)


def is_whole(amount: int) -> bool:
    """Return whether an amount, in thousandths of 64 bits, is a whole number."""
    return amount % WHOLE == 0 and not 2**63 <= amount < 999 * 2**63


def millis(values: Mapping[str, Any]) -> Amounts:
    """Return a list of resources, such as requests or limits, in thousandths."""
    return {name: milli(value) for name, value in values.items()}


def scheduled(amounts: Mapping[str, int]) -> Amounts:
    """Return amounts as the scheduler reads them: thousandths of cpu, whole units of the rest."""
    return {
        name: amount if name == "cpu" else -(-amount // WHOLE) * WHOLE
        for name, amount in amounts.items()
    }


def total(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """Return the sum of amounts."""
    sums: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def times(amounts: Mapping[str, int], count: int) -> Amounts:
    """Return a multiple of some amounts."""
    return {name: amount * count for name, amount in amounts.items()}


@lru_cache(maxsize=65536)
def format_milli(value: int) -> str:
    """Return a short quantity for an amount in thousandths."""
    return format_quantity(Fraction(value, 1000))


def readable(value: int, to: Callable[[Fraction], int] = round) -> str:
    """Return an amount in thousandths for people: 1798Gi, not 1885335478Ki, and 1024, not 1Ki."""
    if value % WHOLE == 0 and abs(value) < 10 * WHOLE * 1024:
        return str(value // WHOLE)
    exact = format_milli(value)
    if len(exact) <= _LONGEST or value % WHOLE:
        return exact
    fitting = [item for item in _BINARY.items() if abs(value) >= 10 * WHOLE * 1024 ** item[1]]
    suffix, power = fitting[-1]
    amount = Fraction(value, WHOLE * 1024**power)
    tenth = 10 ** max(0, 4 - len(str(int(abs(amount)))))
    return f"{to(amount * tenth) / tenth:g}{suffix}"


def format_quantity(value: Fraction) -> str:
    """Return a short quantity: whole numbers, with a binary suffix if one divides them."""
    if value.denominator == 1:
        amount = value.numerator
        for suffix, power in reversed(_BINARY.items()):
            if amount and amount % 1024**power == 0:
                return f"{amount // 1024**power}{suffix}"
        return str(amount)
    return f"{float(value * 1000):.15g}m"


def canonical_quantity(value: object) -> str:
    """Return a quantity as the API server writes it, so that a refresh sees no difference.

    For example, 1000m becomes 1.

    Raises:
        ValueError: It is not a quantity.
    """
    text = str(value)
    amount = parse_quantity(text)
    if text.endswith("i") and amount.denominator == 1 and amount >= 1024:
        return format_quantity(amount)
    # The API server rounds up to billionths, so the last suffix, n, always leaves a whole number.
    billionths = math.ceil(amount * 10**9)
    for suffix, power in reversed(_DECIMAL.items()):
        whole = Fraction(billionths, 10 ** (power + 9))
        if billionths and whole.denominator == 1:
            return f"{whole}{suffix}"
    return "0"
