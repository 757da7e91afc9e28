"""The tables of fields, and the constraints and conditions in them."""

import pytest
from ml_foundations.kinds.kind_files import kinds
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server import constraints, fields

ROW = {
    "kinds": "Deployment",
    "place": "object",
    "fields": "spec.replicas",
    "constraint": "in_range 0 5",
    "presence": "",
    "condition": "",
}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"place": "objct"}, "'objct' is not a place"),
        ({"kinds": "Deploymnt"}, "Deploymnt has no field spec.replicas"),
        ({"fields": "spec.replica"}, "Deployment has no field spec.replica"),
        ({"constraint": "in_rnge 0 5"}, "'in_rnge 0 5' is not a constraint"),
        ({"constraint": "in_range 0"}, "'in_range 0' is not a constraint"),
        ({"constraint": "in_range 0 many"}, "'in_range 0 many' is not a constraint"),
        ({"constraint": "dns_labl"}, "'dns_labl' is not a constraint"),
        ({"constraint": "true 1"}, "'true 1' is not a constraint"),
        ({"fields": "spec", "constraint": "exactly_one paused stopped"}, "no field spec.stopped"),
        ({"presence": "always"}, "'always' is not a valid Presence"),
        ({"condition": "spec.pausd=true"}, "Deployment has no field spec.pausd"),
        ({"condition": "!spec.paused=true"}, "'!spec.paused=true' is not a condition"),
    ],
)
def test_a_misspelt_row_is_an_error(cells: dict[str, str], reason: str) -> None:
    assert fields.read_row(ROW)
    with pytest.raises(ValueError, match=reason):
        fields.read_row(ROW | cells)


def test_every_constraint_is_used() -> None:
    tables = (fields.OBJECT_ROWS, fields.CONTROLLER_ROWS, fields.POD_ROWS, fields.POD_SECURITY_ROWS)
    rows = [row for table in tables for row in table]
    rows += [row for kind in kinds() for row in fields.rows_of_kind(kind)]
    words = {word for row in rows for word in row.cells["constraint"].split()}
    # These are used from Python only.
    assert constraints.names() - words == {"address", "cidr_text", "counted_resource"}


@pytest.mark.parametrize(
    ("text", "valid", "invalid"),
    [
        ("one_of A B", "B", "C"),
        ("in_range 1 3", 3, True),
        ("quantity_of 0 1Mi", "1024Ki", "1M"),
        ("max_items 1", ["a"], ["a", "b"]),
        ("unique_by name protocol", [{"name": "a"}, {"name": "b"}], [{"name": "a"}] * 2),
        ("alone *", ["*"], ["*", "a"]),
        ("keys_of dns_label", {"a": 1}, {"a.b": 1}),
        ("exactly_one a b", {"a": 1, "b": ""}, {"a": 1, "b": 2}),
        ("ascending low high", {"low": "1", "high": "1k"}, {"low": "2k", "high": "1k"}),
        ("named_by spec.a spec.b", {"metadata": {"name": "x.y"}, "spec": {"a": "x", "b": "y"}}, {}),
        ("secret_key a b", {"data": {"b": ""}}, {"data": {"c": ""}}),
        ("inner_exceptions", {"cidr": "::/0", "except": ["1::/16"]}, {"except": ["1::/16"]}),
    ],
)
def test_a_constraint_is_met(text: str, valid: object, invalid: object) -> None:
    constraint = constraints.parse(text)
    assert constraint.is_met(valid)
    assert not constraint.is_met(invalid)
    assert constraint.is_met({"a": UNKNOWN})


def test_a_condition_has_alternatives() -> None:
    condition = fields.Condition.parse("!key operator=In|NotIn")
    assert condition.holds({"operator": "NotIn"})
    assert not condition.holds({"operator": "Exists"})
    assert not condition.holds({"operator": "In", "key": "a"})
    assert not condition.holds({"operator": UNKNOWN})
    assert fields.Condition.parse("type!=A|B").holds({"type": "C"})
    assert not fields.Condition.parse("type!=A|B").holds({"type": "B"})
