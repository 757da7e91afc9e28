"""The one reader of YAML and JSON that others write: bounded, and as Kubernetes reads them.

Scalars are those of sigs.k8s.io/yaml (goyaml.v2/resolve.go, resolve): yes and off are truth values,
017 and 0o17 are octal, and 1e3 is a number. Dates and 1:30, which is 90 in YAML 1.1, are text. One
difference: y and n are text, as in yaml.v3. kubectl reads them as
truth values, and refuses them as names.
"""

import json
import math
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import yaml
from yaml.constructor import ConstructorError

_DEEPEST = 500
"""Levels of nesting: far more would crash the parsers. Kubernetes' objects have a tenth."""
_MOST_ALIASED = 100_000
"""The most values that aliases may repeat. Aliases of aliases repeat billions in a few lines."""
_MOST_DIGITS = 1000
"""Digits of a whole number. Kubernetes counts with 19, and Python prints 4,300."""
_MOST_EMBEDDED = 1024**2
"""Characters of a text in a field: etcd stores no larger object."""
_TYPES: dict[Any, str] = {
    **{str: "text", list: "a list", dict: "a mapping", type(None): "nothing"},
    **{bool: "true or false", int: "a number", float: "a number"},
}


class ReadError(ValueError):
    """A text or a file that cannot be read. The message is the reason, with the line if known.

    Attributes:
        field: The field with the text, if the text is embedded in an object.
        fault: The reason, without the field.
    """

    def __init__(self, fault: str, field: str = "") -> None:
        super().__init__(f"{field}: {fault}" if field else fault)
        self.field = field
        self.fault = fault


def documents(text: str, *, unique_keys: bool = False) -> list[Any]:
    """Return the documents of a YAML stream.

    With ``unique_keys``, it is read as Pulumi's files are (gopkg.in/yaml.v3): a repeated key is an
    error, and yes, no, on and off are text.

    Raises:
        ReadError: It is no YAML, has no bounds, or has a value that does not fit its tag.
    """
    require_bounded(text)
    return bounded_documents(text, unique_keys=unique_keys)


def bounded_documents(text: str, *, unique_keys: bool = False) -> list[Any]:
    """Return the documents of a YAML stream, or of a part of one, that ``require_bounded`` accepts.

    Raises:
        ReadError: It is no YAML, or has a value that does not fit its tag.
    """
    with _read_errors():
        return list(yaml.load_all(text, Loader=_UniqueKeys if unique_keys else _Loader))


def embedded_yaml(text: Any) -> Any:
    """Return the value of the YAML in a field, {} if it is empty.

    Raises:
        ReadError: It cannot be read, has several documents, or is larger than an object may be.
    """
    first, *others = documents(_embedded(text)) or [None]
    if others:
        raise ReadError("it has more than one document")
    return {} if first is None else first


def embedded_json(text: Any) -> Any:
    """Return the value of the JSON in a field.

    Raises:
        ReadError: It cannot be read, or is larger than an object may be.
    """
    return json_value(_embedded(text))


def _embedded(text: Any) -> str:
    if len(text := str(text)) > _MOST_EMBEDDED:
        raise ReadError(f"it has more than {_MOST_EMBEDDED:,} characters")
    return text


def json_value(text: str | bytes) -> Any:
    """Return the value of JSON. As in Go, NaN is none, and the last of equal keys counts.

    Raises:
        ReadError: It is no JSON, or its levels or numbers have no bounds.
    """
    with _read_errors():
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
    level: list[Any] = [[value]]
    for _ in range(_DEEPEST):
        level = _collections(level)
    if level:
        raise ReadError(f"it nests more than {_DEEPEST} levels deep")
    return value


def _collections(parents: Iterable[Any]) -> list[Any]:
    """Return the lists and mappings in lists and in mappings."""
    collections: list[Any] = []
    for parent in parents:
        children = cast("Iterable[Any]", parent.values() if isinstance(parent, dict) else parent)
        collections += [child for child in children if isinstance(child, dict | list)]
    return collections


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a number of JSON")
    return number


def type_of(value: Any) -> str:
    """Return the type of a value for a message that must not show the value itself."""
    return next((name for type_, name in _TYPES.items() if isinstance(value, type_)), "a value")


@contextmanager
def _read_errors() -> Generator[None]:
    """Turn whatever a parser raises into a ReadError of a line, without the text."""
    try:
        yield
    except RecursionError:
        raise ReadError(f"it nests more than {_DEEPEST} levels deep") from None
    except MemoryError:
        raise ReadError("it needs more memory than there is") from None
    except (yaml.YAMLError, ValueError) as error:
        text = re.sub(r":\n.*\n *\^", "", str(error))
        text = re.sub(r' in "<[a-z ]+>",', ", at", " ".join(text.split()))
        raise ReadError(text) from None


def require_bounded(text: str) -> None:
    """Raise an error for YAML that would crash parsers or readers of their results.

    Raises:
        ReadError: It nests too deeply, its aliases repeat too many values, or it is invalid.
    """
    sizes: dict[Any, int] = {}
    opened: list[list[Any]] = [["", 0]]
    aliased = 0
    with _read_errors():
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append([event.anchor, 1])
                # Until its end is read: an alias inside of it would never end.
                sizes[event.anchor] = _MOST_ALIASED + 1
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, size = opened.pop()
                sizes[anchor] = size
                opened[-1][1] += size
            elif isinstance(event, yaml.AliasEvent):
                aliased += sizes.get(event.anchor, 1)
                opened[-1][1] += sizes.get(event.anchor, 1)
            else:
                opened[-1][1] += 1
            if len(opened) > _DEEPEST:
                raise yaml.YAMLError(f"it nests more than {_DEEPEST} levels deep")
            if aliased > _MOST_ALIASED:
                raise yaml.YAMLError("it has too many aliases")


