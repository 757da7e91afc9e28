"""Remedies of generated stacks that cannot fit, each applied."""

import pytest
from ml_foundations.planning import judge

from tests.differential.generator import RULES, generate
from tests.planning.remedies import applied, remains


@pytest.mark.parametrize("rule", RULES)
def test_a_remedy_of_an_error_removes_it(rule: str) -> None:
    for case in generate(rule, 6, number=1):
        errors = [each for each in judge(case.documents).findings if each.severity == "error"]
        for error in errors:
            for words, documents in applied(case.documents, error):
                assert not remains(error, judge(documents).findings), f"{error.message}: {words}"
