"""Disruptions on a real control plane: drains, preemptions and failures of simulated nodes, as users see them."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.cluster import Cluster
from tests.support.simulation import L4, Cloud, clean, simulated_gke
from tests.support.waiting import until

ONE_NODE = replace(L4, min_nodes=1, initial_nodes=1)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Cloud]:
    with simulated_gke(cluster) as cloud:
        yield cloud


@pytest.fixture
def cloud(running: Cloud) -> Iterator[Cloud]:
    yield running
    for budget in running.api.get(BUDGETS)["items"]:
        running.api.delete(f"{BUDGETS}/{budget['metadata']['name']}")
    clean(running)


def keep_running(cloud: Cloud, name: str) -> None:
    """Forbid the eviction of the pods of a run, and wait until Kubernetes counts them."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"run": name}}}
    cloud.api.create(BUDGETS, {"metadata": {"name": f"keep-{name}"}, "spec": spec})

    def is_counted() -> bool:
        status = cloud.api.get(f"{BUDGETS}/keep-{name}").get("status", {})
        return status.get("currentHealthy") == 1

    until(is_counted)


def messages(cloud: Cloud, reason: str) -> list[str]:
    events = cloud.api.get("/api/v1/namespaces/default/events", fieldSelector=f"reason={reason}")
    return [event["message"] for event in events["items"]]


def test_a_node_whose_pool_goes_waits_for_a_disruption_budget(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_NODE)
    cloud.run("kept", gpus=1)
    cloud.run("free", gpus=1)
    until(lambda: bool(cloud.running("kept") and cloud.running("free")))
    keep_running(cloud, "kept")
    cloud.store.delete("node_pools", "l4")
    until(lambda: not cloud.pods("run=free"), "no budget keeps this pod")
    expected = "The disruption budget keep-kept needs 1 healthy pods and has 1 currently"
    until(lambda: any(expected in message for message in messages(cloud, "EvictionBlocked")))
    time.sleep(2)
    assert cloud.running("kept")
    [node] = cloud.nodes("l4")
    assert node["spec"]["unschedulable"]
    cloud.api.delete(f"{BUDGETS}/keep-kept")
    until(lambda: not cloud.nodes("l4") and not cloud.pods("run=kept"))
