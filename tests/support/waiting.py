"""How tests wait for what takes its time."""

import time
from collections.abc import Callable

from ml_foundations.rehearsal.api import Api, ApiError


def until(met: Callable[[], object], why: str = "", seconds: float = 300) -> None:
    """Wait for a condition. The bound only ends a test in which it never comes: no machine is that slow."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"not within {seconds} s: {why}".rstrip(": ")
        time.sleep(0.2)


def is_served(api: Api, collection: str) -> bool:
    """Return whether the API server has got so far with a kind that was just defined."""
    try:
        api.get(collection)
    except ApiError as error:
        assert error.status in (404, 429), error
        return False
    return True
