"""Each test is in one tier: of make test, make test-all or make trials."""

import re
from itertools import product

import pytest

from tests.support.checkout import CHECKOUT

RECIPES = (CHECKOUT / "Makefile").read_text()
TIERS = dict(re.findall(r'^([a-z-]+):.*\n\t.* pytest .*-m "?([a-z_ ]+)"?$', RECIPES, re.MULTILINE))
"""The tests of each target, as an expression over their marks."""


@pytest.mark.parametrize(("test_all", "trial"), [*product((True, False), repeat=2)])
def test_a_test_is_in_one_tier(test_all: bool, trial: bool) -> None:
    marks = {"test_all": test_all, "trial": trial}
    assert [eval(marked, {}, marks) for marked in TIERS.values()].count(True) == 1


def test_ci_runs_all_tiers() -> None:
    assert TIERS.keys() == {"test", "test-all", "trials"}
    assert f"\nmake {' '.join(TIERS)}\n" in (CHECKOUT / ".ci" / "run").read_text()


def test_no_test_sets_its_tier_itself() -> None:
    """It follows from fixtures and folders, in conftest.py."""
    marked = re.compile(r"mark\.(replica|test_all)\b")
    files = [path for path in (CHECKOUT / "tests").rglob("*.py") if marked.search(path.read_text())]
    assert not files
