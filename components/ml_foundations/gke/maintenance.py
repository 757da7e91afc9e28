"""Windows and exclusions for the maintenance of a cluster."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

from typing_extensions import override

from ml_foundations.component.spec import Spec

_SHORTEST_WINDOW_HOURS = 4
_HOURS = 48
_DAYS = 92
"""What GKE asks of maintenance windows: so many hours in so many days ("Maintenance windows and
exclusions")."""

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_WEEKDAY = re.compile(rf"\b(?:{'|'.join(_WEEKDAYS)})\b")

_LONGEST_FREEZE_DAYS = 90
MOST_FREEZES = 3
"""The longest exclusion of all upgrades, and the most of them (same source)."""


def _text(time: datetime) -> str:
    """Return a time as GKE's API takes it."""
    return time.isoformat().replace("+00:00", "Z")


def _zone_errors(start: datetime, end: datetime | None) -> Iterator[tuple[str, str]]:
    """Yield the times without a zone."""
    for field, time in (("start_time", start), ("end_time", end)):
        if time is not None and time.tzinfo is None:
            yield field, "has no time zone; write it as 2026-01-03T02:00:00Z"


class MaintenanceWindow(Spec):
    """A window for the maintenance of the cluster. Write times as 2026-01-03T02:00:00Z."""

    start_time: datetime
    """The first start of the window."""
    end_time: datetime
    """The first end of the window."""
    recurrence: str
    """When the window repeats (RFC 5545), such as FREQ=WEEKLY;BYDAY=SA,SU."""

    @property
    def rule(self) -> dict[str, str]:
        """The parts of the recurrence, such as FREQ and BYDAY."""
        pairs = (part.partition("=") for part in self.recurrence.split(";"))
        return {key: value for key, _, value in pairs}

    def blocks(self, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the begin and end of each occurrence that begins between two times."""
        monday = self.start_time - timedelta(days=self.start_time.weekday())
        for day in range(max(0, (first - monday).days), (last - monday).days + 1):
            begin = monday + timedelta(days=day)
            if max(first, self.start_time) <= begin <= last and self._recurs_on(day):
                yield begin, begin + (self.end_time - self.start_time)

    def _recurs_on(self, day: int) -> bool:
        """Return whether it recurs on a day, counted from the Monday of its first week."""
        interval = self.rule.get("INTERVAL", "1")
        every = int(interval) if interval.isdecimal() and int(interval) else 1
        if self.rule.get("FREQ") == "DAILY":
            return (day - self.start_time.weekday()) % every == 0
        first_day = _WEEKDAYS[self.start_time.weekday()]
        days = _WEEKDAY.findall(self.rule.get("BYDAY", "")) or [first_day]
        return day // 7 % every == 0 and _WEEKDAYS[day % 7] in days

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        zoneless = [*_zone_errors(self.start_time, self.end_time)]
        yield from zoneless
        # Python does not subtract a time without a zone from one with a zone.
        if len(zoneless) == 1:
            return
        hours = (self.end_time - self.start_time).total_seconds() / 3600
        frequency = self.rule.get("FREQ")
        if not _SHORTEST_WINDOW_HOURS <= hours <= 24:
            needed = f"GKE needs {_SHORTEST_WINDOW_HOURS} to 24"
            yield "end_time", f"is {hours:g} hours after start_time; {needed}"
        elif frequency not in ("DAILY", "WEEKLY"):
            reason = f"is {self.recurrence}; write FREQ=DAILY, or FREQ=WEEKLY;BYDAY=SA,SU"
            yield "recurrence", reason
        elif (left := available_hours(self, [], self.end_time)) < _HOURS:
            reason = f"leaves GKE {left:g} hours in {_DAYS} days; it needs {_HOURS}: name more days"
            yield "recurrence", reason


class MaintenanceExclusion(Spec):
    """A period without upgrades, such as a long training. Write times as 2026-01-03T02:00:00Z."""

    start_time: datetime
    """The start of the period."""
    end_time: datetime | None = None
    """The end of the period. By default, the end of support of the cluster's minor version; for
    NO_UPGRADES it is required."""
    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = "NO_UPGRADES"
    """What is excluded: NO_UPGRADES (90 days at most), NO_MINOR_UPGRADES or
    NO_MINOR_OR_NODE_UPGRADES. The default is NO_UPGRADES."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Its times and its scope as the provider takes them."""
        options = {"scope": self.scope}
        if self.end_time is None:
            options["endTimeBehavior"] = "UNTIL_END_OF_SUPPORT"
        ends = {} if self.end_time is None else {"endTime": _text(self.end_time)}
        return {"startTime": _text(self.start_time), **ends, "exclusionOptions": options}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        end = self.end_time
        zoneless = [*_zone_errors(self.start_time, end)]
        yield from zoneless
        if end is None and self.scope == "NO_UPGRADES":
            reason = "is required for NO_UPGRADES; set it, or the scope NO_MINOR_OR_NODE_UPGRADES"
            yield "end_time", reason
        if end is None or len(zoneless) == 1:
            return
        if end <= self.start_time:
            yield "end_time", "is not after start_time"
        elif self.scope == "NO_UPGRADES" and (end - self.start_time).days > _LONGEST_FREEZE_DAYS:
            reason = f"is more than {_LONGEST_FREEZE_DAYS} days after start_time"
            yield "end_time", f"{reason}; set a scope that allows more"


def available_hours(
    window: MaintenanceWindow, freezes: list[tuple[datetime, datetime]], start: datetime
) -> float:
    """Return the hours for maintenance in 92 days, counting blocks of at least four hours."""
    end = start + timedelta(days=_DAYS)
    hours = 0.0
    for block_start, block_end in window.blocks(start, end):
        free = [(block_start, min(block_end, end))]
        for freeze in freezes:
            free = [part for whole in free for part in _without(whole, freeze)]
        lengths = [(last - first).total_seconds() / 3600 for first, last in free]
        hours += sum(length for length in lengths if length >= _SHORTEST_WINDOW_HOURS)
    return hours


def _without(
    period: tuple[datetime, datetime], freeze: tuple[datetime, datetime]
) -> Iterator[tuple[datetime, datetime]]:
    """Yield what an exclusion leaves of a period, before it and after it."""
    (first, last) = period
    (start, end) = freeze
    if first < min(last, start):
        yield first, min(last, start)
    if max(first, end) < last:
        yield max(first, end), last


def maintenance_errors(
    window: MaintenanceWindow, exclusions: dict[str, MaintenanceExclusion]
) -> Iterator[tuple[str, str]]:
    """Yield why GKE would refuse a window together with its exclusions.

    In any 92 days GKE needs 48 hours, in blocks of four hours or more ("Maintenance windows and
    exclusions"). The fewest are in 92 days that begin when a block has just ended.
    """
    freezes: list[tuple[datetime, datetime]] = []
    for exclusion in exclusions.values():
        if exclusion.scope == "NO_UPGRADES" and exclusion.end_time is not None:
            freezes.append((exclusion.start_time, exclusion.end_time))
    if not freezes:
        return
    first = min(start for start, _ in freezes) - timedelta(days=_DAYS)
    last = max(end for _, end in freezes)
    starts = [max(first, window.end_time), *(end for _, end in window.blocks(first, last))]
    worst = min(starts, key=lambda start: available_hours(window, freezes, start))
    hours = available_hours(window, freezes, worst)
    if hours < _HOURS:
        reason = f"leave GKE {hours:g} hours in the {_DAYS} days from {worst:%Y-%m-%d} on"
        needed = f"it needs {_HOURS}, in blocks of {_SHORTEST_WINDOW_HOURS} or more"
        fix = "shorten them, or let maintenance_window recur on more days"
        yield "maintenance_exclusions", f"{reason}; {needed}: {fix}"


def maintenance_arguments(
    window: MaintenanceWindow | None, exclusions: dict[str, MaintenanceExclusion]
) -> dict[str, Any] | None:
    """Return the maintenance_policy of a cluster."""
    if window is None:
        return None
    excluded = [{"exclusionName": name, **item.arguments} for name, item in exclusions.items()]
    times = {"startTime": _text(window.start_time), "endTime": _text(window.end_time)}
    return {
        "recurringWindow": {**times, "recurrence": window.recurrence},
        "maintenanceExclusions": excluded or None,
    }
