"""JobSets whose Jobs have a topology domain each, alone."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, judge
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import cluster_wide
from tests.planning.job_sets import ALONE, PREFIX, RACKS, job_set, node


def judged(*documents: dict[str, Any]) -> str:
    return judge_documents([*RACKS, *documents]).stack


@pytest.mark.parametrize(
    ("job_sets", "expected"),
    [
        ([job_set("a", 2, 2, **ALONE)], "fits"),
        ([job_set("a", 3, 1, **ALONE)], "cannot-fit"),
        ([job_set("a", 3, 1)], "fits"),
        ([job_set("a", 1, 3, "3", **ALONE)], "cannot-fit"),
        ([job_set("a", 1, 3, "3")], "fits"),
        ([job_set("a", 1, 1, **ALONE), job_set("b", 1, 1, **ALONE)], "fits"),
        # Those that come first end, and make room.
        ([job_set(name, 1, 1, **ALONE) for name in "abc"], "undetermined"),
        ([job_set("a", 1, 1, **{"exclusive-topology": "row"})], "cannot-fit"),
        ([job_set("a", 1, 1, **ALONE, **{"node-selector": "true"})], "cannot-fit"),
    ],
)
def test_each_job_has_a_domain_alone(job_sets: list[dict[str, Any]], expected: str) -> None:
    assert judged(*job_sets) == expected


def test_a_job_runs_on_the_nodes_that_are_labelled_for_it() -> None:
    labelled = node("mine", {f"{PREFIX}namespaced-job": "default_a-w-0"})
    taint = {"key": f"{PREFIX}no-schedule", "value": "true", "effect": "NoSchedule"}
    labelled["spec"] = {"taints": [taint]}
    assert judged(labelled, job_set("a", 1, 1, **ALONE, **{"node-selector": "true"})) == "fits"


@pytest.mark.parametrize(("value", "expected"), [("rack", "cannot-fit"), (UNKNOWN, "undetermined")])
def test_an_annotation_of_the_whole_job_set_counts_for_each_job(value: Any, expected: str) -> None:
    train = job_set("a", 3, 1)
    train["metadata"]["annotations"] |= {f"{PREFIX}exclusive-topology": value}
    assert judged(train) == expected


def pods_of(train: dict[str, Any]) -> dict[str, Any]:
    """The template of the pods of the first Jobs of a JobSet."""
    return train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def test_an_annotation_of_the_pods_counts_too() -> None:
    train = job_set("a", 3, 1)
    pods_of(train)["metadata"] = {"annotations": {f"{PREFIX}exclusive-topology": "rack"}}
    assert judged(train) == "cannot-fit"
    pods_of(train)["metadata"]["annotations"][f"{PREFIX}node-selector"] = ""
    assert judged(train) == "fits"


def test_the_other_strategy_counts_if_both_annotations_are_set() -> None:
    """The controller copies ``node-selector`` from a holder of ``exclusive-topology`` only."""
    train = job_set("a", 2, 1, **ALONE)
    train["metadata"]["annotations"] |= {f"{PREFIX}node-selector": ""}
    assert judged(train) == "fits"


@pytest.mark.parametrize(
    ("annotations", "mode", "expected"),
    [(ALONE, "NonIndexed", "cannot-fit"), (ALONE, "Indexed", "fits"), ({}, "NonIndexed", "fits")],
)
def test_exclusive_jobs_have_a_pod_of_index_0(
    annotations: dict[str, str], mode: str, expected: str
) -> None:
    train = job_set("a", 1, 2, **annotations)
    train["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] = mode
    found = judge_documents([*RACKS, train])
    assert found.stack == expected
    path = "spec.replicatedJobs[0].template.spec.completionMode"
    paths = [each.path for each in found.workloads[0].reasons]
    assert paths == [path] * (expected == "cannot-fit")


def of_class(train: dict[str, Any], name: str) -> dict[str, Any]:
    pods_of(train)["spec"]["priorityClassName"] = name
    return train


def priority_class(name: str, value: int) -> dict[str, Any]:
    fields = {"value": value, "preemptionPolicy": "Never"}
    return cluster_wide("scheduling.k8s.io/v1", "PriorityClass", name, **fields)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"x": 1, "y": 1, "z": 1}, "undetermined"),
        ({"x": 0, "y": 0}, "undetermined"),
        ({}, "undetermined"),
        ({"x": 1, "y": 2, "z": 3}, "fits"),
        ({"x": 1, "y": 1, "z": 2}, "fits"),
    ],
)
def test_jobs_of_classes_with_one_value_repel_each_other(
    values: dict[str, int], expected: str
) -> None:
    """Classes that are not declared may have any value."""
    classes = [priority_class(*each) for each in values.items()]
    trains = [of_class(job_set(f"of-{name}", 1, 1, **ALONE), name) for name in "xyz"]
    assert judged(*classes, *trains) == expected


def mixed(jobs: int, **annotations: str) -> dict[str, Any]:
    """A JobSet with exclusive workers, and with drivers."""
    train = job_set("a", jobs, 1, **ALONE)
    (driver,) = job_set("a", 1, 1, **annotations)["spec"]["replicatedJobs"]
    train["spec"]["replicatedJobs"].append({**driver, "name": "driver"})
    return train


def test_exclusive_jobs_repel_the_others_of_their_set() -> None:
    """All pods of JobSets have a job key, by which the pods of exclusive Jobs repel them."""
    assert judged(mixed(1)) == "fits"
    assert judged(mixed(2)) == "cannot-fit"
    assert judged(job_set("b", 2, 1, **ALONE), job_set("c", 1, 1)) == "undetermined"
    train = mixed(1)
    train["spec"]["replicatedJobs"][1]["replicas"] = 2
    assert judged(train) == "undetermined", "the drivers may take both racks"
    assert judged(node("n2", {"rack": "r2"}), train) == "fits"


def test_the_first_pod_may_choose_a_domain_that_is_too_small() -> None:
    nodes = [
        node(name, {"rack": rack}) for name, rack in (("n0", "r0"), ("n10", "r1"), ("n11", "r1"))
    ]
    assert judge_documents([*nodes, job_set("a", 1, 2, "3", **ALONE)]).stack != "fits"


def test_workers_that_wait_for_drivers_have_all_domains() -> None:
    train = mixed(2)
    train["metadata"]["annotations"] = {}
    workers, driver = train["spec"]["replicatedJobs"]
    train["spec"]["replicatedJobs"] = [driver, workers]
    assert judged(train) == "undetermined"
    workers["dependsOn"] = [{"name": "driver", "status": "Complete"}]
    assert judged(train) == "fits"
    workers["replicas"] = 3
    assert judged(train) == "undetermined"


def test_jobs_that_need_not_run_together_may_take_turns() -> None:
    train = job_set("a", 3, 1, **ALONE)
    train["metadata"]["annotations"] = {}
    assert judged(train) == "undetermined"


def test_pods_that_select_the_nodes_of_their_job_name_the_annotation_for_it() -> None:
    train = job_set("a", 1, 1, **ALONE, **{"node-selector": "true"})
    (reason,) = judge([*RACKS, train]).workloads[0].reasons
    assert reason.path.endswith(f"annotations.{PREFIX}node-selector")
    assert (
        f"leave it out, or label nodes with {PREFIX}namespaced-job=default_a-w-0" in reason.remedy
    )


def test_jobs_of_one_job_set_that_compete_have_no_separate_pools() -> None:
    train = job_set("a", 3, 1, **ALONE)
    train["metadata"]["annotations"] = {}
    reasons = {reason.rule: reason for reason in judge([*RACKS, train]).reasons}
    competition = reasons["competition"]
    assert competition.object == "JobSet default/a"
    assert competition.message.startswith("its pods run at the same time")
    assert "separate pools" not in competition.remedy
