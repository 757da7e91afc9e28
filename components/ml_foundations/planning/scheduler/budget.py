"""The work that the searches of one judgement may take together.

It is counted in steps instead of seconds, so every machine ends with the same verdicts. A step is
about a microsecond: one pod that is tried on one node, or two ways to load nodes that are compared.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

MOST_STEPS = 800_000


@dataclass
class _Work:
    steps: int = 0


_WORK = ContextVar[_Work | None]("work", default=None)


@contextmanager
def limited_work() -> Generator[None]:
    """Let the searches within take ``MOST_STEPS`` together."""
    token = _WORK.set(_Work())
    try:
        yield
    finally:
        _WORK.reset(token)


def spend(steps: int) -> bool:
    """Count steps, and return whether they are within the budget; outside of one, all are."""
    work = _WORK.get()
    if work is None:
        return True
    work.steps += steps
    return work.steps <= MOST_STEPS


def is_exhausted() -> bool:
    """Return whether some search ended because the budget was spent."""
    return not spend(0)
