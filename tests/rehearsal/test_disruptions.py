"""Disruptions on a real control plane: drains, preemptions and failures of simulated nodes, as users see them."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ml_foundations.component.spec import check
from ml_foundations.kubernetes.labels import GKE_NODE_POOL, HOSTNAME
from ml_foundations.rehearsal import disruption
from ml_foundations.rehearsal.api import NODES, condition
from ml_foundations.rehearsal.cloud.autoscaler import Plan
from ml_foundations.rehearsal.cloud.node_pools import NodePoolController
from ml_foundations.rehearsal.cloud.nodes import new_node
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.disruption import disrupt
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.report import disruptions
from ml_foundations.rehearsal.report.disruptions import Disruption
from ml_foundations.rehearsal.tools.toolchain import Tools
from ml_foundations.tenancy import training_queue
from ml_foundations.tenancy.training_queue import TrainingQueueSpec

from tests.support.controlled import cluster_of
from tests.support.event_log import event_log
from tests.support.project import delete
from tests.support.project_steps import FOR_LONG
from tests.support.simulation import L4, ONE_L4, ZONES, Cloud, Object, clean
from tests.support.waiting import until
from tests.workloads import building

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB, GANG = "batch.kubernetes.io/job-name=train", "jobset.sigs.k8s.io/jobset-name=train"
RUN: dict[str, Any] = {
    **{"job_name": "train", "namespace": "default", "gpu": "L4", "cpu": "1", "memory": "1Gi"},
    **FOR_LONG,
}
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def cloud(plain_gke: Cloud) -> Iterator[Cloud]:
    yield plain_gke
    for budget in plain_gke.api.get(BUDGETS)["items"]:
        plain_gke.api.delete(f"{BUDGETS}/{budget['metadata']['name']}")
    clean(plain_gke)


def keep_running(cloud: Cloud, name: str, selector: dict[str, str]) -> None:
    """Forbid the eviction of a pod, and wait until Kubernetes counts it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": selector}}
    cloud.api.create(BUDGETS, {"metadata": {"name": f"keep-{name}"}, "spec": spec})

    def is_counted() -> bool:
        status = cloud.api.get(f"{BUDGETS}/keep-{name}").get("status", {})
        return status.get("currentHealthy") == 1

    until(is_counted)


def messages(cloud: Cloud, reason: str) -> list[str]:
    events = cloud.api.get("/api/v1/namespaces/default/events", fieldSelector=f"reason={reason}")
    return [event["message"] for event in events["items"]]


def test_a_node_whose_pool_goes_waits_for_a_disruption_budget(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_L4)
    cloud.run("kept", gpus=1)
    cloud.run("free", gpus=1)
    until(lambda: bool(cloud.running("kept") and cloud.running("free")))
    keep_running(cloud, "kept", {"run": "kept"})
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


def test_a_node_ends_with_its_maximum_run_duration(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, max_run_seconds=8, shutdown_grace=2))
    cloud.run("long", gpus=1)
    until(lambda: bool(cloud.running("long")))
    [node] = cloud.nodes("l4")
    end = node["metadata"]["annotations"]["node.gke.io/machine-termination-datetime"]
    until(lambda: not cloud.running("long"))
    assert datetime.now(UTC) > datetime.fromisoformat(end)
    until(lambda: not cloud.nodes("l4"))
    time.sleep(2)
    assert not cloud.nodes("l4"), "no pod waits for a node"
    assert cloud.store.get("sizes", {})["l4"] == 0


