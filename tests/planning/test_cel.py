"""Expressions of CEL: what is one, the names in it, and what it returns."""

import pytest
from ml_foundations.planning.api_server import cel
from ml_foundations.planning.api_server.cel import CelError, Type


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("object.a == 1 && !has(object.b)", Type.BOOL),
        ("object.a in ['b']", Type.BOOL),
        ("(object.a.exists(x, x > 1))", Type.BOOL),
        ("'a' + object.b", Type.STRING),
        ("object.b + string(1)", Type.STRING),
        ("request.userInfo.username", Type.STRING),
        ("[1] + object.list", Type.LIST),
        ("object.list.map(x, x * 2)", Type.LIST),
        ("Object{spec: Object.spec{replicas: 1}}", Type.PATCH),
        ("object.spec.?a[0]", Type.VALUE),
        ("-1.5e3 * 0x1Fu", Type.VALUE),
        ("{'a': 1,}", Type.VALUE),
        ("object.a ? 1 : 'b'", Type.ANY),
        ("{'a': 1}['a']", Type.ANY),
        ("variables.a + 1", Type.ANY),
        ('r"\\d" + """a\n"b"""', Type.STRING),
        ("// none\ntrue // that", Type.BOOL),
        ("'(' == object.a", Type.BOOL),
    ],
)
def test_type(text: str, type_: Type) -> None:
    assert cel.parse(text).type is type_


@pytest.mark.parametrize(
    "text",
    [
        *("", "a b", "(a b)", "[a b]", "a &", "a & b", "a = b", "object.", "(a", "a)", "1.2.3"),
        *(
            "!" * 100_000 + "a",
            "1a",
            "in a",
            "f(1,)",
            "a ? b",
            "`a`",
            "é",
            "'a",
            "{'a'}",
            "Object{1: 2}",
            "++a",
        ),
    ],
)
def test_what_is_no_expression_is_an_error(text: str) -> None:
    with pytest.raises(CelError):
        cel.parse(text)


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("object.a.b == params", {"object", "params"}),
        ("object.a.all(x, x > y)", {"object", "y"}),
        ("object.a.all(x, x > 1) && x", {"object", "x"}),
        ("object.a.exists(i, v, i > v)", {"object"}),
        ("object.a.replace(x, 'b')", {"object", "x"}),
        ("string(size('a')) == int", set()),
        ("Object{a: b}", {"Object", "b"}),
        ("optional.of(1)", set()),
    ],
)
def test_variables(text: str, variables: set[str]) -> None:
    assert cel.parse(text).variables == variables


def test_members_and_unknown_names() -> None:
    expression = cel.parse("self.a.c(variables.b.d) + other.x + request.namee + self.e__f")
    assert expression.members == {"a", "b"}
    assert expression.unknown == {"c", "request.namee"}
    assert cel.parse("namespaceObject.spec.contains(request.name)").unknown == set()
    assert cel.member_names("self.a b") == set()


def test_deep_nesting_is_not_followed() -> None:
    assert cel.parse("(" * 2000 + "1" + ")" * 2000).type is Type.ANY
