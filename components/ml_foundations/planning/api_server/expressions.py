"""Rules of definitions in CEL, evaluated.

A rule is a tree that codegen makes of its text (codegen/expressions.py), with the operators, macros
and functions that occur in the definitions of ``definitions.json``.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, cast

_ANY_CASE = "(?i)"
"""The mark of a pattern for both cases; Go accepts it anywhere."""
_END = re.compile(r"(\\.|\[(?:\\.|[^\]])*\])|\$")
"""The end of a text in a pattern, or an escaped character or brackets, which may have its mark."""
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""The units of durations that the Gateway API allows."""


def _is_in(value: Any, values: list[Any]) -> bool:
    return value in values


@cache
def pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression of Go as one of Python."""
    flags = re.ASCII | (re.IGNORECASE if _ANY_CASE in text else re.ASCII)
    # Python's $ also matches before a line break at the end. In brackets, it is itself.
    parts = _END.sub(lambda match: match[1] or r"\Z", text.replace(_ANY_CASE, ""))
    return re.compile(parts, flags)


def _matches(text: str, expression: str) -> bool:
    return pattern(expression).search(text) is not None


def _duration(text: str) -> int:
    parts = re.findall(r"([0-9]+)(ms|[hms])", text)
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in parts)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "text": str,
    "list": lambda *values: [*values],
    "!": operator.not_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "in": _is_in,
    "size": len,
    "contains": operator.contains,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "split": str.split,
    "duration": _duration,
    "item": operator.getitem,
    ".": operator.getitem,
    "has": operator.contains,
    "matches": _matches,
}
_MACROS = ("all", "exists", "exists_one", "filter")
_ERRORS = (LookupError, TypeError)


def is_true(tree: Any, value: Any) -> bool:
    """Return whether a rule is true of a value; a rule that cannot be evaluated is not."""
    try:
        return bool(_evaluated(tree, {"self": value}))
    except _ERRORS:
        return False  # The API server refuses the object, too.


def _evaluated(tree: Any, names: Mapping[str, Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    name, *operands = cast("list[Any]", tree)
    if not operands:
        return names[name]
    if name in _MACROS:
        return _of_macro(name, operands, names)
    if name in ("&&", "||"):
        conditions = [partial(_evaluated, operand, names) for operand in operands]
        return _decided(conditions, by=name == "||")
    first, *others = operands
    if name == "?":
        return _evaluated(others[0] if _evaluated(first, names) else others[1], names)
    return _FUNCTIONS[name](*(_evaluated(operand, names) for operand in operands))


def _of_macro(name: str, operands: list[Any], names: Mapping[str, Any]) -> Any:
    values, variable, condition = operands
    tested = [*_evaluated(values, names)]
    tests = [partial(_evaluated, condition, {**names, variable: value}) for value in tested]
    if name in ("all", "exists"):
        return _decided(tests, by=name == "exists")
    met = [value for value, test in zip(tested, tests, strict=True) if test()]
    return met if name == "filter" else len(met) == 1


def _decided(conditions: Iterable[Callable[[], Any]], *, by: bool) -> bool:
    """Return whether a condition is the value that decides; only if none is, an error counts."""
    error: Exception | None = None
    for condition in conditions:
        try:
            if condition() is by:
                return by
        except _ERRORS as failure:
            error = failure
    if error:
        raise error
    return not by
