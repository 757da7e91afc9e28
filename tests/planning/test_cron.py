"""The shortest time between two runs of a schedule."""

import pytest
from ml_foundations.kubernetes.cron import shortest_interval

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ("* * * * *", MINUTE),
        ("*/15 * * * *", 15 * MINUTE),
        (
            "*/45 * * * *",
            15 * MINUTE,
        ),  # at 0 and 45: an hour's last run is close to the next hour's first
        ("5/20 * * * *", 20 * MINUTE),
        ("0 * * * *", HOUR),
        ("0 9-17/4 * * *", 4 * HOUR),
        ("0 3 * * *", DAY),
        ("0 22,2 * * *", 4 * HOUR),  # across midnight
        ("0 3 * * 0", 7 * DAY),
        ("0 3 * * SUN", 7 * DAY),
        ("0 3 * * mon-fri", DAY),
        ("0 3 1 * *", 28 * DAY),
        ("0 3 1,15 * *", 14 * DAY),
        ("0 3 1 jan *", 365 * DAY),
        ("0 3 29 2 *", 1461 * DAY),
        ("0 3 1 * 1", DAY),  # the first, or a Monday
        ("0 3 */1 * 1", 7 * DAY),  # any day, and a Monday
        ("0 3 ? * 1", 7 * DAY),
        ("0 3 */2 * 1", DAY),  # an uneven day, or a Monday: a step restricts
        ("@hourly", HOUR),
        ("@daily", DAY),
        ("@weekly", 7 * DAY),
        ("@monthly", 28 * DAY),
        ("@every 1h30m", 90 * MINUTE),
        ("@every 0.5h", 30 * MINUTE),
        ("@every 1h.5m1.s", HOUR + 31),
        ("@every 1500ms", 1),
        ("@every 1\u00b5s1\u03bcs", 1),
        ("@every -1h", 1),
        ("@every 0", 1),
        (f"@every {'0' * 100_000}1h{'0' * 100_000}.{'9' * 100_000}s", HOUR),
        ("@every 2562047h47m16.854775807s", 9223372036),  # the longest of Go's durations
    ],
)
def test_the_shortest_interval(schedule: str, seconds: int) -> None:
    assert shortest_interval(schedule) == seconds


@pytest.mark.parametrize(
    "schedule",
    [
        *("", "0 3", "60 * * * *", "* * 0 * *", "* * * * 7", "5-1 * * * *", "*/0 * * * *"),
        *("a * * * *", "@often", "@every", "@every 1", "@every 1h ", "@every .h"),
        *("@every \u0661h", "@every 2562047h47m16.854775808s", f"@every {'9' * 400}h"),
        *(f"@every {'9' * 200_000}x", f"@every {'1h' * 100_000}x"),
    ],
)
def test_what_kubernetes_refuses_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError):
        shortest_interval(schedule)
