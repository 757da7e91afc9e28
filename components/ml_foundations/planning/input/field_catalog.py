"""The kinds and fields of Kubernetes that planning knows.

``fields.yaml`` lists what decides about workloads and what is harmless, ``schema.json`` the types.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from ml_foundations.kinds.kind_files import cached_per_kinds, kinds, user_kinds
from ml_foundations.kubernetes.objects import Manifest, section
from ml_foundations.kubernetes.packaged_yaml import packaged_yaml
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, joined, map_leaves, path_keys
from ml_foundations.kubernetes.words import shown
from ml_foundations.planning.input.kind_fields import rules_of, type_of, types_of
from ml_foundations.planning.model.performance import cached_by_content
from ml_foundations.planning.model.workloads import groups

FIELDS = Path(__file__).with_name("fields.yaml")
SCHEMA = Path(__file__).with_name("schema.json")
WORKLOADS = "workloads"
NAMESPACED = "namespaced"
CLUSTER = "cluster"
ADMISSION = "admission"
HARMLESS = "harmless"
UNKNOWN_KIND = "unknown"
"""The categories of kinds: the sections of ``kinds`` in ``fields.yaml``."""

_METADATA = "meta.v1.ObjectMeta"
_UNDESCRIBED_KINDS = (
    *("BackendConfig", "Gateway", "HTTPRoute", "PodMonitor", "PodMonitoring", "PrometheusRule"),
    *("ServiceMonitor", "VolumeSnapshot"),
)
"""Kinds with rules about their metadata whose definitions are not in ``schema.json``."""


class Gap(StrEnum):
    """The reasons of notes that later steps treat in their own way, in words."""

    NOT_YET = "is not known yet"
    """A program does not know the value yet."""
    NO_FIELD = "Kubernetes has no such field"
    """Pulumi and kubectl reject an object with the field."""


class Makes(Enum):
    """The objects that the controller of an unknown kind may create."""

    ITS_OWN = auto()
    """Those that its reason names."""
    NODES = auto()
    """Nodes for pods that wait."""
    ANYTHING = auto()


_NO_KIND = "planning does not know this kind"


class KindFacts(NamedTuple):
    """The facts about a kind."""

    category: str
    reason: str
    """Why it is harmless or unknown."""
    makes: Makes = Makes.ITS_OWN


class Note(NamedTuple):
    """A remark about a field that is invalid, or about which something is unknown."""

    path: str
    reason: str
    """What is invalid or unknown, in words; a ``Gap`` if later steps depend on it."""
    is_error: bool = True
    named: tuple[str, ...] = ()
    """The fields that the reason names."""


@dataclass(frozen=True)
class _Field:
    """A field of a type.

    Attributes:
        type: The type of its value, or of its items or values.
        shape: "[" for a list, "{" for a map, "" for a single value.
        unknown: Why planning does not follow the field; "" if it does.
        values: The values that planning follows; empty if it follows all.
        keys: The table in ``fields.yaml`` of the keys of a map that planning follows.
        minimum: The smallest number.
        unlimited: Whether a quantity beyond 64 bits means that there is no limit.
        decides: Whether it decides about workloads. Of other fields, only the types are checked.
        check: Returns what is invalid about a value; None for a type that has fields.
    """

    type: str
    shape: str = ""
    unknown: str = ""
    values: frozenset[Any] = field(default_factory=frozenset[Any])
    keys: str = ""
    minimum: int = 0
    unlimited: bool = False
    decides: bool = True
    check: Callable[[Any, int], str] | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Return whether it is a single value that planning follows."""
        return not self.shape and not self.unknown

    @cached_property
    def expected_type(self) -> Any:
        """Return the Python type whose values need no check; None if all values do."""
        is_checked = self.unknown or self.values
        return None if is_checked else {"string": str, "boolean": bool}.get(self.type)


_OFTEN_EQUAL = frozenset({"core.v1.PodSpec", "core.v1.NodeSpec", "core.v1.NodeStatus"})
"""The types whose values are equal in thousands of objects."""
_Type = tuple[Mapping[str, _Field | None], Iterable[str]]
"""The fields of a type, None for those that nobody reads, and the required ones."""


