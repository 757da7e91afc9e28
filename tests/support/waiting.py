"""How tests wait for what takes its time."""

import time
from collections.abc import Callable


def until(met: Callable[[], bool], why: str = "", seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"not within {seconds} s: {why}".rstrip(": ")
        time.sleep(0.2)
