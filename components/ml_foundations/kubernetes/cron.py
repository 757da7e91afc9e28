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
_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
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
        is_day, is_weekday = day.day in days, (day.weekday() + 1) % 7 in weekdays
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
        first, last = field.first, field.last
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
    """Return a duration in Go's form, such as 1h30m, in whole seconds."""
    if not re.fullmatch(r"[-+]?(0|((\d+\.?\d*|\.\d+)(h|ms?|s|us|µs|ns))+)", text):
        raise ValueError(f'"@every {text}" is not a duration such as @every 1h30m')
    parts: list[tuple[str, str]] = re.findall(r"([\d.]+)([hmsunµ]+)", text)
    return max(1, int(sum(float(number) * _UNITS[unit] for number, unit in parts)))
