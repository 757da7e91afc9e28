"""What the definitions of controllers' kinds demand of objects: types, values and rules in CEL.

``definitions.json`` has the schemas of their CustomResourceDefinitions, in short; codegen writes it
from the modules of the pinned controllers. The checks are those of apiextensions-apiserver v1.36
(pkg/apiserver/schema and validation): nulls are dropped, defaults are set, then values are checked.
"""

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from ml_foundations.catalog.inference_gateways import GATEWAY_GROUP
from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind import at
from ml_foundations.kubernetes.objects import Manifest, name_of
from ml_foundations.kubernetes.text_formats import DNS_SUBDOMAIN
from ml_foundations.kubernetes.trees import UNKNOWN, as_key, is_mapping, of_any_item, unknown_paths
from ml_foundations.kubernetes.words import shown
from ml_foundations.planning.api_server import expressions
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.field_catalog import Gap, Note, notes_below

FILE = Path(__file__).with_name("definitions.json")
_Schema = Mapping[str, Any]
_NUMBERS = (int, float)
_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "array": ("a list", lambda value: isinstance(value, list)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("a whole number", lambda value: _is_number(value) and value == int(value)),
    "number": ("a number", lambda value: _is_number(value)),
    "object": ("a mapping", is_mapping),
    "string": ("a string in quotes", lambda value: isinstance(value, str)),
}
_REWRITTEN = frozenset(("JobSet", "LeaderWorkerSet", "ClusterQueue", "ResourceFlavor", "TrainJob"))
"""Kinds that their controller's webhook changes (charts of jobset v0.11.1, lws v0.9.0, kueue
v0.19.2 and trainer v2.2.1). Go has a zero for a required field that an object lacks, and the
changed object has that zero."""
_ZEROS: Mapping[Any, Any] = {"string": "", "integer": 0, "boolean": False}
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FORMS = {
    "int32": "an int32",
    "date-time": "a time by RFC 3339",
    f"^{_LABEL}$": "a DNS label",
    rf"^{_LABEL}(\.{_LABEL})*$": "a DNS subdomain",
    rf"^$|^{_LABEL}(\.{_LABEL})*$": "a DNS subdomain",
    "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$": "the value of a label",
    "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$": "a DNS label of any case that begins with a letter",
}
"""Formats and patterns of the definitions, in words."""
_FORMATS: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
    "int32": (_NUMBERS, lambda value: abs(value) < 2**31),
    "int64": (_NUMBERS, lambda value: True),
    # Webhooks and controllers read it so. The API server alone accepts more.
    "date-time": (str, field_catalog.is_time),
    "ipv4": (str, lambda value: _is_address(value) and "." in value),
    "ipv6": (str, lambda value: _is_address(value) and ":" in value),
}
"""The test of each format, and the type of the values that have it."""
_KEYWORDS: Mapping[str, tuple[Any, str, Callable[[Any, Any], Any]]] = {
    "enum": ((*_NUMBERS, str), "be one of {}", lambda value, values: value in values),
    "minLength": (str, "have at least {} characters", lambda value, least: len(value) >= least),
    "maxLength": (str, "have at most {} characters", lambda value, most: len(value) <= most),
    "pattern": (str, "be {}", lambda value, pattern: expressions.pattern(pattern).search(value)),
    "minimum": (_NUMBERS, "be at least {}", lambda value, least: value >= least),
    "maximum": (_NUMBERS, "be at most {}", lambda value, most: value <= most),
    "format": ((*_NUMBERS, str), "be {}", lambda value, form: _has_format(value, form)),
    "minItems": (list, "have at least {} items", lambda value, least: len(value) >= least),
    "maxItems": (list, "have at most {} items", lambda value, most: len(value) <= most),
    "minProperties": (Mapping, "have at least {} keys", lambda value, least: len(value) >= least),
    "maxProperties": (Mapping, "have at most {} keys", lambda value, most: len(value) <= most),
    "keys": (list, "have no two items with the same {}", lambda value, keys: _differ(value, keys)),
}
"""The keywords of schemas: the type of value, what it must, and the test of value and limit."""
_LATER: dict[tuple[str, str], list[str]] = {}
for _row in rows("later_values.csv", "ml_foundations.planning.api_server"):
    _LATER.setdefault((_row["kind"], _row["field"]), []).append(_row["value"])
_COMBINED: Mapping[str, Callable[[list[bool]], bool]] = {
    "oneOf": lambda valid: sum(valid) == 1,
    "anyOf": any,
    "not": lambda valid: not any(valid),
}
"""The keywords that have schemas, and which of these a value meets."""


@cache
def _file() -> Mapping[str, Any]:
    return json.loads(FILE.read_text())


def _kinds() -> Mapping[str, _Schema]:
    return _file()["kinds"]


def is_defined(manifest: Manifest) -> bool:
    """Return whether an object is of a kind whose definition planning has."""
    return f"{manifest.get('apiVersion')} {manifest.get('kind')}" in _kinds()


def violations(manifest: Manifest) -> list[Note]:
    """Return what the API server refuses about an object by the definition of its kind."""
    if not is_defined(manifest):
        return []
    schema = _kinds()[f"{manifest['apiVersion']} {manifest['kind']}"]
    completed = _completed(schema, manifest, zeros=manifest["kind"] in _REWRITTEN)
    notes = list(_violations(schema, completed))
    if field_catalog.is_judged(manifest):  # its fields have been looked up with their types
        notes = [note for note in notes if note.reason is not Gap.NO_FIELD]
    notes = [note._replace(is_error=_is_certain(manifest, note)) for note in notes]
    name: Any = name_of(manifest)
    if isinstance(name, str) and name and not DNS_SUBDOMAIN.matches(name):
        problem = f"must be {DNS_SUBDOMAIN.description}, not {shown(name)}"
        notes.append(Note("metadata.name", problem))
    return notes


