"""Rules about the fields of an object, read from the tables beside this module: which field breaks which rule."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, cast

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.cron import is_schedule
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import is_whole, milli, parse_quantity
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, joined, unknown_paths

_network: Callable[[Any], Any] = ipaddress.ip_network
_DEFAULTS = {"protocol": "TCP"}
_UNSURE = "that "
"""The beginning of rules that planning follows in part: what breaks one may still be accepted."""
_OTHERS: Mapping[str, Callable[[Any], Any]] = {
    "anything": lambda value: True,
    "left out": lambda value: value in ("", []),
    "not given": lambda value: False,
    "true": lambda value: value is True,
    "false": lambda value: not value,
    "labels": lambda value: all(
        is_valid("a qualified name", key) and is_valid("the value of a label", value[key] or "")
        for key in value
    ),
    "at most 256 KiB": lambda value: (
        sum(len(f"{key}{value[key] or ''}".encode()) for key in value) <= 2**18
    ),
    "at most 1 MiB": lambda value: (
        sum(len(each.encode()) for each in value.values() if isinstance(each, str)) <= 2**20
    ),
    "an IP address": lambda value: is_valid("an address", value) and ipaddress.ip_address(value),
    "a port": lambda value: (
        is_valid("the name of a port", value) or is_valid("from 1 to 65535", value)
    ),
    "a port or 0": lambda value: value == 0 or is_valid("a port", value),
    "a quantity": lambda value: parse_quantity(value) >= 0,
    "a quantity above 0": lambda value: parse_quantity(value) > 0,
    "a number or a percentage": lambda value: _share(value) >= 0,
    "a number or at most 100%": lambda value: (
        0 <= _share(value) <= (100 if isinstance(value, str) else 2**31)
    ),
    "a schedule": lambda value: is_schedule(value),
    "a time zone": lambda value: not _zones() or value in _zones(),
    "in ascending order": lambda value: value == sorted({*value}),
    "with one controller": lambda value: (
        len({str(each) for each in value if each.get("controller") is True}) < 2
    ),
    "with a label or an expression": lambda held: (
        held.get("matchLabels") or held.get("matchExpressions")
    ),
    "without a path twice": lambda sources: _differ([*_paths(sources)]),
    "a mapping": is_mapping,
    "named where there are several": lambda ports: (
        len(ports) < 2 or all(port.get("name") for port in ports)
    ),
    "a node port or 0": lambda value: value == 0 or is_valid("from 30000 to 32767", value),
    "a network alone": lambda value: (
        is_valid("an address with a prefix", value) and _network(value)
    ),
    "one of each IP family": lambda value: len({":" in each for each in value}) == len(value),
    "with parts of its cidr as except": lambda held: all(
        each != held["cidr"] and _network(each).subnet_of(_network(held["cidr"]))
        for each in held.get("except", ())
    ),
    "without an item twice": lambda value: _differ([(each,) for each in value]),
    "with an item": lambda value: len(value) > 0,
    "with the resources that it covers": lambda held: all(
        len({each["name"], name} - {UNKNOWN}) < 2
        for flavor in held["flavors"]
        for each, name in zip(flavor["resources"], held["coveredResources"], strict=True)
    ),
    "with each flavor once": lambda groups: _differ(
        [(each["name"],) for held in groups for each in held["flavors"]]
    ),
    "with resources once": lambda groups: _differ(
        [(each,) for held in groups for each in held["coveredResources"]]
    ),
    "whole where counted": lambda of: all(
        is_whole(milli(of[k] or 0)) for k in of if is_valid("a counted resource", k)
    ),
    "with checks on flavors that it has": lambda held: (
        {
            each
            for check in held["admissionChecksStrategy"]["admissionChecks"]
            for each in check.get("onFlavors") or ()
        }
        <= {
            UNKNOWN,
            *(
                each["name"]
                for group in held.get("resourceGroups") or ()
                for each in group["flavors"]
            ),
        }
        or any(unknown_paths(held))
    ),
    "with default in enum": lambda of: any(each in (of["default"], UNKNOWN) for each in of["enum"]),
    "with selectable fields that its schema has": lambda of: all(
        _at(of["schema"], f"openAPIV3Schema{each['jsonPath'].replace('.', '.properties.')}.type")
        in ("boolean", "integer", "string", UNKNOWN)
        for each in of.get("selectableFields") or ()
    ),
    "with 1 MiB of base64 at most": lambda value: (
        sum(len(each or "") for each in value.values()) <= 1398104
    ),
    "with a maxSurge or a maxUnavailable above 0": lambda held: any(
        _share(held.get(key, 1)) > 0 for key in ("maxSurge", "maxUnavailable")
    ),
    "with either maxSurge or maxUnavailable above 0": lambda held: (
        (_share(held.get("maxSurge", 0)) > 0) != (_share(held.get("maxUnavailable", 1)) > 0)
    ),
}

_KINDS: Mapping[str, Callable[[list[str], Any], Any]] = {
    "one": lambda words, value: value in words,
    "one only": lambda words, value: _count(words, value) == 1,
    "one at most": lambda words, value: _count(words, value) <= 1,
    "some": lambda words, value: _count(words, value),
    "another": lambda words, value: value != int(words[-1]),
    "alone": lambda words, value: words[-1] not in value or len({*value}) == 1,
    "a": lambda words, value: {UNKNOWN, *words[2:]} & {*value},
    "marked": lambda words, value: (
        sum(each.get(words[1]) in (True, UNKNOWN) for each in value) == 1
    ),
    "named": lambda words, of: (
        "".join([_at(of, "metadata.name")]) == ".".join(_at(of, each) for each in words[1::2])
    ),
    "from": lambda words, value: type(value) is int and int(words[0]) <= value <= int(words[-1]),
    "equal": lambda words, value: parse_quantity(value) in map(parse_quantity, words[1:]),
    "below": lambda words, value: parse_quantity(value) < parse_quantity(words[0]),
    "only": lambda words, value: {*words} == {*value},
    "at": lambda words, value: len(value) <= int(words[1]),
    "different": lambda words, of: _differ(
        [tuple(each.get(k) or _DEFAULTS.get(k) for k in words[1:]) for each in of]
    ),
    "with ascending values": lambda words, value: (
        parse_quantity(value[words[0]]) <= parse_quantity(value[words[1]])
    ),
    "with rising values": lambda words, value: value[words[0]] < value[words[1]],
    "with equal values": lambda words, value: (
        len({_at(value, each) for each in words} - {UNKNOWN}) < 2
    ),
    "JSON": lambda words, value: _is_json(value, words[-1]),
    "with": lambda words, value: any(
        {*words} & {*section(value, key)} for key in ("data", "stringData")
    ),
    "without a key in both": lambda words, value: (
        not {*(value.get(words[0]) or ())} & {*(value.get(words[2]) or ())}
    ),
    "without": lambda words, value: not {words[1], words[-1]} <= {*value},
    "CEL": lambda words, value: (
        {each.partition(".")[0] for each in _read(value)} <= {"any", *words}
    ),
    "declaring what is named in the CEL": lambda words, of: (
        {
            name.partition(".")[2]
            for each in of.get(words[0]) or ()
            for name in _read(_at(each, words[1]) or "''")
        }
        <= {
            "",
            *words,
            *(of.get("properties") or ()),
            *(each["name"] for each in of.get("variables") or ()),
        }
        or any(unknown_paths(of))
    ),
    "exactly": lambda words, value: len(value) == int(words[0]),
}
"""What the first words of a rule say, by the rest."""


@cache
def _zones() -> Set[str]:
    """The time zones of the machine's database; none where it has no database."""
    import zoneinfo  # few need it

    return zoneinfo.available_timezones()


