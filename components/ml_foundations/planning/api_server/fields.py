"""Rules about the fields of objects, from the tables next to this module.

A table has a row for each rule: its place in the object (``places.csv``), the fields there, the
constraint that their values meet, whether they may be left out, and a condition on which the rule
holds. A row with an unknown constraint, place or presence, or with a field that
``input/schema.json`` lacks, is an error at import.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple, cast

from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind_files import KindError, cached_per_kinds, kind_named, package_kinds
from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, joined, path_keys
from ml_foundations.kubernetes.words import shown
from ml_foundations.planning.api_server import constraints
from ml_foundations.planning.api_server.constraints import Constraint, value_at
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.field_catalog import Gap, Note, notes_below

_PACKAGE = "ml_foundations.planning.api_server"
_LIKE_PARENT = "like_parent"
"""In place of a constraint: the fields have the rules of the object that holds them."""


class Presence(StrEnum):
    """The rule about whether a field may be omitted."""

    OPTIONAL = ""
    """It may be left out, and an empty text is as good as that."""
    REQUIRED = "required"
    """It is there, and not empty."""
    PRESENT = "present"
    """It is there; it may be empty."""
    STRICT = "strict"
    """It may be left out, but an empty text has to meet the constraint, too."""


class _Term(NamedTuple):
    """A part of a condition: a field is set, or has one of some values; or the opposite."""

    path: str
    values: tuple[str, ...]
    is_negated: bool

    def holds(self, holder: Manifest) -> bool:
        """Return whether it is true of an object; it is not if the value is unknown."""
        value = value_at(holder, self.path)
        if value is UNKNOWN:
            return False
        if self.values:
            text = str(value).lower() if isinstance(value, bool) else value
            return (text in self.values) != self.is_negated
        return (value is None or value is False or value in ("", [], {})) == self.is_negated

    def __str__(self) -> str:
        values = " or ".join(self.values) or "set"
        return f"{self.path} is {'not ' if self.is_negated else ''}{values}"


@dataclass(frozen=True)
class Condition:
    """The terms that are all true if a rule holds, such as ``!key operator=In|NotIn``."""

    terms: tuple[_Term, ...]
    key: str
    """A field that is set if the condition holds; asked first, since most do not hold."""

    @classmethod
    @cache
    def parse(cls, text: str) -> Condition:
        """Return the condition of a table's cell, or raise a ValueError."""
        terms: list[_Term] = []
        for word in text.split():
            match = re.fullmatch(r"(!?)([][\w./-]+)(?:(!?)=(\S+))?", word)
            if match is None or (match[1] and match[4]):
                raise ValueError(f"{word!r} is not a condition")
            values = tuple(match[4].split("|")) if match[4] else ()
            terms.append(_Term(match[2], values, bool(match[1] or match[3])))
        needed = [term.path.partition(".")[0] for term in terms if not term.is_negated]
        return cls(tuple(terms), needed[0] if needed else "")

    def holds(self, holder: Manifest) -> bool:
        """Return whether all terms are true of an object."""
        is_possible = not self.key or self.key in holder
        return is_possible and all(term.holds(holder) for term in self.terms)

    def as_cause_of(self, note: Note) -> Note:
        """Return a note on a violation that names the other fields which cause it."""
        causes: list[_Term] = []
        for term in self.terms:
            is_above = f"{note.path}.".startswith(f"{term.path}.")
            if not is_above and term.path not in note.named:
                causes.append(term)
        if not causes or not note.is_error:
            return note
        named = (*note.named, *(term.path for term in causes))
        because = " and ".join(map(str, causes))
        return note._replace(reason=f"{note.reason}, because {because}", named=named)


class _Row(NamedTuple):
    """A row of a table of fields.

    Attributes:
        kinds: The kinds of objects that it is for.
        paths: The prefixes of its fields in an object; each ends with a dot, or is empty.
        inside: The path below the place at which the condition is asked.
        fields: The paths from there; "" for the object there itself.
        constraint: What the values meet; None if the fields have the rules of their parent.
    """

    kinds: tuple[str, ...]
    paths: tuple[str, ...]
    inside: str
    fields: tuple[str, ...]
    constraint: Constraint | None
    presence: Presence
    condition: Condition | None
    cells: Mapping[str, str]


