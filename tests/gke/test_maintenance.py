"""Maintenance windows and exclusions together: GKE needs 48 hours in any 92 days, in blocks of four hours."""

from datetime import UTC, datetime
from typing import Any

import pytest
from ml_foundations import GkeCluster
from ml_foundations.gke.maintenance import MaintenanceWindow, available_hours

from tests.gke.building import WEEKEND_8H
from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal

PLACE = {"project": "acme-research", "location": "us-central1"}
FOUR_HOURS = WEEKEND_8H | {"end_time": "2026-01-03T06:00:00Z"}
SATURDAY_4H = FOUR_HOURS | {"recurrence": "FREQ=WEEKLY;BYDAY=SA"}
DAILY_4H = FOUR_HOURS | {"recurrence": "FREQ=DAILY"}


def freeze(start: str, end: str, scope: str = "NO_UPGRADES") -> dict[str, Any]:
    return {"start_time": f"{start}T00:00:00Z", "end_time": f"{end}T00:00:00Z", "scope": scope}


@pytest.mark.parametrize(
    ("window", "freezes", "hours"),
    [
        (SATURDAY_4H, [], None),
        (SATURDAY_4H, [freeze("2026-03-02", "2026-03-08")], None),
        (SATURDAY_4H, [freeze("2026-03-02", "2026-03-15")], 44),
        (SATURDAY_4H, [freeze("2026-03-02", "2026-05-26")], 4),
        (WEEKEND_8H, [freeze("2026-03-01", "2026-03-20")], None),
        (WEEKEND_8H, [freeze("2026-03-01", "2026-05-10")], 48),
        (WEEKEND_8H, [freeze("2026-03-01", "2026-05-16"), freeze("2026-06-01", "2026-06-04")], 40),
        (DAILY_4H, [freeze("2026-03-01", "2026-05-20")], 48),
        (DAILY_4H, [freeze("2026-03-01", "2026-05-21")], 44),
        (WEEKEND_8H, [freeze("2026-03-01", "2026-04-30"), freeze("2026-05-01", "2026-06-30")], 0),
        (WEEKEND_8H, [freeze("2026-03-01", "2026-06-30", "NO_MINOR_UPGRADES")], None),
    ],
)
def test_window_and_exclusions_leave_48_hours_in_92_days(
    window: dict[str, Any], freezes: list[dict[str, Any]], hours: int | None
) -> None:
    exclusions = {f"run-{index}": each for index, each in enumerate(freezes)}
    arguments = {**PLACE, "maintenance_window": window, "maintenance_exclusions": exclusions}
    if hours is None or hours >= 48:
        declared(lambda: GkeCluster("c", arguments))
    else:
        message = refusal(declared, lambda: GkeCluster("c", arguments))
        wanted = f"maintenance_exclusions: leave GKE {hours} hours in the 92 days from"
        assert wanted in message


def test_blocks_shorter_than_four_hours_do_not_count() -> None:
    window = MaintenanceWindow.model_validate(WEEKEND_8H)
    start = datetime(2026, 1, 10, tzinfo=UTC)
    cut = (datetime(2026, 1, 10, 5, tzinfo=UTC), datetime(2026, 1, 10, 7, tzinfo=UTC))
    assert available_hours(window, [], start) - available_hours(window, [cut], start) == 8
    kept = (datetime(2026, 1, 10, 6, tzinfo=UTC), cut[1])
    assert available_hours(window, [], start) - available_hours(window, [kept], start) == 4


def test_an_exclusion_without_an_end_lasts_until_the_end_of_support() -> None:
    def policy(**exclusion: Any) -> dict[str, Any]:
        given: Any = {"start_time": "2026-01-01T00:00:00Z", **exclusion}
        arguments = {**PLACE, "maintenance_window": WEEKEND_8H}
        made = declared(lambda: GkeCluster("c", **arguments, maintenance_exclusions={"run": given}))
        return inputs(made["c-cluster"])["maintenancePolicy"]["maintenanceExclusions"][0]

    kept = policy(scope="NO_MINOR_OR_NODE_UPGRADES")
    ends = {"scope": "NO_MINOR_OR_NODE_UPGRADES", "endTimeBehavior": "UNTIL_END_OF_SUPPORT"}
    assert "endTime" not in kept and kept["exclusionOptions"] == ends
    assert "end_time: is required for NO_UPGRADES" in refusal(policy)
