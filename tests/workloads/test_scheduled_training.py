"""ScheduledTraining: a CronJob whose runs end before the next one begins."""

from typing import Any

import pytest
from ml_foundations import ScheduledTraining

from tests.support.declaring import declared
from tests.workloads.building import WORKLOAD, cron


def test_the_defaults_skip_a_run_that_would_meet_another() -> None:
    spec = cron()["spec"]
    assert {key: value for key, value in spec.items() if key != "jobTemplate"} == {
        "schedule": "0 3 * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 600,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 3,
    }
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 1


@pytest.mark.parametrize(
    ("schedule", "deadline"), [("0 3 * * *", 77760), ("*/10 * * * *", 540), ("0 3 * * 0", 544320)]
)
def test_a_run_has_nine_tenths_of_the_interval_by_default(schedule: str, deadline: int) -> None:
    job = cron(schedule=schedule)["spec"]["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] == deadline


def test_the_deadline_and_the_pause_of_the_user_are_taken() -> None:
    spec = cron(active_deadline_seconds=3600, suspend=True, concurrency_policy="Replace")["spec"]
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3600
    assert (spec["suspend"], spec["concurrencyPolicy"]) == (True, "Replace")


def test_jobs_may_delete_themselves_for_nobody_makes_them_again() -> None:
    job = cron(ttl_seconds_after_finished=60)["spec"]["jobTemplate"]["spec"]
    assert job["ttlSecondsAfterFinished"] == 60


def test_a_rename_ends_the_old_schedule_first() -> None:
    args: Any = WORKLOAD | {"schedule": "@daily"}
    assert declared(lambda: ScheduledTraining("x", args))["x-cron"].deleteBeforeReplace