def test_a_stockout_keeps_the_nodes_that_run_and_replaces_none(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("first", gpus=2)
    until(lambda: bool(cloud.running("first")))
    [node] = [node["metadata"]["name"] for node in cloud.nodes("l4")]
    cloud.store.put("stock", {"l4": 0})
    try:
        cloud.run("second", gpus=2)
        sold_out = '"l4" is sold out in the stockout'
        until(lambda: sold_out in "".join(messages(cloud, "NotTriggerScaleUp")))
        time.sleep(2)
        [kept] = cloud.nodes("l4")
        assert kept["metadata"]["name"] == node and not kept["spec"].get("unschedulable")
        assert cloud.running("first")
        cloud.api.delete(f"/api/v1/nodes/{node}")
        until(lambda: not cloud.nodes("l4"))
        time.sleep(2)
        assert not cloud.nodes("l4"), "what is lost does not come back"
    finally:
        cloud.store.put("stock", {})


def test_a_node_that_goes_during_a_round_does_not_come_back_in_a_stockout(tmp_path: Path) -> None:
    """Its round began with the node, which is gone when the pool is brought to its size."""
    rehearsal = Rehearsal.at(tmp_path)
    store = Store(rehearsal)
    store.put("stock", {"l4": 0})
    node = new_node(L4, ZONES[0], None) | {"status": {}}
    seen = [defaultdict(list, l4=[node]), defaultdict[str, list[Object]](list)]
    pools = {"l4": store.available(L4, existing=1)}
    known = {"store": store, "pools": pools, "sizes": {"l4": 1}, "began": 0, "operator": None}
    api = Mock()
    cluster = cluster_of(api, rehearsal=rehearsal, daemon_sets=Mock(items=list), **known)
    cluster.nodes_by_pool = Mock(side_effect=seen)
    NodePoolController(cluster, lambda _: None, lambda _: Plan()).reconcile()
    assert not api.create.called, "the stockout gives no node"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"node": "gke-ml-l4-x"}, 'there is no simulated node "gke-ml-l4-x"'),
        ({"pool": "sytem"}, 'there is no pool "sytem". Did you mean system?'),
        (
            {"pool": "l4"},
            "pool l4 has no nodes now. Disrupt it while pods run there. To let Jobs run for an hour: ",
        ),
        ({"pool": "system", "how": "drain"}, "no pod runs on gke-ml-system-"),
        ({"pool": "system"}, "pool system has no Spot nodes to preempt"),
        (
            {"pool": "system", "how": "max-run-duration"},
            "pool system has no maximum run duration. Use --how failure or --how drain",
        ),
    ],
)
def test_a_disruption_that_cannot_be_is_refused(
    cloud: Cloud, given: dict[str, str], error: str
) -> None:
    cloud.store.save_pool(L4)
    with pytest.raises(RehearsalError, match=re.escape(error)):
        take_away(cloud, **given)


def existing(nodes: set[str], events: list[Object]) -> list[set[str]]:
    """The nodes that there were before the first event, and after any."""
    states = [nodes]
    for event in events:
        node = uids([event["object"]])
        states.append(states[-1] - node if event["type"] == "DELETED" else states[-1] | node)
    return states


def blue_green(**rollout: Any) -> dict[str, Any]:
    return {"strategy": "BLUE_GREEN", "blueGreenSettings": {"standardRolloutPolicy": rollout}}


UPGRADES: dict[str, tuple[dict[str, Any], int, set[int]]] = {
    "one after another, the new node first": ({}, 3, {3, 4}),
    "one after another, without a new node": ({"maxSurge": 0, "maxUnavailable": 1}, 3, {2, 3}),
    "two at once, one of them with a new node": (
        {"maxSurge": 1, "maxUnavailable": 1},
        3,
        {2, 3, 4},
    ),
    "all new nodes first, then all at once": (blue_green(batchNodeCount=3), 1, {3, 4, 5, 6}),
    "all new nodes first, then half": (blue_green(batchPercentage=0.5), 2, {3, 4, 5, 6}),
}
"""By upgradeSettings: how often a gang on three nodes restarts at most, and how many nodes there may be meanwhile."""


@pytest.mark.parametrize("case", UPGRADES)
def test_an_upgrade_replaces_nodes_as_the_pool_declares(
    cloud: Cloud, jobset: None, case: str
) -> None:
    settings, restarts, sizes = UPGRADES[case]
    resource = {"inputs": {"upgradeSettings": settings}}
    with running_gang(cloud, checkpoint_seconds=900, pool=replace(GANG_POOL, resource=resource)):
        before = uids(cloud.nodes("spot"))
        with event_log(cloud.api, NODES, labelSelector=f"{GKE_NODE_POOL}=spot") as events:
            result = take_away(cloud, pool="spot", how="upgrade")
            after = uids(cloud.nodes("spot"))
            until(lambda: existing(before, events)[-1] == after)
        assert not result.not_as_before
        assert after.isdisjoint(before)
        counts = set(map(len, existing(before, events)))
        assert len(after) == 3
        assert 1 <= result.restarts["JobSet default/train"] <= restarts
        # Of two nodes that go at once, one may be gone, and its successor there, before the other.
        are_two = case.startswith("two at once")
        assert counts <= sizes if are_two else counts == sizes
        times = result.restarts["JobSet default/train"]
        assert f"at most {900 * times} s of 6 GPUs" in "\n".join(result.losses)


def test_gke_drains_no_flex_start_node_for_an_upgrade(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(ONE_L4, flex_start=True))
    until(lambda: len(cloud.nodes("l4")) == 1)
    with pytest.raises(RehearsalError, match="drains no node of flex-start"):
        take_away(cloud, pool="l4", how="upgrade")