@cached_per_kinds
def table() -> Mapping[str, Any]:
    """Return what planning knows of kinds and fields."""
    loaded = packaged_yaml(FIELDS.read_text())
    workloads = [kinds()[name] for name in groups()]
    loaded["kinds"] = {WORKLOADS: [kind.api_name for kind in workloads], **loaded["kinds"]}
    loaded["types"] |= rules_of(workloads, schema())
    return loaded


@cached_per_kinds
def schema() -> Mapping[str, Any]:
    """Return the kinds of Kubernetes and of controllers, and the types of their objects."""
    loaded = json.loads(SCHEMA.read_text())
    for kind in user_kinds().values():
        if loaded["kinds"].get(kind.api_name) not in loaded["types"]:
            loaded["types"] |= types_of(kind, loaded)
            loaded["kinds"][kind.api_name] = type_of(kind)
    return loaded


@cached_per_kinds
def judged_kinds() -> frozenset[str]:
    """Return the kinds that are judged field by field, such as "apps/v1 Deployment"."""
    kinds = table()["kinds"]
    return frozenset((*kinds[WORKLOADS], *kinds[NAMESPACED], *kinds[CLUSTER]))


@cached_per_kinds
def kind_of(api_version: str, kind: str) -> KindFacts:
    """Return the category of a kind, with the reason if it is harmless or unknown."""
    name = f"{api_version} {kind}"
    # Most kinds have the name of one pattern, and few patterns may match the others.
    listed, wildcards = _patterns()
    entries = [listed[name]] if name in listed else []
    entries += [entry for pattern, entry in wildcards if fnmatchcase(name, pattern)]
    if not entries:
        version = known_version(api_version, kind)
        reason = f"planning knows the kind in {version} only" if version else _NO_KIND
        return KindFacts(UNKNOWN_KIND, reason, Makes.ANYTHING)
    return min(entries, key=lambda entry: entry.place).facts


def known_version(api_version: str, kind: str) -> str:
    """Return the latest API version of a kind that planning knows; "" if it knows none."""
    group = api_version.rpartition("/")[0]
    versions: list[str] = []
    for name in schema()["kinds"]:
        version, _, known = name.rpartition(" ")
        is_same = known == kind and version.rpartition("/")[0] == group
        if is_same and kind_of(version, kind).category != UNKNOWN_KIND:
            versions.append(version)
    return versions[-1] if versions else ""


_MAKERS = {"makers": Makes.ANYTHING, "node_makers": Makes.NODES}
"""The sections of unknown kinds whose controllers create more than their reason names."""


class _Entry(NamedTuple):
    """A pattern of kinds in ``fields.yaml``; the first one decides."""

    place: int
    facts: KindFacts


@cached_per_kinds
def _patterns() -> tuple[Mapping[str, _Entry], Sequence[tuple[str, _Entry]]]:
    """Return the kinds of the table by their names, and the patterns with a wildcard."""
    named: dict[str, _Entry] = {}
    wildcards: list[tuple[str, _Entry]] = []
    for title, listed in table()["kinds"].items():
        reasons: Mapping[str, list[str]] = listed if is_mapping(listed) else {"": listed}
        category = UNKNOWN_KIND if title in _MAKERS else title
        for reason, patterns in reasons.items():
            facts = KindFacts(category, reason, _MAKERS.get(title, Makes.ITS_OWN))
            for pattern in patterns:
                entry = _Entry(len(named) + len(wildcards), facts)
                if "*" in pattern:
                    wildcards.append((pattern, entry))
                else:
                    named.setdefault(pattern, entry)
    return named, wildcards


def listed_kinds() -> list[str]:
    """Return the kinds of the table, with their versions; each may be a pattern."""
    named, wildcards = _patterns()
    return [*named, *(pattern for pattern, _ in wildcards)]


_GROUPS_OF_DEFINITIONS = (
    "x-k8s.io/",
    "ray.io/",
    "trainer.kubeflow.org/",
    "inference.networking.k8s.io/",
)


