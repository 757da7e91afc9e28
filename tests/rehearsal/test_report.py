"""The report's rows: what each kind of workload comes to."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog.pools import CLUSTER, NODE_POOL, PoolGpu
from ml_foundations.kubernetes.labels import GKE_NODE_POOL, GPU_RESOURCE
from ml_foundations.kubernetes.objects import name_of
from ml_foundations.planning.input.iam import GOOGLE_ACCOUNT
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import contents, disruptions, fleet, tables, workloads
from ml_foundations.rehearsal.report.contents import Report
from ml_foundations.rehearsal.report.disruptions import Disruption
from ml_foundations.rehearsal.report.purchases import Purchase
from ml_foundations.rehearsal.report.workloads import Workload
from rich.console import Console

from tests.support.cluster import Cluster
from tests.support.deployed import shop
from tests.support.waiting import until

NAMESPACE = "reported"
POD = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {GPU_RESOURCE: "1"}}}]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": POD}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    api = Api(Access(cluster.kubeconfig))
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    until(lambda: api.find(account) is not None)
    yield api
    # A pod that is left would make the pools of other tests grow.
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    until(lambda: NAMESPACE not in map(name_of, api.get("/api/v1/namespaces")["items"]))


def report_of(*rows: Workload, **more: Any) -> Report:
    return replace(Report("dev", [], [*rows], [], [], []), **more)


def shown(report: Report, folder: Path) -> str:
    """What the tables of a report come to in a log."""
    console = Console(width=160, record=True, file=StringIO())
    tables.show(report, Rehearsal.of("dev", folder), console)
    return console.export_text()


def rows(cluster: Cluster) -> dict[str, tuple[str, bool]]:
    """The state of each workload, and whether it keeps the rehearsal from being well."""
    seen = contents.collect(cluster.rehearsal)
    return {
        item.kind: (item.state, item in seen.unwell)
        for item in seen.workloads
        if item.namespace == NAMESPACE
    }


def test_a_suspended_cron_job_is_well(api: Api, cluster: Cluster) -> None:
    runs = {"spec": {"template": {"spec": POD | {"restartPolicy": "Never"}}}}
    spec = {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": runs}
    api.create(
        f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs",
        {"metadata": {"name": "nightly"}, "spec": spec},
    )
    assert rows(cluster)["CronJob"] == ("Suspended", False)


def test_a_replica_set_of_ones_own_is_a_workload(api: Api, cluster: Cluster) -> None:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}
    api.create(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets",
        {"metadata": {"name": "set"}, "spec": spec},
    )
    assert rows(cluster)["ReplicaSet"] == ("Pending", True)


@pytest.mark.parametrize(
    ("count", "names"), [(2, ["node-0", "node-1"]), (250, ["200 of h100", "50 of l4"])]
)
def test_of_many_nodes_those_of_each_pool_are_counted(
    count: int, names: list[str], tmp_path: Path
) -> None:
    nodes = [f"node-{index}" for index in range(count)]
    row = Workload("research", "Job", "many", "Running", nodes, pools={"h100": 200, "l4": 50})
    text = shown(report_of(row), tmp_path)
    assert all(name in text for name in names)
    assert len(text.splitlines()) < 20


def test_purchases_are_next_to_the_first_choice(tmp_path: Path) -> None:
    bought = [
        Purchase("nlp", "Job a", {"spot": 2}, Decimal("101.2"), "reserved", Decimal(2000)),
        Purchase("nlp", "Job b", {}, None, "reserved", None),
    ]
    text = shown(report_of(purchases=bought), tmp_path)
    assert [line.split() for line in text.splitlines() if "Job" in line] == [
        ["nlp", "Job", "a", "2", "of", "spot", "101.20", "reserved", "2,000.00"],
        ["nlp", "Job", "b", "none", "unknown", "reserved", "unknown"],
    ]


def test_placeholders_are_one_line(tmp_path: Path) -> None:
    to_replace = ["203.0.113.0/24 (Cluster dev)", "ml-foundations-dev (Cluster dev)"]
    text = shown(report_of(to_replace=to_replace), tmp_path)
    (line,) = [line for line in text.splitlines() if "203.0.113.0/24" in line]
    assert line.startswith("Placeholders, which a preview for Google Cloud refuses: ")
    assert line.endswith("ml-foundations-dev (Cluster dev)")


def test_placeholders_of_what_is_deployed_are_in_the_report(tmp_path: Path) -> None:
    project = "ml-foundations-dev"
    inputs = {"name": "dev", "project": project}
    old = {"name": "old", "project": "ml-foundations-prod"}
    resources = [
        {"type": "gcp:compute/network:Network", "inputs": inputs},
        {"type": GOOGLE_ACCOUNT, "inputs": {"project": project, "accountId": "nodes"}},
        {"type": CLUSTER, "inputs": inputs},
        {"type": NODE_POOL, "inputs": inputs | {"name": "cpu"}},
        {"type": CLUSTER, "inputs": old, "delete": True},
    ]
    for order in (resources, resources[::-1]):
        rehearsal = shop(tmp_path, *order)
        assert contents._to_replace(rehearsal) == ["ml-foundations-dev (Account nodes)"]


def test_the_pools_of_a_workloads_nodes_are_counted(api: Api, cluster: Cluster) -> None:
    node = {"metadata": {"name": "counted", "labels": {GKE_NODE_POOL: "some"}}}
    api.create("/api/v1/nodes", node)
    spec = {"nodeName": "counted", "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "placed"}, "spec": spec}
    api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    seen = contents.collect(cluster.rehearsal).workloads
    [row] = [workload for workload in seen if workload.name == "placed"]
    # Of a node that is gone, it would stay for a minute.
    api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/placed", gracePeriodSeconds=0)
    api.delete("/api/v1/nodes/counted")
    assert (row.nodes, row.pools) == (["counted"], {"some": 1})


def test_events_are_read_only_in_namespaces_with_stuck_pods() -> None:
    asked: list[str] = []
    involved = {"kind": "Pod", "name": "p", "namespace": "team", "uid": "p"}
    reason = {"reason": "FailedMount", "message": "no such volume"}

    class Answers:
        def get(self, path: str, **_: str) -> dict[str, Any]:
            asked.append(path)
            is_asked = path.endswith("/events")
            return {"items": [{"involvedObject": involved, **reason}] if is_asked else []}

        find = get

    def reason_of(phase: str) -> str:
        pod = of_team("p", {"nodeName": "n", "containers": []}, {"phase": phase})
        api: Any = Answers()
        [row] = workloads.collect(api, [pod], {}, {}, [])
        return row.reason

    assert reason_of("Running") == ""
    assert not [path for path in asked if "events" in path]
    assert reason_of("Pending") == "no such volume"
    assert [path for path in asked if "events" in path] == ["/api/v1/namespaces/team/events"]


@pytest.mark.parametrize(
    ("replicas", "fewest", "state"),
    [(1, 2, "Pending"), (1, 1, "Ready"), (1, None, "Ready"), (0, 2, "Ready")],
)
def test_a_server_has_the_fewest_replicas_of_its_autoscaler(
    replicas: int, fewest: int | None, state: str
) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    least = {} if fewest is None else {"minReplicas": fewest}
    status = {"observedGeneration": 1, "readyReplicas": replicas, "updatedReplicas": replicas}
    server = of_team("chat", {"replicas": replicas, "selector": {}}, status)
    scaler = of_team("any", {"scaleTargetRef": target, "maxReplicas": 4} | least, {})
    [row] = rows_of({"deployments": [server], "horizontalpodautoscalers": [scaler]})
    assert row.state == state


def test_a_daemon_set_that_no_controller_has_seen_is_not_ready() -> None:
    [new] = rows_of({"daemonsets": [of_team("exporter", {"selector": {}}, {})]})
    assert new.state == "Pending"
    seen = {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1}
    [ready] = rows_of({"daemonsets": [of_team("exporter", {"selector": {}}, seen)]})
    assert ready.state == "Ready"


@pytest.mark.parametrize(
    ("available", "ready", "expected"),
    [
        (1, "False", ("Pending", "no GPU")),
        (2, "False", ("Running", "")),
        (2, "True", ("Ready", "")),
    ],
)
def test_a_ray_service_is_as_its_cluster_until_it_is_ready(
    available: int, ready: str, expected: tuple[str, str]
) -> None:
    conditions = [{"type": "Ready", "status": ready}]
    service = of_team("chat", {}, {"conditions": conditions})
    workers = {"desiredWorkerReplicas": 2, "availableWorkerReplicas": available}
    cluster = of_team("chat-x", {}, {"state": "ready", **workers})
    cluster["metadata"]["ownerReferences"] = [{"uid": "chat"}]
    unplaced = {"type": "PodScheduled", "status": "False", "message": "no GPU"}
    pod = of_team("w", {"nodeName": ""}, {"phase": "Pending", "conditions": [unplaced]})
    pod["metadata"]["ownerReferences"] = [{"uid": "chat-x"}]
    [row] = rows_of({"rayservices": [service], "rayclusters": [cluster]}, [pod])
    assert (row.kind, row.state, row.reason) == ("RayService", *expected)


def of_team(name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": name, "generation": 1}
    return {"metadata": metadata, "spec": spec, "status": status}


def rows_of(
    objects: dict[str, list[dict[str, Any]]], pods: Sequence[dict[str, Any]] = ()
) -> list[Workload]:
    """The rows of a cluster that has these objects, by collection."""

    class Answers:
        def get(self, path: str, **_: str) -> dict[str, Any]:
            return {"items": objects.get(path.rpartition("/")[2], [])}

        find = get

    api: Any = Answers()
    return workloads.collect(api, [*pods], {}, {}, [])


def test_the_page_reads_nothing_that_the_report_has_read(tmp_path: Path) -> None:
    metadata = {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    rehearsal = Rehearsal.of("dev", tmp_path)
    seen = contents.Seen(rehearsal, [{"metadata": metadata, "spec": {}, "status": {}}], [])
    report = report_of(seen=[seen])
    assert [item.name for item in fleet.collect(report, rehearsal).nodes] == ["n"]
    assert "seen" not in json.loads(report.to_json())
    assert report == report_of()


def test_calls_between_namespaces_are_shown(tmp_path: Path) -> None:
    text = shown(report_of(calls=["serving/chat: research may call it"]), tmp_path)
    assert "Calls between namespaces\nserving/chat: research may call it\n" in text


def test_the_last_disruption_is_shown(tmp_path: Path) -> None:
    disruption = Disruption(
        how="failure",
        nodes=["n"],
        at="2026-01-01T00:00:00Z",
        seconds=61,
        pods_ended=3,
        restarts={"JobSet ml/train": 2},
        reports=[],
        not_as_before=["JobSet ml/train: 2 of 3 pods run"],
        idle_gpus=8,
        idle_gpu_seconds=800,
        idle_usd=2.5,
    )
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.make()
    assert disruptions.last(rehearsal) is None
    disruptions.record(disruption, rehearsal)
    report = report_of(disruption=disruptions.last(rehearsal))
    expected = [
        "Last disruption (2026-01-01T00:00:00Z)",
        "failure of n: 3 pods ended",
        "JobSet ml/train restarted 2 times",
        "8 GPUs were idle, 800 GPU-seconds: USD 2.50. "
        "Each minute in which GKE has no new node costs USD 1.50",
        "After 61 s, not as before: JobSet ml/train: 2 of 3 pods run",
    ]
    assert "\n".join(expected) in shown(report, tmp_path)
    *_, idle, end = replace(disruption, idle_usd=None, not_as_before=[]).lines
    assert idle == "8 GPUs were idle, 800 GPU-seconds"
    assert end == "After 61 s, all workloads run as before"
    assert json.loads(report.to_json())["disruption"]["restarts"] == {"JobSet ml/train": 2}


class FakeApi:
    """An API server with these nodes and pods, and no JobSets."""

    def __init__(self, nodes: list[Any], pods: list[Any]) -> None:
        self.lists = {"/api/v1/nodes": nodes, "/api/v1/pods": pods, "/api/v1/events": []}

    def get(self, path: str) -> dict[str, Any]:
        return {"items": self.lists[path]}

    def find(self, path: str) -> None:
        return None


def gang_pod(name: str, node: str, phase: str = "Running", job: str = "train") -> dict[str, Any]:
    owner = {"kind": "Job", "name": job, "uid": job}
    metadata = {"name": name, "namespace": "ml", "uid": name, "ownerReferences": [owner]}
    ready = {"type": "Ready", "status": str(phase == "Running")}
    status = {"phase": phase, "conditions": [ready]}
    return {"metadata": metadata, "spec": {**POD, "nodeName": node}, "status": status}


def test_gpus_are_idle_while_a_pod_of_their_workload_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang of two pods with a GPU each loses a node of two GPUs, and gets a new one."""
    moments = iter([0, 10, 20, 30, 40])
    monkeypatch.setattr(disruptions.time, "monotonic", lambda: next(moments))
    pool = Pool(
        "l4", "g2-standard-24", cluster="ml", gpu=PoolGpu("nvidia-l4", 2), zones=("us-central1-a",)
    )

    def node(name: str) -> dict[str, Any]:
        metadata = {"name": name, "uid": name, "labels": {GKE_NODE_POOL: "l4"}}
        return {"metadata": metadata, "status": {"capacity": {GPU_RESOURCE: "2"}}}

    done = gang_pod("done", "a", "Succeeded", job="nightly")
    first, second = gang_pod("0", "a"), gang_pod("1", "b")
    api: Any = FakeApi([node("a"), node("b")], [first, second, done])
    seen = disruptions.Observation(api, {"l4": pool})
    assert not seen.update() and not seen.missing() and not seen.gpu_seconds
    # Node b is lost: the GPU on a waits for 10 s. That a completed Job is removed does not count.
    api.lists |= {"/api/v1/nodes": [node("a")], "/api/v1/pods": [first]}
    assert seen.update()
    assert seen.missing() == ["Job ml/train: 1 of 2 pods run"]
    assert (seen.idle_gpus, seen.gpu_seconds) == (1, 10)
    # The new node c has a pod that starts.
    api.lists |= {
        "/api/v1/nodes": [node("a"), node("c")],
        "/api/v1/pods": [first, gang_pod("2", "c", "Pending")],
    }
    assert seen.update()
    assert (seen.idle_gpus, seen.gpu_seconds) == (2, 30)
    api.lists["/api/v1/pods"] = [first, gang_pod("2", "c")]
    assert seen.update() and not seen.missing() and seen.gpu_seconds == 30
    result = seen.result("failure", ["b"], "2026-01-01T00:00:00Z", [])
    assert result.pods_ended == 1, "the completed pod had ended before"
    assert result.reports == ["Job ml/train moved from b to c, and stayed on 1 other node"]
    per_gpu = float(pool.machine.price("us-central1", "nvidia-l4", 2) or 0) / 2
    assert result.idle_usd == pytest.approx(30 * per_gpu / 3600)


