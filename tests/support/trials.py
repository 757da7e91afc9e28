"""Sizes of random trials: a small sample in the tests, the whole in ``make trials``."""

import pytest
from _pytest.mark import ParameterSet


def sizes(sample: int, whole: int) -> list[ParameterSet]:
    """Return the parameters of a test or fixture that repeats a trial as often as they say."""
    return [
        pytest.param(sample, id="sample"),
        pytest.param(whole, id="whole", marks=pytest.mark.trial),
    ]
