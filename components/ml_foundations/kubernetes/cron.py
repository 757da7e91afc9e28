"""Cron schedules as Kubernetes reads them (robfig/cron, ParseStandard)."""

import itertools
import re
from datetime import date, timedelta
from typing import NamedTuple

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MACROS = {
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    **{"@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@hourly": "0 * * * *"},
}
_SECOND = 10**9
_UNITS = {
    **{"h": 3600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND, "ms": 10**6, "ns": 1},
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs"), 10**3),
}
"""Go's units of durations, in nanoseconds; of microseconds, with both signs for micro."""
_NUMBER_AND_UNIT = r"(?:(\d+)(?:\.(\d*))?|\.(\d+))(h|ms|m|s|us|\u00b5s|\u03bcs|ns)"
_DURATION = re.compile(rf"[-+]?(0|({_NUMBER_AND_UNIT})+)", re.ASCII)
_PART = re.compile(_NUMBER_AND_UNIT, re.ASCII)
_MOST_DIGITS = 19
_LONGEST = 2**63 - 1
"""The longest duration of Go, in nanoseconds, and its digits."""
_EIGHT_YEARS = 2922
"""Days in which 29 February comes twice, so that even its interval is seen."""


class _Field(NamedTuple):
    """One of the five fields of a schedule: its name, its bounds, and words for its numbers."""

    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)


def shortest_interval(schedule: str) -> int:
    """Return the seconds between the two closest runs, without clock changes.

    Raises:
        ValueError: The schedule is invalid, or its day never comes.
    """
    if schedule.startswith("@every "):
        return _duration(schedule.removeprefix("@every "))
    fields = _fields(schedule)
    minutes, hours, days, months, weekdays = map(_values, fields, _FIELDS)
    times = sorted(3600 * hour + 60 * minute for hour in hours for minute in minutes)
    # If both kinds of days are restricted, either is enough.
    either = not _is_any(fields[2]) and not _is_any(fields[4])
    dates: list[date] = []
    for number in range(_EIGHT_YEARS):
        day = date(2000, 1, 1) + timedelta(days=number)
        is_day = day.day in days
        is_weekday = (day.weekday() + 1) % 7 in weekdays
        runs = (is_day or is_weekday) if either else (is_day and is_weekday)
        if day.month in months and runs:
            dates.append(day)
    if len(dates) < 2 or not times:
        raise ValueError(f'"{schedule}" never comes')
    same_day = [later - earlier for earlier, later in itertools.pairwise(times)]
    apart = min(later - earlier for earlier, later in itertools.pairwise(dates))
    return min([*same_day, round(apart.total_seconds()) - times[-1] + times[0]])


def is_schedule(text: str) -> bool:
    """Return whether Kubernetes accepts a text as a schedule, even one that never comes."""
    try:
        if text.startswith("@every "):
            return _duration(text.removeprefix("@every ")) > 0
        list(map(_values, _fields(text), _FIELDS))
    except ValueError:
        return False
    return True


def _fields(schedule: str) -> list[str]:
    fields = _MACROS.get(schedule, schedule).split()
    if len(fields) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise ValueError(f'"{schedule}" has {len(fields)} fields, not five: {names}')
    return fields


def _is_any(text: str) -> bool:
    return any(part in ("*", "?", "*/1", "?/1") for part in text.split(","))


def _values(text: str, field: _Field) -> set[int]:
    return {number for part in text.split(",") if part for number in _range(part, field)}


def _range(part: str, field: _Field) -> range:
    """Return the numbers of ``*``, ``5`` or ``1-5``, each also with a step, such as ``*/15``."""
    bounds, slash, step = part.partition("/")
    low, dash, high = bounds.partition("-")
    if low in ("*", "?"):
        first = field.first
        last = field.last
    else:
        first = _number(low, field)
        last = _number(high, field) if dash else field.last if slash else first
    if slash and not (step.isdecimal() and int(step)):
        raise ValueError(f'the {field.name} "{part}" has no step above 0')
    if not field.first <= first <= last <= field.last:
        raise ValueError(f'the {field.name} "{part}" is not within {field.first} to {field.last}')
    return range(first, last + 1, int(step) if slash else 1)


def _number(text: str, field: _Field) -> int:
    if text.lower() in field.words:
        return field.first + field.words.index(text.lower())
    if not text.isdecimal():
        words = f" or {field.words[0]} to {field.words[-1]}" if field.words else ""
        raise ValueError(f'the {field.name} "{text}" is not a number{words}')
    return int(text)


def _duration(text: str) -> int:
    """Return a duration in Go's form, such as 1h30m, in whole seconds; the least is a second."""
    # Every part of the pattern begins with another character than the one before may have: else a
    # long text takes the square of its length.
    if not _DURATION.fullmatch(text):
        raise ValueError(f'"@every {text}" is not a duration such as @every 1h30m')
    total = 0
    for whole, decimals, only_decimals, unit in _PART.findall(text):
        digits = whole.lstrip("0")
        fraction = (decimals or only_decimals)[:_MOST_DIGITS]
        if len(digits) <= _MOST_DIGITS:
            total += int(digits or "0") * _UNITS[unit]
            total += int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
        if len(digits) > _MOST_DIGITS or total > _LONGEST:
            raise ValueError(f'"@every {text}" is longer than Go\'s durations, about 292 years')
    return 1 if text.startswith("-") else max(1, total // _SECOND)
