"""The closed world: every kind and field of the API server is decided, harmless or unknown to planning."""

from typing import Any

import pytest
from ml_foundations.planning.input import field_catalog

from codegen import kubernetes_schema

TYPES: dict[str, dict[str, str]] = field_catalog.schema()["types"]
RULES: dict[str, dict[str, Any]] = {
    name: rules for names, rules in field_catalog.table()["types"].items() for name in names.split()
}


def sections(rules: dict[str, Any]) -> list[str]:
    """The fields of a type, as often as they are listed."""
    groups = [*rules.get("harmless", {}).values(), *rules.get("unknown", {}).values()]
    return [*rules.get("decided", ()), *(field for group in groups for field in group)]


def parts(described: str) -> tuple[str, list[str]]:
    """The type of a field, its items or values, and the values that it may have."""
    name, _, values = described.partition(":")
    return name.strip("[]{}"), values.strip(" []{}").split()


def reached() -> set[str]:
    """The types that decided fields lead to, from the judged kinds on."""
    found: set[str] = set()
    rest = [field_catalog.schema()["kinds"][kind] for kind in field_catalog.judged_kinds()]
    while rest:
        name = rest.pop()
        if name not in found:
            found.add(name)
            decided = TYPES[name].keys() & RULES[name].get("decided", ())
            rest += [type_ for field in decided if (type_ := parts(TYPES[name][field])[0]) in TYPES]
    return found


def test_the_schema_is_that_of_the_replicas_versions() -> None:
    versions = kubernetes_schema.versions()
    assert field_catalog.schema()["versions"] == versions  # python -m codegen.kubernetes_schema


def test_every_kind_of_the_server_is_classified() -> None:
    # The foreign Job of another group is not among them: it falls to what is not known.
    default = field_catalog.kind_of("example.org/v1", "Job")
    assert default[0] == field_catalog.UNKNOWN_KIND
    kinds = field_catalog.schema()["kinds"]
    assert not [kind for kind in kinds if field_catalog.kind_of(*kind.split(" ")) == default]


def test_every_field_is_in_one_of_the_three_lists() -> None:
    missing = {name: set(TYPES[name]) - set(sections(RULES[name])) for name in reached()}
    assert not {name: fields for name, fields in missing.items() if fields}


def test_no_field_is_in_two_lists() -> None:
    twice = {
        name: [f for f in listed if listed.count(f) > 1]
        for name in RULES
        if (listed := sections(RULES[name]))
    }
    assert not {name: fields for name, fields in twice.items() if fields}


def test_the_lists_hold_nothing_that_the_schema_does_not() -> None:
    assert set(RULES) == reached()
    for names, rules in field_catalog.table()["types"].items():
        there = {field for name in names.split() for field in TYPES[name]}
        named = {*sections(rules)}
        for part in ("required", "values", "keys", "least"):
            named |= {*rules.get(part, ())}
        assert not named - there, names
    for kind in field_catalog.judged_kinds():
        assert kind in field_catalog.schema()["kinds"]
    used = {reason for rules in RULES.values() for reason in rules.get("harmless", ())}
    assert used == set(field_catalog.table()["reasons"])


@pytest.mark.parametrize("name", sorted(reached()))
def test_every_value_that_a_decided_field_may_have_is_listed(name: str) -> None:
    """A value that a new version brings is not known until somebody has looked at it."""
    for field in RULES[name].get("decided", ()):
        _, values = parts(TYPES[name].get(field, ""))
        listed = RULES[name].get("values", {}).get(field, ())
        assert not values or listed, field
        assert not values or not set(map(str, listed)) - set(values), field
