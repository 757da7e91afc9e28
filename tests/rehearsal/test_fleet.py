"""What the page draws of a replica's nodes and pods, and of the stack's state."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.kubernetes.labels import GPU_RESOURCE, KUEUE_QUEUE
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.values import SECRET_SIGNATURE, SIGNATURE
from ml_foundations.rehearsal.report import fleet
from ml_foundations.rehearsal.report.deployed import deployed
from ml_foundations.rehearsal.report.fleet import Life, Node
from ml_foundations.rehearsal.report.workloads import STEADY, _Evidence

MADE = "2026-01-02T12:00:00Z"


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    gpus = {"capacity": {GPU_RESOURCE: "8"}, "allocatable": {GPU_RESOURCE: "7"}}
    conditions = [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "False"}]
    meta = {"name": "n", "creationTimestamp": MADE, "labels": {"cloud.google.com/gke-nodepool": "h100"}}
    return {"metadata": meta, "spec": spec, "status": {**gpus, "conditions": conditions}}


def pod(namespace: str, gpus: int) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {GPU_RESOURCE: str(gpus)}}}]
    return {"metadata": {"namespace": namespace, "name": "p"}, "spec": {"containers": containers}}


def test_a_node_tells_who_holds_its_gpus_and_what_is_wrong() -> None:
    found = fleet._node(node(), [pod("b", 1), pod("a", 2)])
    assert found == Node("n", "h100", 8, ("a", "a", "b"), 2, "", 1)
    assert fleet._node(node(unschedulable=True), []).fault == "cordoned"
    assert fleet._node(node(ready="Unknown"), []).fault == "not ready"


def test_the_life_of_a_pod() -> None:
    def at(second: int) -> str:
        return f"2026-01-02T12:00:{second:02}Z"

    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(2)},
        {"type": "Ready", "status": "False", "lastTransitionTime": at(9)},
    ]
    ended = [{"state": {"terminated": {"finishedAt": at(9)}}}]
    found = {
        "metadata": {"namespace": "team", "name": "p", "creationTimestamp": MADE},
        "spec": {"nodeName": "n"},
        "status": {"conditions": conditions, "containerStatuses": ended},
    }
    second = [datetime(2026, 1, 2, 12, 0, each, tzinfo=UTC) for each in range(10)]
    assert fleet._life(found) == Life("team/p", "n", second[0], second[2], None, second[9])


def test_the_proof_judges_what_is_deployed_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("{name: shop, runtime: python}")
    rehearsal = Rehearsal.of("dev", tmp_path)
    secret = {SIGNATURE: SECRET_SIGNATURE, "ciphertext": "x"}
    resources = [
        {"type": "kubernetes:core/v1:Secret", "inputs": {"kind": "Secret", "stringData": secret}},
        {"type": "kubernetes:core/v1:Pod", "inputs": {"kind": "Pod"}, "delete": True},
        {"type": "random:index/randomId:RandomId", "inputs": {}},
    ]
    assert deployed(rehearsal) == ([], [])
    state = stack.state_file(rehearsal)
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    found = ("kubernetes:core/v1:Secret", {"kind": "Secret", "stringData": UNKNOWN})
    assert deployed(rehearsal) == ([found], [])
    resources[0]["retainOnDelete"] = True
    state.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    assert deployed(rehearsal) == ([found], [found])


def test_where_the_proof_fails_the_page_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("what went wrong")

    monkeypatch.setattr(fleet, "judge_program", fail)
    (tmp_path / "Pulumi.yaml").write_text("{name: shop, runtime: python}")
    (finding,) = fleet.judged(Rehearsal.of("dev", tmp_path)).findings
    assert finding.message == "the proof could not judge what is deployed: KeyError: 'what went wrong'"


@pytest.mark.parametrize(("labels", "said"), [({KUEUE_QUEUE: "training"}, ("Pending", "")), ({}, ("Suspended", ""))])
def test_what_kueue_has_not_looked_at_yet_is_under_way(labels: dict[str, str], said: tuple[str, str]) -> None:
    seen = _Evidence([], lambda _: [], {}, {}, [], {})
    assert seen.suspended({"metadata": {"uid": "u", "labels": labels}}) == said


@pytest.mark.parametrize(
    ("reserved", "checks", "said"),
    [
        ("True", [], ("Pending", "")),
        ("True", [{"state": "Pending", "message": "no capacity yet"}], ("Pending", "no capacity yet")),
        ("False", [], ("Suspended", "insufficient quota")),
    ],
)
def test_what_has_its_turn_in_a_queue_is_under_way(reserved: str, checks: list[Any], said: tuple[str, str]) -> None:
    condition = {"type": "QuotaReserved", "status": reserved, "message": "insufficient quota"}
    queued = {"u": {"status": {"conditions": [condition], "admissionChecks": checks}}}
    seen = _Evidence([], lambda _: [], {}, {}, [], queued)
    assert seen.suspended({"metadata": {"uid": "u"}}) == said
    assert (said[0] in STEADY) == (reserved == "False")