def _is_certain(manifest: Manifest, note: Note) -> bool:
    """Return whether each release of a kind's definition refuses what a note is about."""
    if note.reason is Gap.NO_FIELD:
        # Who installs them without GKE may have the experimental ones, with more fields.
        return not str(manifest["apiVersion"]).startswith(GATEWAY_GROUP)
    values = _LATER.get((manifest["kind"], of_any_item(note.path)), ())
    return not values or at(manifest, note.path) not in values


def _whole(schema: _Schema) -> _Schema:
    """Return a schema; that of a pod's template is in the file only once."""
    return _file()["templates"][schema["template"]] if "template" in schema else schema


def _completed(schema: _Schema, value: Any, *, zeros: bool) -> Any:
    """Return a value with defaults and perhaps zeros, and without nulls in mappings."""
    schema = _whole(schema)
    if isinstance(value, list):
        below = schema.get("items", {})
        return [_completed(below, item, zeros=zeros) for item in cast("list[Any]", value)]
    if not is_mapping(value):
        return value
    properties: Mapping[str, _Schema] = schema.get("properties", {})
    others: _Schema = schema.get("additionalProperties", {})
    completed: dict[str, Any] = {}
    for key in schema.get("required", ()) if zeros else ():
        # What Go writes for a field without a value; some have none that is valid.
        field = properties[key]
        is_amount = "intOrString" in field and "pattern" in field
        zero = "0" if is_amount else _ZEROS.get(field.get("type"))
        if zero is not None:
            completed[key] = zero
    completed |= {key: field["default"] for key, field in properties.items() if "default" in field}
    for key, item in value.items():
        is_replaced = item == "" and "replacesEmpty" in properties.get(key, ())
        if item is not None and not is_replaced:
            completed[key] = item
    for key, item in completed.items():
        completed[key] = _completed(properties.get(key, others), item, zeros=zeros)
    return completed


def _violations(schema: _Schema, value: Any) -> Iterator[Note]:
    schema = _whole(schema)
    if value is UNKNOWN:
        return
    if type_name := _wrong_type(schema, value):
        yield Note("", f"must be {type_name}, not {shown(value)}")
        return
    for keyword, (type_, requirement, test) in _KEYWORDS.items():
        if keyword in schema and isinstance(value, type_) and not test(value, schema[keyword]):
            limit = schema[keyword]
            if isinstance(limit, list):
                limit = ", ".join(map(str, cast("list[Any]", limit))) or "value"
            instead = "" if type_ in (list, Mapping) else f", not {shown(value, 100)}"
            yield Note("", f"must {requirement.format(_FORMS.get(limit, limit))}{instead}")
            return
    for keyword, is_met in _COMBINED.items() if not any(unknown_paths(value)) else ():
        branches = schema.get(keyword, ())
        if branches and not is_met([not any(_violations(branch, value)) for branch in branches]):
            yield Note("", f"must meet {keyword} of its definition, not {shown(value, 100)}")
            return
    if is_mapping(value):
        yield from _in_mapping(schema, value)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from notes_below(f"[{index}]", _violations(schema.get("items", {}), item))
    for message, tree in schema.get("rules", ()) if not any(unknown_paths(value)) else ():
        if not expressions.is_true(tree, value):
            yield Note("", f"must meet the rule of its definition: {message}")


def _in_mapping(schema: _Schema, value: Manifest) -> Iterator[Note]:
    for key in schema.get("required", ()):
        if key not in value:
            yield Note(key, "must be given")
    properties: Mapping[str, _Schema] = schema.get("properties", {})
    others: _Schema | None = schema.get("additionalProperties")
    is_closed = "type" in schema and not others and not schema.get("preserve")
    for key, item in value.items():
        if key in properties or not is_closed:
            yield from notes_below(key, _violations(properties.get(key, others or {}), item))
        else:
            yield Note(key, Gap.NO_FIELD)


def _wrong_type(schema: _Schema, value: Any) -> str:
    """Return the type that a value must have; "" if it has it."""
    if schema.get("intOrString"):
        is_valid = isinstance(value, int | str) and not isinstance(value, bool)
        # An amount is longer; for others, Go has an int32.
        is_short = "pattern" in schema or not isinstance(value, int) or abs(value) < 2**31
        return "" if is_valid and is_short else "a whole number of 32 bits or a string"
    type_name, test = _TYPES.get(schema.get("type", ""), ("", bool))
    return "" if not type_name or test(value) else type_name


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _has_format(value: Any, form: str) -> bool:
    type_, test = _FORMATS[form]
    return not isinstance(value, type_) or bool(test(value))


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text)) and "%" not in text
    except ValueError:
        return False


def _differ(items: list[Any], keys: list[str]) -> bool:
    """Return whether items differ in some keys; without keys, as a whole."""
    compared: list[Any] = []
    for item in items:
        values = [item.get(key) for key in keys] if keys and is_mapping(item) else [item]
        if UNKNOWN not in values:
            compared.append(as_key(values))
    return len(set(compared)) == len(compared)
