"""Some of the moments that ``make faults`` tries by the hundred: rehearsals, hit in each of their phases."""

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.reliability import faults
from tests.reliability.faults import Moment

MOMENTS = 20


@pytest.fixture(scope="module")
def suffered(tmp_path_factory: pytest.TempPathFactory, tools: Tools) -> list[Moment]:
    return list(faults.suffer_all(tmp_path_factory.mktemp("faults"), MOMENTS))


def test_nothing_is_lost_and_nothing_is_left(suffered: list[Moment]) -> None:
    assert [each.seed for each in suffered] == [*range(MOMENTS)]
    assert {each.phase for each in suffered if each.killed} == {*faults.PHASES}
    assert not [(each.victim, problem) for each in suffered for problem in each.problems]