class Violation(NamedTuple):
    """A field that breaks a rule, or may break one."""

    path: str
    rule: str
    known: bool = True
    """Whether the value is known, and it is certain that the rule is broken."""


@dataclass
class Rules:
    """The rules of a field and of the fields below it."""

    below: dict[str, Rules] = field(default_factory=dict[str, "Rules"])
    when: dict[str, Rules] = field(default_factory=dict[str, "Rules"])
    """More rules, by the condition on which they hold."""
    must: list[str] = field(default_factory=list[str])
    given: str = ""
    needed: list[str] = field(default_factory=list[str])
    """The fields below that must be given."""

    def at(self, path: str) -> Rules:
        """The rules of a field below."""
        node = self
        for key in filter(None, path.replace("[]", ".[]").split(".")):
            node = node.below.setdefault(key, Rules())
        return node

    def add(self, path: str, must: str, given: str) -> None:
        """Add a rule about a field below."""
        node = self.at(path)
        node.must.append(must)
        node.given = given or node.given
        if given in ("always", "present"):
            holder, _, key = path.rpartition(".")
            self.at(holder).needed.append(key)

    def broken(self, value: Any) -> list[Violation]:
        """The fields that break a rule."""
        if value is UNKNOWN:
            return [Violation("", "is not known yet", known=False)]
        found: list[Violation] = []
        for rule in self.must if value != "" or self.given == "not empty" else ():
            if not is_valid(rule, value):
                shown = "" if isinstance(value, dict | list) else f", not {value!r}"
                found.append(
                    Violation("", f"must be {_in_words(rule)}{shown}", not rule.startswith(_UNSURE))
                )
        if is_mapping(value):
            for condition, rules in self.when.items():
                key, terms = _terms(condition)
                if (not key or key in value) and all(_holds(term, value) for term in terms):
                    found += [_with_cause(each, terms) for each in rules.broken(value)]
            for key in self.needed:
                is_empty = value.get(key) in ("", [], {}) and self.below[key].given == "always"
                if value.get(key) is None or is_empty:
                    found.append(Violation(key, "must be given"))
            for key, item in value.items():
                rules = self.below.get(key) or self.below.get("*")
                if item is not None and rules and (wrong := rules.broken(item)):
                    found += [each._replace(path=joined(key, each.path)) for each in wrong]
        elif isinstance(value, list) and (rules := self.below.get("[]")):
            nothing: Any = {} if rules.below else ""  # what Kubernetes makes of a null in a list
            for index, item in enumerate(
                nothing if each is None else each for each in cast("list[Any]", value)
            ):
                found += [
                    each._replace(path=joined(f"[{index}]", each.path))
                    for each in rules.broken(item)
                ]
        return found


