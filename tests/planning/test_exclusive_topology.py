"""JobSets whose Jobs have a topology domain each, alone."""

from typing import Any

import pytest
from ml_foundations.planning.verdict.program import judge_documents

PREFIX = "alpha.jobset.sigs.k8s.io/"


def node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def job_set(name: str, jobs: int, pods: int, cpu: str = "1", **annotations: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    job = {"parallelism": pods, "completions": pods, "template": {"spec": spec}}
    template = {
        "metadata": {"annotations": {f"{PREFIX}{key}": value for key, value in annotations.items()}},
        "spec": job,
    }
    replicated = [{"name": "w", "replicas": jobs, "template": template}]
    metadata = {"name": name, "annotations": {"ml-foundations/gang": "true"}}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    return {**kind, "spec": {"replicatedJobs": replicated}}


RACKS = [node(f"n{rack}{number}", {"rack": f"r{rack}"}) for rack in range(2) for number in range(2)]
ALONE = {"exclusive-topology": "rack"}


@pytest.mark.parametrize(
    ("job_sets", "expected"),
    [
        ([job_set("a", 2, 2, **ALONE)], "fits"),
        ([job_set("a", 3, 1, **ALONE)], "cannot-fit"),
        ([job_set("a", 3, 1)], "fits"),
        ([job_set("a", 1, 3, "3", **ALONE)], "cannot-fit"),
        ([job_set("a", 1, 3, "3")], "fits"),
        ([job_set("a", 1, 1, **ALONE), job_set("b", 1, 1, **ALONE)], "fits"),
        ([job_set(name, 1, 1, **ALONE) for name in "abc"], "cannot-fit"),
        ([job_set("a", 1, 1, **{"exclusive-topology": "row"})], "cannot-fit"),
        ([job_set("a", 1, 1, **ALONE, **{"node-selector": "true"})], "cannot-fit"),
    ],
)
def test_each_job_has_a_domain_alone(job_sets: list[dict[str, Any]], expected: str) -> None:
    assert judge_documents([*RACKS, *job_sets]).stack == expected


def test_a_job_runs_on_the_nodes_that_are_labelled_for_it() -> None:
    labelled = node("mine", {f"{PREFIX}namespaced-job": "default_a-w-0"})
    labelled["spec"] = {"taints": [{"key": f"{PREFIX}no-schedule", "value": "true", "effect": "NoSchedule"}]}
    train = job_set("a", 1, 1, **ALONE, **{"node-selector": "true"})
    assert judge_documents([*RACKS, labelled, train]).stack == "fits"


def test_an_annotation_of_the_whole_job_set_counts_for_each_job() -> None:
    train = job_set("a", 3, 1)
    train["metadata"]["annotations"][f"{PREFIX}exclusive-topology"] = "rack"
    assert judge_documents([*RACKS, train]).stack == "cannot-fit"


def test_jobs_that_do_not_wait_for_each_other_may_use_a_domain_in_turns() -> None:
    train = job_set("a", 3, 1, **ALONE)
    del train["metadata"]["annotations"]
    assert judge_documents([*RACKS, train]).stack == "undetermined"
