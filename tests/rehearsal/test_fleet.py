"""What the page draws of a replica's nodes and pods, and of the stack's state."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.kubernetes.labels import GPU_RESOURCE, KUEUE_QUEUE
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.clusters import PROVIDER, Declared, clusters_of
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.protocol.values import (
    SECRET_SIGNATURE,
    SIGNATURE,
    UNKNOWN_ON_THE_WIRE,
)
from ml_foundations.rehearsal.report import fleet
from ml_foundations.rehearsal.report.deployed import deployed, previewed
from ml_foundations.rehearsal.report.fleet import Node, PodTimes
from ml_foundations.rehearsal.report.workloads import STEADY, _Observations

from tests.support.cases import cases
from tests.support.deployed import shop

MADE = "2026-01-02T12:00:00Z"


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    gpus = {"capacity": {GPU_RESOURCE: "8"}, "allocatable": {GPU_RESOURCE: "7"}}
    conditions = [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "False"}]
    labels = {"cloud.google.com/gke-nodepool": "h100"}
    meta = {"name": "n", "creationTimestamp": MADE, "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {**gpus, "conditions": conditions}}


def pod(namespace: str, gpus: int) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {GPU_RESOURCE: str(gpus)}}}]
    return {"metadata": {"namespace": namespace, "name": "p"}, "spec": {"containers": containers}}


def test_a_node_tells_who_holds_its_gpus_and_what_is_wrong() -> None:
    found = fleet._node(node(), "h100", [pod("b", 1), pod("a", 2)])
    assert found == Node("n", "h100", 8, ("a", "a", "b"), 2, "", 1)
    assert fleet._node(node(unschedulable=True), "h100", []).fault == "cordoned"
    assert fleet._node(node(ready="Unknown"), "h100", []).fault == "not ready"


def test_pod_times() -> None:
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
    times = fleet._pod_times(found, "team/p")
    assert times == PodTimes("team/p", "n", second[0], second[2], None, second[9])


def test_the_proof_judges_what_is_deployed_without_its_secrets(tmp_path: Path) -> None:
    secret = {SIGNATURE: SECRET_SIGNATURE, "ciphertext": "x"}
    hidden = {
        "type": "kubernetes:core/v1:Secret",
        "inputs": {"kind": "Secret", "stringData": secret},
    }
    others = [
        {"type": "kubernetes:core/v1:Pod", "inputs": {"kind": "Pod"}, "delete": True},
        {"type": "random:index/randomId:RandomId", "inputs": {}},
    ]
    assert apart(deployed(shop(tmp_path))) == ([], [])
    found = ("kubernetes:core/v1:Secret", {"kind": "Secret", "stringData": UNKNOWN})
    assert apart(deployed(shop(tmp_path, hidden, *others))) == ([found], [])
    kept = hidden | {"retainOnDelete": True}
    assert apart(deployed(shop(tmp_path, kept, *others))) == ([found], [found])


def apart(found: list[Declared]) -> tuple[list[Any], list[Any]]:
    """Return the resources, and those that Pulumi does not delete."""
    return [item.resource for item in found], [item.resource for item in found if item.is_kept]


POOL = "gcp:container/nodePool:NodePool"


def event(type_: str, name: str, op: str = "create", **new: Any) -> str:
    """Return a line of the event log that a preview writes."""
    urn = f"urn:pulumi:dev::shop::{type_}::{name}"
    state = {"type": type_, "urn": urn, "custom": True, "inputs": {}, **new}
    metadata = {"op": op, "urn": urn, "new": None if op == "delete" else state}
    return json.dumps({"resourcePreEvent": {"metadata": metadata, "planning": True}})


def previewed_by(tmp_path: Path, *events: str) -> list[Declared]:
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.make()
    rehearsal.preview_events.write_text(
        "\n".join(['{"preludeEvent": {}}', *events, '{"summaryEvent": {}}', ""])
    )
    return previewed(rehearsal)


def seen(tmp_path: Path, *events: str) -> tuple[list[Any], list[Any]]:
    return apart(previewed_by(tmp_path, *events))


def test_the_proof_judges_what_a_preview_declares(tmp_path: Path) -> None:
    secret = {SIGNATURE: SECRET_SIGNATURE, "ciphertext": "[secret]"}
    inputs = {"cluster": UNKNOWN_ON_THE_WIRE, "project": secret, "nodeCount": 1}
    found, kept = seen(
        tmp_path,
        event("pulumi:pulumi:Stack", "shop-dev", custom=False),
        event(POOL, "gpu", op="create-replacement", inputs={"nodeCount": 2}),
        event(POOL, "gpu", op="replace", inputs=inputs, retainOnDelete=True),
        event(POOL, "old", op="delete"),
    )
    assert found == kept == [(POOL, {"cluster": UNKNOWN, "project": UNKNOWN, "nodeCount": 1})]


def test_what_a_program_reads_is_not_created(tmp_path: Path) -> None:
    type_ = "kubernetes:core/v1:Namespace"
    states = [{"type": type_, "inputs": {}}, {"type": type_, "inputs": {}, "external": True}]
    assert [item.is_created for item in deployed(shop(tmp_path, *states))] == [True, False]
    found = previewed_by(tmp_path, event(type_, "made"), event(type_, "read", op="read"))
    assert [item.is_created for item in found] == [True, False]


def test_a_preview_without_a_cluster_lacks_plugin_defaults(tmp_path: Path) -> None:
    type_ = "kubernetes:apps/v1:Deployment"
    metadata: dict[str, Any] = {"metadata": {"name": "chat"}}
    ([(_, chat), (_, named)], _) = seen(
        tmp_path, event(type_, "chat"), event(type_, "named", inputs=metadata)
    )
    assert (chat["apiVersion"], chat["kind"]) == ("apps/v1", "Deployment")
    assert re.fullmatch("chat-.+", chat["metadata"]["name"])
    assert named == {"apiVersion": "apps/v1", "kind": "Deployment", **metadata}


def test_an_unrendered_component_is_reported_as_a_hidden_chart(tmp_path: Path) -> None:
    kind, child_kind = "kubernetes:yaml/v2:ConfigGroup", "kubernetes:core/v1:ConfigMap"
    group = event(kind, "all", custom=False)
    ([(type_, _)], _) = seen(tmp_path, group)
    assert type_ == RELEASE
    child = event(child_kind, "map", parent=f"urn:pulumi:dev::shop::{kind}::all")
    (found, _) = seen(tmp_path, group, child)
    kinds = [(type_, inputs.get("kind")) for type_, inputs in found]
    assert kinds == [(kind, None), (child_kind, "ConfigMap")]


def test_where_the_proof_fails_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("what went wrong")

    monkeypatch.setattr(fleet, "judge_clusters", fail)
    (finding,) = fleet.judge_stack(shop(tmp_path)).findings
    reason = "KeyError: 'what went wrong'"
    assert finding.message == f"the proof could not judge what is deployed: {reason}"


@pytest.mark.parametrize(
    ("labels", "said"), [({KUEUE_QUEUE: "training"}, ("Pending", "")), ({}, ("Suspended", ""))]
)
def test_what_kueue_has_not_looked_at_yet_is_under_way(
    labels: dict[str, str], said: tuple[str, str]
) -> None:
    seen = _Observations([], lambda _: [], {}, {}, [], {}, {}, {})
    assert seen.suspended({"metadata": {"uid": "u", "labels": labels}}) == said


@pytest.mark.parametrize(
    ("reserved", "checks", "said"),
    cases("""