_table = partial(rows, package="ml_foundations.planning.api_server")
_FORMATS = {
    row["name"]: re.compile(
        rf"(?!(?s:.{{{int(row['most']) + 1}}}))(?:{row['expression']})", re.ASCII | re.DOTALL
    )
    for row in _table("formats.csv", delimiter=";")
}
_CEL = {row["name"]: re.compile(row["expression"]) for row in _table("cel.csv", delimiter=";")}
_SORTS = ("nothing", "bool", "text", "list", "patch", "value", "any")
_PLACES: defaultdict[str, list[str]] = defaultdict(list)
for place in _table("places.csv"):
    _PLACES[place["name"]].append(place["path"])


@lru_cache
def pod_spec() -> Rules:
    """The rules of a pod's spec."""
    return _rules(_table("pod_fields.csv"))


@lru_cache
def of_object(kind: str) -> Rules:
    """The rules of an object of a kind, its pods apart."""
    listed = (
        row
        for name in ("workload_fields.csv", "object_fields.csv", "platform_fields.csv")
        for row in _table(name)
    )
    return _rules(row for row in listed if {"all", kind} & {*row["kinds"].split()})


@lru_cache
def pod_security(level: str, version: int, let_off: frozenset[str]) -> Rules:
    """The rules that a Pod Security level has in a minor version; some are not for pods that are let off."""
    return _rules(
        row
        for row in _table("pod_security.csv")
        if row["level"] in ("baseline", level)
        and int(row["since"]) <= version < int(row["before"] or version + 1)
        and row["but"] not in let_off
    )


def _rules(rows: Iterable[Mapping[str, str]]) -> Rules:
    root = Rules()
    for row in rows:
        name, _, inner = row["where"].partition(".")
        for path in _PLACES[name]:
            if condition := row.get("when"):
                node = root.at(f"{path}{inner}").when.setdefault(condition, Rules())
                node.add(row["field"], row["must"], row["given"])
            elif row["must"] == "one like this":
                holder, _, key = row["field"].rpartition(".")
                root.at(f"{path}{holder}").below[key] = root.at(path)
            else:
                root.add(f"{path}{inner}{row['field']}", row["must"], row["given"])
    return root


@cache
def _terms(condition: str) -> tuple[str, list[tuple[str, ...]]]:
    """A field that a condition needs, if it does, and its terms: field, !field, field=value or field!=value."""
    terms: list[tuple[str, ...]] = re.findall(r"(!?)([\w.-]+)(?:(!?)=(\S*))?", condition)
    return next(
        (path.partition(".")[0] for out, path, differs, _ in terms if not (out or differs)), ""
    ), terms


