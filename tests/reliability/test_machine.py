"""Some of the cases of ``python -m tests.reliability --kind machine``: those that refuse ``up``, without the next one."""

from pathlib import Path

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.reliability import faults, machine

CASES = ["no IPv4 on the loopback interface", "it is read-only, and lacks helm"]


@pytest.mark.parametrize("name", CASES)
def test_a_machine_that_cannot_rehearse_is_reported(
    name: str, tools: Tools, tmp_path: Path
) -> None:
    with machine.lives_of(name, tmp_path / "lives") as lives:
        outcome = machine.befall(name, lives)
        if outcome.first.startswith("skipped"):
            pytest.skip(outcome.first)
        assert not [*outcome.problems, *faults.down(*lives)]
