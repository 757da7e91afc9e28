"""Rules of definitions in CEL, evaluated.

A rule is a tree that codegen makes of its text (codegen/expressions.py), with the operators, macros
and functions that occur in the definitions of ``definitions.json``.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

_Names = Mapping[str, Any]


def _is_in(value: Any, values: list[Any]) -> bool:
    return value in values


def _matches(text: str, pattern: str) -> bool:
    return re.search(pattern, text) is not None


def _listed(*values: Any) -> list[Any]:
    return list(values)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "text": str,
    "list": _listed,
    "!": operator.not_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": _is_in,
    "size": len,
    "item": operator.getitem,
    ".": operator.getitem,
    "has": operator.contains,
    "matches": _matches,
}
_MACROS: Mapping[str, Callable[[list[tuple[Any, bool]]], Any]] = {
    "all": lambda tested: all(is_met for _, is_met in tested),
    "exists": lambda tested: any(is_met for _, is_met in tested),
    "exists_one": lambda tested: sum(is_met for _, is_met in tested) == 1,
    "filter": lambda tested: [value for value, is_met in tested if is_met],
}
"""What macros make of values, each with whether it meets the condition."""


def is_true(tree: Any, value: Any) -> bool:
    """Return whether a rule is true of a value; a rule that cannot be evaluated is not."""
    try:
        return bool(_evaluated(tree, {"self": value}))
    except (LookupError, TypeError):
        return False  # The API server refuses the object, too.


def _evaluated(tree: Any, names: _Names) -> Any:
    if not isinstance(tree, list):
        return tree
    name, *operands = cast("list[Any]", tree)
    if not operands:
        return names[name]
    if name in _MACROS:
        values, variable, condition = operands
        tested: list[tuple[Any, bool]] = []
        for value in _evaluated(values, names):
            tested.append((value, _evaluated(condition, {**names, variable: value})))
        return _MACROS[name](tested)
    first, *others = operands
    if name in ("&&", "||"):
        decided = _evaluated(first, names)
        return decided if decided is (name == "||") else _evaluated(others[0], names)
    if name == "?":
        return _evaluated(others[0] if _evaluated(first, names) else others[1], names)
    return _FUNCTIONS[name](*(_evaluated(operand, names) for operand in operands))