def _at(held: Any, path: str) -> Any:
    for key in path.split("."):
        held = held.get(key) if is_mapping(held) else held
    return held


def _holds(term: tuple[str, ...], held: Manifest) -> bool:
    """Whether a term of a condition holds; of what is not known, none."""
    is_left_out, path, differs, value = term
    found = _at(held, path)
    if found is UNKNOWN:
        return False
    if value:
        return ((str(found).lower() if isinstance(found, bool) else found) == value) != bool(
            differs
        )
    return (found is None or found is False or found in ("", [], {})) == bool(is_left_out)


def _with_cause(broken: Violation, terms: Iterable[tuple[str, ...]]) -> Violation:
    """Add the other fields that make a rule hold: "must be Never, because podFailurePolicy is set"."""
    causes = [
        f"{path} is {'not ' if is_left_out or differs else ''}{value or 'set'}"
        for is_left_out, path, differs, value in terms
        if not (broken.path == path or broken.path.startswith(f"{path}."))
        and path not in broken.rule.split()
    ]
    return (
        broken._replace(rule=f"{broken.rule}, because {' and '.join(causes)}")
        if causes and broken.known
        else broken
    )


def _in_words(rule: str) -> str:
    """Return a rule as a message shows it: "one of Never" is "Never"."""
    kind, _, options = rule.partition("one of ")
    if kind or rule in _OTHERS:
        return "left out" if rule == "not given" else rule
    return f"one of {', '.join(options.split())}" if " " in options else options


def is_valid(rule: str, value: Any) -> bool:
    """Whether a value is as a rule of the tables wants it, or may be: one of another type is not."""
    if is_mapping(value) and UNKNOWN in value.values():
        return True
    try:
        return bool(_check(rule)(value))
    except (AttributeError, TypeError, ValueError, LookupError, OSError):
        return any(unknown_paths(value))


@cache
def _check(rule: str) -> Callable[[Any], Any]:
    """What tells whether a value is as a rule wants it."""
    rule = rule.removeprefix("that is ")
    if rule in _FORMATS:
        return _FORMATS[rule].fullmatch
    if rule in _OTHERS:
        return _OTHERS[rule]
    if (of := rule.removeprefix("with keys like ")) != rule:
        return lambda value: all(is_valid(of, key) for key in value)
    kind, _, words = rule.rpartition(" of ") if " of " in rule else rule.partition(" ")
    return partial(_KINDS[kind], words.split())


def _read(expression: str) -> set[str]:
    """What an expression of CEL gives, and what it takes from around it, such as "object" and "variables.v"."""
    bare = _CEL["quoted"].sub(lambda found: "" if found[0].startswith("//") else "''", expression)
    outline = bare = _CEL["field"].sub(r"\1", _CEL["dot"].sub(".", " ".join(bare.split())))
    bound = {name for pair in _CEL["bound"].findall(bare) for name in pair}
    found = {
        name
        for part in ("name", "strange call", "strange field")
        for name in _CEL[part].findall(bare)
    }
    while (
        outer := _CEL["inner"].sub(lambda found: "°¤§"[(found.lastindex or 1) - 1], outline)
    ) != outline:
        outline = outer
    sort = next(sort for sort in _SORTS if _CEL[sort].fullmatch(outline))
    return {sort, *found} - bound


def _count(options: list[str], value: Manifest) -> int:
    return sum(value.get(option) not in (None, "", []) for option in options)


def _is_json(secret: Manifest, key: str) -> bool:
    """Whether a Secret holds a JSON object under a key; what it holds as text replaces what it holds in base64."""
    text = section(secret, "stringData").get(key)
    return isinstance(
        json.loads(base64.b64decode(secret["data"][key]) if text is None else text), dict | None
    )


def _differ(seen: list[tuple[Any, ...]]) -> bool:
    return all(seen.count(each) == 1 for each in seen if each[0] and UNKNOWN not in each)


def _paths(sources: Iterable[Manifest]) -> Iterable[tuple[Any]]:
    """Where the sources of a projected volume put files, tokens apart."""
    found = [section(each, key) for each in sources for key in each if key != "serviceAccountToken"]
    for held in (*found, *(item for each in found for item in items(each, "items"))):
        yield from ((held[key],) for key in held if key.lower().endswith("path"))


def _share(value: Any) -> int:
    """A number, or the number of a percentage."""
    return int(re.findall(r"^([0-9]+)%\Z", value)[0]) if isinstance(value, str) else value
