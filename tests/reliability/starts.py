"""Starting the control plane beside a load: it must never fail falsely."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import toolchain

_LOAD = 16
"""Processes that compute all the while."""


def try_all(folder: Path, count: int) -> int:
    """Start and remove a control plane so many times, and print how long it took; the number of failures."""
    tools, took, failures = toolchain.ensure(), list[float](), 0
    with load(_LOAD):
        for number in range(count):
            rehearsal = Rehearsal.of(f"start-{number}", folder)
            began = time.monotonic()
            try:
                kwok.start(rehearsal, tools)
                took.append(time.monotonic() - began)
            except RehearsalError as error:
                failures += 1
                print(f"start {number}: {error}", flush=True)
            finally:
                kwok.delete(rehearsal)
    print(f"{count} starts beside a load of {_LOAD}, {failures} failures", flush=True)
    if took:
        print(f"median {statistics.median(took):.0f} s, longest {max(took):.0f} s")
    return failures


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many processes computing."""
    running = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(processes)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.join()


def _compute() -> None:
    while True:
        sum(range(10**6))
