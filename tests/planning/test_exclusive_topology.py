"""JobSets whose Jobs have a topology domain each, alone."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.verdict.program import judge_documents

from tests.planning.job_sets import ALONE, PREFIX, RACKS, job_set, node


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
    assert judge_documents([*RACKS, *job_sets]).stack == expected


def test_a_job_runs_on_the_nodes_that_are_labelled_for_it() -> None:
    labelled = node("mine", {f"{PREFIX}namespaced-job": "default_a-w-0"})
    labelled["spec"] = {
        "taints": [{"key": f"{PREFIX}no-schedule", "value": "true", "effect": "NoSchedule"}]
    }
    train = job_set("a", 1, 1, **ALONE, **{"node-selector": "true"})
    assert judge_documents([*RACKS, labelled, train]).stack == "fits"


def test_an_annotation_of_the_whole_job_set_counts_for_each_job() -> None:
    train = job_set("a", 3, 1)
    train["metadata"]["annotations"] |= {f"{PREFIX}exclusive-topology": "rack"}
    assert judge_documents([*RACKS, train]).stack == "cannot-fit"


def test_an_annotation_of_the_pods_counts_too() -> None:
    train = job_set("a", 3, 1)
    pods = train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods["metadata"] = {"annotations": {f"{PREFIX}exclusive-topology": "rack"}}
    assert judge_documents([*RACKS, train]).stack == "cannot-fit"
    pods["metadata"]["annotations"][f"{PREFIX}node-selector"] = ""
    assert judge_documents([*RACKS, train]).stack == "fits"


def test_the_other_strategy_counts_if_both_annotations_are_set() -> None:
    """The controller copies ``node-selector`` from a holder of ``exclusive-topology`` only."""
    train = job_set("a", 2, 1, **ALONE)
    train["metadata"]["annotations"] |= {f"{PREFIX}node-selector": ""}
    assert judge_documents([*RACKS, train]).stack == "fits"


@pytest.mark.parametrize(
    ("annotations", "mode", "expected"),
    [(ALONE, "NonIndexed", "cannot-fit"), (ALONE, "Indexed", "fits"), ({}, "NonIndexed", "fits")],
)
def test_exclusive_jobs_have_a_pod_of_index_0(
    annotations: dict[str, str], mode: str, expected: str
) -> None:
    train = job_set("a", 1, 2, **annotations)
    train["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] = mode
    judged = judge_documents([*RACKS, train])
    assert judged.stack == expected
    paths = [each.path for each in judged.workloads[0].reasons]
    assert paths == ["spec.replicatedJobs[0].template.spec.completionMode"] * (
        expected == "cannot-fit"
    )


def of_class(train: dict[str, Any], name: str) -> dict[str, Any]:
    train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "priorityClassName"
    ] = name
    return train


def priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "Never",
    }


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
    assert judge_documents([*RACKS, *classes, *trains]).stack == expected


def mixed(jobs: int, **annotations: str) -> dict[str, Any]:
    """A JobSet with exclusive workers, and with drivers."""
    train = job_set("a", jobs, 1, **ALONE)
    (driver,) = job_set("a", 1, 1, **annotations)["spec"]["replicatedJobs"]
    train["spec"]["replicatedJobs"].append({**driver, "name": "driver"})
    return train


def test_exclusive_jobs_repel_the_others_of_their_set() -> None:
    """All pods of JobSets have a job key, by which the pods of exclusive Jobs repel them."""
    assert judge_documents([*RACKS, mixed(1)]).stack == "fits"
    assert judge_documents([*RACKS, mixed(2)]).stack == "cannot-fit"
    assert (
        judge_documents([*RACKS, job_set("b", 2, 1, **ALONE), job_set("c", 1, 1)]).stack
        == "undetermined"
    )
    train = mixed(1)
    train["spec"]["replicatedJobs"][1]["replicas"] = 2
    assert (
        judge_documents([*RACKS, train]).stack == "undetermined"
    )  # the drivers may take both racks
    assert judge_documents([*RACKS, node("n2", {"rack": "r2"}), train]).stack == "fits"


def test_the_first_pod_may_choose_a_domain_that_is_too_small() -> None:
    nodes = [
        node("n0", {"rack": "r0"}),
        *(node(f"n1{number}", {"rack": "r1"}) for number in range(2)),
    ]
    assert judge_documents([*nodes, job_set("a", 1, 2, "3", **ALONE)]).stack != "fits"


def test_an_annotation_that_is_not_known_yet() -> None:
    train = job_set("a", 3, 1)
    train["metadata"]["annotations"] |= {f"{PREFIX}exclusive-topology": UNKNOWN}
    assert judge_documents([*RACKS, train]).stack == "undetermined"


def test_workers_that_wait_for_drivers_have_all_domains() -> None:
    train = mixed(2)
    train["metadata"]["annotations"] = {}
    workers, driver = train["spec"]["replicatedJobs"]
    train["spec"]["replicatedJobs"] = [driver, workers]
    assert judge_documents([*RACKS, train]).stack == "undetermined"
    workers["dependsOn"] = [{"name": "driver", "status": "Complete"}]
    assert judge_documents([*RACKS, train]).stack == "fits"
    workers["replicas"] = 3
    assert judge_documents([*RACKS, train]).stack == "undetermined"


def test_jobs_that_need_not_run_together_may_take_turns() -> None:
    train = job_set("a", 3, 1, **ALONE)
    train["metadata"]["annotations"] = {}
    assert judge_documents([*RACKS, train]).stack == "undetermined"
