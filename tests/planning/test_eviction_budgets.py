"""Budgets that let no pod be evicted, by what they keep of how many pods of which kind."""

import re
from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    Manifest,
    daemon_set,
    deployment,
    job,
    namespaced,
    pod,
    pool,
    stateful_set,
    template,
)

PODS = template({"app": "web"})
SERVER = deployment("web", 3, PODS)
ALONE = deployment("web", 1, PODS)
BARE = pod("web", PODS)


def budget(name: str = "b", selector: Any = None, **spec: Any) -> Manifest:
    selector = {"matchLabels": {"app": "web"}} if selector is None else selector
    return namespaced("policy/v1", "PodDisruptionBudget", name, spec={"selector": selector, **spec})


def reported(*objects: Manifest) -> list[str]:
    findings = judge_documents([*objects, pool("p", 4)]).findings
    return [each.object for each in findings if each.rule == "eviction-budget"]


@pytest.mark.parametrize(
    ("workload", "spec", "is_closed"),
    [
        (SERVER, {"minAvailable": 3}, True),
        (SERVER, {"minAvailable": 2}, False),
        (SERVER, {"minAvailable": "67%"}, True),
        (SERVER, {"minAvailable": "66%"}, False),
        (SERVER, {"maxUnavailable": 0}, True),
        (SERVER, {"maxUnavailable": "0%"}, True),
        (SERVER, {"maxUnavailable": "1%"}, False),
        (SERVER, {}, True),
        (SERVER, {"minAvailable": UNKNOWN}, False),
        (ALONE, {"minAvailable": 1}, True),
        (ALONE, {"maxUnavailable": 1}, False),
        (stateful_set("web", 2, PODS), {"minAvailable": 2}, True),
        (job("web", 2, PODS), {"maxUnavailable": 1}, True),
        (job("web", 2, PODS), {"minAvailable": 1}, False),
        (BARE, {"minAvailable": 0}, False),
        (BARE, {"minAvailable": "0%"}, True),
        (BARE, {"maxUnavailable": 1}, True),
        (daemon_set("web", PODS), {"maxUnavailable": 0}, False),
        (deployment("web", 0, PODS), {"maxUnavailable": 0}, False),
        (SERVER, {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "api"}}}, False),
        (SERVER, {"maxUnavailable": 0, "selector": {}}, True),
    ],
)
def test_a_budget_lets_a_pod_be_evicted(
    workload: Manifest, spec: dict[str, Any], is_closed: bool
) -> None:
    objects = reported(workload, budget(**spec))
    assert objects == ["PodDisruptionBudget team/b"] * is_closed


def test_a_pod_has_one_budget() -> None:
    two = [budget(maxUnavailable=1), budget("c", maxUnavailable=1)]
    assert reported(SERVER, *two) == ["Deployment team/web"]
    elsewhere = {**two[1], "metadata": {"name": "c", "namespace": "other"}}
    assert reported(SERVER, two[0], elsewhere) == []


@pytest.mark.parametrize("workload", [SERVER, ALONE, BARE, job("web", 2, PODS)])
@pytest.mark.parametrize(
    "spec", [{"minAvailable": 3}, {"minAvailable": "100%"}, {"maxUnavailable": 0}]
)
def test_the_fix_lets_a_pod_be_evicted(workload: Manifest, spec: dict[str, Any]) -> None:
    findings = judge_documents([workload, budget(**spec), pool("p", 4)]).findings
    [remedy] = [each.remedy for each in findings if each.rule == "eviction-budget"]
    fixed: dict[str, Any] = {"maxUnavailable": 1}
    if found := re.search(r"minAvailable to a number of at most (\d+)", remedy):
        fixed = {"minAvailable": int(found[1])}
    assert reported(workload, budget(**fixed)) == []


def test_bare_pods_may_go_if_others_are_counted() -> None:
    """The controller skips pods without an owner, and counts those that are healthy."""
    assert reported(ALONE, BARE, budget(maxUnavailable=0)) == []
    assert reported(job("web", 1, PODS), BARE, budget(maxUnavailable=1)) != []
