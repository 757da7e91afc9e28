"""TrainingJob and Task: retries, waiting, and what Pulumi is told about them."""

from typing import Any

import pytest
from ml_foundations import Task, TrainingJob

from tests.support.declaring import declared, inputs
from tests.workloads.building import WORKLOAD, job, pod

IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def fatal(*codes: int) -> dict[str, Any]:
    of_main = {"containerName": "main", "operator": "In", "values": [*codes]}
    return {"action": "FailJob", "onExitCodes": of_main}


COUNTED = fatal(4) | {"action": "Count"}


@pytest.mark.parametrize(
    ("args", "rules"),
    [
        ({}, [IGNORED]),
        ({"ignore_disruptions": False}, None),
        ({"restart_policy": "OnFailure"}, None),
        ({"fail_on_exit_codes": [3, 1, 3]}, [fatal(1, 3), IGNORED]),
        ({"fail_on_exit_codes": [1], "ignore_disruptions": False}, [fatal(1)]),
        ({"fail_on_exit_codes": [1], "pod_failure_rules": [COUNTED]}, [fatal(1), COUNTED, IGNORED]),
    ],
)
def test_disruptions_are_not_failures_of_a_job(args: dict[str, Any], rules: Any) -> None:
    assert job(**args)["spec"].get("podFailurePolicy") == (rules and {"rules": rules})


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        ({}, 3),
        ({"backoff_limit": 0}, 0),
        ({"indexed": True, "backoff_limit_per_index": 1}, None),
        ({"indexed": True, "backoff_limit_per_index": 1, "backoff_limit": 5}, 5),
    ],
)
def test_failures_are_counted_once(args: dict[str, Any], limit: int | None) -> None:
    assert job(**args)["spec"].get("backoffLimit") == limit


def declared_job(**more: Any) -> Any:
    args: Any = WORKLOAD | more
    return declared(lambda: TrainingJob("x", args))["x-job"]


def test_what_it_trains_is_in_annotations() -> None:
    trained = declared_job(
        model="Qwen/Qwen3-8B", method="lora", sharding="zero2", annotations={"team": "a"}
    )
    assert inputs(trained)["spec"]["template"]["metadata"]["annotations"] == {
        "ml-foundations/model": "Qwen/Qwen3-8B",
        "ml-foundations/training-method": "lora",
        "ml-foundations/training-sharding": "zero2",
        "team": "a",
    }


def test_a_suspended_job_is_left_to_its_controller() -> None:
    suspended = declared_job(overrides={"Job": {"spec": {"suspend": True}}})
    assert inputs(suspended)["spec"]["suspend"] is True
    assert list(suspended.ignoreChanges) == ["spec.suspend"]
    queued = declared_job(queue="research")
    assert "suspend" not in inputs(queued)["spec"]
    assert list(queued.ignoreChanges) == []


def test_an_elastic_job_ignores_its_parallelism() -> None:
    assert list(declared_job(elastic=True).ignoreChanges) == ["spec.parallelism"]


def test_a_deletion_may_take_as_long_as_a_checkpoint() -> None:
    assert declared_job(grace_seconds=600).customTimeouts.delete == "900s"


def test_a_job_that_is_waited_for_is_made_anew_after_it_failed() -> None:
    awaited = declared_job(wait_for_completion=True, active_deadline_seconds=3600)
    assert inputs(awaited)["metadata"]["annotations"] == {"pulumi.com/replaceUnready": "true"}
    assert awaited.customTimeouts.create == "3660s"


def test_a_claim_of_gpus_is_there_before_the_job() -> None:
    args: Any = WORKLOAD | {"gpus": 1, "gpu_claim": {}}
    requests = declared(lambda: TrainingJob("x", args))
    assert any(urn.endswith("::x-gpu-claim") for urn in requests["x-job"].dependencies)


def test_a_task_is_a_pod_that_any_change_runs_again() -> None:
    args: Any = WORKLOAD | {"command": ["nvidia-smi"], "gpu": "L4", "gpus": 1}
    made = declared(lambda: Task("x", args))["x-pod"]
    assert inputs(made)["spec"]["restartPolicy"] == "Never"
    assert inputs(made)["spec"]["activeDeadlineSeconds"] == 600
    assert made.deleteBeforeReplace
    assert list(made.replaceOnChanges) == ["spec"]


@pytest.mark.parametrize(
    ("wait", "path"), [(False, "{.metadata.uid}"), (True, "{.status.phase}=Succeeded")]
)
def test_a_task_is_awaited_only_if_configured(wait: bool, path: str) -> None:
    annotations = pod(wait_for_completion=wait)["metadata"]["annotations"]
    assert annotations == {"pulumi.com/waitFor": f"jsonpath={path}"}