reserved: ["True", [], [Pending, ""]]
no capacity: ["True", [{state: Pending, message: no capacity yet}], [Pending, no capacity yet]]
no quota: ["False", [], [Suspended, insufficient quota]]
"""),
)
def test_what_has_its_turn_in_a_queue_is_under_way(
    reserved: str, checks: list[Any], said: list[str]
) -> None:
    condition = {"type": "QuotaReserved", "status": reserved, "message": "insufficient quota"}
    queued = {"u": {"status": {"conditions": [condition], "admissionChecks": checks}}}
    seen = _Observations([], lambda _: [], {}, {}, [], queued, {}, {})
    assert [*seen.suspended({"metadata": {"uid": "u"}})] == said
    assert (said[0] in STEADY) == (reserved == "False")


def test_a_deployed_object_is_in_the_cluster_that_its_provider_depends_on(tmp_path: Path) -> None:
    """A preview does not show that: it is judged as if there were one cluster."""
    start, kind = "urn:pulumi:dev::shop::", "gcp:container/cluster:Cluster"

    def state(type_: str, urn: str, inputs: Any, **sources: list[str]) -> dict[str, Any]:
        return {"type": type_, "urn": urn, "inputs": inputs, "propertyDependencies": sources}

    states: list[dict[str, Any]] = []
    for name in ("east", "west"):
        cluster, provider = f"{start}{kind}::{name}", f"{start}{PROVIDER}::{name}"
        pod = {"type": "kubernetes:core/v1:Pod", "urn": f"{start}pod::{name}"}
        states += [
            state(kind, cluster, {"name": name}),
            state(PROVIDER, provider, {"kubeconfig": "k"}, kubeconfig=[cluster]),
            pod | {"provider": f"{provider}::id"},
        ]
    homes = clusters_of(deployed(shop(tmp_path, *states))) or {}
    assert [homes[f"{start}pod::{name}"] for name in ("east", "west")] == [
        "cluster east",
        "cluster west",
    ]
    for item in states:
        item.pop("propertyDependencies", None)
    assert clusters_of(deployed(shop(tmp_path, *states))) is None
