"""A control plane for each batch, begun anew so that nothing of another batch is left."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

from tests.differential import oracle
from tests.differential.case import Case
from tests.differential.oracle import Outcome


def try_out(cases: Sequence[Case], folder: Path, number: int = 0) -> list[list[Outcome]]:
    """Run cases on a control plane of their own.

    Args:
        cases: Cases that know nothing of each other.
        folder: Where the control plane keeps its files while it runs.
        number: Decides the order in which the workloads are created.

    Returns:
        For each case the outcomes of its workloads, in the order of its documents.

    Raises:
        OracleError: The control plane gave no answer that can be read.
    """
    with _running(folder) as rehearsal:
        return asyncio.run(_outcomes(rehearsal, cases, number))


@contextmanager
def _running(folder: Path) -> Iterator[Rehearsal]:
    # Memory is cheaper here than the garbage collectors' time; kwokctl hands its environment on.
    os.environ.setdefault("GOGC", "400")
    rehearsal = Rehearsal.of("bare", folder)
    rehearsal.make()
    kwok.delete(rehearsal)
    try:
        kwok.start(rehearsal, toolchain.ensure())
        yield rehearsal
    finally:
        kwok.delete(rehearsal)


async def _outcomes(rehearsal: Rehearsal, cases: Sequence[Case], number: int) -> list[list[Outcome]]:
    placed = [case.placed(f"c{index}") for index, case in enumerate(cases)]
    async with oracle.connect(rehearsal) as session:
        return await session.run(placed, random.Random(number))
