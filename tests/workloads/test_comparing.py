"""The comparison of manifests finds what is missing, and only that."""

from tests.workloads.comparing import differences


def test_the_differences_are_found() -> None:
    expected = {"a": 1, "b": [{"name": "x", "c": [1]}]}
    assert not list(
        differences(
            expected, {"a": 1, "b": [{"name": "y"}, {"name": "x", "c": [1], "d": 2}], "e": 3}
        )
    )
    assert list(differences(expected, {"a": 2, "b": [{"name": "x", "c": [2]}]})) == [
        "a: 2, not 1",
        "b[x].c: [2], not [1]",
    ]
    assert list(differences(expected, {"a": 1, "b": []})) == [f"b[x]: None, not {expected['b'][0]}"]
