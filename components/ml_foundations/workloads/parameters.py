"""Hyperparameters: what a Sweep tries, as a grid or as a random sample that a seed repeats."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr, field_validator
from typing_extensions import override

from ml_foundations.component.spec import Spec

Value = StrictBool | StrictInt | StrictFloat | StrictStr
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Parameter(Spec):
    """The possible values of a hyperparameter: a list, or a range for a random sample."""

    values: list[Value] | None = None
    """The values: strings, numbers or booleans. 1.0 counts as 1."""
    low: float | None = None
    """The lowest value of a range."""
    high: float | None = None
    """The highest value of a range."""
    scale: Literal["linear", "log"] = "linear"
    """The scale on which all values of the range are equally likely: linear or log. The default is
    linear."""
    integer: bool = False
    """Use only whole numbers of the range. The default is false."""

    @field_validator("values")
    @classmethod
    def _whole_numbers(cls, values: list[Value]) -> list[Value]:
        """Return whole numbers as integers. Programs in other languages pass them as floats."""
        return [
            int(value) if isinstance(value, float) and value.is_integer() else value
            for value in values
        ]

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        has_range = self.low is not None or self.high is not None
        if (self.values is not None) == has_range:
            yield "values", "set either values, or low and high"
        elif self.values == []:
            yield "values", "is empty; add at least one"
        elif has_range and (self.low is None or self.high is None):
            yield "low", "low and high go together; set both"
        elif self.low is not None and self.high is not None:
            if self.low >= self.high:
                yield "low", f"is {self.low:g}, and must be below high ({self.high:g})"
            if self.scale == "log" and self.low <= 0:
                yield "low", f"is {self.low:g}, but must be above 0 if scale is log"
        if self.integer and any(
            bound and not bound.is_integer() for bound in (self.low, self.high)
        ):
            yield "integer", "low and high must be whole numbers, too"

    def draw(self, source: random.Random) -> Value:
        """Return one value at random."""
        if self.values is not None:
            return self.values[int(source.random() * len(self.values))]
        low = self.low or 0.0
        high = self.high or 0.0
        if self.scale == "log":
            span = math.log(high) - math.log(low)
            number = math.exp(math.log(low) + source.random() * span)
        else:
            # Every whole number stands for the part of the line around it.
            around = 0.5 if self.integer else 0.0
            first = low - around
            last = high + around
            number = first + source.random() * (last - first)
        number = min(max(number, low), high)
        return round(number) if self.integer else number


def grid_size(parameters: Mapping[str, Parameter]) -> int:
    """Return the number of combinations in a grid."""
    return math.prod(len(parameter.values or []) for parameter in parameters.values())


def grid(parameters: Mapping[str, Parameter]) -> Iterator[dict[str, Value]]:
    """Yield all combinations of the values. The last parameter changes fastest."""
    combinations = itertools.product(*(parameter.values or [] for parameter in parameters.values()))
    return (dict(zip(parameters, values, strict=True)) for values in combinations)


def sample(parameters: Mapping[str, Parameter], count: int, seed: int) -> list[dict[str, Value]]:
    """Return random combinations. A smaller sample with the same seed is a beginning of it."""
    # Only random() is promised to give the same numbers in every version of Python.
    source = random.Random(seed)
    combinations: list[dict[str, Value]] = []
    for _ in range(count):
        combinations.append({name: value.draw(source) for name, value in parameters.items()})
    return combinations


def text(value: Value) -> str:
    """Return a value as text for a variable: booleans and numbers as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
