"""The scripts of tools/: what they draw is the same for a seed, and breaks a line that compiles."""

from tests.support.checkout import CHECKOUT
from tools.mutations.breaks import draw
from tools.verdicts.cases import cases


def test_a_break_changes_a_line_that_still_compiles() -> None:
    breaks = draw(CHECKOUT, seed=1, count=20)
    assert breaks == draw(CHECKOUT, seed=1, count=20)
    for broken in breaks:
        assert broken.text != (CHECKOUT / broken.path).read_text()
        compile(broken.text, broken.path, "exec")


def test_cases_are_the_files_and_edits_of_them() -> None:
    found = list(cases(CHECKOUT, seed=1, documents=3, pools=2, programs=1))
    assert found == list(cases(CHECKOUT, seed=1, documents=3, pools=2, programs=1))
    names = [case.name for case in found]
    assert "tests/golden/dev.yaml" in names
    assert [name.split()[0] for name in names[-6:]] == ["documents"] * 3 + ["pools"] * 2 + [
        "programs"
    ]
    parts = {case.name: case.parts for case in found}
    assert any(case.parts != parts[case.name.rpartition(" of ")[2]] for case in found[-6:])