@dataclass
class FieldRules:
    """The rules of a field and of the fields below it.

    Attributes:
        constraints: What its value meets.
        presence: Whether it may be left out.
        children: The rules of the fields below; "[]" is each item of a list, "*" each value.
        conditional: More rules, by the condition on which they hold.
        required: The fields below that may not be left out.
    """

    constraints: list[Constraint] = field(default_factory=list[Constraint])
    presence: Presence = Presence.OPTIONAL
    children: dict[str, FieldRules] = field(default_factory=dict[str, "FieldRules"])
    conditional: dict[Condition, FieldRules] = field(default_factory=dict[Condition, "FieldRules"])
    required: list[str] = field(default_factory=list[str])

    def at(self, path: str) -> FieldRules:
        """Return the rules of a field below."""
        node = self
        for key in path_keys(path):
            node = node.children.setdefault(key, FieldRules())
        return node

    def add(self, row: _Row) -> None:
        """Add the rules of a row."""
        for place in row.paths:
            holder = self.at(f"{place}{row.inside}")
            if row.condition:
                holder = holder.conditional.setdefault(row.condition, FieldRules())
            for path in row.fields:
                parent_path, _, key = path.rpartition(".")
                if row.constraint is None:
                    holder.at(parent_path).children[key] = holder
                    continue
                node = holder.at(path)
                node.constraints.append(row.constraint)
                node.presence = row.presence or node.presence
                if row.presence in (Presence.REQUIRED, Presence.PRESENT):
                    holder.at(parent_path).required.append(key)

    def violations(self, value: Any) -> list[Note]:
        """Return the fields of a value that break a rule."""
        if value is UNKNOWN:
            return [Note("", Gap.NOT_YET, is_error=False)]
        violations: list[Note] = []
        is_compared = value != "" or self.presence is Presence.STRICT
        for constraint in self.constraints if is_compared else ():
            if not constraint.is_met(value):
                instead = "" if isinstance(value, dict | list) else f", not {shown(value, 100)}"
                problem = f"must {constraint.requirement}{instead}"
                is_error = constraint.is_certain
                named = constraint.fields
                violations.append(Note("", problem, is_error=is_error, named=named))
        if is_mapping(value):
            violations += self._violations_of_mapping(value)
        elif isinstance(value, list) and (rules := self.children.get("[]")):
            # Kubernetes reads null in a list as an empty item.
            empty: Any = {} if rules.children else ""
            for index, item in enumerate(cast("list[Any]", value)):
                below = rules.violations(empty if item is None else item)
                violations += notes_below(f"[{index}]", below)
        return violations

    def _violations_of_mapping(self, value: Manifest) -> list[Note]:
        violations: list[Note] = []
        for condition, rules in self.conditional.items():
            if condition.holds(value):
                violations += map(condition.as_cause_of, rules.violations(value))
        for key in self.required:
            can_be_empty = self.children[key].presence is not Presence.REQUIRED
            if value.get(key) is None or (not can_be_empty and value[key] in ("", [], {})):
                violations.append(Note(key, "must be given"))
        for key, item in value.items():
            rules = self.children.get(key) or self.children.get("*")
            if item is not None and rules and (below := rules.violations(item)):
                violations += notes_below(key, below)
        return violations


def _read(table: str) -> list[_Row]:
    """Return the rows of a table, checked."""
    checked: list[_Row] = []
    for cells in rows(table, _PACKAGE):
        try:
            checked.append(read_row(cells))
        except ValueError as error:
            raise ValueError(f"{table}: {', '.join(cells.values())}: {error}") from None
    return checked


def read_row(cells: Mapping[str, str]) -> _Row:
    """Return a row of a table.

    Raises:
        ValueError: A cell is invalid, or an object of a kind lacks a field.
    """
    place, _, inside = cells["place"].partition(".")
    if place not in _PLACES:
        raise ValueError(f"{place!r} is not a place of places.csv")
    return _row_at(tuple(_PLACES[place]), inside, cells)


