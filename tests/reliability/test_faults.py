"""A few of the moments that ``make faults`` tries by the hundred: one rehearsal, hit in each of its phases."""

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.reliability import faults
from tests.reliability.faults import Moment


@pytest.fixture(scope="module")
def suffered(tmp_path_factory: pytest.TempPathFactory, tools: Tools) -> list[Moment]:
    return list(faults.suffer_all(tmp_path_factory.mktemp("faults"), len(faults.PHASES)))


def test_nothing_is_lost_and_nothing_is_left(suffered: list[Moment]) -> None:
    assert [each.phase for each in suffered] == [*faults.PHASES]
    assert any(each.killed for each in suffered)
    assert not [(each.victim, problem) for each in suffered for problem in each.problems]
