"""What planning knows of Kubernetes: its kinds and fields, by ``fields.yaml`` and, for their types, ``schema.json``."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from ml_foundations.kubernetes.manifests import UNKNOWN, Manifest, is_mapping, joined
from ml_foundations.kubernetes.quantities import parse_quantity

FIELDS = Path(__file__).with_name("fields.yaml")
SCHEMA = Path(__file__).with_name("schema.json")
WORKLOADS, NAMESPACED, CLUSTER, ADMISSION = "workloads", "namespaced", "cluster", "admission"
HARMLESS, UNKNOWN_KIND = "harmless", "unknown"
"""What a kind is to planning: the sections of ``kinds``."""

NOT_YET = "is not known yet"
"""The reason of a note on a value that a program does not know yet."""
_METADATA = "meta.v1.ObjectMeta"


class Note(NamedTuple):
    """What is wrong with a field, or not known of it."""

    path: str
    reason: str
    is_error: bool


@dataclass(frozen=True)
class _Field:
    """A field that decides, or of which planning does not know what it decides.

    Attributes:
        type: What it holds, or what its items or values are.
        shape: "[" of a list, "{" of a map.
        unknown: Why planning does not follow it.
        values: Those that planning follows, where there are others.
        keys: Those that decide, and those that planning does not follow.
        least: The smallest number.
        check: What is wrong with a value; None of a type that has fields.
    """

    type: str
    shape: str = ""
    unknown: str = ""
    values: frozenset[Any] = field(default_factory=frozenset[Any])
    keys: str = ""
    least: int = 0
    check: Callable[[Any, int], str] | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Whether it holds one value, which decides."""
        return not self.shape and not self.unknown


def _string(value: Any, _least: int) -> str:
    return "" if isinstance(value, str) else f"must be a string, not {shown(value)}; put it in quotes"


def _boolean(value: Any, _least: int) -> str:
    return "" if isinstance(value, bool) else f"must be true or false, not {shown(value)}"


_HARMLESS = {"string": _Field("string", check=_string), "boolean": _Field("boolean", check=_boolean)}
"""Fields that decide nothing, and are refused where they hold something else."""
_NO_FIELD = _Field("any", unknown="Kubernetes has no such field")
_Type = tuple[Mapping[str, _Field | None], Iterable[str]]
"""The fields of a type, None for harmless ones, and those that are required."""