def as_stored(manifest: Manifest) -> Manifest:
    """Return an object with 1.0 as 1 if its kind has a definition: only those accept both."""
    version = str(manifest.get("apiVersion"))
    if not any(group in version for group in _GROUPS_OF_DEFINITIONS):
        return manifest
    return map_leaves(
        manifest,
        lambda value: int(value) if isinstance(value, float) and value.is_integer() else value,
    )


def is_judged(manifest: Manifest) -> bool:
    """Return whether an object is of a kind that is judged field by field."""
    return f"{manifest.get('apiVersion')} {manifest.get('kind')}" in judged_kinds()


def notes(manifest: Manifest) -> list[Note]:
    """Return what is invalid about an object's fields, and what planning does not know."""
    type_, decides = _type_of(f"{manifest.get('apiVersion')} {manifest['kind']}")
    return notes_of(type_, manifest, decides=decides) if type_ else []


def well_formed(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects whose fields have the types that the API server requires of them."""
    return [item for item in manifests if not _is_malformed(item)]


def _is_malformed(manifest: Manifest) -> bool:
    return any(note.is_error for note in notes(manifest))


@cached_per_kinds
def _type_of(kind: str) -> tuple[str, bool]:
    """Return the type of a kind's objects, "" if unknown, and whether they are judged."""
    type_ = schema()["kinds"].get(kind, "")
    return type_ if type_ in schema()["types"] else "", kind in judged_kinds()


@cached_per_kinds
def _types_by_kind() -> Mapping[str, Sequence[str]]:
    """Return the types of the objects of each kind, in all versions."""
    types = {"all": ["core.v1.ConfigMap"], "PodSpec": ["core.v1.PodSpec"]}
    types |= {kind: ["any"] for kind in _UNDESCRIBED_KINDS}
    for kind, type_ in schema()["kinds"].items():
        types.setdefault(kind.rpartition(" ")[2], []).append(type_)
    return types


def has_field(kind: str, path: str) -> bool:
    """Return whether objects of a kind, or of all kinds, have a field in some version.

    If the schema does not know the fields of a value, every field below it may exist.
    """
    return any(_has_field(type_, path_keys(path)) for type_ in _types_by_kind().get(kind, ()))


def _has_field(type_: str, keys: Sequence[str]) -> bool:
    for key in keys:
        fields = schema()["types"].get(type_)
        if fields is not None:
            type_ = fields.get(key, "")
        elif type_.startswith("[" if key == "[]" else "{"):
            type_ = type_[1:-1]
        else:
            # A type such as any or core.v1.Event, unlike string, may have more fields.
            return type_ == "any" or "." in type_.partition(":")[0]
    return type_ != ""


def wrong_metadata(manifest: Manifest) -> list[Note]:
    """Return what is invalid about the metadata of an object of any kind."""
    notes = notes_of(_METADATA, section(manifest, "metadata"), decides=False)
    return notes_below("metadata", [note for note in notes if note.is_error])


@cached_per_kinds
def types() -> Mapping[str, _Type]:
    """Return the types of the fields that decide."""
    by_name: dict[str, _Type] = {}
    for names, rules in table()["types"].items():
        for name in names.split():
            by_name[name] = _type(name, rules)
    return by_name


def _type(name: str, rules: Mapping[str, Any]) -> _Type:
    shapes, _ = _shapes(name)
    fields: dict[str, _Field | None] = {}
    for keys in rules.get("harmless", {}).values():
        for key in keys:
            # The API server ignores the status of an object that it creates.
            fields[key] = None if name.endswith("Status") else shapes.get(key)
    unknown: dict[str, str] = {}
    for reason, keys in rules.get("unknown", {}).items():
        unknown |= dict.fromkeys(keys, reason)
    for key in (*rules.get("decided", ()), *unknown):
        if shape := shapes.get(key):
            type_ = shape.type.partition(":")[0]
            fields[key] = replace(
                shape,
                type=type_,
                decides=True,
                unknown=unknown.get(key, ""),
                values=frozenset(rules.get("values", {}).get(key, ())),
                keys=rules.get("keys", {}).get(key, ""),
                minimum=rules.get("least", {}).get(key, 0),
                unlimited=key in rules.get("unlimited", ()),
                check=_CHECKS.get(type_),
            )
    return fields, rules.get("required", ())


@cached_per_kinds
def _shapes(name: str) -> _Type:
    """Return the fields of a type that decides nothing."""
    fields: dict[str, _Field | None] = {}
    for key, text in schema()["types"][name].items():
        type_ = text.strip("[]{}")
        shape = text[0].strip("abcdefghijklmnopqrstuvwxyz")
        type_, _, listed = type_.partition(": ")
        values = listed.split()
        check = _CHECKS.get("integer or any string" if type_ == "integer or string" else type_)
        # A newer version of a custom kind may have more values than the pinned one.
        newer = frozenset(values) if name.count(".") > 2 else frozenset[Any]()
        check = partial(_one_of, values) if values and not newer else check
        fields[key] = _Field(
            type_, shape, values=newer, decides=False, minimum=-(2**63), check=check
        )
    return fields, ()


def notes_of(type_name: str, value: Any, *, decides: bool = True) -> list[Note]:
    """Return what is invalid about the fields of a value, and what planning does not know."""
    if not is_mapping(value):
        return [Note("", f"must be a mapping, not {shown(value)}")]
    fields, required = types()[type_name] if decides else _shapes(type_name)
    notes = [Note(key, "is required") for key in required if value.get(key) is None]
    for key, item in value.items():
        rule = fields[key] if key in fields else _missing_field(type_name)
        if rule is None or item is None:
            continue
        if item is UNKNOWN and (type_name == _METADATA or not rule.decides):
            continue
        # Most values have the expected type.
        if type(item) is not rule.expected_type or rule.shape:
            notes += notes_below(key, _in_field(rule, item))
    return notes


@cached_per_kinds
def _missing_field(type_name: str) -> _Field:
    is_described = any(type_name.startswith(type_of(kind)) for kind in user_kinds().values())
    why = "the description of its kind has no such field" if is_described else Gap.NO_FIELD
    return _Field("any", unknown=why)


_notes_of_equal = cached_by_content(notes_of)


def notes_below(key: str, notes: Iterable[Note]) -> list[Note]:
    """Return notes on the fields below a key."""
    return [note._replace(path=joined(key, note.path)) for note in notes]


def _in_field(rule: _Field, value: Any) -> list[Note]:
    if rule.is_plain or value is UNKNOWN:
        return _in_value(rule, value)
    if rule.unknown:
        # An object without fields is there; a list or a map without items is not.
        is_empty = value == [] or (value == "" and rule.type != "time")
        is_there = not is_empty and (value != {} or not rule.shape)
        return [Note("", rule.unknown, is_error=False)] if is_there else []
    notes: list[Note] = []
    if rule.shape == "[" and isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            below = [] if item is None else _in_value(rule, item)
            if item is None and rule.decides:
                below = [Note("", "must not be empty", is_error=rule.check is None)]
            notes += notes_below(f"[{index}]", below)
    elif rule.shape == "{" and is_mapping(value):
        for key, item in value.items():
            if type(item) is not rule.expected_type and item is not None:
                is_read = item is not UNKNOWN or not rule.keys or decides(rule.keys, key)
                notes += notes_below(key, _in_value(rule, item)) if is_read else ()
            if rule.keys and not is_known(rule.keys, key):
                notes.append(Note(key, "planning does not know what it decides", is_error=False))
            if rule.keys and _injects(rule.keys, key) and item not in _SWITCHED_OFF:
                adds = "a webhook may add containers by it, whose requests are not known"
                notes.append(Note(key, adds, is_error=False))
    else:
        type_name = "list" if rule.shape == "[" else "mapping"
        notes.append(Note("", f"must be a {type_name}, not {shown(value)}"))
    return notes


def _in_value(rule: _Field, value: Any) -> list[Note]:
    if value is UNKNOWN:
        return [Note("", Gap.NOT_YET, is_error=False)] if rule.decides else []
    if rule.check is None:
        notes = _notes_of_equal if rule.type in _OFTEN_EQUAL else notes_of
        return notes(rule.type, value, decides=rule.decides)
    if problem := rule.check(value, rule.minimum):
        return [Note("", problem)]
    is_other = bool(rule.values) and value not in rule.values and value != ""
    if is_other or (rule.type == "quantity" and not rule.unlimited and _is_beyond(value)):
        return [Note("", f"planning does not know what {shown(value)} decides", is_error=False)]
    return []


@cache
def is_known(table_name: str, key: str) -> bool:
    """Return whether planning knows what a key decides: an annotation, a label, a resource."""
    # A pattern without a wildcard goes before one with it.
    if key in table()["keys"][table_name]["unknown"]:
        return False
    is_listed = decides(table_name, key) or _is_listed(table_name, "harmless", key)
    return is_listed or not _is_listed(table_name, "unknown", key)


_SWITCHED_OFF = ("false", "disabled")
"""The values of injecting keys by which nothing is added."""


@cache
def _injects(table_name: str, key: str) -> bool:
    return _is_listed(table_name, "injecting", key)


def decides(table_name: str, key: str) -> bool:
    """Return whether a key of a map decides, and planning follows it."""
    return _is_listed(table_name, "decided", key)


def _is_listed(table_name: str, section: str, key: str) -> bool:
    patterns = table()["keys"][table_name].get(section, ())
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def is_integer(value: Any, minimum: int = 0) -> bool:
    """Return whether a value is a whole number and at least a minimum."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _must_be(allowed: str, value: Any, *, unless: object) -> str:
    """Return that a value must be another, unless it is valid."""
    return "" if unless else f"must be {allowed}, not {shown(value)}"


def _integer(value: Any, minimum: int) -> str:
    is_valid = is_integer(value, minimum)
    return _must_be(f"a whole number of at least {minimum}", value, unless=is_valid)


def _int32(value: Any, minimum: int) -> str:
    return _integer(value, minimum) or ("" if value < 2**31 else f"must be below {2**31}")


def _one_of(values: Sequence[str], value: Any, _minimum: int) -> str:
    is_valid = value in values or value == ""
    return _must_be(f"one of {', '.join(values)}", value, unless=is_valid)


def _percentage(value: Any, _minimum: int) -> str:
    is_share = isinstance(value, str) and re.fullmatch("[0-9]{1,9}%", value)
    allowed = 'a whole number or a percentage such as "25%"'
    return _must_be(allowed, value, unless=is_share or not _int32(value, 0))


def _base64(value: Any, _minimum: int) -> str:
    text = re.sub(r"\\[rn]", "", repr(value))
    return "" if _BASE64.fullmatch(text) else "must be base64"


def _quantity(value: Any, minimum: int) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return f"{shown(value)} is not a Kubernetes quantity, such as 500m, 2 or 16Gi"
    return wrong_quantity(value, minimum)


@lru_cache(maxsize=65536)
def _is_beyond(quantity: str | float) -> bool:
    return parse_quantity(quantity) >= 2**63 - 1  # Kubernetes counts in 64 bits


@lru_cache(maxsize=65536)
def wrong_quantity(value: str | float, minimum: int = 0) -> str:
    """Return what is invalid about a quantity; "" if nothing is."""
    try:
        amount = parse_quantity(value)
    except ValueError as error:
        return str(error)
    return f"must not be negative, as {shown(value)} is" if amount < minimum else ""


def is_time(value: Any) -> bool:
    """Return whether a value is a time as Go reads it from JSON."""
    return _TIME.fullmatch(str(value)) is not None


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_BASE64 = re.compile(r"\[\]|'([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?'", re.ASCII)
"""The text of a valid value as Python shows it, so that a list without items is one too."""
_CHECKS: Mapping[str, Callable[[Any, int], str]] = {
    "any": lambda value, _: "",
    "boolean": lambda value, _: _must_be("true or false", value, unless=isinstance(value, bool)),
    "byte": _base64,
    "int32": _int32,
    "integer": _integer,
    "integer or any string": lambda value, minimum: (
        "" if isinstance(value, str) else _int32(value, minimum)
    ),
    "integer or string": _percentage,
    "quantity": _quantity,
    "string": lambda value, _: _must_be("a string in quotes", value, unless=isinstance(value, str)),
    "time": lambda value, _: _must_be("a time by RFC 3339", value, unless=is_time(value)),
}
