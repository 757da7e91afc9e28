"""Disruptions on a real control plane: drains, preemptions and failures of simulated nodes, as users see them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.support.cluster import Cluster
from tests.support.simulation import L4, Cloud, Object, clean, simulated_gke
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


def disrupt(cloud: Cloud, node: Object, how: str) -> None:
    annotations = {"rehearsal.ml-foundations/disrupted": how}
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    cloud.api.patch(path, {"metadata": {"annotations": annotations}})


def test_a_failed_node_is_not_ready_until_gke_repairs_it(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_NODE)
    cloud.run("lost", gpus=1)
    until(lambda: bool(cloud.running("lost")))
    [node] = cloud.nodes("l4")
    disrupt(cloud, node, "failure")

    def taints() -> set[str]:
        return {taint["key"] for node in cloud.nodes("l4") for taint in node["spec"]["taints"]}

    until(lambda: "node.kubernetes.io/unreachable" in taints())
    until(
        lambda: (
            {c["type"]: c for c in cloud.pods("run=lost")[0]["status"]["conditions"]}["Ready"][
                "status"
            ]
            == "False"
        )
    )
    until(
        lambda: (
            [each["metadata"]["name"] for each in cloud.nodes("l4")]
            not in ([], [node["metadata"]["name"]])
        )
    )
    until(lambda: not cloud.pods("run=lost"), "the pod garbage collector needs a minute")
    assert "node.kubernetes.io/unreachable" not in taints()


def test_a_node_is_drained_as_in_an_upgrade(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_NODE)
    until(lambda: len(cloud.nodes("l4")) == 1)
    [node] = cloud.nodes("l4")
    cloud.run("kept", gpus=1)
    until(lambda: bool(cloud.running("kept")))
    keep_running(cloud, "kept")
    disrupt(cloud, node, "drain")
    until(lambda: len(cloud.nodes("l4")) == 2, "a new node is there before the old one goes")
    cloud.api.delete(f"{BUDGETS}/keep-kept")
    until(
        lambda: (
            [each["metadata"]["name"] for each in cloud.nodes("l4")]
            not in ([], [node["metadata"]["name"]])
        )
    )


def test_a_node_ends_with_its_maximum_run_duration(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, max_run_seconds=8, shutdown_grace=2))
    cloud.run("long", gpus=1)
    until(lambda: bool(cloud.running("long")))
    [node] = cloud.nodes("l4")
    end = datetime.fromisoformat(
        node["metadata"]["annotations"]["node.gke.io/machine-termination-datetime"]
    )
    until(lambda: not cloud.running("long"))
    assert datetime.now(UTC) > end
    until(lambda: not cloud.nodes("l4"))
    time.sleep(2)
    assert not cloud.nodes("l4"), "no pod waits for a node"
    assert cloud.store.get("sizes", {})["l4"] == 0