@cache
def table() -> Mapping[str, Any]:
    """What planning makes of kinds and fields."""
    # The libyaml loader takes a tenth of the time.
    return yaml.load(FIELDS.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def schema() -> Mapping[str, Any]:
    """The kinds of Kubernetes, Kueue and JobSet, and the types of those that are judged."""
    return json.loads(SCHEMA.read_text())


@cache
def judged_kinds() -> frozenset[str]:
    """The kinds that are judged field by field, such as "apps/v1 Deployment"."""
    return frozenset(kind for section in (WORKLOADS, NAMESPACED, CLUSTER) for kind in table()["kinds"][section])


@cache
def kind_of(api_version: str, kind: str) -> tuple[str, str]:
    """What a kind is to planning, and why where it is harmless or not known."""
    for section, listed in table()["kinds"].items():
        reasons = cast("Mapping[str, list[str]]", listed if isinstance(listed, dict) else {"": listed})
        for reason, patterns in reasons.items():
            if any(fnmatchcase(f"{api_version} {kind}", pattern) for pattern in patterns):
                return section, reason
    return UNKNOWN_KIND, "planning does not know this kind"


def is_judged(manifest: Manifest) -> bool:
    """Whether an object is of a kind that is judged field by field."""
    return f"{manifest.get('apiVersion')} {manifest.get('kind')}" in judged_kinds()


def notes(manifest: Manifest) -> list[Note]:
    """What is wrong with the fields of a judged object, and what planning does not know of them."""
    return notes_of(schema()["kinds"][f"{manifest['apiVersion']} {manifest['kind']}"], manifest)


@cache
def types() -> Mapping[str, _Type]:
    """The types that decided fields lead to."""
    return {name: _type(name, rules) for names, rules in table()["types"].items() for name in names.split()}


def _type(name: str, rules: Mapping[str, Any]) -> _Type:
    own: Mapping[str, str] = schema()["types"][name]
    harmless = [key for keys in rules.get("harmless", {}).values() for key in keys]
    found: dict[str, _Field | None] = {key: _HARMLESS.get(own.get(key, "")) for key in harmless}
    unknown = {key: reason for reason, keys in rules.get("unknown", {}).items() for key in keys}
    for key in (*rules.get("decided", ()), *unknown):
        if key in own:
            type_, shape = own[key].partition(":")[0].strip("[]{}"), own[key][0].strip("abcdefghijklmnopqrstuvwxyz")
            found[key] = _Field(
                type_,
                shape,
                unknown.get(key, ""),
                frozenset(rules.get("values", {}).get(key, ())),
                rules.get("keys", {}).get(key, ""),
                rules.get("least", {}).get(key, 0),
                _CHECKS[type_] if type_ not in schema()["types"] else None,
            )
    return found, rules.get("required", ())


def notes_of(type_name: str, value: Any) -> list[Note]:
    """What is wrong with the fields of a value of a type, and what planning does not know of them."""
    if not is_mapping(value):
        return [Note("", f"must be a mapping, not {shown(value)}", is_error=True)]
    fields, required = types()[type_name]
    found: list[Note] = []
    for key in required:
        if value.get(key) is None:
            found.append(Note(key, "is required", is_error=True))
    for key, item in value.items():
        rule = fields.get(key, _NO_FIELD)
        is_open = item is UNKNOWN and rule is not None and (type_name == _METADATA or _HARMLESS.get(rule.type) is rule)
        if rule is None or item is None or is_open:
            continue
        if notes := _in_field(rule, item):
            found += _below(key, notes)
    return found


def _below(key: str, notes: list[Note]) -> list[Note]:
    return [note._replace(path=joined(key, note.path)) for note in notes]


def _in_field(rule: _Field, value: Any) -> list[Note]:
    if rule.is_plain or value is UNKNOWN:
        return _in_value(rule, value)
    if rule.unknown:
        # An object without fields is there; a list or a map without items is not.
        is_there = value not in ("", []) and (value != {} or not rule.shape)
        return [Note("", rule.unknown, is_error=False)] if is_there else []
    found: list[Note] = []
    if rule.shape == "[" and isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            empty = [Note("", "must not be empty", is_error=True)]
            found += _below(f"[{index}]", empty if item is None else _in_value(rule, item))
    elif rule.shape == "{" and is_mapping(value):
        for key, item in value.items():
            is_read = item is not UNKNOWN or not rule.keys or decides(rule.keys, key)
            if item is not None and is_read and (notes := _in_value(rule, item)):
                found += _below(key, notes)
            if rule.keys and not is_known(rule.keys, key):
                found.append(Note(key, "planning does not know what it decides", is_error=False))
    else:
        wanted = "list" if rule.shape == "[" else "mapping"
        found.append(Note("", f"must be a {wanted}, not {shown(value)}", is_error=True))
    return found


def _in_value(rule: _Field, value: Any) -> list[Note]:
    if value is UNKNOWN:
        return [Note("", NOT_YET, is_error=False)]
    if rule.check is None:
        return notes_of(rule.type, value)
    if problem := rule.check(value, rule.least):
        return [Note("", problem, is_error=True)]
    if rule.values and value not in rule.values and value != "":
        return [Note("", f"planning does not know what {shown(value)} decides", is_error=False)]
    return []


@cache
def is_known(table_name: str, key: str) -> bool:
    """Whether planning knows what a key of a map decides: an annotation, a label or a resource of a quota."""
    # A pattern without a wildcard goes before one with it.
    is_harmless = key not in table()["keys"][table_name]["unknown"] and _is_listed(table_name, "harmless", key)
    return decides(table_name, key) or is_harmless or not _is_listed(table_name, "unknown", key)


def decides(table_name: str, key: str) -> bool:
    """Whether a key of a map decides, and planning follows it."""
    return _is_listed(table_name, "decided", key)


def _is_listed(table_name: str, section: str, key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in table()["keys"][table_name][section])


def shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def is_integer(value: Any, least: int = 0) -> bool:
    """Whether a value is a whole number of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _integer(value: Any, least: int) -> str:
    return "" if is_integer(value, least) else f"must be a whole number of at least {least}, not {shown(value)}"


def _percentage(value: Any, _least: int) -> str:
    is_share = isinstance(value, str) and value.endswith("%") and value[:-1].isdigit()
    wanted = 'a whole number or a percentage such as "25%"'
    return "" if is_share or is_integer(value) else f"must be {wanted}, not {shown(value)}"


def _quantity(value: Any, _least: int) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return f"{shown(value)} is not a Kubernetes quantity, such as 500m, 2 or 16Gi"
    return _wrong_quantity(value)


@lru_cache(maxsize=65536)
def _wrong_quantity(value: str | float) -> str:
    try:
        return f"must not be negative, as {shown(value)} is" if parse_quantity(value) < 0 else ""
    except ValueError as error:
        return str(error)


_CHECKS: Mapping[str, Callable[[Any, int], str]] = {
    "boolean": _boolean,
    "integer": _integer,
    "integer or string": _percentage,
    "quantity": _quantity,
    "string": _string,
}
