"""A part of a replica dies at a random moment of ``up``, which ends soon and names it. No ``down`` between two of them."""

import random
from pathlib import Path

import pytest
from ml_foundations.rehearsal.processes import end
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.reliability import faults, inspection
from tests.reliability.faults import PARTS, PHASES, Life, Moment
from tests.support.trials import sizes

_SECONDS = 10
"""About how long an ``up`` takes that starts a dead control plane."""


@pytest.mark.parametrize("count", sizes(3, 24))
def test_up_ends_soon_after_a_death_and_names_it(count: int, tools: Tools, tmp_path: Path) -> None:
    life, problems, killed = Life(tmp_path), list[str](), 0
    try:
        for seed in range(count):
            draw = random.Random(f"death {seed}")
            queue = seed >= 12  # The sample builds no Kueue.
            victim = draw.choice([name for name in PARTS if queue or name != "kueue"])
            given = Moment(seed, PHASES[0], victim, draw.uniform(0, _SECONDS), queue)
            faults.hit(life, given)
            killed += bool(given.killed)
            problems += [f"{seed}, {victim}: {problem}" for problem in given.problems]
            life.revision += 1
    finally:
        end(inspection.processes_of(life.rehearsal))
        problems += faults.down(life)
    assert not problems
    assert killed > count // 2
