"""Control planes for each batch, begun anew so that nothing of another batch is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from ml_foundations.rehearsal.layout import Rehearsal

from tests.differential import control_plane, oracle
from tests.differential.case import Case
from tests.differential.oracle import Outcome

AT_ONCE = 180
"""Cases on one control plane: schedulers and controllers look at every node for every pod, so twice as many take longer
than twice, while a control plane starts in seconds."""


def try_out(cases: Sequence[Case], folder: Path, number: int = 0) -> list[list[Outcome]]:
    """Run cases on control planes of their own.

    Args:
        cases: Cases that know nothing of each other.
        folder: Where the control plane keeps its files while it runs.
        number: Decides the order in which the workloads are created.

    Returns:
        For each case the outcomes of its workloads, in the order of its documents.

    Raises:
        OracleError: The control plane gave no answer that can be read.
    """
    outcomes: list[list[Outcome]] = []
    for start in range(0, len(cases), AT_ONCE):
        with control_plane.running(folder) as rehearsal:
            outcomes += asyncio.run(_outcomes(rehearsal, cases[start : start + AT_ONCE], number))
    return outcomes


async def _outcomes(
    rehearsal: Rehearsal, cases: Sequence[Case], number: int
) -> list[list[Outcome]]:
    placed = [case.placed(f"c{index}") for index, case in enumerate(cases)]
    async with oracle.connect(rehearsal) as session:
        return await session.run(placed, random.Random(number))