def take_away(cloud: Cloud, node: str = "", pool: str = "", how: str = "preemption") -> Disruption:
    result = disrupt(cloud.rehearsal, node=node, pool=pool, how=how, after=0)
    assert disruptions.last(cloud.rehearsal) == result
    return result


@pytest.fixture
def job(cloud: Cloud) -> Iterator[Cloud]:
    """A TrainingJob with a GPU that runs for long."""
    cloud.store.save_pool(replace(L4, labels=PRODUCT, max_run_seconds=3600, shutdown_grace=2))
    manifest = building.job(**RUN, gpus=1)
    cloud.api.create(JOBS, manifest)
    until(lambda: bool(running_of(cloud, JOB)))
    yield cloud
    cloud.api.delete(f"{JOBS}/train", propagationPolicy="Foreground")
    until(lambda: cloud.api.find(f"{JOBS}/train") is None)


def running_of(cloud: Cloud, selector: str) -> list[Object]:
    return [pod for pod in cloud.pods(selector) if pod["status"]["phase"] == "Running"]


def test_a_drain_waits_for_a_disruption_budget_and_then_the_job_goes_on(job: Cloud) -> None:
    [node], [pod] = job.nodes("l4"), running_of(job, JOB)
    keep_running(job, "kept", {"batch.kubernetes.io/job-name": "train"})
    result = take_away(job, pool="l4", how="drain")
    assert result.pods_ended == 0
    [reason] = result.not_as_before
    assert reason.startswith(f"the drain waits for pod default/{pod['metadata']['name']}: ")
    assert "The disruption budget keep-kept needs 1 healthy pods" in reason
    assert len(job.nodes("l4")) == 2, "the new node is there before the old one goes"
    job.api.delete(f"{BUDGETS}/keep-kept")
    until(lambda: uids(job.nodes("l4")).isdisjoint(uids([node])), "the drain goes on")
    until(lambda: len(running_of(job, JOB)) == 1)
    assert not job.api.get(f"{JOBS}/train")["status"].get("failed"), "an eviction is no failure"


def test_a_job_goes_on_after_the_end_of_its_nodes_run_time(job: Cloud) -> None:
    [node] = job.nodes("l4")
    result = take_away(job, node=node["metadata"]["name"], how="max-run-duration")
    assert (result.pods_ended, result.restarts, result.not_as_before) == (1, {}, [])
    [new] = job.nodes("l4")
    assert running_of(job, JOB)[0]["spec"]["nodeName"] == new["metadata"]["name"]
    assert uids([new]).isdisjoint(uids([node]))


