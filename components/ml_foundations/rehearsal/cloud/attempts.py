"""How one failure leaves the rest of a round working."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ml_foundations.rehearsal.api import ApiError

_log = logging.getLogger(__name__)


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Log a failure and go on: what comes behind has its turn, and the next round tries again.

    Args:
        what: What is attempted, for the log.
    """
    try:
        yield
    except (ApiError, OSError, ValueError, KeyError) as error:
        # A lost race or an absent server is not the end.
        _log.warning("%s: will try again: %s: %s", what, type(error).__name__, error)
    except Exception:
        _log.exception("%s: will try again", what)
