"""Expressions of CEL, the Common Expression Language: their syntax, names and types.

A tokenizer and a parser by recursive descent. They follow the grammar of cel-spec
(doc/langdef.md) with the optional values, macros and functions of Kubernetes v1.36 (apiserver,
pkg/cel and pkg/admission/plugin/policy). Of types they know what the last step of an expression
returns; all else is ``Type.ANY``.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache


class Type(StrEnum):
    """The type of an expression's result."""

    BOOL = "bool"
    STRING = "string"
    LIST = "list"
    PATCH = "patch"
    """An object of the type ``Object``."""
    VALUE = "value"
    """A number, a map, null, or a field of the object under admission."""
    ANY = "any"
    """Not followed: it may be any of them."""


class CelError(ValueError):
    """A text that is not an expression of CEL."""


@dataclass(frozen=True)
class Expression:
    """An expression of CEL.

    Attributes:
        type: What it returns.
        variables: The variables in it that it does not bind itself, such as object.
        members: The fields that it selects of the variables ``self`` and ``variables``.
        unknown: Functions and fields of ``request`` and ``namespaceObject`` that Kubernetes lacks.
    """

    type: Type
    variables: frozenset[str]
    members: frozenset[str]
    unknown: frozenset[str]


_CODE_POINTS = 100_000
"""The longest expression that cel-go parses (parser/options.go, v0.26)."""


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Return a text as an expression of CEL.

    Raises:
        CelError: The text is not an expression of CEL.
    """
    if len(text) > _CODE_POINTS:
        raise CelError(f"{len(text):,} characters instead of at most {_CODE_POINTS:,}")
    parser = _Parser([*_tokens(text)])
    try:
        type_ = parser.expression()
    except RecursionError:  # it nests some hundred levels deep, where cel-go too has a limit
        return Expression(Type.ANY, frozenset(), frozenset(), frozenset())
    parser.expect("")
    return Expression(
        type_, frozenset(parser.variables), frozenset(parser.members), frozenset(parser.unknown)
    )


def member_names(text: str) -> frozenset[str]:
    """Return the fields of ``self`` and ``variables`` in an expression; none if it is invalid."""
    try:
        return parse(text).members
    except CelError:
        return frozenset()


_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* )
    | (?P<string> [rRbB]{0,2} (?: \"{3}(?s:.)*?\"{3} | '{3}(?s:.)*?'{3}
                                | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' ) )
    | (?P<number> 0x[0-9a-fA-F]+[uU]? | (?:[0-9]*\.)?[0-9]+(?:[eE][-+]?[0-9]+)?[uU]? )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<operator> && | \|\| | [=!<>]= | [-+*/%<>!?:.,()\[\]{}] )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"{text[position]!r} at {position} is not in CEL")
        position = match.end()
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0])
    yield _Token("end", "")


_COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "in")
_PRECEDENCE = (("||",), ("&&",), _COMPARISONS, ("+", "-"), ("*", "/", "%"))
"""The binary operators, from those that bind loosest."""
_ARITHMETIC = 3
"""The first level of the operators that return what their operands are."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LITERALS = {"true": Type.BOOL, "false": Type.BOOL, "null": Type.VALUE}
_NAMESPACES = _words(
    "int uint double string bool bytes list map type null_type google optional optional_type "
    "sets lists strings format ip cidr url semver quantity jsonpatch"
)
"""The names of types and libraries: they are not variables."""
_MACROS = _words(
    "all exists exists_one existsOne map filter optMap optFlatMap sortBy transformList "
    "transformMap transformMapEntry"
)
"""Methods whose first arguments are names of variables that their last arguments use."""
_FIELDS = {
    "request": _words(
        "kind resource subResource requestKind requestResource requestSubResource name "
        "namespace operation userInfo dryRun options"
    ),
    "namespaceObject": _words("metadata spec status"),
}
"""The variables whose fields are known."""
_STRING_FIELDS = _words(
    "request.name request.namespace request.operation request.userInfo.username"
)
_UNTYPED = ("object", "oldObject", "params")
_RETURNS = {
    Type.BOOL: "all allowed contains containsCIDR containsIP endsWith errored exists existsOne "
    "exists_one has hasValue isCIDR isGreaterThan isIP isInteger isLessThan isQuantity isSemver "
    "isSorted isURL matches startsWith",
    Type.STRING: "string join lowerAscii upperAscii replace substring trim",
    Type.LIST: "map filter split sort distinct flatten",
    Type.VALUE: "int uint double size indexOf",
    Type.ANY: "add asApproximateFloat asInteger bool byte bytes charAt check cidr compareTo date "
    "datetime dns1035Label dns1035LabelPrefix dns1123Label dns1123LabelPrefix "
    "dns1123Subdomain dns1123SubdomainPrefix duration dyn equivalent error escapeKey family "
    "fieldSelector find findAll first format getDate getDayOfMonth getDayOfWeek getDayOfYear "
    "getEscapedPath getFullYear getHost getHostname getHours getMilliseconds getMinutes "
    "getMonth getPort getQuery getScheme getSeconds group in intersects ip isCanonical "
    "isGlobalUnicast isLinkLocalMulticast isLinkLocalUnicast isLoopback isUnspecified "
    "labelSelector labelValue last lastIndexOf major masked max min minor name named "
    "namespace none of ofNonZeroValue optFlatMap optMap or orValue patch path prefixLength "
    "qualifiedName quantity quote range reason resource reverse semver serviceAccount sign "
    "slice sortBy sub subresource sum timestamp transformList transformMap transformMapEntry "
    "type unwrap unwrapOpt uri url uuid validate value",
}
_FUNCTIONS = {name: type_ for type_, names in _RETURNS.items() for name in names.split()}
"""The functions and methods of CEL in Kubernetes, with what they return."""


