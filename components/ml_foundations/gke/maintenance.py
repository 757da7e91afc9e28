"""When GKE may maintain a cluster, and when not."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

from typing_extensions import override

from ml_foundations.component.spec import Spec

_SHORTEST_WINDOW_HOURS = 4
_HOURS, _DAYS = 48, 92
"""What GKE asks of maintenance windows: so many hours in so many days ("Maintenance windows and exclusions")."""

_LONGEST_FREEZE_DAYS, MOST_FREEZES = 90, 3
"""The longest exclusion of all upgrades, and the most of them (same source)."""


class _Period(Spec):
    start_time: datetime
    """When it begins; of a window, the first time."""
    end_time: datetime
    """When it ends; of a window, the first time."""

    @property
    def times(self) -> dict[str, str]:
        """Its times as GKE's API takes them."""
        return {
            "startTime": self.start_time.isoformat().replace("+00:00", "Z"),
            "endTime": self.end_time.isoformat().replace("+00:00", "Z"),
        }

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        zoneless = [field for field in ("start_time", "end_time") if getattr(self, field).tzinfo is None]
        yield from ((field, "has no time zone; write it as 2026-01-03T02:00:00Z") for field in zoneless)
        if len(zoneless) != 1:
            yield from self._length_errors(self.end_time - self.start_time)

    def _length_errors(self, length: timedelta) -> Iterator[tuple[str, str]]:
        """Why it may not be so long."""
        raise NotImplementedError


class MaintenanceWindow(_Period):
    """When GKE may maintain the cluster. Times are as 2026-01-03T02:00:00Z."""

    recurrence: str
    """How the window comes again (RFC 5545), such as FREQ=WEEKLY;BYDAY=SA,SU."""

    @override
    def _length_errors(self, length: timedelta) -> Iterator[tuple[str, str]]:
        hours = length.total_seconds() / 3600
        rule = {key: value for key, _, value in (part.partition("=") for part in self.recurrence.split(";"))}
        frequency, days = rule.get("FREQ"), re.findall(r"\b(?:MO|TU|WE|TH|FR|SA|SU)\b", rule.get("BYDAY", ""))
        every = int(rule["INTERVAL"]) if rule.get("INTERVAL", "").isdecimal() else 1
        times = _DAYS // (every or 1) if frequency == "DAILY" else (len(days) or 1) * (_DAYS // (7 * (every or 1)))
        if not _SHORTEST_WINDOW_HOURS <= hours <= 24:
            yield "end_time", f"is {hours:g} hours after start_time; GKE needs {_SHORTEST_WINDOW_HOURS} to 24"
        elif frequency not in ("DAILY", "WEEKLY"):
            yield "recurrence", f"is {self.recurrence}; write FREQ=DAILY, or FREQ=WEEKLY;BYDAY=SA,SU"
        elif hours * times < _HOURS:
            yield "recurrence", f"leaves GKE {hours * times:g} hours in {_DAYS} days; it needs {_HOURS}: name more days"


class MaintenanceExclusion(_Period):
    """When GKE may not upgrade the cluster, such as during a long training run. Times are as 2026-01-03T02:00:00Z."""

    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = "NO_UPGRADES"
    """NO_UPGRADES (90 days at most), NO_MINOR_UPGRADES or NO_MINOR_OR_NODE_UPGRADES; default NO_UPGRADES."""

    @override
    def _length_errors(self, length: timedelta) -> Iterator[tuple[str, str]]:
        if length <= timedelta(0):
            yield "end_time", "is not after start_time"
        elif self.scope == "NO_UPGRADES" and length.days > _LONGEST_FREEZE_DAYS:
            reason = f"is more than {_LONGEST_FREEZE_DAYS} days after start_time; take another scope for longer"
            yield "end_time", reason


def maintenance_arguments(
    window: MaintenanceWindow | None, exclusions: dict[str, MaintenanceExclusion]
) -> dict[str, Any] | None:
    """The maintenance_policy of a cluster."""
    if window is None:
        return None
    found = [
        {"exclusionName": name, **item.times, "exclusionOptions": {"scope": item.scope}}
        for name, item in exclusions.items()
    ]
    return {
        "recurringWindow": {**window.times, "recurrence": window.recurrence},
        "maintenanceExclusions": found or None,
    }