def test_gke_does_not_repair_every_pool(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of flex-start nodes must be without repairs: its failed node stays, and so do its pods."""
    monkeypatch.setattr(disruption, "_PATIENCE_SECONDS", 14)
    resource = {"inputs": {"management": {"autoRepair": False}}}
    cloud.store.save_pool(replace(ONE_L4, resource=resource))
    cloud.run("lost", gpus=1)
    until(lambda: bool(cloud.running("lost")))
    [node] = cloud.nodes("l4")
    result = take_away(cloud, pool="l4", how="failure")
    assert result.not_as_before == [
        "Pod default/lost-0: 0 of 1 pod run",
        f"node {node['metadata']['name']} stays: its pool has auto_repair: false",
    ]
    assert uids(cloud.nodes("l4")) == uids([node])


def uids(objects: list[Object]) -> set[str]:
    return {item["metadata"]["uid"] for item in objects}


PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-L4"}
THREE = {"min_nodes": 3, "max_nodes": 3, "initial_nodes": 3}
GANG_POOL = replace(L4, name="spot", labels=PRODUCT, spot=True, shutdown_grace=2, **THREE)
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


@pytest.fixture(scope="module")
def jobset(plain_gke: Cloud, tools: Tools) -> Iterator[None]:
    """JobSet's controller next to the simulated GKE. It goes with the module: other tests do without its webhooks."""
    controllers.start(plain_gke.rehearsal, tools, controllers.JOBSET, {})
    yield
    controllers.remove(plain_gke.rehearsal, tools, controllers.JOBSET)


@contextmanager
def running_gang(cloud: Cloud, pool: Pool | None = None, **more: Any) -> Iterator[Cloud]:
    """A JobSet of three pods, each with the two GPUs of a Spot node, that run for long."""
    cloud.store.save_pool(pool or GANG_POOL)
    [manifest] = building.gang(**RUN, gpus=2, nodes=3, jobset=True, **more)
    cloud.api.create(JOB_SETS, manifest)
    try:
        until(lambda: len(running_of(cloud, GANG)) == 3)
        yield cloud
    finally:
        cloud.api.delete(f"{JOB_SETS}/train", propagationPolicy="Foreground")
        until(lambda: cloud.api.find(f"{JOB_SETS}/train") is None)


@pytest.fixture
def gang(cloud: Cloud, jobset: None) -> Iterator[Cloud]:
    with running_gang(cloud, checkpoint_seconds=900) as running:
        yield running


@pytest.fixture
def queued_gang(cloud: Cloud, jobset: None, tools: Tools) -> Iterator[Cloud]:
    """The same, in a queue with a topology. Kueue assigns its pods to nodes."""
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    flavor = {"name": "l4", "gpu": "L4", "tolerations": tolerations}
    team = {"namespace": "default", "cpu": "64", "memory": "256Gi", "gpus": {"l4": 6}}
    args = {"cohort": "ml", "flavors": [flavor], "teams": [team], "topology": ["hostname"]}
    spec = check(TrainingQueueSpec, "TrainingQueue", args)
    controllers.start(cloud.rehearsal, tools, controllers.KUEUE, training_queue._chart_values(spec))
    kueue = Client(cloud.api)
    for manifest in spec.manifests():
        kueue.create(manifest)
    try:
        with running_gang(cloud, queue=spec.queue_name) as running:
            yield running
    finally:
        for manifest in reversed(spec.manifests()):
            delete(kueue, manifest)
        controllers.remove(cloud.rehearsal, tools, controllers.KUEUE)


def test_a_preempted_node_restarts_its_gang_once(gang: Cloud) -> None:
    node = running_of(gang, GANG)[0]["spec"]["nodeName"]
    result = take_away(gang, node=node)
    assert result.nodes == [node]
    assert result.restarts == {"JobSet default/train": 1}
    assert result.pods_ended == 3
    assert not result.not_as_before
    assert len({pod["spec"]["nodeName"] for pod in running_of(gang, GANG)} - {node}) == 3
    # The lost node costs nothing until there is a new one.
    assert result.idle_gpus in (4, 6)
    assert 0 < result.idle_gpu_seconds < 6 * result.seconds
    [restart, move] = result.reports
    assert restart.startswith("JobSet train: RestartJobSetFailurePolicyAction: ")
    assert move.startswith(f"JobSet default/train moved from {node} to gke-ml-spot-")
    lines = "\n".join(result.lines)
    assert "JobSet default/train restarted 1 time" in lines
    assert f"{result.idle_gpus} GPUs were idle" in lines
    lost = "JobSet default/train loses its work since the last checkpoint, at most 900 s of 6 GPUs"
    assert re.search(rf"{lost}: USD \d\.\d\d$", lines, re.MULTILINE)
    assert "less than USD 0.01. Each minute in which GKE has no new node costs USD 0.0" in lines


def readiness(events: list[Object]) -> list[str]:
    return [condition(event["object"], "Ready")["status"] for event in events]


def test_kueue_replaces_a_failed_node_and_the_gang_restarts(queued_gang: Cloud) -> None:
    lost = running_of(queued_gang, GANG)[0]["spec"]["nodeName"]
    of_lost = f"{HOSTNAME}={lost}"
    with event_log(queued_gang.api, NODES, labelSelector=of_lost) as events:
        result = take_away(queued_gang, node=lost, how="failure")
        until(lambda: "Unknown" in readiness(events))
    changes = [state for state, _ in groupby(readiness(events))]
    assert changes == ["True", "Unknown"], "its kubelet is silent"
    assert result.restarts == {"JobSet default/train": 1}
    assert (result.pods_ended, result.not_as_before) == (3, [])
    assert lost not in {pod["spec"]["nodeName"] for pod in running_of(queued_gang, GANG)}
    assert result.reports[-1].startswith(f"JobSet default/train moved from {lost} to ")


LWS = "leaderworkerset.sigs.k8s.io"


@pytest.mark.parametrize(
    ("labels", "owner", "named"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "llama"}, "Job", "JobSet ml/llama"),
        (
            {f"{LWS}/name": "r1", f"{LWS}/group-index": "0"},
            "StatefulSet",
            "LeaderWorkerSet ml/r1 (group 0)",
        ),
        ({"pod-template-hash": "5d9f8c7b64"}, "ReplicaSet", "Deployment ml/made"),
        ({}, "StatefulSet", "StatefulSet ml/made-1"),
    ],
)
def test_pods_are_named_by_what_restarts_as_a_whole(
    labels: dict[str, str], owner: str, named: str
) -> None:
    owners = [{"kind": owner, "name": "made-1"}]
    metadata = {"namespace": "ml", "name": "a", "labels": labels, "ownerReferences": owners}
    assert disruptions.workload_of({"metadata": metadata}) == named