_TAG = "tag:yaml.org,2002:"
_BOOLEANS: dict[str, bool] = {
    **{text: True for text in re.findall(r"\w+", "yes Yes YES true True TRUE on On ON")},
    **{text: False for text in re.findall(r"\w+", "no No NO false False FALSE off Off OFF")},
}
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(
    r"[-+]?(0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0[bB]_*[01][01_]*|0[oO]?[0-7_]*[0-7]_*|0_*|[1-9][0-9_]*)"
)
_FLOAT = re.compile(
    r"([-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))"
)
_DATE = re.compile(r"\d{4}-(0?[1-9]|1[0-2])-(0?[1-9]|[12]\d|3[01])([Tt ].*)?", re.ASCII)


def _null(text: str) -> None:
    _NULLS.index(text)


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    if not _INTEGER.fullmatch(text) or len(digits) > _MOST_DIGITS:
        raise ValueError
    unsigned = digits.lstrip("+-")
    is_octal = unsigned[0] == "0" and unsigned[1:2] not in ("x", "X", "b", "B")
    return int(digits, 8 if is_octal else 0)


def _float(text: str) -> float | str:
    if not _FLOAT.fullmatch(text) or text[-1] in "fFnN":
        raise ValueError  # JSON has neither infinity nor NaN
    number = float(_integer(text) if _INTEGER.fullmatch(text) else text.replace("_", ""))
    return number if math.isfinite(number) else text


def _date(text: str) -> str:
    if not _DATE.fullmatch(text):
        raise ValueError
    return text


_SCALARS: Mapping[str, Any] = {
    "bool": _BOOLEANS.__getitem__,
    "null": _null,
    "int": _integer,
    "float": _float,
    "timestamp": _date,
}
"""The value of a scalar, by its tag."""


def _mapping(loader: Any, node: Any) -> Iterator[dict[str, Any]]:
    """Yield a mapping whose keys are text, as kubectl converts them: true, not True."""
    mapping: dict[str, Any] = {}
    yield mapping
    if not isinstance(node, yaml.MappingNode):
        raise ConstructorError(None, None, "a mapping is expected", node.start_mark)
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        # Each key is text before it is looked up: numbers may be chosen to have the same hash.
        key = loader.construct_object(key_node, deep=True)
        if key is None or isinstance(key, dict | list):
            raise ConstructorError(None, None, "a key is not text", key_node.start_mark)
        text = key if isinstance(key, str) else _as_key(key)
        # Separate keys would be a fifth of the memory.
        mapping[sys.intern(text)] = loader.construct_object(value_node)


def _unique_keys(loader: Any, node: Any) -> Iterator[dict[str, Any]]:
    """Yield a mapping without repeated keys, whose first value would be lost silently."""
    lines: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                message = f'"{key.value}" is already on line {lines[key.value]}'
                raise ConstructorError(None, None, message, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
    yield from _mapping(loader, node)


def _as_key(key: Any) -> str:
    return f"{key:.8g}" if isinstance(key, float) else json.dumps(key, default=str)


def _scalar(loader: Any, node: Any) -> Any:
    kind = node.tag.removeprefix(_TAG)
    try:
        return _SCALARS[kind](loader.construct_scalar(node))
    except (KeyError, OverflowError, ValueError):
        reason = f"the value is not a valid !!{kind}"
        raise ConstructorError(None, None, reason, node.start_mark) from None


def _other_tag(_: Any, node: Any) -> Any:
    reason = "the value has a tag that is not supported. Remove the tag"
    raise ConstructorError(None, None, reason, node.start_mark)


_SAFE: Any = yaml.SafeLoader
_NOTHING: dict[str, Any] = {"yaml_implicit_resolvers": {}, "yaml_constructors": {}}
_Loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", _SAFE),), _NOTHING)
_Loader.add_constructor(f"{_TAG}str", _SAFE.construct_yaml_str)
_Loader.add_constructor(f"{_TAG}seq", _SAFE.construct_yaml_seq)
_Loader.add_constructor(f"{_TAG}map", _mapping)
_Loader.add_constructor(None, _other_tag)
for _kind in _SCALARS:
    _Loader.add_constructor(_TAG + _kind, _scalar)
for _kind, _pattern, _first in (
    ("bool", re.compile("|".join(_BOOLEANS)), "yYnNtTfFoO"),
    ("null", re.compile("|".join(_NULLS)), ["~", "n", "N", ""]),
    ("int", _INTEGER, "-+0123456789"),
    ("float", _FLOAT, "-+0123456789."),
    ("merge", re.compile("<<"), "<"),
):
    # PyYAML matches from the beginning only.
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    _Loader.add_implicit_resolver(_TAG + _kind, _whole, list(_first))
_RESOLVERS: dict[str, list[tuple[str, Any]]] = {**_Loader.yaml_implicit_resolvers}
for _first in "yYnNoO":
    _RESOLVERS[_first] = [pair for pair in _RESOLVERS[_first] if pair[0] != f"{_TAG}bool"]
_UniqueKeys: Any = type("UniqueKeys", (_Loader,), {"yaml_implicit_resolvers": _RESOLVERS})
_UniqueKeys.add_constructor(f"{_TAG}map", _unique_keys)