def _row_at(paths: tuple[str, ...], inside: str, cells: Mapping[str, str]) -> _Row:
    text = cells["constraint"]
    kinds_of_row = cells.get("kinds", "").replace("templated", " ".join(_TEMPLATED))
    row = _Row(
        tuple(kinds_of_row.split()),
        paths,
        inside,
        tuple(cells["fields"].split()) or ("",),
        None if text == _LIKE_PARENT else constraints.parse(text),
        Presence(cells["presence"]),
        Condition.parse(cells["condition"]) if cells.get("condition") else None,
        cells,
    )
    # Each kind of the row must have each field at one of the row's places.
    prefix = f"{inside}." if inside else ""
    asked = [term.path for term in row.condition.terms] if row.condition else []
    for path in row.fields:
        below = row.constraint.fields if row.constraint else ()
        asked += [path, *(joined(path, name) for name in below)]
    for kind in row.kinds or ("PodSpec",):
        for path in asked:
            full_paths = [f"{place}{prefix}{path.lstrip('.')}" for place in paths]
            if not any(field_catalog.has_field(kind, full_path) for full_path in full_paths):
                raise ValueError(f"{kind} has no field {prefix}{path}")
    return row


_TEMPLATED: list[str] = []
"""The kinds of workloads with templates of pods: ``templated`` in place of kinds."""
_PLACES: defaultdict[str, list[str]] = defaultdict(list)
for _kind in package_kinds().values():
    if _paths := [*filter(None, dict.fromkeys(_kind.template_paths_in_schema))]:
        _TEMPLATED.append(_kind.kind)
    _PLACES["template"] += [f"{path}." for path in _paths]
    _PLACES["claimTemplate"] += [f"{_kind.claims}[]."] if _kind.claims else []
for _place in rows("places.csv", _PACKAGE):
    _PLACES[_place["name"]].append(_place["path"])
POD_ROWS = _read("pod_fields.csv")
POD_SECURITY_ROWS = _read("pod_security.csv")
OBJECT_ROWS = (
    *_read("workload_fields.csv"),
    *_read("object_fields.csv"),
    *_read("platform_fields.csv"),
)
CONTROLLER_ROWS = _read("controller_fields.csv")
_OF_NAMESPACED = [row.kinds for row in OBJECT_ROWS if "metadata.namespace" in row.fields]
NAMESPACED_KINDS = frozenset(chain.from_iterable(_OF_NAMESPACED))


@lru_cache
def pod_spec() -> FieldRules:
    """Return the rules of a pod's spec."""
    return _rules(POD_ROWS)


@lru_cache
def of_object(kind: str) -> FieldRules:
    """Return the rules of an object of a kind, without those of its pods."""
    return _rules(row for row in OBJECT_ROWS if kind in row.kinds or "all" in row.kinds)


@cached_per_kinds
def of_controller(kind: str) -> FieldRules:
    """Return what the controller of a kind refuses beyond its definition."""
    return _rules((*(row for row in CONTROLLER_ROWS if kind in row.kinds), *rows_of_kind(kind)))


def rows_of_kind(kind: str) -> list[_Row]:
    """Return the constraints in the file of a kind.

    Raises:
        KindError: One of them is invalid, or on a field that the kind does not have.
    """
    checked: list[_Row] = []
    for given in kind_named(kind).constraints:
        cells = {**asdict(given), "kinds": kind, "constraint": given.must}
        paths = tuple(f"{path}." for path in given.at.split()) or ("",)
        try:
            checked.append(_row_at(paths, "", cells))
        except ValueError as error:
            raise KindError([f"{kind}: constraints: {given.must}: {error}"]) from None
    return checked


@lru_cache
def pod_security(level: str, version: int, exemptions: frozenset[str]) -> FieldRules:
    """Return the rules of a Pod Security level in a minor version, for pods with exemptions."""
    rows_of_level: list[_Row] = []
    for row in POD_SECURITY_ROWS:
        since = int(row.cells["since"])
        before = int(row.cells["before"] or version + 1)
        is_of_level = row.cells["level"] in ("baseline", level) and since <= version < before
        if is_of_level and row.cells["exempt"] not in exemptions:
            rows_of_level.append(row)
    return _rules(rows_of_level)


def _rules(table: Iterable[_Row]) -> FieldRules:
    root = FieldRules()
    for row in table:
        root.add(row)
    return root