def test_calls_are_read_from_the_network_policies(api: Api, cluster: Cluster) -> None:
    policies = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}]
    spec = {"podSelector": {"matchLabels": {"app": "x"}}, "ingress": [{"from": peers}]}
    api.create(policies, {"metadata": {"name": "chat"}, "spec": spec})
    assert contents.collect(cluster.rehearsal).calls == [f"{NAMESPACE}/chat: default may call it"]


def test_an_error_of_the_proof_is_in_the_verdict(tmp_path: Path) -> None:
    place = ("Deployment default/two", "")
    error = Finding("volume-access", Severity.ERROR, *place, "it shares a disk", "Use another.")
    row = Workload("default", "Deployment", "two", "Ready")
    assert "all is well" in shown(report_of(row), tmp_path)
    text = shown(report_of(row, errors=(error,)), tmp_path)
    assert "all is well" not in text
    assert "Deployment default/two: it shares a disk. Use another. [volume-access]" in text


def test_what_is_good_to_know_follows_the_workloads(tmp_path: Path) -> None:
    place = ("Deployment default/llm", "")
    known = Finding("model-capacity", Severity.INFO, *place, "it holds 9 requests", "")
    report = report_of(Workload("default", "Deployment", "llm", "Ready"), information=(known,))
    text = shown(report, tmp_path)
    assert "all is well" in text
    assert "Deployment default/llm: it holds 9 requests. [model-capacity]" in text
    assert report.to_dict()["information"] == [known.to_dict()]


def test_an_error_about_a_completed_workload_refutes_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(rule: str, subject: str) -> Finding:
        return Finding(rule, Severity.ERROR, subject, "", "needs more", "Ask for less.")

    refuted = (
        error("nodes", "Job default/train"),
        replace(error("quota-sum", "ResourceQuota q"), workloads=("Job default/train", "Job a/b")),
    )
    left = (error("nodes", "Job default/train-2"), error("queue-kind", "Job default/train"))
    monkeypatch.setattr(fleet, "errors", lambda *_: (*refuted, *left))
    report = report_of(Workload("default", "Job", "train", "Completed"))
    found = fleet.with_proof(report, Rehearsal.of("dev", tmp_path))
    assert (found.refuted, found.errors) == (refuted, left)
    text = shown(replace(found, errors=()), tmp_path)
    assert "all is well" in text
    assert "the proof was wrong about a workload that completed here. Report this: Job " in text
