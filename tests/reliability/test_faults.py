"""Some of the moments that ``make faults`` tries by the hundred: rehearsals, hit in each of their phases."""

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.reliability import faults
from tests.reliability.faults import Moment
from tests.support.trials import sizes


@pytest.fixture(scope="module", params=sizes(3, 20))
def suffered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tools: Tools
) -> list[Moment]:
    moments = list(faults.suffer_all(tmp_path_factory.mktemp("faults"), request.param))
    assert len(moments) == request.param
    return moments


def test_nothing_is_lost_and_nothing_is_left(suffered: list[Moment]) -> None:
    hit = {moment.phase for moment in suffered if moment.killed}
    # A moment may come after the end of what it kills: one in each phase is not enough.
    assert hit == {*faults.PHASES} or len(suffered) == len(faults.PHASES)
    assert not [(each.victim, problem) for each in suffered for problem in each.problems]
