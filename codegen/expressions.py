"""Expressions of CEL as trees, such as ``["<", ["size", ["self"]], 3]``.

The rules of definitions use a small part of CEL; anything else is an error of the generator.
"""

import re
from typing import Any

_RAW = 'r"""'
_TOKEN = re.compile(
    r"""\s*(r\"{3}.*?\"{3}|'[^']*'|"[^"]*"|\d+|\w+|&&|\|\||[=!<>]=|[-+!<>?:.,()\[\]])""", re.S
)
_BINARY = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"))
"""The operators between two values, from those that bind loosest."""
_MACROS = ("all", "exists", "exists_one", "filter")
_CALLS = ("size", "matches", "has", "contains", "startsWith", "endsWith", "split", "duration")


def tree(text: str) -> Any:
    """Return an expression as nested lists: an operator and its operands.

    A text that is a value is ``["text", value]``, a variable ``["name"]``, a field
    ``[".", value, name]``, and a macro ``["all", values, variable, condition]``.
    """
    tokens = _tokens(text)
    parsed = _Reader(tokens)
    rule = parsed.choice()
    if parsed.tokens:
        raise SystemExit(f"{text!r} is not read: {parsed.tokens}")
    return rule


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SystemExit(f"{text!r} is not read at {position}")
        tokens.append(match[1])
        position = match.end()
    return tokens


class _Reader:
    """A reader of tokens by recursive descent."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    def take(self, *texts: str) -> str:
        is_next = bool(self.tokens) and self.tokens[0] in texts
        return self.tokens.pop(0) if is_next else ""

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise SystemExit(f"{text!r} is missing before {self.tokens}")

    def choice(self) -> Any:
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        chosen = self.binary(0)
        self.expect(":")
        return ["?", condition, chosen, self.choice()]

    def binary(self, level: int) -> Any:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.take(*_BINARY[level]):
            left = [operator, left, self.binary(level + 1)]
        return left

    def unary(self) -> Any:
        return ["!", self.unary()] if self.take("!") else self.member()

    def member(self) -> Any:
        value = self.primary()
        while mark := self.take(".", "["):
            if mark == "[":
                value = ["item", value, self.choice()]
                self.expect("]")
                continue
            # A field with the name of a word of CEL, such as namespace, is escaped.
            name = self.tokens.pop(0).removeprefix("__").removesuffix("__")
            if not self.take("("):
                value = [".", value, name]
            elif name in _MACROS:
                variable = self.tokens.pop(0)
                self.expect(",")
                value = [name, value, variable, self.choice()]
                self.expect(")")
            else:
                value = self.call(name, value)
        return value

    def call(self, name: str, *values: Any) -> Any:
        arguments = [*values]
        while not self.take(")"):
            arguments.append(self.choice())
            self.take(",")
        if name not in _CALLS:
            raise SystemExit(f"the function {name} is not read")
        if name == "has":
            [[_, holder, field]] = arguments
            return ["has", holder, field]
        return [name, *arguments]

    def primary(self) -> Any:
        token = self.tokens.pop(0)
        if token == "(":
            value = self.choice()
            self.expect(")")
            return value
        if token == "[":
            items: list[Any] = []
            while not self.take("]"):
                items.append(self.choice())
                self.take(",")
            return ["list", *items]
        if token.isdecimal():
            return int(token)
        if token in ("true", "false"):
            return token == "true"
        if token.startswith(_RAW):
            return ["text", token[len(_RAW) : -3]]
        if token[0] in ("'", '"'):
            return ["text", token[1:-1]]
        return self.call(token) if self.take("(") else [token]
