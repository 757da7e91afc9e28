"""The check of commit messages."""

import pytest

from tools.commit_message import problems

GOOD = (
    "rehearsal: restart kwok after a missed pod\n\nA pod stayed pending.\nIts node had no label.\n"
)


def test_a_good_message_has_no_problems() -> None:
    assert not list(problems(GOOD))
    assert not list(problems(f"{GOOD}\nSigned-off-by: A <a@example.com>\n# a comment of git\n"))
    assert not list(problems("Merge branch 'main'\n"))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (GOOD.replace("rehearsal: ", ""), "begin with 'area: imperative summary'"),
        (GOOD.replace("missed pod", "missed pod."), "without a full stop"),
        (GOOD.replace("a missed", "a " + "very " * 9 + "missed"), "it has 87"),
        (GOOD.replace("\n\n", "\n"), "leave the second line empty"),
        ("planning: count claims\n", "there are 0"),
        (GOOD + "more\n" * 5, "there are 7"),
    ],
)
def test_a_problem_is_named(message: str, problem: str) -> None:
    assert any(problem in found for found in problems(message)), list(problems(message))