def _sum_type(left: Type, right: Type) -> Type:
    """Return the type of a sum: text or a list if an operand is one, whatever the other is."""
    for type_ in (Type.STRING, Type.LIST):
        if type_ in (left, right):
            return type_
    return Type.VALUE if left is right is Type.VALUE else Type.ANY


@dataclass
class _Parser:
    """The state of parsing: the tokens, the next one, and the names read so far."""

    tokens: list[_Token]
    position: int = 0
    variables: list[str] = field(default_factory=list[str])
    members: set[str] = field(default_factory=set[str])
    unknown: set[str] = field(default_factory=set[str])

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def take(self, *texts: str) -> bool:
        """Step over the next token if it is one of some operators; return whether it is."""
        is_next = self.next.text in texts
        self.position += is_next
        return is_next

    def expect(self, text: str) -> None:
        if self.next.text != text:
            raise CelError(f"{self.next.text!r} instead of {text!r}")
        self.position += 1

    def name(self) -> str:
        token = self.next
        if token.kind != "name":
            raise CelError(f"{token.text!r} instead of a name")
        self.position += 1
        return token.text

    def expression(self) -> Type:
        type_ = self.binary(0)
        if not self.take("?"):
            return type_
        self.binary(0)
        self.expect(":")
        self.expression()
        return Type.ANY

    def binary(self, level: int) -> Type:
        if level == len(_PRECEDENCE):
            return self.unary()
        type_ = self.binary(level + 1)
        while self.take(*_PRECEDENCE[level]):
            right = self.binary(level + 1)
            type_ = Type.BOOL if level < _ARITHMETIC else _sum_type(type_, right)
        return type_

    def unary(self) -> Type:
        for sign in ("!", "-"):  # repeated, but never mixed: that is the grammar of cel-spec
            if self.take(sign):
                while self.take(sign):
                    pass
                type_ = self.member()
                if sign == "!":
                    return Type.BOOL
                return Type.VALUE if type_ is Type.VALUE else Type.ANY
        return self.member()

    def member(self) -> Type:
        """Read a value with the fields, items and methods after it."""
        type_, path = self.primary()
        while True:
            if self.take("."):
                self.take("?")
                name = self.name()
                if self.take("("):
                    type_ = self.method(name, path)
                    path = ""
                    continue
                path = self.select(path, name)
            elif self.take("["):
                self.take("?")
                self.expression()
                self.expect("]")
                path = path and f"{path}[]"
            elif path and self.next.text == "{" and "[" not in path:
                self.position += 1
                self.fields(self.name)
                return Type.PATCH if path.partition(".")[0] == "Object" else Type.ANY
            else:
                return self.type_of(path) if path else type_
            if not path:
                type_ = Type.ANY

    def primary(self) -> tuple[Type, str]:
        """Return the type of a literal, or the name of a variable."""
        self.take(".")
        token = self.next
        self.position += 1
        match token.kind, token.text:
            case "string", _:
                return Type.STRING, ""
            case "number", _:
                return Type.VALUE, ""
            case _, "(":
                type_ = self.expression()
                self.expect(")")
                return type_, ""
            case _, "[":
                self.listed("]", self.optional_item)
                return Type.LIST, ""
            case _, "{":
                self.fields(self.expression)
                return Type.VALUE, ""
            case _, "true" | "false" | "null":
                return _LITERALS[token.text], ""
            case "name", name if name != "in":
                if self.take("("):
                    return self.call(name), ""
                if name not in _NAMESPACES:
                    self.variables.append(name)
                return Type.ANY, name
            case _:
                raise CelError(f"{token.text!r} instead of a value")

    def call(self, name: str) -> Type:
        """Read the arguments of a function; return the type of its result."""
        if name not in _FUNCTIONS:
            self.unknown.add(name)
        self.listed(")", self.expression)
        return _FUNCTIONS.get(name, Type.ANY)

    def method(self, name: str, path: str) -> Type:
        """Read the arguments of a method; the first ones of a macro name the variables it binds."""
        if path in _FIELDS:
            self.unknown.add(f"{path}.{name}")
        before = len(self.variables)
        start = self.position
        type_ = self.call(name)
        if name in _MACROS:
            words = [token.text for token in self.tokens[start : start + 4]]
            bound = {words[0], words[2]} if words[1::2] == [",", ","] else {words[0]}
            free = [variable for variable in self.variables[before:] if variable not in bound]
            self.variables[before:] = free
        return type_

    def select(self, path: str, name: str) -> str:
        """Note a field of a variable; return its path."""
        if path in ("self", "variables") and "__" not in name:
            self.members.add(name)
        if name not in _FIELDS.get(path, (name,)):
            self.unknown.add(f"{path}.{name}")
        return path and f"{path}.{name}"

    def type_of(self, path: str) -> Type:
        if path in _STRING_FIELDS:
            return Type.STRING
        return Type.VALUE if re.split(r"[.[]", path)[0] in _UNTYPED else Type.ANY

    def optional_item(self) -> None:
        self.take("?")
        self.expression()

    def fields(self, key: Callable[[], object]) -> None:
        """Read the keys and values of a map, or of an object."""

        def entry() -> None:
            self.take("?")
            key()
            self.expect(":")
            self.expression()

        self.listed("}", entry)

    def listed(self, end: str, item: Callable[[], object]) -> None:
        """Read items up to a bracket. A comma may follow the last one, except for arguments."""
        if self.take(end):
            return
        item()
        while not self.take(end):
            self.expect(",")
            if end != ")" and self.take(end):
                return
            item()
